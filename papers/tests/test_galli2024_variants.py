"""Galli et al. 2024: ablations, updates, our rules and the honest comparison follow the numbers they are given."""

from __future__ import annotations

import numpy as np
import pytest

from honestdp.accounting.calibration import epsilon_of
from honestdp_papers.claims import FAILS, HOLDS, OURS, SENTENCE, UNTOLD, Outcome
from honestdp_papers.galli2024 import (
    ablations,
    honest,
    honest_training,
    known,
    updates,
    variants,
)
from honestdp_papers.galli2024.honest_training import SELECTIONS, SINGLE, search_of
from honestdp_papers.galli2024.setting import DELTA, FASHION, METHODS, MNIST, ONLINE, QUANTILE, THRESHOLD, WOSM
from honestdp_papers.galli2024.training import block_name
from honestdp_papers.parts import Finished


def made(kind: str, values: dict[tuple[str, float], float], *, seeds: int = 5) -> Finished:
    """Parts of full size on MNIST in which every candidate of a variant at an epsilon has a value, give or take."""
    rng, parts = np.random.default_rng(0), {}
    for block in variants.blocks_of(kind, MNIST, False):
        own = [seed for seed in block if seed < seeds]
        rows = [
            np.full((len(own), len(variant.rules), len(MNIST.looks)), values[variant.name, epsilon])
            + rng.normal(0, 0.05, (len(own), 1, 1))
            for variant in variants.KINDS[kind](False)
            for epsilon in variants.epsilons_of(kind, MNIST)
        ]
        right = (100 * np.concatenate(rows, axis=1)).astype(np.uint16)
        if own and rows:
            parts[f"{kind}/mnist/{block_name(block)}"] = {"right": right, "tests": np.array(10000)}
    return parts


def by_claim(outcome: Outcome, word: str) -> list[str]:
    return [claim.verdict for claim in outcome.claims if word in claim.claim]


def lines(
    sign: dict[float, tuple[float, float]], proportional: dict[float, tuple[float, float]], *, seeds: int = 5
) -> Finished:
    """Accuracies at epsilon 3 and 9 by rho_c."""
    named = {
        (name(pace), epsilon): value
        for name, own in ((variants.sign, sign), (variants.proportional, proportional))
        for pace, both in own.items()
        for epsilon, value in zip((3.0, 9.0), both, strict=True)
    }
    return made("updates", named, seeds=seeds)


def test_the_sign_update_is_judged_by_what_noise_costs_it_and_by_its_spread() -> None:
    steady = dict.fromkeys(variants.PACES, (96.0, 97.0))
    weak = {pace: (90.0 - 2 * i, 96.0 - i) for i, pace in enumerate(variants.PACES)}
    found = updates.updates(lines(steady, weak), False)
    assert {claim.verdict for claim in found.claims} == {HOLDS}
    found = updates.updates(lines(weak, steady), False)
    assert {claim.verdict for claim in found.claims} == {FAILS}
    one = lines(steady, weak, seeds=1)
    assert {claim.verdict for claim in updates.updates(one, False).claims} == {UNTOLD}


@pytest.mark.slow
def test_momentum_only_adds_a_factor_to_the_derivative_of_the_last_clip() -> None:
    found = updates.momentum({}, False)
    assert [claim.verdict for claim in found.claims if claim.kind == SENTENCE] == [HOLDS]
    assert [claim.verdict for claim in found.claims if claim.kind == OURS] != [
        HOLDS
    ]  # of 0.99, much of the past remains


def test_an_ablation_that_is_better_than_the_printed_rule_turns_its_verdict() -> None:
    names = [variant.name for variant in variants.ablations(False)]
    level = {(name, epsilon): 95.0 for name in names for epsilon in (3.0, 9.0)}
    steady = dict.fromkeys(variants.PACES, (95.0, 95.0))
    printed = {"right": np.full((5, 28, 24), 9500, np.uint16), "tests": np.array(10000)}
    others = lines(steady, steady) | {"mnist/k7/seeds0-4/Online": printed}
    found = ablations.ablations(made("ablations", level) | others, False)
    # Not trained: FixedThreshold with momentum, standardised pixels, AdamWOSM, the clamp.
    assert [claim.verdict for claim in found.claims] == [HOLDS] * 6 + [UNTOLD] * 4
    level |= {(variants.MOMENTUM, epsilon): 97.0 for epsilon in (3.0, 9.0)}
    found = ablations.ablations(made("ablations", level, seeds=3) | others, False)
    assert by_claim(found, variants.MOMENTUM) == [FAILS]
    assert by_claim(found, variants.FIXED) == [HOLDS]
    assert {row[-1] for row in found.tables[0].rows} == {"3", "5"}
    alone = ablations.ablations(made("ablations", level), False)
    lacking = [claim for claim in alone.claims if not claim.claim.endswith("step sizes are best: Online (MNIST)")]
    assert {(claim.verdict, claim.found) for claim in lacking} == {(UNTOLD, "(not trained)")}


