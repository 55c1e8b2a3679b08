# Each target makes its own environment from nothing. `make demo` and `make test` are all a newcomer needs.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test torture bench lint format clean

demo: .venv/installed
	$(BIN)/newfound demo

test: .venv/installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

# Kills, full disks, lost images, in every place: the longer form of tests/test_faults.py
torture: .venv/installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python tests/torture.py --much --out docs/results/torture.md

# Speed as ratios, about ten minutes on two idle cores; writes benchmarks/latest.json and docs/speed.md
bench: .venv/installed-dev
	$(BIN)/python -m benchmarks

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv newfound-demo

# torch first and pinned: without the pin another package may pull a build of several gigabytes.
.venv/torch: constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	touch $@

.venv/installed: .venv/torch pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

.venv/installed-dev: .venv/installed pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@
