# `make serve` and `make test` do all the set-up themselves. PYTHON chooses the interpreter (3.11 or newer).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
SOURCES := pyproject.toml CMakeLists.txt constraints.txt $(wildcard native/* native/kernels/*)

# torch is needed for a graphics card only; on a machine without an NVIDIA driver the engine runs without it.
EXTRA := $(if $(wildcard /proc/driver/nvidia/version),[gpu],)
CONSTRAINTS := $(if $(EXTRA),,-c constraints.txt)

.PHONY: serve chat test test-long lint format sanitize clean

serve: $(STAMP)-run
	@$(BIN)/strata serve $(ARGS)

chat: $(STAMP)-run
	@$(BIN)/strata chat $(ARGS)

test: $(STAMP)-dev
	@$(BIN)/python tools/check.py

test-long: $(STAMP)-dev
	@$(BIN)/python tools/check.py --long

lint: $(STAMP)-dev
	@$(BIN)/python tools/check.py --no-tests

sanitize: $(STAMP)-dev
	@$(BIN)/python tools/sanitize.py

format: $(STAMP)-dev
	@$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else f"Strata needs Python 3.11 or newer; $(PYTHON) is {sys.version.split()[0]}. Set PYTHON=...")'
	@echo "Making $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check "scikit-build-core>=0.10" "nanobind>=2.4" "cmake>=3.22,<5" ninja
	@touch $@

$(STAMP)-run: $(VENV)/.made $(SOURCES)
	@echo "Installing Strata and building its extension (the first time takes about a minute) ..."
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-build-isolation -e ".$(EXTRA)" $(CONSTRAINTS)
	@touch $@

$(STAMP)-dev: $(VENV)/.made $(SOURCES)
	@echo "Installing Strata, building its extension, and installing what the checks need (the first time takes minutes) ..."
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-build-isolation -C cmake.define.STRATA_WERROR=ON -e ".[dev]" -c constraints.txt
	@touch $@ $(STAMP)-run
