# `make run` and `make test` set everything up first; a second call finds the stamps in .venv and starts at once.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: run test test-gpu setup native sanitize fuzz fault checks help clean

TORCH ?= 2.13.0
VENV := .venv
PYTHON := $(VENV)/bin/python
PIP := $(PYTHON) -m pip --disable-pip-version-check --no-input
CPU_INDEX := https://download.pytorch.org/whl/cpu
NATIVE_SOURCES := $(shell find native -type f)

run: setup ## Train a GCN on a real graph, layer tensors on disk (experiment=debian_gcn)
	$(VENV)/bin/grinnder train experiment=debian_gcn

test: setup ## Run every test, those of the native code too, on up to four cores
	$(PYTHON) -m pytest -n auto --maxprocesses 4 --dist loadfile $(ARGS)

test-gpu: setup ## Run the tests that need a GPU; without one they skip and say why
	GRINNDER_TEST_GPU=1 $(PYTHON) -m pytest -m requires_gpu -rs $(ARGS)

setup: $(VENV)/.stamp-native ## Virtual environment, packages, native build

native: ## Rebuild the native libraries
	@rm -f $(VENV)/.stamp-native
	@$(MAKE) --no-print-directory $(VENV)/.stamp-native

fuzz: setup ## Damaged files for every parser, MINUTES each (MINUTES=10; ARGS="-k npz" for one of them)
	GRINNDER_FUZZ_MINUTES=$(or $(MINUTES),10) $(PYTHON) -m pytest tests/fuzz $(ARGS)

fault: setup ## Kills, injected I/O faults and damage, all of them, with counts (about ten minutes)
	GRINNDER_FULL_MATRIX=1 $(PYTHON) -m pytest tests/fault tests/storage $(ARGS)

sanitize: $(VENV)/.stamp-packages ## Run the C tests under ASan + UBSan, those of libraries with threads of their own under TSan
	@export PATH="$(CURDIR)/$(VENV)/bin:$$PATH"; \
	for kind in address thread; do \
	    build=build/sanitize-$$kind; \
	    cmake -S native -B $$build -DGRINNDER_SANITIZE=$$kind -DGRINNDER_TESTS=ON -DGRINNDER_CUDA=OFF >/dev/null; \
	    cmake --build $$build -j2; \
	    ctest --test-dir $$build --output-on-failure; \
	done

checks: setup ## Lint, types, layering
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy
	$(PYTHON) -m pytest tests/test_layering.py

help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 16

clean: ## Remove build products; never results, data or the environment
	rm -rf build dist .pytest_cache .ruff_cache .mypy_cache
	find grinnder_cli conf tests -type d -name __pycache__ -prune -exec rm -rf {} +
	rm -f $(VENV)/.stamp-native

# The first Python >= 3.10 that can make environments.
$(VENV)/.stamp-venv:
	@sh native/system_packages.sh
	@for python in python3 python3.11 python3.12 python3.13 python3.10; do \
	    if "$$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then \
	        echo "grinnder: environment with $$("$$python" --version)"; "$$python" -m venv $(VENV); touch $@; exit 0; \
	    fi; \
	done; \
	echo "grinnder: no Python >= 3.10 with venv found; install one (Debian: apt-get install python3-venv)" >&2; exit 1

# PyPI's Linux wheel of torch brings gigabytes of CUDA; without a GPU ask for the CPU build, from wherever pip already
# looks, else from PyTorch's own index.
$(VENV)/.stamp-packages: pyproject.toml | $(VENV)/.stamp-venv
	@if $(PYTHON) -c "import torch" 2>/dev/null; then true; \
	elif [ -e /dev/nvidia0 ] || command -v nvidia-smi >/dev/null; then \
	    $(PIP) install -qq "torch==$(TORCH)"; \
	else \
	    $(PIP) install -qq "torch==$(TORCH)+cpu" 2>/dev/null \
	    || $(PIP) install -qq --timeout 20 --retries 2 --extra-index-url $(CPU_INDEX) "torch==$(TORCH)+cpu" \
	    || { echo "grinnder: no CPU build of torch $(TORCH) found; install torch into $(VENV), then call make again" >&2; \
	         exit 1; }; \
	fi
	@$(PIP) install -qq "scikit-build-core>=0.11" "cmake>=3.20" "ninja>=1.11"
	@$(PIP) install -qq --no-build-isolation -e ".[dev]"
	@touch $@

$(VENV)/.stamp-native: $(VENV)/.stamp-packages $(NATIVE_SOURCES)
	@$(PIP) install -qq --no-build-isolation --no-deps -e .
	@$(PYTHON) -c "from grinnder_cli import _lib; print('grinnder:', 'native kernels built' + (', for CUDA too' if _lib.find('grinnder_cuda') else '') if _lib.find('grinnder_cpu') else 'no native kernels (no C++ compiler?); torch replaces them, slower')"
	@touch $@
