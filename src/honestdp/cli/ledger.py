"""`honestdp ledger`: what datasets may spend, have spent, and have left."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

import honestdp
from honestdp.checks import InvalidArgument
from honestdp.cli import options as option
from honestdp.cli.terminal import Command, emit
from honestdp.notebook import as_text

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

_FILE = (
    "The ledger, for any number of datasets: one file, or `postgresql://USER@HOST/DATABASE`, set up by **ledger init**."
)
LedgerFile = Annotated[Any, option.ledger(_FILE, "--ledger")]
_ADMIN = "Who may create roles and schemas there: `postgresql://ADMIN@HOST/DATABASE`. For this command alone."
_ROLE = "The role that is made, by which clients charge."
_PASSWORD = (
    "A file whose first line becomes the role's password, or - for standard input. It reaches the server hashed."
)
_SENSITIVITY = (
    "With --score: what one record changes it by, where it is made in whole numbers with discrete Gaussian noise (1 for a "
    "count); 0 where its noise is continuous."
)
Admin = Annotated[Any, Option(parser=option.place, metavar="ADDRESS", help=_ADMIN)]
Dataset = Annotated[str, Option(metavar="NAME", help="The dataset, by the name that every charge to it uses.")]
_LONGEST_PASSWORD = 1024  # characters; a device or a pipe has no end
DEFAULT = Path("ledger.db")


@app.command("set-budget", cls=Command)
def set_budget(
    dataset: Dataset,
    epsilon: Annotated[float, Option(help="The epsilon that everything together may spend.")],
    delta: option.Delta,
    ledger: LedgerFile = DEFAULT,
    as_json: option.Json = False,
) -> None:
    """Sets what a dataset may spend, once and for all. Creates the ledger if there is none.

    `honestdp ledger set-budget --dataset hospital-2026 --epsilon 3 --delta 1e-6`
    """
    from honestdp.ledger import Ledger
    from honestdp.report import console

    balance = Ledger(ledger).set_budget(dataset, honestdp.Budget(epsilon, delta))
    emit(balance.as_dict, as_json=as_json, text=lambda: console.balance_text(balance))


@app.command(cls=Command)
def show(
    ledger: LedgerFile = DEFAULT,
    dataset: Annotated[str | None, Option(metavar="NAME", help="One dataset; all of them if left out.")] = None,
    as_json: option.Json = False,
) -> None:
    """Budget, what is spent, what is left, and the entries.

    `honestdp ledger show --dataset hospital-2026`
    """
    from honestdp.ledger import Ledger
    from honestdp.report import console

    book = Ledger(ledger)
    names = book.datasets() if dataset is None else [dataset]
    shown = [(book.balance(name), book.charges(name)) for name in names]
    none = f"{'ledger':<11}{book.path}: no dataset has a budget yet; `honestdp ledger set-budget` gives it one"
    emit(
        lambda: [console.account_as_dict(balance, charges) for balance, charges in shown],
        as_json=as_json,
        text=lambda: "\n".join(console.account_text(balance, charges) for balance, charges in shown) or none,
    )


@app.command(cls=Command)
def spend(
    dataset: Dataset,
    records: option.Records,
    lot: option.Lot,
    noise: option.Noise,
    steps: option.Steps = None,
    epochs: option.Epochs = None,
    ledger: LedgerFile = DEFAULT,
    what: Annotated[str, Option(help="What it is spent on, for people to read. It is public.")] = "",
    note: Annotated[str, Option(help="Whatever else people should know of this entry. It is public.")] = "",
    key: Annotated[str | None, Option(help="Your own name for this charge: one key is charged once.")] = None,
    candidates: option.Candidates = 1,
    selection: option.SelectionName = "compose",
    runs: option.Runs = None,
    shape: option.ShapeOption = None,
    identical: option.Identical = False,
    accountant: option.Accountant = None,
    score: Annotated[float | None, Option(help="Noise of each validation score over its sensitivity.")] = None,
    sensitivity: Annotated[int | None, Option(help=_SENSITIVITY)] = None,
    choice: Annotated[float | None, Option(help="For compose: epsilon of a private choice, not scores.")] = None,
    person: Annotated[str, Option(help="Where a record is a person with all rows: the column that tells whose.")] = "",
    as_json: option.Json = False,
) -> None:
    """Charges a training, or a whole search, that is made elsewhere. Do it before the training reads a record.

    `honestdp ledger spend --dataset hospital-2026 --records 60000 --lot 250 --steps 10000 --noise 4 --key week-12`

    Over the budget, nothing is charged and the exit code is 2.
    """
    from honestdp.ledger import Ledger
    from honestdp.ledger.spending import Spending
    from honestdp.report import console
    from honestdp.selection import named

    if sensitivity is not None and score is None:
        raise InvalidArgument("sensitivity", sensitivity, "left out where there is no score")
    run = honestdp.Run(records=records, lot=lot, steps=steps, epochs=epochs, noise=noise)
    chosen = named(selection, candidates=candidates, runs=runs, shape=shape, accountant=accountant, identical=identical)
    spending = Spending(chosen, ((run, candidates),), score=score, choice=choice, sensitivity=sensitivity, unit=person)
    book = Ledger(ledger)
    balance = book.charge(dataset, spending, key=uuid.uuid4().hex if key is None else key, what=what, note=note)
    if not balance.charged:
        balance = book.balance(dataset)  # as it is now, and not as it was then
    before = f"{'note':<11}the key {key} was charged before, for the same spending: nothing is charged again\n"
    text = ("" if balance.charged else before) + console.balance_text(balance)
    emit(balance.as_dict, as_json=as_json, text=lambda: text)


@app.command(cls=Command)
def verify(
    ledger: LedgerFile = DEFAULT,
    head: Annotated[str | None, Option(help="A head hash noted earlier: it must still be in the ledger.")] = None,
    as_json: option.Json = False,
) -> None:
    """Checks the chain of entries, and names the first that is not what was written.

    `honestdp ledger verify --head HASH` also shows whether the end of the ledger was cut off since that hash was noted.
    """
    from honestdp.ledger import Ledger

    if head is not None and not re.fullmatch("[0-9a-f]{64}", head := head.strip().lower()):
        raise InvalidArgument(
            "head", head, "a whole hash, 64 digits and letters from a to f, as show and reports have it"
        )
    book = Ledger(ledger)
    last = book.verify(head=head)
    entries = book.entries()
    found = next((entry.number for entry in entries if entry.hash == head), None)
    said = {"intact": True, "entries": len(entries), "head": last} | ({} if found is None else {"found": found})
    text = f"intact     {len(entries)} entries in {book.path}\nhead       {last}"
    text += "" if found is None else f"\nfound      the hash that was given is that of entry {found}"
    emit(lambda: said, as_json=as_json, text=lambda: text)


@app.command(cls=Command)
def export(
    ledger: LedgerFile = DEFAULT,
    dataset: Annotated[str | None, Option(metavar="NAME", help="The balance of one dataset; all if left out.")] = None,
    as_json: Annotated[bool, Option("--json", help="The default, and the only form.")] = False,
) -> None:
    """Prints the whole ledger as JSON: every entry with its hash, the head hash, and the balances.

    All entries are printed even with --dataset, for the chain runs through all of them.
    """
    from honestdp.ledger import Ledger

    emit(lambda: Ledger(ledger).export(dataset=dataset), as_json=True, text=str)


@app.command(cls=Command)
def init(
    admin: Admin,
    role: Annotated[str, Option(help=_ROLE)] = "honestdp_ledger",
    password_file: Annotated[typer.FileText | None, Option(metavar="FILE", help=_PASSWORD)] = None,
    as_json: option.Json = False,
) -> None:
    """Sets up a ledger in a PostgreSQL database: a role that may insert and select and nothing else, the table, its rights.

    `honestdp ledger init --admin postgresql://postgres@db.example/privacy`

    What is there already is compared and left alone. A team charges by the address that is printed, never by the admin's.
    """
    from honestdp.ledger import Address
    from honestdp.ledger.postgres_rules import set_up

    if not isinstance(admin, Address):
        raise InvalidArgument("admin", str(admin), "the address postgresql://ADMIN@HOST/DATABASE; a file needs no init")
    password = None if password_file is None else password_file.readline(_LONGEST_PASSWORD).rstrip("\r\n")
    if password == "":
        raise InvalidArgument("password_file", None, "a file with the password in its first line, which is empty")
    done = set_up(admin, role=role, password=password)
    steps = [
        *(("made", text) for text in done.done),
        *(("kept", text) for text in done.kept),
        ("ledger", str(done.address)),
    ]
    emit(done.as_dict, as_json=as_json, text=lambda: as_text(steps, width=11))


@app.command(cls=Command)
def copy(
    source: Annotated[Any, typer.Argument(metavar="FROM", parser=option.place, help="A ledger: its file or address.")],
    target: Annotated[Any, typer.Argument(metavar="TO", parser=option.place, help="Where none is yet.")],
    as_json: option.Json = False,
) -> None:
    """Moves a ledger, whole, to where none is yet: every entry as it was, verified before and after, dataset by dataset.

    `honestdp ledger copy ledger.db postgresql://honestdp_ledger@db.example/privacy`

    A file that was copied is left read-only: charged in two ledgers, a dataset would have two budgets.
    """
    from honestdp.ledger import copying

    done = copying.copy(source, target)
    rest = "is read-only now" if done.closed else "still takes charges: take the rights to it away, or drop it"
    lines = [
        *(f"{'dataset':<11}{name}: {n} charge{'s' * (n != 1)}, the same in both" for name, n in done.datasets.items()),
        f"{'intact':<11}{done.entries} entries in {done.target}\n{'head':<11}{done.head}",
        f"{'note':<11}{done.source} {rest}; one dataset, one ledger",
    ]
    emit(done.as_dict, as_json=as_json, text=lambda: "\n".join(lines))
