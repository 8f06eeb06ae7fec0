# `make demo` and `make test` set up everything they need in .venv; a second run installs nothing.
# Another interpreter: make demo PYTHON=python3.12

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
PIP_INSTALL := $(RUN) -m pip install --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test quick lint docs tutorials clean

demo: $(VENV)/.installed
	$(RUN) examples/matmul_v1.py

# A worker for each core. Each begins with a stretch of the files, so that neighbours share what they compiled, and who
# is done takes from the others' ends. A file alone is quicker without: pytest tests/cli/test_cli.py
# Every process may keep what it compiled: those that the tests start would each compile the package again.
test quick: export PYTHONDONTWRITEBYTECODE =
test: $(VENV)/.installed-dev
	$(RUN) -m pytest --numprocesses auto --maxprocesses 8 --dist worksteal

quick: $(VENV)/.installed-dev  # no test that is slow, starts a process, compiles a kernel or needs a GPU
	$(RUN) -m pytest --numprocesses auto --maxprocesses 8 --dist worksteal --quick

lint: $(VENV)/.installed-dev
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

docs: $(VENV)/.installed-dev  # build/site/index.html
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict --quiet

tutorials: $(VENV)/.installed-dev  # refresh the pages' code, outputs and pictures
	$(RUN) tutorials/refresh.py

clean:
	rm -rf $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python is %d.%d here; this project needs 3.11 or newer: make demo PYTHON=python3.11" % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP_INSTALL) --editable '.[dev,docs]'
	@touch $@
