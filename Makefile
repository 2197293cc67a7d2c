# Two commands are enough: `make demo` and `make test`. Each installs into .venv what it needs, again only when its inputs
# change: the demo the library alone, the rest on top of it.
ifndef PYTHON  # the first of these that runs
PYTHON := $(shell for python in python3.11 python3.12 python3.13; do $$python -c "" 2>/dev/null && echo $$python && break; done)
endif
# Compiled modules are kept, whatever the environment says: without them every process compiles torch anew.
export PYTHONDONTWRITEBYTECODE :=
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
CORE := .venv/.core
EVERYTHING := .venv/.everything
FEDERATED := .venv/.federated
CLUSTER := .venv/.cluster

# Of one budget: a training with nothing to tune, and a search for the one number that plain SGD needs.
BUDGET := ledger set-budget --ledger demo/ledger.db --dataset digits --epsilon 6 --delta 1e-5
FIRST := tune digits --epsilon 3 --delta 1e-5 --ledger demo/ledger.db --out demo/first
SEARCH := tune digits --epsilon 3 --delta 1e-5 --optimizer sgd --space lr=0.1,0.5,2,10 --space clip=0.3 --lot 256 --steps 300 \
	--ledger demo/ledger.db --out demo/search

.PHONY: help demo test quick docs federated cluster lint bench clean

help:
	@echo "make demo   install the library alone, then train on embedded data within one budget, and show what a search costs"
	@echo "make test   install the rest, then lint and run every test"
	@echo "make quick  the same without types and without the tests marked law, kill or slow: for every change"
	@echo "make docs   set up, then build the guide as a site, into site/"
	@echo "make federated  set up with Flower's simulation engine, then run five clients on it"
	@echo "make cluster  set up with Ray, then run the demo's search on a cluster of three nodes of this machine"
	@echo "make lint   set up, then ruff and mypy alone"
	@echo "make bench  set up, then measure speed against the named peers"
	@echo "make clean  remove .venv and every build product"

$(CORE): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "make: python3.11, python3.12 or python3.13 is needed, and none is on the PATH;" \
		"say which to take: make PYTHON=/path/to/python" >&2; exit 2; }
	$(PYTHON) -m venv --clear .venv
	$(PIP) -e .
	@touch $@

$(EVERYTHING): $(CORE) papers/pyproject.toml
	$(PIP) -e '.[dev,bench]' -e papers
	@touch $@

demo: $(CORE)
	rm -rf demo
	mkdir demo
	$(BIN)/honestdp $(BUDGET)
	@echo; echo "1. One training with nothing to tune. Models made so have 92.9 % on the public test digits (mean of ten seeds)."; echo
	$(BIN)/honestdp $(FIRST)
	@echo; echo "2. A search at the same epsilon, of SGD's step size. Its winners have 90.6 %; four trainings at the same"
	@echo "   epsilon with the four rates have 84.1 % on average, and 68.1 to 92.3 % each (benchmarks/demo.py measures all)."; echo
	$(BIN)/honestdp $(SEARCH)

$(FEDERATED): $(CORE)
	$(PIP) -e '.[federated]'
	@touch $@

federated: $(FEDERATED)
	OMP_NUM_THREADS=1 FLWR_TELEMETRY_ENABLED=0 RAY_USAGE_STATS_ENABLED=0 $(BIN)/python examples/federated.py

$(CLUSTER): $(CORE)
	$(PIP) -e '.[cluster]'
	@touch $@

cluster: $(CLUSTER)
	rm -rf demo
	mkdir demo
	$(BIN)/honestdp $(BUDGET)
	$(BIN)/python -m tests.local_cluster --nodes 3 -- honestdp $(SEARCH)

lint: $(EVERYTHING)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

TESTS := OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal

test: lint
	$(TESTS)

quick: $(EVERYTHING)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(TESTS) -m "not law and not kill and not slow"

docs: $(EVERYTHING)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --clean
	@echo "open site/index.html, or serve it, for its search: $(BIN)/python -m http.server -d site"

bench: $(EVERYTHING)
	$(BIN)/python benchmarks/accounting.py
	$(BIN)/python benchmarks/engine.py

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build site src/*.egg-info papers/src/*.egg-info demo
