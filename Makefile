# The only definition of a check: pre-commit and .ci/run call these targets.
#
# PYTHON  the interpreter of the virtual environment (default: a python3 from 3.11 on)
# TORCH   auto (default) | cpu | cuda | default; which build of torch pip is asked for, see torch_index below
# ARGS    handed to the program of the target: make test ARGS='-k abort', make demo ARGS=--exit

VENV := .venv
PEERS := .venv-peers
BIN := $(VENV)/bin
TORCH ?= auto
ARGS ?=
TORCH_CPU_INDEX := https://download.pytorch.org/whl/cpu

# The first that torch has been tested with; a newer python3 only if there is no other.
supported = $(shell $(1) -c 'import sys; (3, 11) <= sys.version_info[:2] <= (3, $(2)) and print("$(1)")' 2>/dev/null)
PYTHON ?= $(firstword $(foreach name,python3 python3.11 python3.12 python3.13,$(call supported,$(name),13)) \
	$(call supported,python3,99) python3)

# On Linux without an NVIDIA driver PyTorch's own index has a build without CUDA, 2.5 GB smaller than PyPI's. Where pip
# has an index or wheels of its own, those are asked alone: the other may be out of reach.
define torch_index
$$(case "$(TORCH)" in \
	cpu) echo --extra-index-url $(TORCH_CPU_INDEX) ;; \
	auto) [ "$$(uname -s)" != Linux ] || command -v nvidia-smi >/dev/null || [ -e /proc/driver/nvidia ] \
		|| $(BIN)/pip config list | grep -E 'find-links|index-url' >/dev/null || echo --extra-index-url $(TORCH_CPU_INDEX) ;; \
	cuda|default) ;; \
	*) echo "--unknown-TORCH=$(TORCH)" ;; \
esac)
endef
install = $(BIN)/python deploy/install.py -c constraints.txt -e '.[$(1)]' $(torch_index)

# bandit's tests for code that comes out of data: eval, exec, pickle, marshal, yaml.load, torch.load, a shell.
RUNS_DATA := B102,B301,B302,B307,B506,B602,B604,B605,B609,B614

# One more than cores: the tests of whole processes wait most of their time.
TEST_PROCESSES = $(shell cores=$$(getconf _NPROCESSORS_ONLN); echo $$((cores < 4 ? cores + 1 : 4)))

.DEFAULT_GOAL := help
.PHONY: help demo test check audit fmt docs bench bench-quick bench-peers bench-peers-quick chaos compose-test clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.run ## The whole system on this machine, with 24 jobs to look at; ARGS=--exit stops it at the end
	@$(BIN)/safelight demo $(ARGS)

test: $(VENV)/.ok ## Every test, against servers that the tests start themselves; ARGS goes to pytest
	$(BIN)/pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder $(ARGS)

check: $(VENV)/.ok ## Lint, format, types, the direction of imports, risky calls, known vulnerabilities, the compose files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/bandit -q -c pyproject.toml -r tasks engine worker api_stub
	$(BIN)/bandit -q -c pyproject.toml -t $(RUNS_DATA) -r bench deploy docs_gen examples training
	@$(BIN)/python deploy/audit.py
	@if docker compose version >/dev/null 2>&1; then \
		docker compose config -q && docker compose -f docker-compose.yml -f compose.gpu.yml config -q \
		&& echo "compose files: ok"; \
	else echo "note: no docker with the compose plugin on this machine; the compose files were not checked"; fi

audit: $(VENV)/.ok ## What is installed against the list of known vulnerabilities at osv.dev
	$(BIN)/python deploy/audit.py

fmt: $(VENV)/.ok ## Format, and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.ok ## docs/reference/ again, from the code
	$(BIN)/python -m docs_gen

bench: $(VENV)/.ok ## Every table of bench/README.md, half an hour on an idle machine; ARGS='--only growth cost'
	$(BIN)/python -m bench $(ARGS)

bench-quick: $(VENV)/.ok ## The same with few jobs, three minutes, and how far its figures are from bench/baseline.json
	$(BIN)/python -m bench --quick $(ARGS)
	$(BIN)/python -m bench.drift

bench-peers: $(VENV)/.ok $(PEERS)/.ok ## Beside Celery, LitServe, Ray Serve, BentoML and others; 25 minutes on an idle machine
	OMP_NUM_THREADS=1 BENCH_PEERS=$(PEERS) $(BIN)/python -m bench.peers $(ARGS)

bench-peers-quick: $(VENV)/.ok $(PEERS)/.ok ## The same with three systems and few requests; three minutes
	OMP_NUM_THREADS=1 BENCH_PEERS=$(PEERS) $(BIN)/python -m bench.peers --quick $(ARGS)

chaos: $(VENV)/.ok ## Ten minutes of kills, cuts and lost replies, counted; ARGS='--seconds 60 --seed 7', docs/reliability.md
	$(BIN)/python -m tests.chaos $(ARGS)

compose-test: $(VENV)/.ok ## docker-compose.yml for real: builds, starts and drives it; needs root on Linux, but no registry
	deploy/compose-test/run $(ARGS)

clean: ## Remove data, pictures and caches; .venv stays
	rm -rf .local outputs build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './$(VENV)*' -prune -exec rm -rf {} +

# .run: what the demo needs. .ok: that and the tools of a developer.
$(VENV)/.run: pyproject.toml constraints.txt | $(BIN)/pip
	@echo "installing into $(VENV): once, 1.8 GB, most of it torch; some minutes"
	@$(call install,worker$(,)api$(,)local)
	@touch $@

$(VENV)/.ok: pyproject.toml constraints.txt | $(BIN)/pip
	@echo "installing into $(VENV), with the tools of a developer: once, 2 GB, most of it torch; some minutes"
	@$(call install,worker$(,)api$(,)local$(,)dev)
	@touch $(VENV)/.run $@

# The peers of the bench want older releases of what we use: environments of their own, with the same build of torch.
$(PEERS)/.ok: bench/peers/requirements.txt bench/peers/requirements-arq.txt constraints.txt | $(BIN)/pip
	@echo "installing the peers into $(PEERS) (once; three minutes)"
	@$(BIN)/python -m venv $(PEERS) && $(BIN)/python -m venv $(PEERS)/arq
	@grep -E '^(torch|diffusers|transformers)==' constraints.txt >$(PEERS)/constraints.txt
	@$(PEERS)/bin/pip install --quiet --disable-pip-version-check -c $(PEERS)/constraints.txt \
		-r bench/peers/requirements.txt $(torch_index)
	@$(PEERS)/arq/bin/pip install --quiet --disable-pip-version-check -r bench/peers/requirements-arq.txt
	@touch $@

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed; name one: make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }

, := ,
