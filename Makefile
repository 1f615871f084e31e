# Kernel Workbook. Needs Python 3.11 or newer and a C++ compiler; everything else is installed into .venv.
#   make run PYTHON=python3.12                 use another Python
#   make run ARGS="-p n_rows=512"              options for `workbook run`
#   make test ARGS="tests/timing -x" SEED=3    part of the tests, with other random numbers
PYTHON ?= python3
ARGS ?=
SEED ?= 0

VENV := .venv
STAMP := $(VENV)/.installed
# The environment of `make latest`. WITH names versions to try instead: make latest WITH="torch==2.11.*"
LATEST := build/latest-venv
WITH ?=
BIN := $(VENV)/bin
# Kernels and compilers have to find this environment's ninja; the recipes below call its programs by path.
export PATH := $(CURDIR)/$(BIN):$(PATH)
# If another environment is active, IPython would warn about it.
unexport VIRTUAL_ENV
# Every process would compile the code and rewrite the tests' assertions anew.
unexport PYTHONDONTWRITEBYTECODE

# One pytest process more than there are cores (one in all on a machine with a GPU); the longest files start first.
WORKERS := -n auto --dist loadfile --no-loadscope-reorder
PYTEST = TEST_SEED=$(SEED) $(BIN)/python -m pytest $(WORKERS)

.PHONY: help run test test-slow compat latest lab minutes record bench form book
help:
	@echo "make run        run all lessons; open build/course/index.html"
	@echo "make lab        open the first lesson in JupyterLab"
	@echo "make book       build the book from the executed lessons; open build/book/index.html"
	@echo "make test       check the format and run the tests of the tools and the core lessons; about 8 minutes on two cores"
	@echo "make test-slow  run the deeper lessons' tests, attacks, kills, clusters, more of the browser, a sample of the frauds; about half an hour on two cores"
	@echo "make thorough   for releases: the whole corpus of frauds, more seeds, and every lesson from the other records"
	@echo "make compat     test other versions from the network: Colab's, CUDA 12's, and the newest (make latest)"
	@echo "make form       format and lint the code, and bring the notebooks into their canonical form"
	@echo "make minutes    run all lessons and compute how many minutes they take a reader"
	@echo "make record     on a GPU: run the lessons and labs and store their measurements as the records"
	@echo "make bench      print times, memory and sizes; on a GPU also performance ratios"

# What both environments need before they can be created.
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

# The stamp stands for the whole environment: it is written last, and again when the dependencies change.
$(STAMP): pyproject.toml constraints.txt
	$(NEEDS)
	@echo "Setting up $(VENV) from constraints.txt; the first time this downloads torch and takes some minutes."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[lab,dev,cluster,book]'
	@touch $@

run: $(STAMP)
	@$(BIN)/workbook run notebooks --out build/course $(ARGS)

# Uses the lessons that `make run` executed, or runs them first.
book: $(STAMP)
	@test -f build/course/report.json || $(BIN)/workbook run notebooks --out build/course
	@$(BIN)/workbook book $(ARGS)

test: $(STAMP)
	$(BIN)/workbook form --check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo --no-cache
	$(PYTEST) -m "not slow and not thorough and not compat" $(ARGS)

test-slow: $(STAMP)
	$(PYTEST) -m slow $(ARGS)

thorough: $(STAMP)
	$(PYTEST) -m thorough $(ARGS)

compat: $(STAMP) latest
	$(PYTEST) -m compat $(ARGS)

# Always upgrades to what has been released since the last call. tests/latest.py prints the versions and results.
latest:
	$(NEEDS)
	@echo "Setting up $(LATEST) without constraints.txt; the first time this downloads several GB."
	@test -x $(LATEST)/bin/python || $(PYTHON) -m venv $(LATEST)
	$(LATEST)/bin/python -m pip install --disable-pip-version-check --upgrade --upgrade-strategy eager -e '.[lab,dev,cluster,book]' $(foreach one,$(WITH),'$(one)')
	@TEST_SEED=$(SEED) $(LATEST)/bin/python tests/latest.py $(if $(ARGS),--part) -- $(WORKERS) $(ARGS)

minutes: $(STAMP)
	@$(BIN)/workbook run notebooks --out build/course $(ARGS)
	@$(BIN)/workbook minutes
	@$(BIN)/workbook form

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
