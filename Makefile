# make run    install what is needed, prepare the default model, start Headrace
# make test   lint, types and all tests
# make check  lint and types alone
# make bench  the benchmarks
# make soak   random kills and pauses under load; SOAK_ARGS='--seconds 3600 --clients 100 --seed 2'
# make clean  remove what the other targets installed here (the model cache stays)
#
# PYTHON=/path/to/python chooses the interpreter, VENV=/path/to/folder the place of the environment.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
TORCH := torch==2.13.0
PYTEST_ARGS ?=
# Two rooms of tests are run at a time, in the order of their names: the last ones are short.
AT_ONCE := -n 2 --dist loadgroup --no-loadscope-reorder
SOAK_ARGS ?=

# What an activated environment or a user's own settings would change
unexport PYTHONHOME PYTHONPATH
export PIP_DISABLE_PIP_VERSION_CHECK := 1
PIP := $(BIN)/python -m pip install

.PHONY: run test ready-to-test check bench soak clean install install-dev
.DELETE_ON_ERROR:

run: install
	@exec $(BIN)/headrace up

test:
	@$(MAKE) -j2 ready-to-test
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pytest $(AT_ONCE) $(PYTEST_ARGS)

# Two at a time: the second environment installs beside the first, and beside the types' check.
ready-to-test: check tests/node/node_modules/.installed $(VENV)/openai2/.installed

check: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: install-dev
	$(BIN)/python -m ops.bench $(ARGS)

soak: install-dev
	$(BIN)/headrace prepare
	$(BIN)/python -m tests.soak $(SOAK_ARGS)

clean:
	rm -rf $(VENV) tests/node/node_modules build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

install: $(VENV)/.installed
install-dev: $(VENV)/.installed-dev

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Headrace needs Python 3.11 or newer; '$(PYTHON)' is not. Try: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
		echo "The environment could not be made: is Python's venv module installed (Debian: python3-venv)?" >&2; exit 1; }
	@touch $@

# On its own and by this very spelling, so that pip takes the build that fits the machine.
$(VENV)/.installed-torch: $(VENV)/.created
	$(PIP) $(TORCH)
	@touch $@

$(VENV)/.installed: $(VENV)/.installed-torch pyproject.toml constraints.txt
	$(PIP) -c constraints.txt setuptools
	$(PIP) -c constraints.txt --no-build-isolation -e '.[api,worker,batch,broker,prepare]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) -c constraints.txt --no-build-isolation -e '.[api,worker,batch,broker,prepare,dev]'
	@touch $@

# Node.js itself is among the packages for development, so the machine needs none of its own.
tests/node/node_modules/.installed: tests/node/package-lock.json $(VENV)/.installed-dev
	cd tests/node && PATH="$(abspath $(BIN)):$$PATH" npm ci --no-audit --no-fund
	@touch $@

# Tools that still use version 2 of OpenAI's SDK have an environment of their own: it cannot be installed beside 3.
$(VENV)/openai2/.installed: tests/openai2/requirements.txt $(VENV)/.created
	$(BIN)/python -m venv $(VENV)/openai2
	$(VENV)/openai2/bin/python -m pip install -r tests/openai2/requirements.txt
	@touch $@
