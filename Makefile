# Two commands are enough: `make demo` and `make test`. Each sets up .venv first, again only when its inputs change.
PYTHON ?= python3.11
BIN := .venv/bin
READY := .venv/.ready

.PHONY: help demo test lint bench clean

help:
	@echo "make demo   set up, then run the main job on embedded data"
	@echo "make test   set up, then lint and run every test"
	@echo "make lint   set up, then ruff and mypy alone"
	@echo "make bench  set up, then measure speed against the named peers"
	@echo "make clean  remove .venv and every build product"

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,bench]'
	@touch $@

demo: $(READY)
	$(BIN)/honestdp plan --records 56000 --lot 250 --steps 10000 --noise 4 --delta 1e-6 --candidates 280 --plot plan.png

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test: lint
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2

bench: $(READY)
	$(BIN)/python benchmarks/accounting.py
	$(BIN)/python benchmarks/engine.py

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build src/*.egg-info plan.png
