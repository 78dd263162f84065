# Everything needs only Python 3.11 or newer and make; the rest is installed into .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
BIN := .venv/bin
ARGS ?=

.PHONY: run test lint types check cover bench clean

run: .venv/running  ## serve on http://127.0.0.1:9867 (ARGS="--port 9000 --data-dir other-data")
	$(BIN)/rota serve $(ARGS)

test: .venv/installed  ## every test, on all cores
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder $(ARGS)

lint: .venv/installed  ## style, and who may import whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache --no-logo

types: .venv/installed  ## types
	$(BIN)/mypy

check: test lint types  ## what CI runs

cover: .venv/installed  ## line and branch coverage of the tests that run in this process
	$(BIN)/coverage run -m pytest tests --ignore tests/acceptance $(ARGS)
	$(BIN)/coverage report --skip-covered

bench: .venv/installed  ## every benchmark, with its floors
	$(BIN)/python benchmarks/run_all.py $(ARGS)

.venv/running: pyproject.toml  # what a server needs
	@test -n "$(PYTHON)" || { echo "rota needs Python 3.11 or newer, and finds none: make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import sys; old = sys.version_info < (3, 11); sys.exit("rota needs Python 3.11 or newer, and $(PYTHON) is %d.%d: make PYTHON=/path/to/python3.11" % sys.version_info[:2] if old else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

.venv/installed: .venv/running  # and the tools of development
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
