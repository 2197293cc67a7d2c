"""`save` and `load`: a trained model as a folder of weights, schema, statement, model card, report and digests.

Nothing in such a folder is code. Weights are safetensors, the network is a description in plain numbers and words
(`architecture`), the schema is TOML, the statement JSON; whoever loads a model of another kind brings its code. Every file is
read once, compared with its digest, and only then looked into (`digests` says what that can promise and what not).
"""

from __future__ import annotations

import copy
import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from honestdp import __version__
from honestdp.boundary.score_noise import Score
from honestdp.budget import Statement
from honestdp.checks import HonestdpError, InvalidArgument
from honestdp.files import replace_file
from honestdp.models import architecture
from honestdp.models.card import CARD, Card, with_words_of
from honestdp.models.digests import DIGESTS, TamperedFolder, checked_files, digests, tampered
from honestdp.models.saved import SavedModel
from honestdp.training.result import Outcome, serialised

if TYPE_CHECKING:
    from honestdp.data.tables.table import Table

WEIGHTS, MODEL, SCHEMA, STATEMENT = "model.safetensors", "model.json", "schema.toml", "statement.json"
REPORT = "report.html"
FORMAT = 1
_OWN = (WEIGHTS, MODEL, SCHEMA, STATEMENT, CARD, REPORT)
_OF_A_SEARCH = ("search.json", "result.json")  # in the folder of a search, which becomes one of a model
WRITTEN_LATER = (DIGESTS, MODEL, SCHEMA, CARD)  # the digests first: where they are missing later, somebody took them


def save(folder: str | Path, result: Outcome, *, table: Table | None = None, title: str = "") -> SavedModel:
    """Write a trained model with its guarantee into a folder that `load` reads, and that a person can read.

    folder: a new or an empty one, or the folder of the search that the result is of.
    result: what `train` or `tune` returned.
    table: how rows become the model's inputs; saved with it, so that it predicts from rows. Left out, the folder holds the model
        by itself.
    title: of the model card.

    Returns the model as `load` would give it; its `digest` is worth noting elsewhere. Raises InvalidArgument for a folder with
    other files in it, and for a table that is not the model's.

    >>> import tempfile, torch, honestdp
    >>> x, y = honestdp.load_dataset("digits").train
    >>> run = honestdp.Run(records=len(x), lot=64, steps=5, noise=2.0)
    >>> result = honestdp.train(torch.nn.Linear(64, 10), (x, y), run=run, optimizer="horizon", delta=1e-5)
    >>> saved = honestdp.save(f"{tempfile.mkdtemp()}/model", result)
    >>> saved.statement == result.statement, len(saved.digest)
    (True, 64)
    """
    if not isinstance(result, Outcome):
        raise InvalidArgument("result", type(result).__name__, "what train or tune returned")
    if not isinstance(folder, str | Path):
        raise InvalidArgument("folder", folder, "a path")
    folder = Path(folder)
    described = architecture.described(result.model)
    contents = {name: text.encode() for name, text in _texts(result, described, table, title).items()}
    contents[WEIGHTS] = serialised(result.model)
    if table is not None:
        _check_fit(table, described)
    own = getattr(result, "folder", None)
    of_a_search = own is not None and own.resolve() == folder.resolve()
    _check_room(folder, of_a_search)
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        if of_a_search:
            earlier = _saved_before(folder)
            contents = _with_the_searchs_own(folder, contents)
            contents[CARD] = with_words_of(contents[CARD], earlier.get(CARD, b""))
        contents[DIGESTS] = _json(digests(contents)).encode()
        for name in WRITTEN_LATER if of_a_search else contents:
            if name in contents:
                replace_file(folder / name, contents[name], mode=0o644)
        if of_a_search:
            _hide_the_clock(folder)
    except OSError as trouble:
        wanted = f"a folder that can be made and written ({trouble.strerror})"
        raise InvalidArgument("folder", str(folder), wanted) from trouble
    return load(folder, model=None if described is not None else result.model)


