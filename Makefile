# Kernel Workbook. Needs Python 3.11 or newer and a C++ compiler; everything else goes into .venv.
#   make run PYTHON=python3.12            another Python
#   make run ARGS="-p n_rows=512"         options of `workbook run`
#   make test ARGS="tests/timing -x" SEED=3    a part of the tests, with other random numbers
PYTHON ?= python3
ARGS ?=
SEED ?= 0
MINUTES ?= 30

VENV := .venv
STAMP := $(VENV)/.installed
# Of the newest releases, for `make latest`, which also tries others: make latest WITH="torch==2.11.*"
LATEST := build/latest-venv
WITH ?=
BIN := $(VENV)/bin
# Kernels and compilers find this environment's ninja; the recipes below name its programs by path.
export PATH := $(CURDIR)/$(BIN):$(PATH)
# An environment that happens to be active is another one, and IPython warns of it.
unexport VIRTUAL_ENV

# pytest's processes: as many as cores, one where there is a GPU; the files that take longest begin.
WORKERS := -n auto --dist loadfile --no-loadscope-reorder

.PHONY: help run test soak latest lab record bench form book
help:
	@echo "make run     run the course; the result is build/course/index.html"
	@echo "make book    the executed course as a book; the first page is build/book/index.html"
	@echo "make test    everything that CI checks"
	@echo "make soak    the tests that draw random numbers, again and again with others; MINUTES=30"
	@echo "make latest  the course, the labs' solutions and the tests with the newest releases of all packages"
	@echo "make lab     open JupyterLab on the first lesson"
	@echo "make record  on a GPU: run the course and keep its measurements as the records"
	@echo "make bench   print times, memory and sizes; on a GPU also the performance ratios"
	@echo "make form    format and lint, and bring the notebooks into their canonical form"

# What both environments need before they are made.
define NEEDS
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "'$(PYTHON)' is missing or older than Python 3.11: install Python 3.11 or newer, or name one: make $(firstword $(MAKECMDGOALS)) PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "'$(PYTHON)' has no venv or no pip: install them (on Debian and Ubuntu: apt-get install python3-venv)." >&2; exit 1; }
	@command -v "$${CXX:-c++}" >/dev/null || command -v g++ >/dev/null || command -v clang++ >/dev/null || \
	  { echo "There is no C++ compiler: install one (on Debian and Ubuntu: apt-get install g++)." >&2; exit 1; }
	@$(PYTHON) -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' || \
	  { echo "'$(PYTHON)' has no header files, which C++ extensions need: install them (on Debian and Ubuntu: apt-get install python3-dev)." >&2; exit 1; }
endef

# The stamp stands for the whole environment: it is made last, and made anew when the dependencies change.
$(STAMP): pyproject.toml constraints.txt
	$(NEEDS)
	@echo "Setting up $(VENV) from constraints.txt; the first time this downloads torch and takes some minutes."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[lab,dev,cluster,book]'
	@touch $@

run: $(STAMP)
	@$(BIN)/workbook run notebooks --out build/course $(ARGS)

# What was executed before is taken; `make run` executes it anew.
book: $(STAMP)
	@test -f build/course/report.json || $(BIN)/workbook run notebooks --out build/course
	@$(BIN)/workbook book $(ARGS)

test: $(STAMP)
	$(BIN)/workbook form --check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo --no-cache
	TEST_SEED=$(SEED) $(BIN)/python -m pytest $(WORKERS) $(ARGS)

soak: $(STAMP)
	@$(BIN)/python tests/soak.py --minutes $(MINUTES) --first $(SEED) -- $(WORKERS) $(ARGS)

# No stamp: each call takes what has been released since. tests/latest.py says what it took and what passed.
latest:
	$(NEEDS)
	@echo "Setting up $(LATEST) without constraints.txt; the first time this downloads several GB."
	@test -x $(LATEST)/bin/python || $(PYTHON) -m venv $(LATEST)
	$(LATEST)/bin/python -m pip install --disable-pip-version-check --upgrade --upgrade-strategy eager -e '.[lab,dev,cluster,book]' $(foreach one,$(WITH),'$(one)')
	@TEST_SEED=$(SEED) $(LATEST)/bin/python tests/latest.py $(if $(ARGS),--part) -- $(WORKERS) $(ARGS)

lab: $(STAMP)
	$(BIN)/jupyter lab notebooks/01_profiling.ipynb

record: $(STAMP)
	@$(BIN)/python -c 'import sys; from helpers import device; sys.exit(None if device.has_gpu() else "make record keeps measurements of an NVIDIA GPU, and torch can use none here (workbook doctor says why): run it on a machine with a GPU.")'
	@WORKBOOK_RECORD=1 $(BIN)/workbook run notebooks --out build/course $(ARGS)
	@WORKBOOK_RECORD=1 $(BIN)/workbook run labs/solutions --out build/labs $(ARGS)

bench: $(STAMP)
	@set -e; for file in benchmarks/*.py; do echo "== $$file"; $(BIN)/python "$$file"; done

form: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/workbook form
