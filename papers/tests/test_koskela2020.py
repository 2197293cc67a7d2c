"""Koskela & Honkela 2020: crops by look-up are crops, parts train, verdicts follow the numbers."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from honestdp.augment import CropAndFlip, variants
from honestdp.boundary.data import PrivateData
from honestdp.optimizers import ADADP as ADADPRule
from honestdp.optimizers import SGD as SGDRule
from honestdp_papers.claims import FAILS, HOLDS, IN_PART, UNTOLD, Measured
from honestdp_papers.koskela2020 import PAPER, cifar, networks, table1, training
from honestdp_papers.koskela2020.training import CIFAR, MNIST, dense, half_decades
from honestdp_papers.mohapatra2022.training import trained_notes
from honestdp_papers.parts import Finished

CPU = torch.device("cpu")


def made_up_layers() -> nn.Sequential:
    torch.manual_seed(0)
    body = (nn.Conv2d(3, 64, 3), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.MaxPool2d(3, 2))
    return nn.Sequential(*body, cifar.ByPlace()).requires_grad_(False)


@pytest.fixture
def layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar, "convolutions", made_up_layers)


def pixels(count: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)


@pytest.mark.usefixtures("layers")
def test_a_crop_that_is_looked_up_has_the_features_of_the_cropped_image() -> None:
    images = pixels(3)
    crops = cifar.Crops(cifar.every_crop(images, CPU))
    generator = torch.Generator().manual_seed(1)
    u, rows = torch.rand(30, 3, generator=generator), torch.randint(0, 3, (30, 1), generator=generator)
    u[:2] = torch.tensor([[0.0, 0.0, 0.0], [0.999999, 0.999999, 0.999999]])
    cropped = CropAndFlip(pad=4)(torch.from_numpy(images)[rows[:, 0]].float() / 255, u)
    assert torch.allclose(variants(crops, rows, u), made_up_layers()(cropped), atol=1e-5)
    middle = torch.tensor([[0.5, 0.5, 0.9]] * 3)
    assert torch.allclose(variants(crops, torch.arange(3)[:, None], middle), cifar.features(images, CPU), atol=1e-5)


def test_the_networks_have_the_paper_s_weights_and_the_authors_first_ones() -> None:
    assert (MNIST.weights, CIFAR.weights) == (334336, 1055000)
    assert (MNIST.steps, CIFAR.steps) == (30000, 25000)
    last = dense((1600, 500, 500, 10))[-1]
    assert isinstance(last, nn.Linear)
    assert last.bias is None
    assert 0.3 < last.weight.detach().abs().max().item() <= 0.3163


@pytest.mark.usefixtures("layers")
def test_a_population_trains_on_crops_as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts of full size, with a few images: ADADP and two candidates of DP-SGD, twice, over two epochs."""
    images, task = pixels(20), replace(CIFAR, records=400, tests=10, sizes=(1600, 8, 10))
    private = PrivateData((torch.arange(400)[:, None] % 10, torch.arange(400) % 10))
    private.augment = cifar.Crops(cifar.every_crop(images[:10], CPU))
    kept = training.Loaded(private, cifar.features(images[10:], CPU), torch.arange(10))
    monkeypatch.setattr(training, "loaded", lambda *_: kept)
    rules = [ADADPRule(clip=3.0, tau=1.0, switch=2), SGDRule(clip=3.0, lr=0.1), SGDRule(clip=3.0, lr=0.01)]
    grid = training.Grid(task, rules, 1.0, 2, 2, False, schedule="constant")
    told: list[float] = []
    found = training.grid_part("tiny", grid).work("cpu", told.append)
    again = training.grid_part("tiny", grid).work("cpu", told.append)
    assert found["right"].shape == (2, 3, 2)
    assert np.array_equal(found["right"], again["right"])
    assert found["eta"][:, 0].min() > 0
    assert told[-1] == 1.0


