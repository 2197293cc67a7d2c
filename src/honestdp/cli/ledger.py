"""`honestdp ledger`: what datasets may spend, have spent, and have left."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Annotated

import typer

import honestdp
from honestdp.cli.options import (
    Accountant,
    Candidates,
    Delta,
    Identical,
    Json,
    Lot,
    Noise,
    Records,
    Runs,
    SelectionName,
    ShapeOption,
    Steps,
    selection_of,
)
from honestdp.cli.terminal import Command

app = typer.Typer(
    help=(
        "What each dataset may spend, what it has spent, and what is left.\n\n"
        "A dataset gets its budget once, with **set-budget**. Every search is charged before it reads a record; **spend** "
        "charges a training made elsewhere. Charges are kept as events and composed by privacy-loss distributions, so that "
        "together they spend less than their sum. No entry is ever changed or taken back, and **verify** shows if one was."
    ),
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

LedgerFile = Annotated[
    Path,
    typer.Option(
        "--ledger", envvar="HONESTDP_LEDGER", metavar="FILE", help="The ledger: one file, for any number of datasets."
    ),
]
Dataset = Annotated[str, typer.Option(metavar="NAME", help="The dataset, by the name that every charge to it uses.")]
DEFAULT = Path("ledger.db")


@app.command("set-budget", cls=Command)
def set_budget(
    dataset: Dataset,
    epsilon: Annotated[float, typer.Option(help="The epsilon that everything together may spend.")],
    delta: Delta,
    ledger: LedgerFile = DEFAULT,
    as_json: Json = False,
) -> None:
    """Sets what a dataset may spend, once and for all. Creates the ledger if there is none.

    `honestdp ledger set-budget --dataset hospital-2026 --epsilon 3 --delta 1e-6`
    """
    from honestdp.ledger import Ledger
    from honestdp.report import account

    balance = Ledger(ledger).set_budget(dataset, honestdp.Budget(epsilon, delta))
    if as_json:
        typer.echo(json.dumps(balance.as_dict(), indent=2))
        return
    account.print_balance(balance)


@app.command(cls=Command)
def show(
    ledger: LedgerFile = DEFAULT,
    dataset: Annotated[str | None, typer.Option(metavar="NAME", help="One dataset; all of them if left out.")] = None,
    as_json: Json = False,
) -> None:
    """Budget, what is spent, what is left, and the entries.

    `honestdp ledger show --dataset hospital-2026`
    """
    from honestdp.ledger import Ledger
    from honestdp.report import account

    book = Ledger(ledger)
    names = book.datasets() if dataset is None else [dataset]
    shown = [(book.balance(name), book.charges(name)) for name in names]
    if as_json:
        typer.echo(json.dumps([account.as_dict(balance, charges) for balance, charges in shown], indent=2))
        return
    for balance, charges in shown:
        account.print_account(balance, charges)


@app.command(cls=Command)
def spend(
    dataset: Dataset,
    records: Records,
    lot: Lot,
    steps: Steps,
    noise: Noise,
    ledger: LedgerFile = DEFAULT,
    what: Annotated[str, typer.Option(help="What it is spent on, for people to read. It is public.")] = "",
    key: Annotated[
        str | None,
        typer.Option(help="A name of your own for this charge: the same key charges once, however often it is given."),
    ] = None,
    candidates: Candidates = 1,
    selection: SelectionName = "compose",
    runs: Runs = None,
    shape: ShapeOption = None,
    identical: Identical = False,
    accountant: Accountant = None,
    score: Annotated[
        float | None,
        typer.Option(
            help="Noise of each run's validation score over its sensitivity, if validation records were asked."
        ),
    ] = None,
    choice: Annotated[
        float | None,
        typer.Option(help="For compose: the epsilon of one private choice of the winner in place of scores."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Charges a training, or a whole search, that is made elsewhere. Do it before the training reads a record.

    `honestdp ledger spend --dataset hospital-2026 --records 60000 --lot 250 --steps 10000 --noise 4 --key week-12`

    Over the budget, nothing is charged and the exit code is 2.
    """
    from honestdp.ledger import Ledger
    from honestdp.ledger.spending import Spending
    from honestdp.report import account

    run = honestdp.Run(records=records, lot=lot, steps=steps, noise=noise)
    chosen = selection_of(
        selection, candidates=candidates, runs=runs, shape=shape, accountant=accountant, identical=identical
    )
    spending = Spending(chosen, ((run, candidates),), score=score, choice=choice)
    book = Ledger(ledger)
    balance = book.charge(dataset, spending, key=uuid.uuid4().hex if key is None else key, what=what)
    if not balance.charged:
        balance = book.balance(dataset)  # as it is now, and not as it was then
    if as_json:
        typer.echo(json.dumps(balance.as_dict(), indent=2))
        return
    if not balance.charged:
        typer.echo(f"{'note':<11}the key {key} was charged before, for the same spending: nothing is charged again")
    account.print_balance(balance)


@app.command(cls=Command)
def verify(
    ledger: LedgerFile = DEFAULT,
    head: Annotated[
        str | None, typer.Option(help="A head hash noted earlier, by show or export: it must still be in the ledger.")
    ] = None,
    recompute: Annotated[
        bool,
        typer.Option(help="Also compose all charges anew, with nothing remembered, and compare. It may take minutes."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Checks the chain of entries, and names the first that is not what was written.

    `honestdp ledger verify --head HASH` also shows whether the end of the ledger was cut off since that hash was noted.
    """
    from honestdp.ledger import Ledger

    book = Ledger(ledger)
    last = book.verify(head=head, recompute=recompute)
    entries = len(book.entries())
    if as_json:
        typer.echo(json.dumps({"intact": True, "entries": entries, "head": last}, indent=2))
        return
    typer.echo(f"intact     {entries} entries in {ledger}\nhead       {last}")


@app.command(cls=Command)
def export(
    ledger: LedgerFile = DEFAULT,
    dataset: Annotated[
        str | None, typer.Option(metavar="NAME", help="The balance of one dataset; all if left out.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The default, and the only form.")] = False,
) -> None:
    """Prints the whole ledger as JSON: every entry with its hash, the head hash, and the balances.

    All entries are printed even with --dataset, for the chain runs through all of them.
    """
    from honestdp.ledger import Ledger

    typer.echo(json.dumps(Ledger(ledger).export(dataset=dataset), indent=2))
