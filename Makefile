# Two commands matter: `make demo` runs the main job on the embedded voice, `make test` runs the
# tests. Both build .venv from nothing, do nothing where it is up to date, and pin every version.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONSTRAINTS := .ci/constraints.txt
TORCH := $(shell sed -n 's/^torch==/torch==/p' $(CONSTRAINTS))
PIP := $(BIN)/python -m pip --disable-pip-version-check
ORACLE := .venv-oracle
ORACLE_CONSTRAINTS := .ci/constraints-oracle.txt
ORACLE_PIP := $(ORACLE)/bin/python -m pip --disable-pip-version-check
DEMO_DIR ?= results/demo
REFERENCE_DEMO_DIR ?= results/reference-demo
# Where and with which Python `make gpu-check` runs: a GPU machine has a CUDA build of torch already,
# and what else it lacks is brought along by `make gpu-wheels`, since it may have no network.
GPU_CHECK_DEVICE ?= cuda
GPU_CHECK_DIR ?= results/gpu-check-$(GPU_CHECK_DEVICE)
# A file such as out/gpu-check.tar.gz, where only a few small files can be brought back.
GPU_CHECK_PACK ?=
GPU_CHECK_ARGS ?=
GPU_PYTHON ?= $(if $(filter cpu,$(GPU_CHECK_DEVICE)),$(BIN)/python,python3)
GPU_PYTHON_VERSION ?= 3.12
GPU_WHEELS := build/gpu-wheels
GPU_SITE := build/gpu-site
PYTEST_ARGS ?=
TEST_WORKERS ?= 2
RUN_ARGS ?=

.PHONY: demo test dev check bench oracle reference-demo gpu-check gpu-wheels figures clean

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("earwitness needs Python 3.11 or newer; set PYTHON=") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)

# torch goes first and by its pin: a bare requirement could pull a build several gigabytes larger.
$(VENV)/.demo-installed: pyproject.toml $(CONSTRAINTS) | $(BIN)/python
	$(PIP) install -q -c $(CONSTRAINTS) $(TORCH)
	$(PIP) install -q -c $(CONSTRAINTS) -e '.[embedded,whisper]'
	touch $@

$(VENV)/.dev-installed: $(VENV)/.demo-installed
	$(PIP) install -q -c $(CONSTRAINTS) -e '.[embedded,whisper,codecs,reference,dev]'
	touch $@

# The official qwen-tts package, against which the reference engine is checked. Its pins clash with
# ours, so it has an environment of its own; of its requirements only those it really imports.
$(ORACLE)/.installed: $(ORACLE_CONSTRAINTS) | $(BIN)/python
	$(BIN)/python -m venv $(ORACLE)
	$(ORACLE_PIP) install -q -c $(ORACLE_CONSTRAINTS) $(TORCH)
	$(ORACLE_PIP) install -q -c $(ORACLE_CONSTRAINTS) transformers accelerate tokenizers \
		huggingface-hub safetensors librosa soundfile einops
	$(ORACLE_PIP) install -q -c $(ORACLE_CONSTRAINTS) --no-deps qwen-tts
	touch $@

oracle: $(ORACLE)/.installed

demo: $(VENV)/.demo-installed
	$(BIN)/earwitness demo -o $(DEMO_DIR)

test: $(VENV)/.dev-installed $(ORACLE)/.installed
	.ci/chromium
	$(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadfile $(PYTEST_ARGS)

# What tests and checks need, without running them: `.venv/bin/pytest tests/engines`, for example.
dev: $(VENV)/.dev-installed

check: $(VENV)/.dev-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The README's pictures, drawn again from the committed runs.
figures: $(VENV)/.demo-installed
	$(BIN)/earwitness report results/examples/two-modes -f html,md,png --no-audio > /dev/null

bench: $(VENV)/.dev-installed $(ORACLE)/.installed
	$(BIN)/python -m pytest -m bench -s $(PYTEST_ARGS)

# Four servers of random weights that differ in one setting each, under the same open-loop load.
REFERENCE_SERVE = $(BIN)/earwitness serve reference --random tiny --profile cpu --threads 1 --drain-s 1

reference-demo: $(VENV)/.dev-installed
	mkdir -p $(dir $(REFERENCE_DEMO_DIR)); log=$(REFERENCE_DEMO_DIR)-servers.log; : > $$log; \
	echo "what the servers say goes to $$log" >&2; \
	pids=; trap 'kill $$pids 2>/dev/null; wait' EXIT; \
	serve() { $(REFERENCE_SERVE) "$$@" >/dev/null 2>>$$log & pids="$$pids $$!"; }; \
	serve --port 8124; \
	serve --port 8126 --set policy=fcfs; \
	serve --port 8127 --set 'chunks={mode: fixed, ramp: [25]}'; \
	serve --port 8128 --set codec=redecode; \
	$(BIN)/earwitness run scenarios/reference-ladder.yaml -o $(REFERENCE_DEMO_DIR) $(RUN_ARGS)

gpu-wheels: $(VENV)/.dev-installed
	$(PIP) download -q -d $(GPU_WHEELS) -c $(CONSTRAINTS) --no-deps --only-binary=:all: \
		--python-version $(GPU_PYTHON_VERSION) --platform manylinux_2_28_x86_64 \
		--platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 annotated-types cffi \
		httptools jiwer orjson pybase64 pycparser pydantic pydantic-core rapidfuzz soundfile \
		typing-inspection websockets
	$(PIP) wheel -q -w $(GPU_WHEELS) --no-deps .
	du -sh $(GPU_WHEELS)

gpu-check: $(if $(filter $(BIN)/python,$(GPU_PYTHON)),$(VENV)/.dev-installed)
	if [ "$(GPU_PYTHON)" != "$(BIN)/python" ] && [ -d $(GPU_WHEELS) ]; then \
		$(GPU_PYTHON) -m pip install -q --no-index --no-deps --upgrade --target $(GPU_SITE) \
			$(GPU_WHEELS)/*.whl; fi
	PYTHONPATH=$(CURDIR):$(CURDIR)/$(GPU_SITE) $(GPU_PYTHON) -m harness.cli gpu-check \
		--device $(GPU_CHECK_DEVICE) -o $(GPU_CHECK_DIR) \
		$(if $(GPU_CHECK_PACK),--pack $(GPU_CHECK_PACK)) $(GPU_CHECK_ARGS)

clean:
	rm -rf $(VENV) $(ORACLE) build *.egg-info
