# `make` lists what there is. Everything runs from .venv, which the first target that needs it creates.

PYTHON        ?= python3
PROOF_MINUTES ?= 10
RUNS          ?= 6
LOCK_FLAGS    ?=

# Written once and used by every process of the tests; where the environment forbids it, each would compile everything.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN  := $(VENV)/bin
PIP  := $(BIN)/python -m pip -qq --disable-pip-version-check

BASE := $(VENV)/.base-stamp
DEV  := $(VENV)/.dev-stamp

FAST := not slow and not proof
SLOW := slow and not proof
NOT_TIDY := --ignore=tests/tidy --ignore=tests/typing
SPREAD := --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help setup demo servers test test-fast test-busy check proof bench bench-peers lock clean


help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(DEV) ## Create .venv with everything the other targets need

demo: $(BASE) ## See Semel work, in under a minute
	@$(BIN)/semel demo

servers: ## Install from Debian, as root, what some tests use and skip without: MariaDB, PgBouncer, promtool
	@apt-get -qq update
	@DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-upgrade --no-install-recommends mariadb-server pgbouncer prometheus

test: $(DEV) ## Run the fast tests, then the slow ones (those of the house itself belong to check)
	@fast=passed; slow=passed; \
	echo "== fast tests"; $(BIN)/pytest -q $(SPREAD) -n 3 -m "$(FAST)" $(NOT_TIDY) || fast=FAILED; \
	echo "== slow tests"; $(BIN)/pytest -q $(SPREAD) -n 4 -m "$(SLOW)" $(NOT_TIDY) --durations=10 || slow=FAILED; \
	printf '\n  fast tests  %s\n  slow tests  %s\n' $$fast $$slow; \
	test $$fast$$slow = passedpassed

test-fast: $(DEV) ## Run the fast tests only
	@$(BIN)/pytest -q $(SPREAD) -n 3 -m "$(FAST)" $(NOT_TIDY)

test-busy: $(DEV) ## Run all tests RUNS times (default 6), every other time beside two busy processes
	@$(BIN)/python -m tests.repeat --runs $(RUNS)

check: $(DEV) ## Lint, format, types, import direction, architecture
	@echo "== ruff check";   $(BIN)/ruff check --quiet
	@echo "== ruff format";  $(BIN)/ruff format --check --quiet || { echo "run: $(BIN)/ruff format"; exit 1; }
	@echo "== mypy";         $(BIN)/mypy
	@echo "== lint-imports"; $(BIN)/lint-imports
	@echo "== tidy";         $(BIN)/pytest -q tests/tidy tests/typing

proof: $(DEV) ## Crash, stall and overload it for PROOF_MINUTES (default 10; try 120)
	@two=passed; alone=passed; export PROOF_MINUTES=$(PROOF_MINUTES); \
	echo "== two at a time"; $(BIN)/pytest -v -n 2 --maxschedchunk 1 -m "proof and not alone" --durations=15 || two=FAILED; \
	echo "== one by one";    $(BIN)/pytest -v -m "proof and alone" --durations=5 || alone=FAILED; \
	printf '\n  two at a time  %s\n  one by one     %s\n' $$two $$alone; \
	test $$two$$alone = passedpassed

bench: $(DEV) ## Measure Semel on this machine
	@$(BIN)/python -m bench

bench-peers: $(DEV) ## Measure Semel beside its peers
	@$(BIN)/python -m bench --peers

lock: .venv-lock/bin/uv ## Regenerate requirements/*.lock (LOCK_FLAGS=--upgrade for new versions)
	@$(COMPILE) --extra dev --output-file requirements/dev.lock pyproject.toml requirements/build.in
	@$(COMPILE) --constraint requirements/dev.lock --output-file requirements/base.lock pyproject.toml requirements/build.in

clean: ## Remove .venv, caches and build output
	@rm -rf $(VENV) .venv-lock build dist .semel-demo .semel-temporal .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true


$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "Semel needs Python 3.11 or newer, but '$(PYTHON)' is not. Try: make PYTHON=/path/to/python3.11 setup"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(BASE): requirements/base.lock pyproject.toml | $(BIN)/python
	@echo "installing Semel into $(VENV) ..."
	@$(PIP) install --require-hashes --requirement requirements/base.lock
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(DEV): requirements/dev.lock $(BASE)
	@echo "installing the development tools into $(VENV) ..."
	@$(PIP) install --require-hashes --requirement requirements/dev.lock
	@touch $@

# The locks are for every platform and name no index: each machine keeps its own.
COMPILE = UV_CUSTOM_COMPILE_COMMAND="make lock" .venv-lock/bin/uv pip compile --quiet --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --no-annotate $(LOCK_FLAGS)

.venv-lock/bin/uv:
	@$(PYTHON) -m venv .venv-lock
	@.venv-lock/bin/python -m pip -qq --disable-pip-version-check install "uv==0.13.7"