def test_momentum_is_judged_by_whether_what_is_printed_is_best_with_it() -> None:
    parts, places = made("ablations", dict.fromkeys(LEVELS, 90.0)), {3.0: 3, 9.0: 4}  # rho 0.3162 and 1.467
    heavy = made("heavy", dict.fromkeys(((variants.HEAVY, 3.0), (variants.HEAVY, 9.0)), 90.0))
    for kept in parts.values():
        for epsilon, place in places.items():
            kept["right"][:, (0 if epsilon == 3.0 else 7) + place] += 500
    other = np.full((5, 28, 24), 9480, np.uint16)
    other[:, 21:] = 9300
    wosm = {"mnist/k7/seeds0-4/AdamWOSM": {"right": other, "tests": np.array(10000)}}
    found = ablations.ablations(parts | heavy | wosm, False)
    assert by_claim(found, "With a momentum of 0.9 the printed") == [HOLDS, HOLDS]  # all of FixedThreshold's are alike
    assert by_claim(found, "equal at epsilon 3") == [HOLDS]
    assert by_claim(found, "With standardised pixels") == [UNTOLD]
    assert answer(found) == (
        "With a momentum of 0.9: yes (Online), yes (FixedThreshold); our best ones are above them by a factor of 1 (Online), "
        f"{factor_of_first()} (FixedThreshold). With standardised pixels: (not trained). Of what was tried, a momentum of 0.9 "
        "would explain them."
    )
    wider = np.full((5, 28, 24), 9000, np.uint16)
    wider[:, [3, 11, 18, 25]] = 9500  # as printed
    name = "mnist-standardised/k7/seeds0-4/Online"
    found = ablations.ablations({name: {"right": wider, "tests": np.array(10000)}}, False)
    assert by_claim(found, "With standardised pixels") == [HOLDS]
    for kept in parts.values():
        kept["right"][:, [6, 13]] += 800
    found = ablations.ablations(parts | heavy | wosm, False)
    assert by_claim(found, "With a momentum of 0.9 the printed") == [FAILS, HOLDS]
    assert by_claim(found, "equal at epsilon 3") == [FAILS]
    assert "no (Online), yes (FixedThreshold)" in answer(found)
    assert "explain" not in answer(found)


def answer(found: Outcome) -> str:
    """What the trials say of the printed step sizes, up to what was not tried."""
    (said,) = [note for note in found.notes if note.startswith("Are the printed step sizes the best ones? ")]
    return said.split("? ")[1].split(" FixedQuantile")[0]


def factor_of_first() -> str:
    """Of all alike the first candidate is named best, 10^-2.5 and 0.01; the printed products are 0.01467 and 0.06812."""
    return f"{10**-4.5 / np.sqrt(0.01467 * 0.06812):.2g}"


LEVELS = [(variant.name, epsilon) for variant in variants.ablations(False) for epsilon in (3.0, 9.0)]


def test_a_run_of_a_variant_has_the_noise_of_its_own_number_of_candidates() -> None:
    part = variants.variant_part("ours", MNIST, (0,), False)
    noises = part.identity["noises"]
    assert len(noises) == 4 * (1 + 1 + 1 + 7)
    assert noises[0] < 0.9 < 1.5 < noises[12] < 1.51
    assert part.identity["candidates"][0] == "AdamOSO()"


def pools(method_values: dict[str, dict[str, float]], single: float, *, seeds: int = 3) -> Finished:
    """Quick pools of MNIST in which a method's candidates have an accuracy by selection; with several seeds of one part."""
    rng, parts = np.random.default_rng(0), {}
    for method in (*METHODS, *SINGLE):
        searches = honest_training.searches(MNIST, method, True)
        shape = (len(searches), seeds, len(searches[0].candidates))
        accuracy = np.zeros(shape)
        for i, search in enumerate(searches):
            accuracy[i] = single if method in SINGLE else method_values[method][search.selection]
        accuracy += rng.normal(0, 0.1, (1, seeds, 1))
        counts = {"test": (10 * accuracy).astype(np.uint16), "validation": (8 * accuracy).astype(np.uint16)}
        sizes = {"held": np.array(800), "tests": np.array(1000), "finite": np.ones(shape, bool)}
        parts[honest_training.pool_name(MNIST, method, (0,))] = {**counts, **sizes}
    return parts