def load(
    folder: str | Path, *, model: nn.Module | Callable[[], nn.Module] | None = None, digest: str | None = None
) -> SavedModel:
    """The model in a folder, with its table, its statement and how it was trained. No code from the folder is run.

    folder: written by `save`, or by a search on a table.
    model: for a model that is not a row of linear layers: a module of the same kind, or a function that makes one. Its code is
        yours, and not from the folder.
    digest: of the whole folder, noted when it was saved: then the folder must be that one. Without it a change of any file is
        noticed unless the digests in the folder were changed with it.

    Returns a SavedModel. Raises errors.TamperedFolder where a file is not what was saved, and InvalidArgument where there is no
    such folder or the model is not of the kind.

    >>> import tempfile, torch, honestdp
    >>> x, y = honestdp.load_dataset("digits").train
    >>> run = honestdp.Run(records=len(x), lot=64, steps=5, noise=2.0)
    >>> result = honestdp.train(torch.nn.Linear(64, 10), (x, y), run=run, optimizer="horizon", delta=1e-5)
    >>> place = f"{tempfile.mkdtemp()}/model"
    >>> noted = honestdp.save(place, result).digest
    >>> honestdp.load(place, digest=noted).model
    Linear(in_features=64, out_features=10, bias=True)
    """
    if not isinstance(folder, str | Path):
        raise InvalidArgument("folder", folder, "a path")
    folder = Path(folder)
    contents, whole = checked_files(folder, digest=digest)
    try:
        written = _read(contents, MODEL)
        if written["format"] != FORMAT:
            known = f"the model folder {folder} is of the format {written['format']!r}; this version knows {FORMAT}"
            raise HonestdpError(known)
        score = written["score"]
        return SavedModel(
            model=_model(written, contents[WEIGHTS], model),
            table=_table(contents),
            statement=_statement(contents, folder),
            hyperparameters=dict(written["hyperparameters"]),
            run=dict(written["run"]),
            score=None if score is None else Score.from_dict(score),
            card=contents[CARD].decode(),
            page=contents[REPORT].decode(),
            digest=whole,
            folder=folder,
        )
    except HonestdpError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as trouble:
        words = f"the model folder {folder} cannot be read ({type(trouble).__name__}): it was not written by honestdp"
        raise TamperedFolder(words) from trouble


def _statement(contents: dict[str, bytes], folder: Path) -> Statement:
    try:
        return Statement.from_dict(_read(contents, STATEMENT))
    except InvalidArgument as trouble:
        raise TamperedFolder(f"the model folder {folder} states what nothing can: {trouble}") from None


def _texts(result: Outcome, described: Any, table: Table | None, title: str) -> dict[str, str]:
    """Every file that is a text, by its name."""
    known = result.as_dict()
    statement = Statement.from_dict(known["statement"])
    score = known.get("score")
    name = type(result.model).__name__
    written = {
        "format": FORMAT,
        "honestdp": __version__,
        "class": name,
        "architecture": described,
        "hyperparameters": known["hyperparameters"],
        "run": known["run"],
        "score": score,
    }
    card = Card(
        title=title or "A private model",
        architecture=architecture.in_words(described, name),
        statement=statement,
        hyperparameters=known["hyperparameters"],
        run=known["run"],
        score=None if score is None else Score.from_dict(score).in_words(),
        data=() if table is None else tuple(table.describe()),
        target=None if table is None else table.target,
        version=__version__,
        own_code=described is None,
    )
    texts = {
        MODEL: _json(written),
        STATEMENT: _json(known["statement"]),
        CARD: card.text(),
        REPORT: result._page(),
    }
    if table is None:
        return texts
    from honestdp.data.tables.schema import text_of

    return {**texts, SCHEMA: text_of(table)}


def _json(values: Any) -> str:
    return json.dumps(values, indent=2) + "\n"


