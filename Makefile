# Ottla's commands. Each one sets up the environment that it needs.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

VENV ?= .venv
DATA ?= ottla-data
LISTEN ?= 127.0.0.1:9092
CONSOLE ?= 127.0.0.1:8080
ARGS ?=
MINUTES ?= 10
BIN := $(VENV)/bin
PYTEST ?= $(BIN)/python -m pytest

# The first Python 3.11 or later on the PATH; choose another with `make PYTHON=/path/to/python …`.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	if $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then command -v $$p; break; fi; done)

# Ends with a message if PYTHON isn't one.
CHECK_PYTHON = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $(PYTHON) is not Python 3.11 or later" >&2; exit 1; };

.PHONY: help run test demo pipeline cluster secure-cluster faults check format bench docs interop compose-test lock sbom pin-images clean ports-free

help:  ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(VENV)/.broker  ## run a broker on 127.0.0.1:9092 in the foreground, and the console on 8080 (DATA=folder LISTEN=host:port CONSOLE=host:port ARGS=…)
	@echo "starting the broker"
	@exec $(BIN)/ottla broker --data-dir $(DATA) --listen $(LISTEN) $(ARGS) > >($(BIN)/python -m bench.beside $(VENV) "$(CONSOLE)")

# Python keeps the tests' compiled modules, also where its environment forbids it: each process would compile them for half a minute.
test interop faults: export PYTHONDONTWRITEBYTECODE =

test: $(VENV)/.dev  ## run the tests in five processes (ARGS=… replaces pytest's arguments, -n 5)
	@echo "running the tests, which pytest collects first"
	@$(PYTEST) $(or $(ARGS),-n 5)

demo: $(VENV)/.dev  ## send a year of flights through a broker that is killed on the way (ARGS=--quick)
	@$(BIN)/python -m bench.demo $(ARGS)

pipeline: $(VENV)/.dev  ## land topics in Delta tables with a Spark job that is killed on the way (needs Java 17; ARGS=--quick)
	@$(BIN)/python -m bench.pipeline $(ARGS)

cluster: ports-free $(VENV)/.dev  ## run ZooKeeper, three brokers on 127.0.0.1:9092 to 9094 and the console on 8080 (ARGS="--data folder --port 9092 …")
	@exec $(BIN)/python -m bench.local $(ARGS)

secure-cluster: SECURE := --secure --data ottla-secure-cluster
secure-cluster: ports-free $(VENV)/.dev  ## run the same with TLS, SCRAM and ACLs, and certificates of its own (ARGS="--data folder --port 9092 …")
	@exec $(BIN)/python -m bench.local $(SECURE) $(ARGS)

# Before the packages are installed, which takes minutes.
ports-free:
	@test -z "$(PYTHON)" || { $(CHECK_PYTHON) }
	@test -z "$(PYTHON)" || $(PYTHON) -m bench.local_options $(SECURE) $(ARGS)

faults: $(VENV)/.dev  ## break a broker, a cluster and landing jobs for longer than the tests do (MINUTES=30 OTTLA_FAULT_ROUNDS=… OTTLA_FAULT_TRANSACTIONS=… OTTLA_FAULT_SEED=…)
	@OTTLA_FAULT_ROUNDS=$${OTTLA_FAULT_ROUNDS:-30} OTTLA_FAULT_MINUTES=$(MINUTES) $(PYTEST) tests/crash tests/faults tests/cluster/test_late_frames.py tests/pipeline/faults -s $(ARGS)
	@OTTLA_HOSTILE=100 $(PYTEST) tests/badinput/test_hostile_requests.py $(ARGS)
	@OTTLA_BAD_INPUTS=$${OTTLA_BAD_INPUTS:-1000000} $(PYTEST) $$(grep -rlw --include='test_*.py' inputs tests/protocol tests/records tests/log) $(ARGS)
	@OTTLA_EXAMPLES=$${OTTLA_EXAMPLES:-20} $(PYTEST) $$(grep -rlE --include='test_*.py' 'hypothesis|depth import .*examples' tests) $(ARGS)
	@OTTLA_VALUES=$${OTTLA_VALUES:-1450000} $(PYTEST) tests/pipeline/values $(ARGS)
	@OTTLA_POWER_RUNS=$${OTTLA_POWER_RUNS:-100} $(PYTEST) tests/log/test_power_loss.py tests/store/test_power_loss.py $(ARGS)

check: $(VENV)/.dev  ## check style, formatting, types and layers
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