@pytest.mark.slow
def test_the_sentence_on_one_hyperparameter_less_is_computed_from_the_table() -> None:
    few = dict.fromkeys(SELECTIONS, 90.0)
    many = {"compose": 80.0, "winner": 85.0, "papernot-steinke": 88.0, "envelope": 93.0}
    values = {name: few if name in (ONLINE, WOSM) else many for name in METHODS}
    found = honest.honest(pools(values, 95.0), True)
    said = found.numbers["conclusions"][0]
    assert "less the better of FixedThreshold and FixedQuantile) pays (+9.9 ± 0.1 points) under compose" in said
    assert "It no longer pays where selection is cheap. The best search is FixedThreshold under envelope with 9" in said
    assert "; it cannot be told from FixedQuantile under envelope (9" in said
    assert by_claim(found, "under compose") == [HOLDS]
    assert by_claim(found, "pays, under envelope") == [FAILS]
    assert by_claim(found, "It pays less") == [HOLDS]
    assert by_claim(found, "One run of AdamOSO") == [HOLDS]
    two = honest.case_of(pools(values, 95.0, seeds=2), MNIST, True)
    assert two is not None
    errors = [cell.mean.error for (name, _), cell in two.cells.items() if name == ONLINE]
    assert min(errors) >= np.sqrt(np.mean(np.square(errors))) / 2 > 0
    assert "(seeds: 2), epsilon 3" in honest.conclusion(two)
    lone = {name: kept for name, kept in pools(values, 95.0).items() if name.endswith(ONLINE)}
    assert "Not trained for all methods yet: MNIST, AG News (stand-in)." in honest.honest(lone, True).notes
    values[THRESHOLD] = dict.fromkeys(SELECTIONS, 70.0)
    values["FixedQuantile"] = dict.fromkeys(SELECTIONS, 60.0)
    found = honest.honest(pools(values, 50.0), True)
    assert "It pays even where selection is cheap" in found.numbers["conclusions"][0]
    assert by_claim(found, "One run of AdamOSO") == [FAILS]


def whole_pools(method_values: dict[str, float], seeds: dict[str, int]) -> Finished:
    """Pools of full size of MNIST with some seeds of each method, whose candidates are all alike."""
    rng, parts = np.random.default_rng(0), {}
    for method in METHODS:
        searches = honest_training.searches(MNIST, method, False)
        for block in honest_training.blocks(MNIST, method, False):
            own = [seed for seed in block if seed < seeds[method]]
            shape = (len(searches), len(own), len(searches[0].candidates))
            accuracy = np.full(shape, method_values[method]) + rng.normal(0, 0.1, (1, len(own), 1))
            counts = {"test": (100 * accuracy).astype(np.uint16), "validation": (100 * accuracy).astype(np.uint16)}
            sizes = {"held": np.array(10000), "tests": np.array(10000), "finite": np.ones(shape, bool)}
            if own:
                parts[honest_training.pool_name(MNIST, method, block)] = {**counts, **sizes}
    return parts


def test_the_sentence_on_one_hyperparameter_less_decides_nothing_by_a_single_seed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(honest, "PLAYED", 5)
    levels = {ONLINE: 92.0, WOSM: 91.0, THRESHOLD: 89.0, QUANTILE: 90.0}
    seeds = {ONLINE: 3, WOSM: 3, THRESHOLD: 2, QUANTILE: 1}
    found = honest.honest(whole_pools(levels, seeds), False)
    said = found.numbers["conclusions"][0]
    assert said.startswith("MNIST (seeds: Online 3, AdamWOSM 3, FixedThreshold 2, FixedQuantile 1), ")
    assert "is not decided while FixedQuantile has one seed (+2." in said
    assert "Against FixedThreshold alone it pays (+" in said
    assert set(by_claim(found, "hyperparameter less pays")) == {UNTOLD}
    assert "± ? (MNIST)" in found.claims[0].found
    assert "(one seed)" in str(found.tables[0].rows[3][1])
    found = honest.honest(whole_pools(levels, {**seeds, QUANTILE: 2}), False)
    assert "FixedQuantile) pays (+2." in found.numbers["conclusions"][0]
    assert by_claim(found, "pays, under envelope") == [HOLDS]


