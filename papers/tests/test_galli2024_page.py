"""Galli et al. 2024: the page defines its names, and is made from kept parts without a dataset."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from test_galli2024 import SHEET
from tests.shared_data import FOLDER, needs_files

from honestdp_papers.galli2024 import PAPER, burden, known, setting
from honestdp_papers.galli2024.honest_training import SELECTIONS
from honestdp_papers.galli2024.setting import FASHION, sized
from honestdp_papers.parts import file_of, read
from honestdp_papers.registry import parts_folder
from honestdp_papers.results import kept_result

RESULTS = Path(__file__).parents[1] / "results"
NAMING = {"method", "rule", "update", "Online"}
"""Columns of the page's tables whose cells are names."""


def test_every_name_in_a_table_is_defined_once_among_the_words() -> None:
    """AdamOSO, OSO and what is automatic were used and nowhere defined, and OSO was not said to be Online."""
    defined = Counter(re.findall(r"\*\*(.+?)\*\*", PAPER.head))
    assert set(defined.values()) == {1}
    names = {*burden.RULES, *SELECTIONS, "one run"}
    for result in filter(None, (kept_result(PAPER, item, out=RESULTS, quick=False) for item in PAPER.items)):
        for table in result["tables"]:
            places = [place for place, name in enumerate(table["header"]) if name in NAMING and table["rows"]]
            names |= {row[place] for row in table["rows"] for place in places if re.search("[A-Za-z]", row[place])}
    bare = {re.sub(r", rho_c [-.e\d]+$", "", name.removesuffix(" (ours)")) for name in names}
    assert {"NoDP-Adam", "AdamOSO with rho_r = 0", "OSO, automatic", "sign", "nu_q 20 sigma"} <= bare
    assert bare - defined.keys() == set()


def test_the_noises_on_the_page_stand_under_their_methods() -> None:
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAPER.head.splitlines()
        if line.startswith("|")
    ]
    header = next(cells for cells in lines if "epsilon of the grid" in cells)
    for task, methods in SHEET.items():
        for method, noises in {**methods, setting.WOSM: methods[setting.ONLINE]}.items():
            found = [float(c[header.index(method)]) for c in lines if c[0] == task.title and len(c) == len(header)]
            assert found == pytest.approx(noises, rel=1e-2), (task.title, method)  # both are rounded


@pytest.mark.parametrize("name", ["figure4", "table3", "ablations", "ours"])
def test_what_speaks_of_fashion_mnist_is_made_from_kept_parts_without_its_images(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(name: str) -> None:
        raise AssertionError(f"{name} was asked for")

    monkeypatch.setattr(setting, "load_dataset", refused)
    setting.records_of.cache_clear()
    item, folder = PAPER.item(name), parts_folder(RESULTS, PAPER.name, False)
    there = [part for part in item.parts(False) if file_of(part, folder).is_file()]
    assert item.finish({part.name: read(part, folder)[0] for part in there}, False).claims


@pytest.mark.slow
@needs_files
@pytest.mark.parametrize("quick", [False, True])
def test_the_kept_errors_of_one_image_for_all_are_those_of_the_images(
    quick: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HONESTDP_DATA", str(FOLDER))
    task = sized(FASHION, quick)
    found = known.computed(task)
    kept = {known.MEAN: known.constant_error(task), known.GREY: known.grey_error(task)}
    assert kept == pytest.approx(found, rel=1e-5)
    assert kept[known.MEAN] < kept[known.GREY]
