"""kill -9 at any moment: the search goes on to the very same result, its dataset charged once.

Random kills find what takes long; what takes a moment is found by dying before every single change of the disk.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

from honestdp.ledger import Ledger
from tests.search.dying_searches import (
    DATASET,
    DEAD,
    SELECTIONS,
    check_ledger,
    child,
    ended,
    left,
    ready,
    without_kill,
    world,
)

pytestmark = pytest.mark.kill

KILLS = 60
STEPS = (
    "open .lock",
    "os.rename .key.PID.new",
    "os.rename .plan.PID.new",
    "os.rename .search.json.PID.new",
    "INSERT INTO main.entries",
    "COMMIT",
    "os.rename .data.PID.new",
    "os.rename .batch0.PID.new",
    "os.rename .standing.PID.new",
    "os.remove batch0",
    "os.rename .batch1.PID.new",
    "os.rename .model.safetensors.PID.new",
    "os.rename .statement.json.PID.new",
    "os.rename .report.html.PID.new",
    "os.rename ..result.json.pending.PID.new",
    "open key",
    "os.remove key",
    "os.remove plan",
    "os.rmdir .secret",
    "os.rename .result.json.pending",
    "os.remove .lock",
    "os.utime result.json",
)


@pytest.mark.parametrize("selection", ["compose", "envelope"])
def test_death_before_any_change_of_the_disk_changes_nothing(selection: str, tmp_path: Path) -> None:
    """Each of the changes once; then the search is resumed, or begun anew where it had not begun."""
    expected = without_kill(tmp_path / "whole", selection)
    counted = world(tmp_path / "counted")
    assert ended(child(counted, selection, die_at=10**6)) == 0
    assert left(counted) == expected, "two searches that nothing interrupts differ: this test would see nothing"
    events = (counted / "events").read_text().splitlines()
    assert not set(STEPS) - set(events)
    charged = []
    for number in range(len(events)):
        folder = world(tmp_path / str(number))
        assert ended(child(folder, selection, die_at=number)) == DEAD
        assert (folder / "events").read_text().splitlines() == events[: number + 1]
        charged.append(check_ledger(folder))
        assert ended(child(folder, selection)) == 0, events[number]
        assert check_ledger(folder) == 1
        assert left(folder) == expected, events[number]
        shutil.rmtree(folder)
    assert charged == sorted(charged)
    assert charged.index(1) == events.index("COMMIT") + 1


def test_killed_again_and_again_every_search_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    """SIGKILL after a random time, again and again until the search is done; then another search; 60 kills in all.

    The times grow with every kill of a search, so that it is done some day, however slow the machine has become.
    """
    chance = random.Random(11)
    expected, spans = {}, {}
    for selection in SELECTIONS:
        ready(selection)
        begun = time.monotonic()
        expected[selection] = without_kill(tmp_path / selection, selection)
        spans[selection] = time.monotonic() - begun
    kills, searches = 0, 0
    while kills < KILLS:
        selection = SELECTIONS[searches % len(SELECTIONS)]
        searches += 1
        folder, charges, code = world(tmp_path / f"search {searches}"), 0, -signal.SIGKILL
        latest = 0.6 * spans[selection]
        while code == -signal.SIGKILL:
            victim = child(folder, selection)
            time.sleep(chance.uniform(0, latest))
            latest *= 1.05
            os.kill(victim, signal.SIGKILL)
            code = ended(victim)
            kills += code == -signal.SIGKILL
            before, charges = charges, check_ledger(folder)
            assert before <= charges, "a charge was taken back"
        assert code == 0
        assert left(folder) == expected[selection]
        shutil.rmtree(folder)
    assert searches > len(SELECTIONS)


def test_a_process_that_dies_every_few_changes_comes_to_an_end(tmp_path: Path) -> None:
    """Each process makes some changes, at times more than a resumed one repeats, and dies."""
    chance = random.Random(5)
    expected = without_kill(tmp_path / "whole", "compose")
    folder, deaths = world(tmp_path / "often"), 0
    while (code := ended(child(folder, "compose", die_at=chance.randrange(4, 60)))) == DEAD:
        deaths += 1
        assert deaths < 100
        check_ledger(folder)
    assert code == 0
    assert deaths >= 3
    assert left(folder) == expected


def test_a_charge_of_another_search_in_between_changes_nothing(tmp_path: Path) -> None:
    """The balance that a search shows is that of its charge, whenever it comes to its end."""
    expected = without_kill(tmp_path / "whole", "envelope")
    folder = world(tmp_path / "shared")
    events = _events(tmp_path, "envelope")
    assert ended(child(folder, "envelope", die_at=events.index("COMMIT") + 3)) == DEAD
    Ledger(folder / "ledger.db").charge(DATASET, ready("compose").design.spending, key="of another")
    assert ended(child(folder, "envelope")) == 0
    found = left(folder)
    del found["ledger"], expected["ledger"]
    assert found == expected
    kinds = [entry.kind for entry in Ledger(folder / "ledger.db").entries(DATASET) if entry.key == "of another"]
    assert kinds == ["charge"]


def _events(tmp_path: Path, selection: str) -> list[str]:
    folder = world(tmp_path / "events")
    assert ended(child(folder, selection, die_at=10**6)) == 0
    return (folder / "events").read_text().splitlines()
