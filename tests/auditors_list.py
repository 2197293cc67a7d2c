"""What an auditor reads: the files of the boundary and of secrecy, with their lines, as the table of docs/design.md.

python -m tests.auditors_list
"""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

import honestdp

PACKAGE = Path(honestdp.__file__).parent
PARTS: dict[str, tuple[str, ...]] = {
    "The reference: a private training on one page": ("reference.py",),
    "The door of training": (
        "boundary/query.py", "boundary/seed.py", "boundary/noise.py", "boundary/sampling.py",
        "boundary/clipping.py", "boundary/rounding.py", "boundary/release.py", "boundary/mechanism.py", "boundary/capture.py",
        "boundary/ranks.py",
    ),
    "What comes in": (
        "boundary/data.py", "boundary/people.py", "boundary/layouts.py",
        "boundary/records.py", "boundary/decoding.py", "boundary/intake.py", "boundary/whereabouts.py",
        "augment/__init__.py", "boundary/travel.py",
    ),
    "The door of scores": (
        "boundary/score_noise.py",
        "boundary/metrics.py", "boundary/scores.py",
    ),
    "Tables: what a row becomes, and what is learnt of columns": (
        "boundary/bounds.py", "data/tables/learning.py", "data/tables/source.py", "data/tables/cells.py",
        "data/tables/reading.py", "data/tables/columns.py", "data/tables/table.py",
    ),
    "Secrecy of a search": (
        "search/secret.py", "search/vault.py", "search/cluster/task.py",
    ),
    "Trials that see no record": ("boundary/vetted.py",),
}  # fmt: skip
_NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip


def code_lines(text: str) -> int:
    """Lines that hold more than a comment or a docstring."""
    strings = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    code = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in _NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(code - strings)


def first_sentence(text: str) -> str:
    return (ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0].replace("\n", " ").split(". ")[0].rstrip(".")


def table() -> str:
    rows = ["| file | lines of code | lines | what it is |", "|---|---|---|---|"]
    total = lines = 0
    for part, files in PARTS.items():
        texts = {name: (PACKAGE / name).read_text() for name in files}
        counts = [(code_lines(text), text.count("\n")) for text in texts.values()]
        total, lines = total + sum(code for code, _ in counts), lines + sum(every for _, every in counts)
        rows.append(f"| **{part}** | **{sum(code for code, _ in counts)}** | **{sum(n for _, n in counts)}** | |")
        rows += [
            f"| `{name}` | {code} | {every} | {first_sentence(texts[name])} |"
            for name, (code, every) in zip(files, counts, strict=True)
        ]
    return "\n".join([*rows, f"| **all** | **{total}** | **{lines}** | |"])


if __name__ == "__main__":
    print(table())
