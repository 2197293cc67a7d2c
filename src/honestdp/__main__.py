"""`python -m honestdp`: the command line."""

from __future__ import annotations

import sys


def main() -> None:
    """The command line. Ctrl-C while it is imported, which takes a moment, leaves no traceback either."""
    try:
        from honestdp.cli.main import main as run
    except KeyboardInterrupt:
        print("honestdp: stopped before the command began; nothing was charged", file=sys.stderr)
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