def test_an_error_of_the_honest_table_has_the_chance_of_the_searches_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some searches draw so few runs that none of them has the one good candidate: 90 per cent or 10, whatever the seeds."""
    monkeypatch.setattr(honest, "PLAYED", 200)
    right = np.full((4, 2, 7), 1000, np.uint16)
    right[:, :, 0] = 9000
    sizes = {"held": np.array(10000), "tests": np.array(10000), "finite": np.ones((4, 2, 7), bool)}
    search = search_of(MNIST, ONLINE, "envelope", False)
    cell = honest.cell_of([{"test": right, "validation": right, **sizes}], 3, search, False)
    assert cell.mean.error == 0  # over the seeds, which are alike
    few = 1 - (cell.mean.value - 10) / 80
    assert 0.02 < few < 0.3
    assert cell.draws == pytest.approx(80 * np.sqrt(few * (1 - few) / 199))
    assert honest.with_draws(cell).error == pytest.approx(cell.draws)


@pytest.mark.parametrize("selection", SELECTIONS)
def test_a_search_of_the_honest_table_is_within_its_budget(selection: str) -> None:
    search = search_of(MNIST, THRESHOLD, selection, False)
    design = search.kept()
    assert design.count == 49
    assert design.runs[0].records == 48000
    assert epsilon_of(design.selection, design.runs[0].event, delta=DELTA) <= honest_training.EPSILON


def test_the_clamp_is_judged_by_how_many_candidates_converge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "constant_error", lambda task: 0.08)
    parts: Finished = {}
    for part in variants.clamped_parts(False):
        level = 0.05 if part.name.startswith("clamped") else 0.5
        shape = len(part.identity["seeds"]), len(part.identity["noises"]), 24
        parts[part.name] = {"error": np.full(shape, level, np.float32), "tests": np.array(10000)}
    assert by_claim(ablations.ablations(parts, False), "held to [0, 1]") == [HOLDS]
    swapped = {name: {**kept, "error": 0.55 - kept["error"]} for name, kept in parts.items()}
    assert by_claim(ablations.ablations(swapped, False), "held to [0, 1]") == [FAILS]
    assert FASHION.epsilons[0] == 1.0
    held = {name: kept for name, kept in parts.items() if name.startswith("clamped")}
    (claim,) = [one for one in ablations.ablations(held, False).claims if "held to [0, 1]" in one.claim]
    assert claim.verdict == UNTOLD
    assert claim.found.endswith("held 35 of 35, the best error 0.0500, seeds 5; free (not trained)")


def test_which_rule_of_ours_dominates_is_computed_from_every_comparison() -> None:
    names = variants.ADAM_OSO, variants.AUTO_WOSM
    said = ablations.decision({names[0]: [True, True, None], names[1]: [True, True, False]})
    assert said.startswith("AdamOSO dominates. ")
    assert "AdamWOSM, automatic is better in 2, worse in 1 and not to be told apart in 0 of 3" in said
    assert ablations.decision({names[0]: [True, None, None]}).startswith("None of our rules dominates. ")
    assert "cannot be told" in ablations.decision({names[0]: []})
    assert ablations.decision({names[0]: [True]}, ["MNIST"]).endswith("Not trained: MNIST.")
    values = {(variant.name, epsilon): 97.0 for variant in variants.ours(False) for epsilon in MNIST.epsilons}
    grids = {f"mnist/k7/seeds0-4/{name}": level for name, level in ((ONLINE, 9500), (WOSM, 9600))}
    kept = {
        name: {"right": np.full((5, 28, 24), level, np.uint16), "tests": np.array(10000)}
        for name, level in grids.items()
    }
    outcome = ablations.ours(made("ours", values) | kept, False)
    assert outcome.numbers["conclusions"][0].startswith(
        "Of what is trained, AdamOSO and AdamOSO with rho_r = 0 and AdamWOSM, automatic"
    )
    assert outcome.notes[0].endswith("Not trained: Fashion-MNIST, AG News (stand-in).")
    assert "at epsilon 3, 5, 7, 9: AdamOSO +1.0 ± 0.0, " in outcome.numbers["conclusions"][1]


def test_trainings_of_ours_that_stay_at_a_grey_image_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "grey_error", lambda task: 0.12)
    (block,) = variants.blocks_of("ours", FASHION, False)
    error = np.full((5, 4 * 10, 24), 0.02, np.float32)
    error[:2, 1] = 0.119  # AdamOSO at the second epsilon, of two seeds
    parts = {f"ours/fashion/{block_name(block)}": {"error": error, "tests": np.array(10000)}}
    (said,) = ablations.ours(parts, False).numbers["conclusions"][1:]
    assert "AdamOSO 0 of 5, 2 of 5 (the others 0.0200), 0 of 5, 0 of 5; AdamOSO with rho_r = 0 0 of 5, 0 of 5" in said
