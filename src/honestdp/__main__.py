"""`python -m honestdp`: the command line."""

from honestdp.cli import main

main()
