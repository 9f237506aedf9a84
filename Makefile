# `make demo` and `make test` need Python 3.11 or newer and nothing else: each builds its own environment in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-all test-browser coverage docs check lint format benchmarks clean

demo: $(VENV)/.installed
	$(BIN)/boostvi demo --out demo-output

test: check
	$(BIN)/pytest -n 2 --dist loadfile

# With the compiler's full effort for models, as users have it.
test-all: check
	XLA_FLAGS= $(BIN)/pytest -n 2 --dist loadfile -m ""

# The report page in a real browser; a browser that is missing is an error here, elsewhere its tests are skipped.
test-browser: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,browser]'
	@if ! { command -v chromium && command -v chromedriver; } > /dev/null; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
	    apt-get install --yes chromium chromium-driver || { apt-get update && apt-get install --yes chromium chromium-driver; }; \
	  else \
	    echo "make test-browser needs chromium and chromedriver: sudo apt-get install chromium chromium-driver" >&2; exit 1; \
	  fi; \
	fi
	BOOSTVI_BROWSER=required $(BIN)/pytest tests/test_browser.py

coverage: $(VENV)/.installed
	$(BIN)/pytest -n 2 --dist loadfile --cov=boostvi --cov-report=term-missing:skip-covered

docs: $(VENV)/.installed
	$(BIN)/sphinx-build -W -q docs docs/_build
	@echo 'open docs/_build/index.html'

check: lint
	$(BIN)/mypy

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

benchmarks: $(VENV)/.installed
	$(BIN)/python benchmarks/step_overhead.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/dimensions.py
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	$(BIN)/python benchmarks/compare.py
	$(BIN)/python benchmarks/honesty.py
	$(BIN)/python benchmarks/cold_start.py
	$(BIN)/python benchmarks/models.py
	$(BIN)/python benchmarks/posteriors.py
	$(BIN)/python benchmarks/kill.py

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "boostvi needs Python 3.11 or newer; run make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	touch $@

clean:
	rm -rf $(VENV) demo-output docs/_build build dist .pytest_cache .mypy_cache .ruff_cache
