# Each target makes its own environment from nothing. `make demo` and `make test` are all a newcomer needs.
PYTHON ?= python3
BIN := .venv/bin
# What pip has to say is in .venv/pip.log, and on the screen where it fails: some indexes make it warn hundreds of times.
install = $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt $(1) > .venv/pip.log 2>&1 || \
	{ tail -20 .venv/pip.log; exit 1; }

.PHONY: demo test test-long test-portable test-versions test-wheel torture bench lint format audit clean

demo: .venv/installed
	$(BIN)/newfound demo

test: .venv/installed-dev
	@echo "The test suite: about four minutes on two idle cores, seven to ten alongside two to four busy programs."
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

# Tests that take long and rarely break; CI runs them, too
test-long: .venv/installed-dev
	@echo "The long tests: no network, kills and full disks, fuzzed files and requests, torchrun; about four minutes on two idle cores."
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile -m long

# The numerical tests as if on other processors: about ten minutes; writes its table into docs/trust.md
test-portable: .venv/installed-dev
	$(BIN)/python tests/portable.py --write docs/trust.md

# The lowest versions that pyproject.toml allows, then the newest there are, each in an environment of its own
test-versions:
	tools/test_versions lowest
	tools/test_versions newest

# Build wheel and sdist, install the wheel into an empty environment, and use it from another folder
test-wheel:
	tools/test_wheel

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

# Published weaknesses of the pinned packages, asked of pypi.org; from an environment that is thrown away.
# --strict: a package that the index does not know of would otherwise count as having none.
audit:
	@place=$$(mktemp -d) && trap 'rm -rf "$$place"' EXIT && \
	$(PYTHON) -m venv "$$place/env" && \
	{ "$$place/env/bin/python" -m pip install --quiet --disable-pip-version-check pip-audit || \
	  { echo "make audit: pip-audit cannot be installed, nothing was checked" >&2; exit 2; }; } && \
	{ "$$place/env/bin/pip-audit" --requirement constraints.txt --no-deps --disable-pip --strict --progress-spinner off \
	    --output "$$place/found" && cat "$$place/found" && echo "make audit: no published weakness"; } || \
	{ status=$$?; test $$status = 2 && exit 2; \
	  test -s "$$place/found" && cat "$$place/found" && echo "make audit: update what is named above" >&2 && exit 1; \
	  echo "make audit: not every package could be asked about (is there a network?): this says nothing about them" >&2; exit 2; }

clean:
	rm -rf .venv newfound-demo dist

# torch first and pinned: without the pin another package may pull a build of several gigabytes.
.venv/torch: constraints.txt
	@echo "Installing torch into .venv: 200 MB, usually half a minute."
	@$(PYTHON) -m venv .venv
	@$(call install,torch)
	@touch $@

.venv/installed: .venv/torch pyproject.toml
	@echo "Installing newfound and what it needs: usually half a minute."
	@$(call install,-e .)
	@touch $@

.venv/installed-dev: .venv/installed pyproject.toml
	@echo "Installing the tools of the tests: usually half a minute."
	@$(call install,-e '.[dev]')
	@touch $@
