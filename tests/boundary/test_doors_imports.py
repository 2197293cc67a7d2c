"""The doors, read from the sources: what holds a record is denied to every module outside that is not listed here."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import honestdp
from tests.boundary.import_graph import Imports, sources_of

SOURCES = sources_of(Path(honestdp.__file__).parent)
BOUNDARY = "honestdp.boundary"
TOOLS = ("honestdp.gradients", "honestdp.kernels", "honestdp.losses")
"""What the boundary hands lots to. They know nothing of it."""

WORDS = {
    "clipping": {"gradient_multiplier", "within_bounds"},
    "ranks": {"ALONE", "Joined", "RankLost", "Ranks"},
    "query": {
        "HALF_RANGE", "LEAST_CLIP", "Constants", "Direction", "InputNorm", "Query", "Release", "State", "WithinClip",
    },
    "seed": {"Seed", "lent", "seed_all"},
    "metrics": {
        "Accuracy", "BalancedAccuracy", "ClippedLoss", "DeclaredMetric", "LogLikelihood", "LogLoss", "Metric", "PersonMean",
        "check_metric", "default_metric",
    },
    "score_noise": {
        "NORMAL", "Score", "best_of", "choice_noise", "question_noise", "question_scale", "score_noise", "score_of",
    },
    "people": {"by_person"},
    "noise": {"noise_source"},
    "release": {"width_of"},
    "vetted": {"Vetted", "rehearse", "vet"},
    "data": {"Coins", "Shapes", "coins"},
    "capture": {"free_captured"},
    "decoding": {"RecordFailed", "WorkerDied"},
    "whereabouts": {"Whereabouts", "whereabouts"},
    "layouts": {"Known", "Unread"},
    "bounds": {"asked", "private_frequent", "private_range"},
}  # fmt: skip
"""Names that hold no record, for anyone: constants, queries and releases, seeds, metrics, errors, trials on made-up records."""

DOORS = {
    "data.PrivateData": {
        "federated.client", "models.evaluation",
        "search.configuration", "search.lifecycle", "search.request", "search.runs",
        "training.charging", "training.spec", "training.torchrun", "training.train",
    },
    "intake.Intake": {"training.loop"},
    "noise.torch_generator": {"reference"},
    "sampling.PendingLots": {"reference"},
    "sampling.block_steps": {"reference"},
    "intake.take_in": {"federated.client", "training.train"},
    "mechanism.Mechanism": {"training.population"},
    "intake.open_door": {"models.evaluation", "search.runs"},
    "scores.ScoreDoor": {"search.runs"},
    "travel.Sides": {"search.cluster.task"},
    "travel.packed": {"search.cluster.pool"},
    "travel.unpacked": {"search.cluster.task"},
}  # fmt: skip
"""Names with records behind them, which give none of them out, and the modules that may hold them."""


OF_THEIR_OWN = frozenset({"gradients.probe _x"})
"""Private names that a module has for objects of its own classes, and that happen to be names of the boundary too."""


def outside(module: str) -> bool:
    return module != BOUNDARY and not module.startswith(BOUNDARY + ".")


def denied(sources: dict[str, str]) -> list[str]:
    """Every use of the boundary from outside that is not listed, with the way it came in followed to its origin."""
    imports = Imports(sources)
    return sorted(
        f"{use.user}:{use.line} {use.origin.module}.{use.origin.name}"
        for module in imports.modules
        if outside(module)
        for use in imports.uses(module)
        if not outside(use.origin.module) and not _allowed(use.user, use.origin.module, use.origin.name)
    )


def _allowed(user: str, module: str, name: str | None) -> bool:
    part = module.removeprefix(BOUNDARY).removeprefix(".")
    if name in WORDS.get(part, ()):
        return not user.startswith(TOOLS)
    return user.removeprefix("honestdp.") in DOORS.get(f"{part}.{name}", ())


def pried(sources: dict[str, str]) -> list[str]:
    """Uses from outside of an attribute that is private to the boundary, unless of `self` or of a class of the module's own."""
    imports = Imports(sources)
    private = {module: set().union(*map(_private_names, imports.nodes(module))) for module in imports.modules}
    of_the_boundary = set().union(*(names for module, names in private.items() if not outside(module)))
    return sorted(
        f"{module}:{node.lineno} {node.attr}"
        for module in imports.modules
        if outside(module)
        for node in imports.nodes(module)
        if isinstance(node, ast.Attribute) and node.attr in of_the_boundary
        if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
        if f"{module.removeprefix('honestdp.')} {node.attr}" not in OF_THEIR_OWN
    )


def _private_names(node: ast.AST) -> set[str]:
    names = set()
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        names = {node.name}
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        names = {node.attr}
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        names = {node.target.id}
    return {name for name in names if name.startswith("_") and not name.startswith("__") and len(name) > 1}


@pytest.mark.slow
def test_nothing_outside_the_boundary_can_name_what_holds_a_record() -> None:
    assert denied(SOURCES) == []


