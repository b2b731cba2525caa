# Two commands need nothing but Python >= 3.11 and make: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RUN := demo-run

.PHONY: demo test test-all bench lint lint-tree clean

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

# One thread for each process: the processes fill the cores.
test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m 'not slow' -n auto --maxprocesses 4 --dist loadfile tests

test-all: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile tests

# The tools that walk the tree follow the links in archplace/. Where a clone has none, they look at a copy that has folders.
lint: $(VENV)/.installed-dev
	@if [ -d archplace/search ]; then $(MAKE) --no-print-directory lint-tree TREE=.; else \
	  rm -rf build/tree && mkdir -p build/tree && \
	  cp -r archplace arch_configs workloads costmodel search tests benchmarks pyproject.toml build/tree && \
	  for room in arch_configs workloads costmodel search; do \
	    rm build/tree/archplace/$$room && cp -r $$room build/tree/archplace/$$room; done && \
	  $(MAKE) --no-print-directory lint-tree TREE=build/tree; fi

lint-tree:
	cd $(TREE) && $(abspath $(BIN))/ruff check .
	cd $(TREE) && $(abspath $(BIN))/ruff format --check .
	cd $(TREE) && $(abspath $(BIN))/mypy
	cd $(TREE) && PYTHONPATH=. $(abspath $(BIN))/lint-imports --no-cache

bench: $(VENV)/.installed-dev
	$(BIN)/python -m pytest benchmarks --benchmark-only

clean:
	rm -rf $(VENV) $(RUN) build *.egg-info
