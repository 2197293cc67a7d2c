"""How far a tuning-free rule is from the best of 48 DPSGD candidates, over settings that a seed draws: what a rule is judged by.

    python -m honestdp_papers.suite --quick  # five tiny settings of digits, on a CPU, two minutes
    python -m honestdp_papers.suite --seed A --list  # the settings, what is done, and what it will take
    HONESTDP_DATA=folder python -m honestdp_papers.suite --seed A --rules horizon horizon:average=True --device cuda
    python -m honestdp_papers.suite --seed A --rules horizon --report  # tables of what there is; nothing is trained
    python -m honestdp_papers.suite --seed B --rules horizon echo --beside  # rules minus the first of them, without an oracle
    python -m honestdp_papers.suite --prepare carry/suite  # the data, for a machine with torch and numpy alone

Settings (`settings.py`) are drawn over datasets, models, noise, lot, steps and records: seed A is for development, B for
one judgement, any other word or number for another. For each the oracle's candidates (12 step sizes x 4 clips) are trained with
repeats, and every rule of `--rules`, all as populations on one device (`suite_work.py`). Every part is a file below `--out`,
made whole or not at all: the same command goes on where it was stopped, and a new rule is trained beside the oracle that is
there. Then the gaps between a rule and the best candidate, by family (`suite_report.py`).

`--define FILE` takes rules of one's own from a file of Python. It needs torch, numpy and honestdp's source. A setting whose data
are not here, or that fails, is said and left out; exit code 1 then, and 3 where `--seconds` were over. A GPU that is lost ends
the process, also with exit code 1: the same again goes on with the others, and tries last the setting in which it was lost.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch

from honestdp.boundary.capture import free_captured
from honestdp.errors import HonestdpError, InvalidArgument
from honestdp_papers.parts import DONE, is_done, make_all, state, write_whole
from honestdp_papers.run_device import Lines, check_device, end_lost, is_lost, quietly, words_of
from honestdp_papers.suite.data import prepare
from honestdp_papers.suite.report import as_dict, beside, beside_table, found, tables
from honestdp_papers.suite.settings import Setting, settings
from honestdp_papers.suite.work import Named, check_distinct, parts_of, rules_of

RESULTS = Path(__file__).resolve().parents[3] / "results" / "suite"
SETTINGS, QUICK = 48, 5


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--seed", default="A", help="A for development, B for one judgement, or any other word; A if left out"
    )
    parser.add_argument(
        "--settings", type=int, help=f"how many, from the first; {SETTINGS} if left out, {QUICK} with --quick"
    )
    parser.add_argument(
        "--rules", nargs="*", default=["horizon"], help="names, with numbers as in adam:clip=1.0; horizon if left out"
    )
    parser.add_argument("--define", type=Path, help="a file of Python that defines rules of one's own")
    parser.add_argument(
        "--only", default="*", help="the settings of a pattern, such as 'A-01*' or '*residual*', or several by commas"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="cuda or cpu")
    parser.add_argument("--seconds", type=float, help="begin no training after so long")
    parser.add_argument(
        "--out", type=Path, default=RESULTS, help="where what was measured is kept; papers/results/suite if left out"
    )
    parser.add_argument("--quick", action="store_true", help="tiny settings of digits, for a CPU")
    parser.add_argument("--list", action="store_true", help="show the settings, and train nothing")
    parser.add_argument("--report", action="store_true", help="show what was found, and train nothing")
    parser.add_argument(
        "--beside", action="store_true", help="the rules alone, each minus the first: the oracle is not trained for it"
    )
    parser.add_argument("--json", action="store_true", help="results as JSON; progress goes to standard error")
    parser.add_argument(
        "--prepare", type=Path, metavar="FOLDER", help="write the data that settings need there, and stop"
    )
    try:
        return _done(parser.parse_args(arguments))
    except (HonestdpError, OSError) as error:
        _say("error: " + " ".join(str(error).split()))
        return 2
    except KeyboardInterrupt:
        _say("stopped; what is done is kept: run the same again to go on")
        return 130


def _done(asked: argparse.Namespace) -> int:
    if asked.prepare is not None:
        prepare(asked.prepare)
        return 0
    if asked.settings is not None and asked.settings < 1:
        raise InvalidArgument("--settings", asked.settings, "a whole number of at least 1")
    if not asked.seed.isalnum():
        raise InvalidArgument("--seed", asked.seed, "letters and digits: it is in the names of files")
    rules = rules_of(asked.rules, asked.define)
    check_distinct(rules)
    every = settings(asked.seed, asked.settings or (QUICK if asked.quick else SETTINGS), quick=asked.quick)
    wanted = [
        each
        for each in every
        if any(fnmatch.fnmatch(f"{each.name} {each}", f"*{one}*") for one in asked.only.split(","))
    ]
    if not wanted:
        raise InvalidArgument("--only", asked.only, "a pattern of some setting; --list shows them")
    folder = asked.out / ("quick" if asked.quick else "parts")
    if asked.list:
        _listed(wanted, rules, folder, as_json=asked.json, oracle=not asked.beside)
        return 0
    code = 0 if asked.report else _trained(asked, wanted, rules, folder)
    if asked.beside:
        pairs = beside(wanted, rules, folder)
        print(json.dumps(pairs, indent=1) if asked.json else "\n" + beside_table(pairs, rules), flush=True)
        return code
    rows = found(wanted, rules, folder)
    print(json.dumps(as_dict(rows, rules), indent=1) if asked.json else "\n" + tables(rows, rules), flush=True)
    return code


def _listed(wanted: Sequence[Setting], rules: Sequence[Named], folder: Path, *, as_json: bool, oracle: bool) -> None:
    lines, total, left = [], 0.0, 0.0
    for setting in wanted:
        parts = parts_of(setting, rules, oracle=oracle)
        states = [state(part, folder) for part in parts]
        takes = sum(part.weight for part in parts)
        total += takes
        left += sum(part.weight for part, now in zip(parts, states, strict=True) if now != DONE)
        lines.append(
            {
                "setting": setting.identity,
                "seconds": round(takes, 1),
                "parts": dict(zip([p.name for p in parts], states, strict=True)),
            }
        )
        if not as_json:
            counts = ", ".join(f"{states.count(each)} {each}" for each in dict.fromkeys(states))
            print(f"{setting.name}  {takes:6.1f} s  {counts:<18}  {setting}")
    if as_json:
        print(json.dumps({"settings": lines, "seconds": round(total), "seconds left": round(left)}, indent=1))
    else:
        print(f"{total:.0f} s on one H200 in all, roughly; {left:.0f} s are left")


@quietly()
def _trained(asked: argparse.Namespace, wanted: Sequence[Setting], rules: Sequence[Named], folder: Path) -> int:
    """Train what is not there yet, setting by setting. 0, 1 where something failed, or 3 where time was over.

    What failed before comes last, so that a setting that takes the device with it holds up no other.
    """
    check_device(asked.device)
    warnings.simplefilter("ignore")
    order = sorted(wanted, key=lambda setting: _failed(setting, folder).exists())
    todo = [
        [part for part in parts_of(setting, rules, oracle=not asked.beside) if not is_done(part, folder)]
        for setting in order
    ]
    weights = [sum(part.weight for part in parts) for parts in todo]
    began, progress = time.monotonic(), Lines(sys.stderr)
    troubles = []
    _say(f"{sum(map(len, todo))} parts to make, {sum(weights):.0f} s on one H200, roughly")
    for number, (setting, parts) in enumerate(zip(order, todo, strict=True)):
        left = None if asked.seconds is None else asked.seconds - (time.monotonic() - began)

        def tell(name: str, done: float, total: float, before: float = sum(weights[:number])) -> None:
            progress(name, before + done, sum(weights))

        try:
            if not make_all(parts, folder, asked.device, seconds=left, tell=tell):
                _say("stopped in time; run the same again to go on")
                return 3
            _failed(setting, folder).unlink(missing_ok=True)
        except Exception as trouble:  # of one setting: the others go on
            said = words_of(trouble)
            troubles.append(setting.name)
            write_whole(_failed(setting, folder), said.encode())
            if is_lost(trouble):
                end_lost(
                    f"suite: the device is lost, in {setting.name} ({setting}): {said}; run the same again to go on"
                )
            _say(f"left out: {setting.name} ({setting}): {said}")
            free_captured()
    if troubles:
        _say(f"{len(troubles)} settings are not whole: {', '.join(troubles)}")
    return 1 if troubles else 0


def _failed(setting: Setting, folder: Path) -> Path:
    return folder / setting.name / "failed.txt"


def _say(words: str) -> None:
    print(f"suite: {words}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
