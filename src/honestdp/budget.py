"""`Budget`, and the `Statement` printed with every result.

An epsilon alone guarantees nothing. It stands with delta, the neighbouring relation, the accountant, the selection, what may
leave and the assumptions; the statement carries all of them, in words and as a plain dictionary.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from honestdp import checks
from honestdp.notebook import as_text, preformatted
from honestdp.plain_words import in_words, rounded_up, shown_delta
from honestdp.run import PERSON, ROW, Unit

RELATION = ROW.relation
LEDGER_VARIABLE = "HONESTDP_LEDGER"
"""Of the environment: the ledger where none is named."""
ASSUMPTIONS = (
    "the number of records, the lot, the steps and the noise are taken to be public constants, which nothing hides",
    "preprocessing, and every choice made beforehand, used no private record or was charged elsewhere",
    "lots are Poisson samples and noise is Gaussian in exact arithmetic; floating point only approximates both",
)

PROTECTS = ROW.protects
NOT_STATED = (
    "not stated; what was computed from the data beforehand (scaling, vocabularies, cleaning) is not in this number"
)

LARGE = 0.1  # of delta times the number of records
MEANINGLESS = 10.0  # epsilon: with it a guess whether a record is there may be right in 99.995 % of cases
NOISELESS = "no noise is added, so epsilon is infinite"
SEEDED = "noise_seed was fixed, and whoever knows the seed can subtract the noise"
_AS_THEY_ARE = ("delta", "relation", "accountant", "selection", "how", "runs", "leaves", "basis")  # in files too
_OF_DATA = ("protects", "preprocessing")  # in files of later versions


def independence(*, strict: bool) -> str:
    """What is known of examples that pass through one model and one loss together: an assumption, or none is needed."""
    if strict:
        return "strict: each example went through model and loss under a map of its own, independent by construction"
    return (
        "in the model and the loss no example influences another: tried on made-up inputs, which proves nothing; strict makes "
        "it so by construction"
    )


@dataclass(frozen=True)
class Budget:
    """(epsilon, delta) differential privacy under the adding or removing of one record.

    epsilon: above 0. delta: between 0 and 1, well below one over the number of records. InvalidArgument otherwise.

    >>> import honestdp
    >>> honestdp.Budget(epsilon=3.0, delta=1e-5)
    Budget(epsilon=3.0, delta=1e-05)
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        checks.positive(epsilon=self.epsilon)
        checks.probability(delta=self.delta)


class Accounted(NamedTuple):
    """An epsilon with what a statement says of it. accountant: whose number it is in the end. notes: what it warned of."""

    epsilon: float
    accountant: str = "pld"
    notes: tuple[str, ...] = ()


def prepared(preprocessing: object, augment: object = None) -> str:
    """What a statement says of preprocessing: the user's own words, or that there are none, and how records were varied."""
    if preprocessing is not None and not isinstance(preprocessing, str):
        raise checks.InvalidArgument("preprocessing", preprocessing, "what was done to the data beforehand, in words")
    words = " ".join((preprocessing or "").split()) or NOT_STATED
    return (
        words if augment is None else f"{words}; in training each record was varied by itself: {checks.shown(augment)}"
    )


def large_delta(delta: float, records: int) -> tuple[str, ...]:
    """The note on a delta that is too large for so many records, if it is."""
    if delta * records >= 1:
        what = "to publish one record picked at random would meet it too"
        return (f"delta {shown_delta(delta)} is not below 1/{records}: {what}; take one well below",)
    if delta * records > LARGE:
        return (f"delta is not well below 1/{records}: at such a delta a guarantee may give up a record entirely",)
    return ()


def large_epsilon(epsilon: float) -> tuple[str, ...]:
    """The note on an epsilon that guarantees next to nothing, if it does."""
    if not MEANINGLESS < epsilon < math.inf:  # an infinite one is NOT PRIVATE, and says so
        return ()
    return (
        f"epsilon {rounded_up(epsilon)} guarantees next to nothing: whoever sees what left may be all but sure whether a record "
        f"is in the data; above {MEANINGLESS:g} it is a number and no protection. Take 1, or a few at most",
    )


def assumptions(unit: Unit) -> tuple[str, ...]:
    """What a statement of so-and-so's records rests on."""
    usual = tuple(text.replace("the number of records", f"the number of {unit.plural}") for text in ASSUMPTIONS)
    return (
        (*usual, f"{unit.person} tells people apart, and the cap of {unit.rows} on rows was declared")
        if unit.person
        else usual
    )


