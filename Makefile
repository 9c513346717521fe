# Every target sets up what it needs by itself: a .venv with pinned packages, the default model.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
OUT := build/language_reference
BEAM := $(shell sed -n 's/^apache-beam.*==//p' requirements.txt)

.DEFAULT_GOAL := help
.PHONY: help install model embed prism prism-if-go test flink test-flink test-airflow check bench dataflow clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

.venv/runtime: requirements.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11) and "Python 3.11 is needed: make PYTHON=/path/to/python3.11")'
	@echo "installing the pinned packages into .venv, which takes about two minutes"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

.venv/dev: requirements-dev.txt .venv/runtime
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@

install: .venv/runtime  ## make .venv with the pinned packages

model: .venv/runtime  ## fetch the default model into the cache (once)
	$(BIN)/python -m bert.minilm

build/language_reference.jsonl: examples/write_language_reference.py
	@mkdir -p build
	$(PYTHON) examples/write_language_reference.py $@

embed: model build/language_reference.jsonl  ## embed the Python language reference and search in it
	$(BIN)/python -m pipeline embed --input build/language_reference.jsonl --output $(OUT)
	$(BIN)/python -m pipeline search --embeddings $(OUT) --query "make an object callable" --k 3

build/bqemulator-venv/made: tests/bigquery_server.txt .venv/dev
	@mkdir -p build
	$(BIN)/python -m tests.bigquery_server
	@touch $@

build/prism: requirements.txt
	@mkdir -p build
	GOBIN=$(CURDIR)/build GOFLAGS=-modcacherw go install github.com/apache/beam/sdks/v2/go/cmd/prism@v$(BEAM)
	@touch $@

prism: build/prism  ## build Prism, a runner of Beam's; needs Go

# Without Go, or where it cannot fetch, the tests that need Prism say that they are skipped.
prism-if-go:
	@! command -v go > /dev/null || $(MAKE) --no-print-directory prism || true

test: .venv/dev model build/bqemulator-venv/made prism-if-go  ## run the tests
	$(BIN)/python -m pytest

build/flink/job_server: deploy/flink/pom.xml
	@command -v java >/dev/null && command -v mvn >/dev/null || { echo "Java 11 or 17 and Maven are needed (java, mvn)"; exit 1; }
	rm -rf $@
	mvn -B -q -f $< dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(CURDIR)/$@
	@touch $@

build/flink/libraries: deploy/flink/requirements.txt .venv/runtime
	rm -rf $@
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $@ -r $<
	@touch $@

build/flink/bin/container: requirements.txt
	@command -v go >/dev/null || { echo "Go 1.21 or newer is needed (go), to build Beam's boot program"; exit 1; }
	GOBIN=$(CURDIR)/$(@D) GOFLAGS=-modcacherw go install github.com/apache/beam/sdks/v2/python/container@v$(BEAM)
	@touch $@

flink: build/flink/job_server build/flink/libraries build/flink/bin/container  ## fetch what a Flink cluster needs

test-flink: .venv/dev model flink  ## run on a real Flink cluster, and break it (needs java, mvn, go)
	$(BIN)/python -m pytest tests/flink

build/airflow-venv/made: deploy/airflow/requirements.txt
	$(PYTHON) -m venv --clear build/airflow-venv
	build/airflow-venv/bin/python -m pip install --quiet --disable-pip-version-check uv==0.13.9
	build/airflow-venv/bin/uv pip install --quiet --python build/airflow-venv/bin/python -r $<
	@touch $@

test-airflow: .venv/dev build/airflow-venv/made  ## run the daily DAGs in a real Airflow (own environment)
	$(BIN)/python -m pytest tests/schedule/airflow_days.py

check: .venv/dev model  ## lint, format, types, doctests, the house test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/shellcheck -x $(wildcard deploy/*/*.sh) .ci/run
	$(BIN)/python -m pytest --doctest-modules bert transforms pipeline tests/test_house.py

bench: .venv/dev model  ## measure against the peers (an hour; own environment under build/)
	$(BIN)/python -m benchmarks.run

VARIABLES := deploy/dataflow/variables.env
DO := submit

dataflow: .venv/runtime  ## build the image and submit to Dataflow (PRINT=1 only shows; docs/dataflow.md)
	deploy/dataflow/dataflow.sh $(DO) $(VARIABLES) $(if $(PRINT),--print)

clean:  ## remove what make wrote, but not .venv
	rm -rf build .pytest_cache .mypy_cache .ruff_cache
