"""Views to render: a search with everything in it, one without a search, and one that is not private.

The plans are put together from fixed numbers, since to calibrate a real one takes longer than all tests of the report.
"""

from __future__ import annotations

import math
from dataclasses import replace

from honestdp.budget import PROTECTS, Budget, Statement
from honestdp.ledger.account import Balance
from honestdp.planner.comparison import Method, Plan
from honestdp.report.html import Cost, ScoreView, SearchView
from honestdp.run import Run
from honestdp.selection import Compose, RandomStopping, count_of

WINNER = "the winner alone: its model, its hyperparameters and its noisy score"
USED = RandomStopping(count=count_of(runs=34.0, shape=2.0))
ONE = Method(Compose(candidates=1), 1.0, "all", 2.999, 1.21)
BEST = Method(USED, 0.9, "coverage", 2.999, 2.18)
PLAN = Plan(
    run=Run(records=1437, lot=64, steps=600, noise=1.21),
    budget=Budget(3.0, 1e-5),
    delta=1e-5,
    candidates=8,
    coverage=0.9,
    one_run=ONE,
    methods=(BEST,),
    recommended=BEST,
    reason="the least noise of all methods with a coverage of at least 0.9; it makes 34 runs on average, which cost "
    "compute and not privacy",
)


def cost(method: str, epsilon: float, noise: float | None, *, words: str = "", **rest: object) -> Cost:
    given = {
        "selection": method.split(",")[0],
        "accountant": "pld",
        "shape": None,
        "runs": 8,
        "coverage": 1.0,
        "leaves": WINNER,
        **rest,
    }
    return Cost(method=method, words=words or "every candidate once", epsilon=epsilon, noise=noise, **given)  # type: ignore[arg-type]


SECRET = "a secret number of runs, 34 on average, the winner alone leaves"
STOPPING = {"words": SECRET, "shape": 2.0, "runs": 34.01, "coverage": 0.9}
COSTS = (
    cost("one run", 1.2604, 1.21, words="no search", runs=1, coverage=0.125),
    cost("liu-talwar", 14.118, 8.02, words="a secret number of runs, 63 on average, the winner alone leaves", runs=63),
    cost("compose, moments", 6.8812, 4.34, words="every candidate once, all may leave", accountant="moments"),
    cost("compose, pld", 5.9051, 3.63, words="every candidate once, all may leave"),
    cost("winner", 5.3107, 3.42, words="every candidate once, the winner alone leaves"),
    cost("papernot-steinke", 4.4483, 3.01, accountant="rdp", **STOPPING),
    cost("profile", 3.3106, 2.34, **STOPPING),
    cost("envelope", 2.9988, 2.18, used=True, **STOPPING),
)
STATEMENT = Statement(
    epsilon=2.9988,
    delta=1e-5,
    accountant="pld",
    selection="envelope",
    how="a secret number of runs, negative binomial of shape 2.0, 34.01 on average",
    runs=34.01,
    leaves=WINNER + "; not how many runs there were",
    basis="docs/theory.md, Theorem 2 (our own proof, not externally reviewed)",
    published=("Papernot & Steinke 2022, Theorem 2", 4.4483),
    scores="every run's accuracy, with discrete Gaussian noise of 3.2 times the sensitivity",
    protects=PROTECTS,
    preprocessing="pixels divided by 16",
    notes=("the winner's score is noisy, and charged: training and validation records are disjoint",),
)
SEARCH = SearchView(
    title="honestdp tune: digits",
    dataset="digits",
    statement=STATEMENT,
    hyperparameters={"optimizer": "adam-wosm", "clip": 0.5, "lr": 0.001},
    score=ScoreView(
        name="accuracy",
        value=0.8914,
        low=0.8521,
        high=0.9307,
        noise=0.02005,
        fraction=0.2,
        records=360,
        limits=(0.0, 1.0),
    ),
    plan=PLAN,
    costs=COSTS,
    ledger=Balance(
        dataset="digits",
        budget=Budget(8.0, 1e-5),
        before=1.4306,
        spent=3.5512,
        charges=2,
        charged=True,
        head="6632e88e55ae8f23e6e5773db4a8f4e73dbe6b0a73c52bba09534c7a45a607cc",
        entry=3,
    ),
    key="9f2c41d07be3a86655c0e7f4b1d2a3987c6e5f40b1a29384756e0f1d2c3b4a59",
    configuration={
        "optimizer": "adam-wosm",
        "space": {"clip": [0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0]},
        "records": 1437,
        "lot": 64,
        "steps": 600,
        "noise": 2.1803471,
        "coverage": 0.9,
        "published bounds only": False,
        "validation fraction": 0.2,
        "device": "cpu",
    },
    reproduce="honestdp tune digits --epsilon 3 --delta 1e-5 --optimizer adam-wosm --lot 64 --steps 600 "
    "--ledger ledger.db --dataset digits --out runs/first",
    version="0.1.0",
)
ALONE = replace(
    SEARCH,
    title="honestdp tune: breast-cancer",
    hyperparameters={},
    score=None,
    plan=replace(PLAN, candidates=1, recommended=ONE),
    costs=(cost("one run", 2.9988, 1.21, words="no search", runs=1, used=True),),
    ledger=None,
)
NOT_PRIVATE = replace(
    SEARCH,
    statement=replace(STATEMENT, epsilon=math.inf, published=None),
    costs=tuple(replace(made, epsilon=math.inf) for made in COSTS),
)
FAR_APART = replace(SEARCH, costs=(*COSTS[:-1], replace(COSTS[1], method="far", epsilon=812.0, noise=None), COSTS[-1]))
