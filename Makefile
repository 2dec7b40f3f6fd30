# Every target sets up what it needs in .venv; a second run finds it done.
#
#   make demo    an upstream, a store, a gateway and keys, with ready curl lines; Ctrl-C ends it
#   make test    the tests; with CI=true also their branch coverage; JOBS=4 for more at once
#   make check   format, lint and types
#   make bench   the benchmarks; a case that takes 5 % more instructions than its baseline fails
#   make loadtest  callers of each plan against the demo, two minutes; build/loadtest/report.html
#   make dashboard  renew helm/files/dashboard.json, and the picture of its panels (5 minutes)
#   make helm    fetch helm 3 and 4 for the chart's tests, into build/helm
#   make fuzz    the fuzzer, for FUZZ_SECONDS=600; what it finds is kept in build/fuzz
#   make lock    renew constraints.txt
#   make clean   remove what was made
#
# PYTHON=python3.12 picks another interpreter than the first of these that is 3.11 or newer.

PYTHONS  := python3 python3.13 python3.12 python3.11 python3.14
VENV     := .venv
BIN      := $(VENV)/bin
COVERAGE := 90
FUZZ_SECONDS := 600
# Tests that kill servers and watch what comes of it have the machine to themselves. The others run
# in so many processes, each file as a whole in one of them.
ALONE    := tests/hostile tests/stores tests/end_to_end
JOBS     := 2
PYTEST   := $(BIN)/python -m pytest

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1

.PHONY: demo test check bench loadtest dashboard helm fuzz lock clean
.DELETE_ON_ERROR:

demo: $(VENV)/.installed
	$(BIN)/gateway demo

test: $(VENV)/.installed-test $(if $(CI),$(VENV)/.installed-load)
	$(if $(CI),$(BIN)/coverage erase)
	$(PYTEST) $(ALONE) $(if $(CI),--cov --cov-report=)
	$(PYTEST) $(addprefix --ignore=,$(ALONE)) -n $(JOBS) --dist loadfile \
	  $(if $(CI),--cov --cov-append --cov-report=term --cov-fail-under=$(COVERAGE))

check: $(VENV)/.installed-test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/.installed-test
	$(BIN)/python -m tests.bench

loadtest: $(VENV)/.installed-load
	$(BIN)/python -m loadtests.traffic

dashboard: $(VENV)/.installed-test
	$(BIN)/python helm/scripts/dashboard.py
	mkdir -p build
	$(BIN)/python -m tests.helm.picture --minutes 5 > build/panels.svg
	mv build/panels.svg helm/scripts/panels.svg

helm: $(VENV)/.installed-test
	$(BIN)/python -m tests.helm.tools

fuzz: $(VENV)/.installed-test
	mkdir -p build/fuzz/corpus
	$(BIN)/python -m tests.fuzz.fuzz_downstream build/fuzz/corpus -artifact_prefix=build/fuzz/ -max_total_time=$(FUZZ_SECONDS)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt setuptools
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable .
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[test,fuzz]'
	touch $@

$(VENV)/.installed-load: $(VENV)/.installed-test
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[load]'
	touch $@

# The first interpreter that is new enough; one that PYTHON names is the only one tried.
$(BIN)/python:
	@for python in $(or $(PYTHON),$(PYTHONS)); do \
	  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "$$python -m venv $(VENV)"; \
	    exec "$$python" -m venv $(VENV); \
	  fi; \
	done; \
	echo 'make: no Python 3.11 or newer among: $(or $(PYTHON),$(PYTHONS)). Install one, or name it: make PYTHON=/path/to/python3' >&2; \
	exit 1

# From a fresh environment of the oldest Python we support, so that each pin exists for it.
lock:
	rm -rf build/lock
	$(or $(PYTHON),python3.11) -m venv build/lock
	build/lock/bin/python -m pip install --quiet --upgrade setuptools
	build/lock/bin/python -m pip install --quiet --no-build-isolation '.[test,fuzz,load]'
	grep '^#' constraints.txt > build/constraints.txt
	build/lock/bin/python -m pip freeze --all --exclude pip --exclude rate-limiting-gateway >> build/constraints.txt
	mv build/constraints.txt constraints.txt
	rm -rf build/lock

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage* htmlcov coverage.xml
	find gateway tests loadtests -name __pycache__ -type d -prune -exec rm -rf {} +