format: $(VENV)/.dev  ## index the APIs and the packages, format the sources
	@$(BIN)/python -m tests.structure.index_apis
	@$(BIN)/python docs/site/where.py
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format --quiet .

bench: $(VENV)/.dev  ## compare Ottla with Apache Kafka 3.9.1 (ARGS="--quick", "--only start,memory", …)
	@$(BIN)/python -m bench $(ARGS)

docs: $(VENV)/.docs  ## build the documentation site in dist/site and check its links
	@echo "building the site, which takes half a minute"
	@$(BIN)/python docs/site/build.py $(ARGS)

interop: $(VENV)/.dev  ## test with clients and tools in Java, Node and Go, in clusters with Kafka, and the client on Kafka
	@$(PYTEST) tests/interop -m interop -rs $(or $(ARGS),-n 3)
	@$(PYTEST) tests/client tests/cli tests/console tests/clients/test_late_frames.py tests/docs/test_client.py tests/pipeline/writing/test_transactions.py --kafka=3 -rs $(or $(ARGS),-n 3)
	@$(PYTEST) $(addprefix tests/client/,admin consumer group producer share) --kafka=4 \
	  $(patsubst %,--ignore-glob='*_%.py',faults mixed model turmoil) \
	  --deselect tests/client/group/test_groups.py::test_the_coordinator_dies_and_comes_back -rs $(or $(ARGS),-n 3)

compose-test: $(VENV)/.broker  ## test docker-compose.yml and docker-compose.secure.yml with Docker or podman
	@OTTLA=$(BIN)/ottla tests/compose/run.sh
	@OTTLA=$(BIN)/ottla tests/compose/secure.sh

# What pip may add of its own settings, such as another index, is none of the files' business.
LOCK := CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile -q --generate-hashes --strip-extras --allow-unsafe \
	--no-emit-options --no-emit-index-url --no-emit-trusted-host

LOCKED := broker console security

lock: $(VENV)/.lock  ## choose the versions and hashes of what the images install: requirements*.lock (ARGS=--upgrade)
	@$(LOCK) $(ARGS) $(addprefix --extra ,$(LOCKED)) -o requirements.lock pyproject.toml
	@$(BIN)/python .ci/extras $(LOCKED) web | $(LOCK) $(ARGS) -c requirements.lock -o requirements-web.lock -
	@$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' | \
	  $(LOCK) $(ARGS) -o requirements-build.lock -

# Its warning that the product has no dependencies comes before .ci/sbom adds them.
SBOM := $(BIN)/python -W ignore::UserWarning -m cyclonedx_py requirements

sbom: $(VENV)/.sbom  ## list the images' dependencies in dist/ottla.cdx.json and dist/ottla-console.cdx.json (CycloneDX)
	@mkdir -p dist
	@$(SBOM) requirements.lock --pyproject pyproject.toml --output-reproducible -o dist/ottla.cdx.json
	@$(SBOM) requirements-web.lock --pyproject pyproject.toml --output-reproducible -o dist/ottla-console.cdx.json
	@$(BIN)/python .ci/sbom dist/ottla.cdx.json dist/ottla-console.cdx.json

pin-images:  ## write the present digests of the base images to images.env (needs Docker or podman)
	@.ci/pin-images

clean:  ## remove the environment, caches and downloads, but no data
	@rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment. The install is editable, so only a change of pyproject.toml, or of what a compiler makes, needs
# another one.
INSTALL = test -n "$(PYTHON)" || { echo "make: Ottla needs Python 3.11 or later on the PATH; or name one: make PYTHON=/path/to/python …" >&2; exit 1; }; \
	$(CHECK_PYTHON) $(PYTHON) harness/environment.py $(VENV)

BUILT_FROM := pyproject.toml hatch_build.py $(wildcard protocol/ottla_protocol/records/*.[ch])

$(VENV)/.broker: $(BUILT_FROM)
	@$(INSTALL) broker,console --project
	@touch $@

# The loops for JSON are compiled by numba, which keeps them: otherwise several processes would begin with that.
$(VENV)/.dev: $(BUILT_FROM)
	@$(INSTALL) dev --project
	@echo "compiling the loops for JSON, which takes half a minute"
	@$(BIN)/python -c 'import ottla_pipeline.landing.parsing.kernels' 2>/dev/null || true
	@touch $(VENV)/.broker $(VENV)/.web $@

$(VENV)/.web $(VENV)/.docs $(VENV)/.lock $(VENV)/.sbom: $(VENV)/.%: pyproject.toml
	@$(INSTALL) $*
	@touch $@
