"""What the digests of a folder seal: the card down to its mark, and no folder of a search whose digests were taken away."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import honestdp
from honestdp.errors import TamperedFolder
from honestdp.models.card import MARK, TO_FILL_IN
from tests.models.test_folder import edit, trained


def searched(folder: Path) -> honestdp.TuneResult:
    data = torch.zeros(40, 4), torch.arange(40) % 2
    return honestdp.tune(linear, data, budget=honestdp.Budget(5.0, 1e-3), lot=8, steps=2, out=folder)


def linear() -> nn.Module:
    return nn.Linear(4, 2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return honestdp.save(tmp_path / "model", trained()).folder


def test_a_searchs_folder_without_its_digests_gets_no_new_ones(tmp_path: Path) -> None:
    """Else whoever changes a file and takes the digests away has them made by the next call."""
    honestdp.save(tmp_path / "run", searched(tmp_path / "run"))
    (tmp_path / "run" / "digests.json").unlink()
    edit(tmp_path / "run" / "result.json", b'"low": 0', b'"low": 9')
    with pytest.raises(TamperedFolder, match=r"digests\.json is missing"):
        honestdp.save(tmp_path / "run", searched(tmp_path / "run"))
    assert not (tmp_path / "run" / "digests.json").exists()


@pytest.mark.parametrize("names", [{"README.md"}, {"README.md", "model.json"}])
def test_a_save_that_was_killed_in_a_searchs_folder_is_made_again(tmp_path: Path, names: set[str]) -> None:
    saved = honestdp.save(tmp_path / "run", searched(tmp_path / "run"))
    for name in names:
        (tmp_path / "run" / name).unlink()
    assert honestdp.save(tmp_path / "run", searched(tmp_path / "run")).digest == saved.digest


# ---- The model card, which people write too


def test_people_may_write_on_the_card_below_its_mark(folder: Path) -> None:
    noted = honestdp.load(folder).digest
    edit(folder / "README.md", TO_FILL_IN.encode(), b"For our ward, and nobody else.")
    with (folder / "README.md").open("a") as card:
        card.write("\nAsk the ward.\n")
    loaded = honestdp.load(folder, digest=noted)
    assert loaded.card.count("our ward") == 2
    assert loaded.card.endswith("Ask the ward.\n")


@pytest.mark.parametrize("change", [(b"epsilon", b"epsilom"), (MARK.encode(), b""), (b"# A private", b"# Our private")])
def test_what_is_above_the_mark_is_sealed_and_so_is_the_mark(folder: Path, change: tuple[bytes, bytes]) -> None:
    edit(folder / "README.md", *change)
    with pytest.raises(TamperedFolder, match=r"README\.md is not what was saved"):
        honestdp.load(folder)


def test_a_mark_that_is_put_higher_up_unseals_nothing(folder: Path) -> None:
    edit(folder / "README.md", b"## What is guaranteed\n", f"{MARK}\n## What is guaranteed\n".encode())
    with pytest.raises(TamperedFolder, match=r"README\.md is not what was saved"):
        honestdp.load(folder)


def test_what_people_wrote_stays_when_the_search_is_saved_once_more(tmp_path: Path) -> None:
    saved = honestdp.save(tmp_path / "run", searched(tmp_path / "run"))
    edit(tmp_path / "run" / "README.md", TO_FILL_IN.encode(), b"For our ward.")
    again = honestdp.save(tmp_path / "run", searched(tmp_path / "run"))
    assert again.digest == saved.digest
    assert "For our ward." in again.card
