# Two commands need nothing but Python >= 3.11 and make: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RUN := demo-run

.PHONY: demo test test-all bench lint clean

# The stamp names what was installed, so that a second call does nothing and a change of pyproject.toml reinstalls.
$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "archplace needs Python 3.11 or newer: make PYTHON=python3.12 …")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

demo: $(VENV)/.installed
	$(BIN)/archplace search runs/llama2-7b.yaml --out $(RUN)
	@$(BIN)/archplace report $(RUN)

test: lint
	$(BIN)/python -m pytest -m 'not slow' tests

test-all: lint
	$(BIN)/python -m pytest tests

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: $(VENV)/.installed-dev
	$(BIN)/python -m pytest benchmarks --benchmark-only

clean:
	rm -rf $(VENV) $(RUN) build *.egg-info