def uncovered(unit: Unit, *others: str) -> str:
    """What the guarantee does not protect: the count of records, which is published as it is, and others."""
    return "; ".join([f"the number of {unit.plural}, which is published as it is", *others])


def default_delta(records: int) -> float:
    """The largest power of ten that is well below one over the declared number of records: at most a tenth of it.

    >>> default_delta(1437), default_delta(32561)
    (1e-05, 1e-06)
    """
    checks.whole(least=1, records=records)
    power = 1
    while 10**power < 10 * records:
        power += 1
    return float(f"1e-{power}")


@dataclass(frozen=True, kw_only=True)
class Statement:
    """What is guaranteed.

    selection: the name of the selection, `compose` for a single run.
    how: the selection in words.
    leaves: what may leave under this guarantee.
    basis: the theorem that the number rests on, and where it is proved.
    published: for a bound of our own, (name, epsilon) of the published bound for the same runs.
    scores: what was asked of validation records, and what it costs.
    uncovered: what the guarantee does not protect, and who sees it.
    protects: whose record it is about. preprocessing: what was done to the data beforehand, as far as it was said. Both None in
        a statement about no data, and of an earlier version.
    not_private: reasons why nothing is guaranteed at all.

    `train` and `tune` make it; printed, it is the whole guarantee in words, and `as_dict` is the same for JSON.

    >>> import torch, honestdp
    >>> x, y = honestdp.load_dataset("digits").train
    >>> run = honestdp.Run(records=len(x), lot=64, steps=5, noise=2.0)
    >>> result = honestdp.train(torch.nn.Linear(64, 10), (x, y), run=run, optimizer="horizon", delta=1e-5)
    >>> print(str(result.statement).splitlines()[1])
    relation    add or remove one record
    """

    epsilon: float
    delta: float
    accountant: str
    selection: str
    how: str
    runs: float
    leaves: str
    basis: str
    published: tuple[str, float] | None = None
    scores: str = ""
    uncovered: str = ""
    assumptions: tuple[str, ...] = ASSUMPTIONS
    notes: tuple[str, ...] = ()
    not_private: tuple[str, ...] = ()
    relation: str = RELATION
    protects: str | None = None
    preprocessing: str | None = None

    def __post_init__(self) -> None:
        stated = {"epsilon": self.epsilon, "published": 0.0 if self.published is None else self.published[1]}
        for name, value in stated.items():
            if value != math.inf:
                checks.non_negative(**{name: value})
        checks.non_negative(delta=self.delta, runs=self.runs)
        if math.isinf(self.epsilon) and not self.not_private:
            object.__setattr__(self, "not_private", (NOISELESS,))

    @classmethod
    def about(
        cls,
        unit: Unit | None,
        *,
        epsilon: float,
        delta: float,
        records: int = 0,
        spent: float = 0.0,
        noiseless: str = NOISELESS,
        seed: str = "",
        notes: Iterable[str] = (),
        further: Iterable[str] = (),
        **fields: Any,
    ) -> Statement:
        """Fill in what every statement says of its records; `fields` are the others, or stand in place of what is usual.

        unit: whose record is protected; None where that is not known.
        epsilon: of the runs alone. spent: what was spent before them to learn bounds, which is added.
        records: for the notes on an epsilon or a delta that is too large; 0 for no such notes.
        noiseless, seed: why nothing is guaranteed where epsilon is infinite, and where a seed was fixed; empty where none was.
        notes, further: those before the notes on large numbers, and those after them.
        """
        known = unit or ROW
        large = (*large_epsilon(epsilon + spent), *large_delta(delta, records)) if records else ()
        usual = {
            "relation": known.relation,
            "protects": None if unit is None else unit.protects,
            "uncovered": uncovered(known),
            "assumptions": assumptions(known),
        }
        made = cls(
            epsilon=epsilon,
            delta=delta,
            notes=(*notes, *large, *further),
            not_private=(*[noiseless] * math.isinf(epsilon), *filter(None, [seed])),
            **usual | fields,
        )
        return with_learning(made, spent, known)

    def __str__(self) -> str:
        lines = ["NOT PRIVATE: " + "; ".join(self.not_private) + "."] if self.not_private else []
        rows = [
            ("epsilon", f"{rounded_up(self.epsilon)} at delta {shown_delta(self.delta)}"),
            ("relation", self.relation),
            *(("in words" if i == 0 else "", text) for i, text in enumerate(self.words)),
            *(("protects", text) for text in (self.protects,) if text is not None),
            ("accountant", self.accountant),
            ("selection", f"{self.selection}: {self.how}"),
            ("may leave", self.leaves),
            ("rests on", self.basis),
        ]
        if self.scores:
            rows.append(("scores", self.scores))
        if self.published:
            name, epsilon = self.published
            rows.append(("published", f"epsilon {rounded_up(epsilon)} by {name}, for the same runs"))
        if self.uncovered:
            rows.append(("not covered", self.uncovered))
        if self.preprocessing is not None:
            rows.append(("prepared", self.preprocessing))
        rows += [("assumes" if i == 0 else "", text) for i, text in enumerate(self.assumptions)]
        rows += [("note" if i == 0 else "", text) for i, text in enumerate(self.notes)]
        width = max(len(label) for label, _ in rows) + 1
        return "\n".join([*lines, as_text(rows, width=width)])

    def _repr_html_(self) -> str:
        return preformatted(str(self))

    @property
    def words(self) -> tuple[str, ...]:
        """What is guaranteed in two plain sentences; none where nothing is."""
        if self.not_private or not math.isfinite(self.epsilon):
            return ()
        return in_words(self.epsilon, self.delta, "person" if self.relation == PERSON else "record")

    def as_dict(self) -> dict[str, object]:
        """The statement for JSON. An infinite epsilon is the string "Infinity", for JSON has no such number."""
        published = None
        if self.published:
            published = {"bound": self.published[0], "epsilon": number(self.published[1])}
        return {
            "epsilon": number(self.epsilon),
            **{name: getattr(self, name) for name in _AS_THEY_ARE},
            "published": published,
            "scores": self.scores or None,
            "uncovered": self.uncovered or None,
            "assumptions": list(self.assumptions),
            "notes": list(self.notes),
            "private": not self.not_private,
            "not_private": list(self.not_private),
            **{name: value for name in _OF_DATA if (value := getattr(self, name)) is not None},
        }

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> Statement:
        """The statement that `as_dict` wrote. Raises InvalidArgument where a number in it is none, such as NaN."""
        published = written["published"]
        return cls(
            epsilon=float(written["epsilon"]),
            published=None if published is None else (published["bound"], float(published["epsilon"])),
            scores=written["scores"] or "",
            uncovered=written["uncovered"] or "",
            assumptions=tuple(written["assumptions"]),
            notes=tuple(written["notes"]),
            not_private=tuple(written["not_private"]),
            **{name: written[name] for name in _AS_THEY_ARE},
            protects=written.get("protects"),
            preprocessing=written.get("preprocessing"),
        )


