# Two commands matter: `make demo` runs the main job on the embedded voice, `make test` runs the
# tests. Both build .venv from nothing, do nothing where it is up to date, and pin every version.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONSTRAINTS := .ci/constraints.txt
TORCH := $(shell sed -n 's/^torch==/torch==/p' $(CONSTRAINTS))
PIP := $(BIN)/python -m pip --disable-pip-version-check
DEMO_DIR ?= results/demo
PYTEST_ARGS ?=

.PHONY: demo test check bench reference-demo gpu-check figures clean

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("earwitness needs Python 3.11 or newer; set PYTHON=") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)

# torch goes first and by its pin: a bare requirement could pull a build several gigabytes larger.
$(VENV)/.demo-installed: pyproject.toml $(CONSTRAINTS) | $(BIN)/python
	$(PIP) install -q -c $(CONSTRAINTS) $(TORCH)
	$(PIP) install -q -c $(CONSTRAINTS) -e '.[embedded,whisper]'
	touch $@

$(VENV)/.dev-installed: $(VENV)/.demo-installed
	$(PIP) install -q -c $(CONSTRAINTS) -e '.[embedded,whisper,codecs,reference,cluster,dev]'
	touch $@

demo: $(VENV)/.demo-installed
	$(BIN)/earwitness demo -o $(DEMO_DIR)

test: $(VENV)/.dev-installed
	$(BIN)/python -m pytest $(PYTEST_ARGS)

check: $(VENV)/.dev-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.dev-installed
	$(BIN)/python -m pytest -m bench -s $(PYTEST_ARGS)

clean:
	rm -rf $(VENV) .venv-oracle build *.egg-info
