"""`python -m honestdp`: the command line."""

from honestdp.cli.main import main

main()