DECLARED_CLASSES = (
    "the class weights and the prevalence of classes are declared, public, and not counted from these records"
)
_BESIDES = ("not in this number", "was not charged", "would meet it too", "warning: ")


def in_short(statement: Statement) -> list[tuple[str, str]]:
    """The guarantee in a few rows, for a reader who is told where the rest stands: never an epsilon by itself."""
    broken = [("NOT PRIVATE", "; ".join(statement.not_private))] if statement.not_private else []
    number = f"{rounded_up(statement.epsilon)} at delta {shown_delta(statement.delta)}"
    return [
        *broken,
        ("epsilon", f"{number}, {statement.relation}, accountant {statement.accountant}"),
        ("covers", f"{statement.how}; may leave: {statement.leaves}"),
        ("assumes", f"{len(statement.assumptions)} things: see .statement"),
        *(("note", note) for note in statement.notes if any(words in note for words in _BESIDES)),
    ]


def number(value: float) -> float | str:
    """A number for JSON, which has no infinite ones."""
    return "Infinity" if math.isinf(value) else value


def with_learning(made: Statement, spent: float, unit: Unit) -> Statement:
    """The statement of everything, from that of the runs alone. spent: epsilon of the bounds and categories that were learnt."""
    if not spent:
        return made
    cost = f"epsilon {rounded_up(spent)} was spent to learn bounds or categories of columns privately"
    rest = f"epsilon {rounded_up(made.epsilon)} for everything after, added to it"
    one_more = (
        f"{made.protects}. To learn bounds one row of a person was used, chosen by another coin: it may be one more"
    )
    return replace(
        made,
        epsilon=made.epsilon + spent,
        published=made.published and (made.published[0], made.published[1] + spent),
        leaves=f"{made.leaves}; and the bounds or categories that were learnt",
        protects=one_more if unit.person and made.protects else made.protects,
        notes=(*made.notes, f"{cost}, and {rest}; a ledger has it if it was learnt with that ledger"),
    )
