# Ottla's commands. `make run` is all a fresh machine needs; every other target sets up what it needs as well.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

VENV ?= .venv
DATA ?= ottla-data
LISTEN ?= 127.0.0.1:9092
ARGS ?=
MINUTES ?= 10
BIN := $(VENV)/bin
PYTEST ?= $(BIN)/python -m pytest
PIP := $(BIN)/python -m pip --disable-pip-version-check -q install

# The first Python of 3.11 or later on the PATH; name another with `make PYTHON=/path/to/python …`.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	if $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then command -v $$p; break; fi; done)

.PHONY: help run test demo pipeline cluster faults check format bench docs interop compose-test clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(VENV)/.broker  ## a broker on 127.0.0.1:9092, in the foreground (DATA=folder LISTEN=host:port ARGS=…)
	@exec $(BIN)/ottla broker --data-dir $(DATA) --listen $(LISTEN) $(ARGS)

test: $(VENV)/.dev  ## the tests, on two processes (ARGS=… is handed to pytest instead of -n 2)
	@$(PYTEST) $(or $(ARGS),-n 2)

demo: $(VENV)/.dev  ## a year of flights through a broker that is killed on the way
	@$(BIN)/python -m bench.demo $(ARGS)

pipeline: $(VENV)/.dev  ## topics land in Delta tables, the Spark job is killed on the way: joined, checked, drawn (needs Java 17)
	@$(BIN)/python -m bench.pipeline $(ARGS)

cluster: $(VENV)/.dev  ## a ZooKeeper and three brokers on 127.0.0.1:9092 to 9094 (ARGS="--data folder --port 9092 …")
	@exec $(BIN)/python -m bench.local $(ARGS)

faults: $(VENV)/.dev  ## break a broker, a cluster and landing jobs for longer than the tests do (MINUTES=30 OTTLA_FAULT_ROUNDS=… OTTLA_FAULT_SEED=…)
	@OTTLA_FAULT_ROUNDS=$${OTTLA_FAULT_ROUNDS:-30} OTTLA_FAULT_MINUTES=$(MINUTES) $(BIN)/python -m pytest tests/crash tests/faults tests/pipeline/faults -s $(ARGS)

check: $(VENV)/.dev  ## style, formatting, types and layers
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

format: $(VENV)/.dev  ## put the sources into the style that `make check` asks for
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format --quiet .

bench: $(VENV)/.dev  ## Ottla beside Apache Kafka 3.9.1 (ARGS="--quick", "--only start,memory", …)
	@$(BIN)/python -m bench $(ARGS)

docs: $(VENV)/.docs  ## build the site of the pages in dist/site, with search and an API reference; links are checked
	@$(BIN)/python docs/site/build.py $(ARGS)

interop: $(VENV)/.dev  ## other languages' clients and tools (Java, Node, Go), clusters with Kafka's brokers, our client on Kafka
	@$(PYTEST) tests/interop -m interop -rs $(ARGS)
	@$(PYTEST) tests/client tests/docs/test_client.py --kafka=3 -rs $(ARGS)
	@$(PYTEST) tests/client tests/docs/test_client.py --kafka=4 -rs $(ARGS)

compose-test: $(VENV)/.broker  ## the compose file with Docker or podman: up, records through every broker, one killed, down
	@OTTLA=$(BIN)/ottla tests/compose/run.sh

clean:  ## remove the environment, caches and downloads; data folders are kept
	@rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment. Both stamps share one folder; an editable install follows the sources by itself, so only a change
# of pyproject.toml (dependencies, commands) asks for another. Compiled at once, as pip does with what isn't editable:
# else the first start, or every one where Python is told to write no bytecode, would take three times as long.
$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "make: Ottla needs Python 3.11 or later on the PATH; or name one: make PYTHON=/path/to/python …" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $(PYTHON) is not Python 3.11 or later" >&2; exit 1; }
	@echo "making $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.broker: pyproject.toml | $(BIN)/python
	@echo "installing what the broker needs into $(VENV)"
	@$(PIP) -e '.[broker]'
	@$(BIN)/python -m compileall -q broker protocol client pipeline
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@echo "installing what tests, demo and benchmark need into $(VENV)"
	@$(PIP) -e '.[dev]'
	@$(BIN)/python -m compileall -q broker protocol client pipeline
	@touch $(VENV)/.broker $@

$(VENV)/.docs: $(VENV)/.dev
	@echo "installing what the site needs into $(VENV)"
	@$(PIP) -e '.[docs]'
	@touch $@