def _read(contents: dict[str, bytes], name: str) -> Any:
    if name not in contents:
        raise KeyError(name)
    return json.loads(contents[name])


def _model(written: dict[str, Any], content: bytes, own: Any) -> nn.Module:
    from safetensors import SafetensorError
    from safetensors.torch import load as from_bytes

    try:
        weights = from_bytes(content)
    except SafetensorError as trouble:
        raise HonestdpError(f"{WEIGHTS} cannot be read: {trouble}") from trouble
    described, name = written["architecture"], str(written["class"])
    if own is None:
        if described is None:
            wanted = (
                f"given: this folder holds the weights of a {name}, whose code you bring, as load(folder, model=...)"
            )
            raise InvalidArgument("model", None, wanted)
        return architecture.built(described, weights)
    made = copy.deepcopy(own) if isinstance(own, nn.Module) else own() if callable(own) else None
    if not isinstance(made, nn.Module):
        raise InvalidArgument("model", type(own).__name__, "a torch.nn.Module, or a function that makes one")
    return architecture.with_weights(made, weights)


def _table(contents: dict[str, bytes]) -> Table | None:
    if SCHEMA not in contents:
        return None
    from honestdp.data.tables.schema import table_of

    return table_of(tomllib.loads(contents[SCHEMA].decode()))


def _check_fit(table: Table, described: Any) -> None:
    """A table that is not the model's would be found out at the first prediction, by somebody else."""
    if described is None:
        return
    layers = described["layers"] if described["kind"] == "sequential" else [described]
    linear = [layer for layer in layers if layer["kind"] == "linear"]
    have = (linear[0]["inputs"], linear[-1]["outputs"])
    if have != (table.width, table.outputs):
        wanted = f"the one that the model was trained on: the model has {have[0]} inputs and {have[1]} outputs"
        raise InvalidArgument("table", f"one of {table.width} features and {table.outputs} outputs", wanted)


def _check_room(folder: Path, of_a_search: bool) -> None:
    """Whether a model can be saved here: nothing of somebody else's is written over."""
    if of_a_search or not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise InvalidArgument("folder", str(folder), "a folder; this is a file")
    present = sorted(path.name for path in folder.iterdir())
    if DIGESTS in present:
        raise InvalidArgument("folder", str(folder), "a new or an empty folder; this one holds a saved model")
    others = [name for name in present if name not in _OWN and not name.endswith(".new")]
    if others:
        raise InvalidArgument("folder", str(folder), f"a new or an empty folder; this one has {others[0]}")


def _saved_before(folder: Path) -> dict[str, bytes]:
    """The files of a search's folder in which its model was saved before; none where it was not. What was changed since does
    not get new digests, and neither does a folder whose digests were taken away. A save that was killed is made again.
    """
    later = [name for name in WRITTEN_LATER if os.path.lexists(folder / name)]
    if DIGESTS in later:
        return checked_files(folder, besides=WRITTEN_LATER)[0]
    if later:
        raise tampered(folder, f"{DIGESTS} is missing")
    return {}


def _with_the_searchs_own(folder: Path, contents: dict[str, bytes]) -> dict[str, bytes]:
    """Of a search that is over, its own files as they are there, and ours beside them."""
    names = [
        *_OWN,
        *_OF_A_SEARCH,
        *(f"candidates/{path.name}" for path in (folder / "candidates").glob("*.safetensors")),
    ]
    there = {name: (folder / name).read_bytes() for name in names if name not in WRITTEN_LATER}
    return {**there, **{name: content for name, content in contents.items() if name in WRITTEN_LATER}}


def _hide_the_clock(folder: Path) -> None:
    """Our files get the time at which the search began, as its own have it: how long it took tells of the number of runs."""
    begun = (folder / _OF_A_SEARCH[0]).stat().st_mtime_ns
    for name in WRITTEN_LATER:
        if (folder / name).exists():
            os.utime(folder / name, ns=(begun, begun))
    os.utime(folder, ns=(begun, begun))