@pytest.mark.slow
def test_parts_can_be_listed_with_torch_and_numpy_alone() -> None:
    code = (
        "import sys\nfor name in ('dp_accounting', 'scipy', 'matplotlib', 'PIL', 'typer'): sys.modules[name] = None\n"
        "from honestdp_papers.run_device import main\nraise SystemExit(main(['koskela2020', '--list']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "table1/envelope" in done.stdout


def test_every_part_but_a_federation_is_shorter_than_nine_minutes_and_each_has_one_name() -> None:
    parts = {part.name: part.identity for item in PAPER.items for part in item.parts(False)}
    for item in PAPER.items:
        for part in item.parts(False):
            assert part.weight < 540 or part.name.startswith("federated/")
            assert parts[part.name] == part.identity


def made_up(parts: list[Any], accuracy: Any) -> Finished:
    """Arrays for parts: accuracy(name, candidate) in per cent, a little another in every repeat."""
    found: Finished = {}
    for part in parts:
        repeats, count = part.identity["repeats"], len(part.identity["candidates"])
        looks = part.identity["epochs"] // part.identity["every"]
        rng = np.random.default_rng(len(part.name))
        right = np.empty((repeats, count, looks), np.uint16)
        for candidate in range(count):
            right[:, candidate] = 100 * accuracy(part.name, candidate) + rng.integers(0, 10, (repeats, 1))
        eta = np.full(right.shape, 0.1, np.float32)
        found[part.name] = {"right": right, "tests": np.array(10000), "every": np.array(1), "eta": eta}
    return found


def test_figure1_follows_the_numbers() -> None:
    parts = PAPER.item("figure1a").parts(False)

    def level(name: str, candidate: int) -> float:
        return 96.0 if "noiseless" in name else 90.0 if "Adam" not in name else 90.2 - candidate

    claims = PAPER.item("figure1a").finish(made_up(parts, level), False).claims
    assert [claim.verdict for claim in claims] == [HOLDS] * 8
    behind = (
        PAPER.item("figure1a")
        .finish(made_up(parts, lambda name, c: level(name, c) - 5 * name.endswith("/ADADP")), False)
        .claims
    )
    # Each sentence is judged for the text's rule, and then for the published code's, which is not behind here.
    assert [claim.verdict for claim in behind[:4]] == [FAILS, HOLDS, FAILS, HOLDS]


@pytest.mark.parametrize(("reached", "verdict"), [(93.0, FAILS), (95.9, HOLDS), (98.2, FAILS)])
def test_around_96_is_on_either_side_of_it(reached: float, verdict: str) -> None:
    """98.2 per cent were said to agree with around 96: whatever was above 95 did."""
    found = made_up(
        PAPER.item("figure1a").parts(False), lambda name, candidate: reached if "noiseless" in name else 90.0
    )
    (claim,) = [one for one in PAPER.item("figure1a").finish(found, False).claims if one.kind == "numbers"]
    assert claim.verdict == verdict


def test_a_start_that_ends_far_above_the_others_is_no_insensitivity() -> None:
    def level(name: str, candidate: int) -> float:
        return 93.0 if name.endswith("starts") and candidate == 3 else 90.0

    claims = PAPER.item("figure1a").finish(made_up(PAPER.item("figure1a").parts(False), level), False).claims
    (claim,) = [one for one in claims if one.claim.startswith("The results are insensitive")]
    assert claim.found.startswith("within 1 points of their mean in 3 of 4 starts")
    assert claim.verdict == IN_PART


@pytest.mark.slow
def test_the_sentence_on_todays_selections_is_computed_from_the_table() -> None:
    parts = table1.parts_of(False)

    def level(name: str, candidate: int) -> float:
        return 63.5 if "ADADP" in name else 63.0 - 8 * abs(candidate - 3)

    def today(gain: float) -> Any:
        found = made_up(parts, lambda name, c: level(name, c) + gain * (name == "table1/envelope"))
        return next(claim for claim in table1.table1(found, False).claims if claim.kind == "ours")

    claim = today(0.0)
    assert claim.verdict in (HOLDS, IN_PART)
    assert "still" in claim.found
    claim = today(9.0)
    assert "no longer against envelope" in claim.found
    assert claim.verdict in (IN_PART, FAILS, UNTOLD)


@pytest.mark.slow
def test_what_one_run_is_under_todays_selections_is_said_of_both_rules() -> None:
    """The text's rule was 6 points behind the published code's, and behind every search, and no verdict said so."""

    def level(name: str, candidate: int) -> float:
        own = {"ADADP": 57.0, "ADADP-published": 63.5}
        return own.get(name.rpartition("/")[2], 61.0 - 8 * abs(candidate - 3))

    claims = table1.table1(made_up(table1.parts_of(False), level), False).claims
    code, text = [one for one in claims if one.claim.startswith("Under today's selections")]
    assert (code.verdict, text.verdict) == (HOLDS, FAILS)
    assert text.claim.endswith("by the text's rule")
    assert "no longer against winner, papernot-steinke, envelope" in text.found


def test_a_quick_version_says_that_it_trained_once_and_knows_no_errors() -> None:
    """It spoke of 6 trainings and of standard errors, and printed 0.0 for them."""
    for quick, full in (
        (networks.notes_of(MNIST, True), networks.notes_of(MNIST, False)),
        (table1.notes_of(table1.noises(True), True), table1.notes_of(table1.noises(False), False)),
        (trained_notes(True), trained_notes(False)),
    ):
        said, whole = " ".join(quick), " ".join(full)
        assert "± 0.0 stands for an error that is not known" in said
        assert "not known" not in whole
        assert "standard error" in whole
        assert "standard error" not in said
        for count in ("3 trainings", "6 trainings"):
            assert count not in said


@pytest.mark.slow
def test_figure2_and_4_draw(tmp_path: Path) -> None:
    for item in (PAPER.item("figure2"), PAPER.item("figure4")):
        outcome = item.finish(made_up(item.parts(True), lambda name, candidate: 50.0 - candidate), True)
        assert outcome.draw is not None
        outcome.draw(tmp_path / "figure.png")
        assert (tmp_path / "figure.png").stat().st_size > 10000


def test_the_noise_of_a_printed_accuracy_lies_between_those_that_were_trained() -> None:
    accuracies = {2.0: 66.0, 4.0: 64.0, 8.0: 60.0}
    assert table1.found_noise(accuracies, 64.0) == pytest.approx(4.0)
    assert 4.0 < table1.found_noise(accuracies, 63.0) < 5.0
    assert table1.found_noise(accuracies, 70.0) == pytest.approx(2.0)


@pytest.mark.slow
def test_every_selection_s_noise_meets_adadp_s_budget() -> None:
    """Of the numbers in the file: the least of them, by the accountants."""
    found = table1.noises(False)
    assert half_decades(1, 10) == table1.SIZES
    run = CIFAR.run(noise=found["noise"]["winner"])
    selection = table1.selections(False)["winner"]
    assert selection.epsilon(run.event, delta=1e-6) <= found["epsilon"]["pld"]
    run = CIFAR.run(noise=found["noise"]["liu-talwar 2^-9"])
    selection = table1.selections(False)["liu-talwar 2^-9"]
    assert selection.epsilon(run.event, delta=1e-6) <= found["epsilon"]["moments"]


def test_near_is_near_on_either_side() -> None:
    """ADADP of the published code ended 4 points above the text's, and that they end alike was said to hold."""
    cases = [Measured(value, 0.1).within(1) for value in (4.0, -4.0, 0.5, -0.5, 1.1, -1.1)]
    assert cases == [False, False, True, True, None, None]