def test_nothing_outside_the_boundary_reaches_into_it() -> None:
    assert pried(SOURCES) == []


def test_no_private_name_of_the_boundary_is_a_string_outside_it() -> None:
    """As `getattr` takes it."""
    assert [hit for hit in _strings(SOURCES) if hit.split()[1].startswith("_")] == []


def test_no_module_of_the_boundary_is_named_in_a_string_but_by_the_front_door() -> None:
    """What is imported by name is no import that can be read."""
    named = [hit for hit in _strings(SOURCES) if "boundary" in hit.split()[1]]
    assert sorted(named) == [
        "honestdp boundary.metrics", "honestdp boundary.people",
        "honestdp.errors boundary.decoding", "honestdp.errors boundary.ranks",
    ]  # fmt: skip


def test_nothing_is_imported_by_name_elsewhere() -> None:
    allowed = {
        "honestdp",
        "honestdp.errors",
        "honestdp.kernels",
        "honestdp.identity.values",
        "honestdp.cli.terminal",
        "honestdp.data.named",
    }
    hits = {
        module
        for module in SOURCES
        if outside(module)
        for node in Imports(SOURCES).nodes(module)
        if (isinstance(node, ast.Attribute) and node.attr in ("import_module", "modules", "find_spec"))
        or (isinstance(node, ast.Name) and node.id in ("__import__", "import_module"))
        if not (isinstance(node, ast.Attribute) and node.attr == "modules" and not _is_sys(node.value))
    }
    assert hits <= allowed, hits - allowed


def _is_sys(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "sys"


def _strings(sources: dict[str, str]) -> list[str]:
    """Strings outside the boundary that are a private name of it, or name one of its modules."""
    imports = Imports(sources)
    private = set().union(
        *(_private_names(node) for m in imports.modules if not outside(m) for node in imports.nodes(m))
    )
    return sorted(
        f"{module} {node.value}"
        for module in imports.modules
        if outside(module)
        for node in imports.nodes(module)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if node.value in private or re.fullmatch(r"(honestdp\.)?boundary(\.\w+)*", node.value)
    )


def test_every_name_on_the_lists_exists_and_every_listed_module_makes_use_of_it() -> None:
    imports = Imports(SOURCES)
    for part, names in WORDS.items():
        for name in names:
            assert re.search(rf"^(class |def )?{name}\b", SOURCES[f"{BOUNDARY}.{part}"], re.M), name
    used = {(use.origin.module, use.origin.name, module) for module in imports.modules for use in imports.uses(module)}
    for door, modules in DOORS.items():
        part, name = door.split(".")
        for module in modules:
            assert (f"{BOUNDARY}.{part}", name, f"honestdp.{module}") in used, (door, module)


PLANTED = {
    "directly": {"honestdp.training.spare": "from honestdp.boundary.records import DeviceRecords"},
    "a module of it": {"honestdp.training.spare": "from honestdp.boundary import records"},
    "the package": {"honestdp.training.spare": "from honestdp import boundary"},
    "inside a function": {"honestdp.report.spare": "def f():\n    from honestdp.boundary.release import Examples"},
    "for types alone": {
        "honestdp.report.spare": "if TYPE_CHECKING:\n    from honestdp.boundary.release import Examples"
    },
    "through the module that imports it": {"honestdp.search.spare": "from honestdp.boundary.mechanism import Examples"},
    "through two others": {
        "honestdp.search.spare": "from honestdp.training.middle import Held",
        "honestdp.training.middle": "from honestdp.training.first import Held",
        "honestdp.training.first": "from honestdp.boundary.records import HostRecords as Held",
    },
    "through two others of the boundary": {
        "honestdp.search.spare": "from honestdp.boundary.spare import Held",
        "honestdp.boundary.spare": "from honestdp.boundary.mechanism import Lots as Held",
    },
    "as an attribute of a module": {
        "honestdp.search.spare": "from honestdp.training import population\nx = population.Mechanism._records"
    },
    "by its whole name": {"honestdp.cli.spare": "import honestdp\nx = honestdp.boundary.data.PrivateData"},
    "from a tool": {"honestdp.gradients.spare": "from honestdp.boundary.seed import Seed"},
    "a door that is not for it": {"honestdp.report.spare": "from honestdp.boundary.data import PrivateData"},
    "a new name of the boundary": {"honestdp.search.spare": "from honestdp.boundary.metrics import Brought"},
}


@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED)
def test_a_new_module_that_imports_a_holder_of_records_is_denied(planted: dict[str, str]) -> None:
    accused = denied(SOURCES | planted)
    assert any(line.startswith(next(iter(planted)) + ":") for line in accused), accused


@pytest.mark.parametrize(
    "reach", ["intake._records", "population._mechanism._examples(i, p)", "data._pair", "x.door._total(m)"]
)
def test_reaching_into_the_boundary_is_denied(reach: str) -> None:
    assert pried(
        SOURCES | {"honestdp.search.spare": f"def f(intake, population, data, x, i, p, m):\n    return {reach}"}
    )
