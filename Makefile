# make run      the app, opened on http://127.0.0.1:8501 (PORT=8600 make run for another port)
# make test     every test that needs no browser
# make browser  the tests in a real browser (needs chromium: apt-get install chromium)
# make thorough the full form of the tests that make test runs in a short form
# make bench    the speed and memory comparisons quoted in the README, into docs/speed.* (ARGS=--quick: minutes)
# Beside the app, make run leaves the command line: .venv/bin/headroom --help
# Both run and test make their own virtual environment in .venv first; nothing is installed outside this folder.

PYTHON ?= python3
PORT ?= 8501
BIN := .venv/bin
ARGS ?=
# One worker a core, four at most: each holds a model and the libraries (about 1.5 GB).
WORKERS := -n logical --maxprocesses 4 --dist worksteal

# What a process has compiled the next one reads: tests start many, and some machines turn that off.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test browser thorough bench lint format types clean
.DEFAULT_GOAL := run

run: .venv/run.stamp .venv/bin/headroom
	$(BIN)/python headroom.py --server.port $(PORT) $(ARGS)

test: .venv/dev.stamp
	$(BIN)/python -m pytest $(WORKERS) $(ARGS)

thorough: .venv/dev.stamp
	HEADROOM_THOROUGH=1 $(BIN)/python -m pytest -m thorough $(WORKERS) $(ARGS)

browser: .venv/dev.stamp
	$(BIN)/python -m pytest -m browser $(or $(ARGS),tests/browser $(WORKERS) --dist load --maxschedchunk 1)

bench: .venv/dev.stamp
	$(BIN)/python -m tests.benchmarks $(ARGS)

lint: .venv/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: .venv/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: .venv/dev.stamp
	$(BIN)/pyright

clean:
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Headroom needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + ": try make PYTHON=python3.12")'
	@$(PYTHON) -m venv .venv || { rm -rf .venv; echo "No virtual environment could be made: on Debian or Ubuntu, apt-get install python3-venv first."; exit 1; }

# From any folder, as the command of an installation: the code is this clone's.
.venv/bin/headroom: | .venv/bin/python
	@printf '#!/bin/sh\nexec "%s" "%s" "$$@"\n' "$(CURDIR)/.venv/bin/python" "$(CURDIR)/headroom.py" > $@
	@chmod +x $@

# The stamps are written last, so that an interrupted installation is taken up again.
# The app is compiled here, so that its first start does not wait for it.
.venv/run.stamp: requirements.txt | .venv/bin/python
	$(BIN)/python scripts/install.py requirements.txt
	$(BIN)/python -m compileall -q -j 0 app.py headroom.py cache engine pages
	@touch $@

.venv/dev.stamp: requirements-dev.txt requirements-ray.txt .venv/run.stamp
	$(BIN)/python scripts/install.py requirements-dev.txt
	@touch $@
