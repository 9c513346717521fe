# Every target sets up what it needs by itself: a .venv with pinned packages, the default model.
SUPPORTED := import sys, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 15))
# For newer ones TensorFlow has no wheels, which the tests need.
COMPLETE := import sys; sys.exit(sys.version_info >= (3, 14))
# The newest Python there is that has all packages, else 3.14, unless .venv has one already.
PYTHON ?= $(shell for each in .venv/bin/python python3.13 python3.12 python3.11 python3.14 python3; do \
	"$$each" -c '$(SUPPORTED)' 2> /dev/null && command -v "$$each" && break; done)
BIN := .venv/bin
OUT := build/language_reference
BEAM := $(shell sed -n 's/^apache-beam.*==\([^ ]*\).*/\1/p' requirements.txt)
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# Exactly what the lock lists, checked by its hash. uv knows neither pip's index nor its proxy: where
# uv fails, pip tries.
EXACTLY := --no-deps --no-build-isolation --require-hashes --requirement
# The packages of extras and groups as pip reads them, out of uv.lock.
EXPORT := $(BIN)/uv export --frozen --quiet --no-emit-project --no-annotate --no-header
RUNTIME := --extra gcp --extra tensorflow
PINS := $(EXPORT) --no-hashes $(RUNTIME) | sed 's/^apache-beam==/apache-beam[gcp]==/'
# A program of Go, of a version, into the folder of its target.
GO = GOBIN="$(CURDIR)/$(@D)" GOFLAGS=-modcacherw go install

.DEFAULT_GOAL := help
.PHONY: help install wheel lock model embed check test docs notebooks bench images dataflow flink clean findings
.PHONY: test-quick test-install test-lowest test-processors test-elsewhere test-flink test-airflow
.PHONY: test-ecosystem test-export test-images test-accelerators test-aarch64

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

.venv/uv: locks/build.txt
	@$(or $(PYTHON),false) -c '$(SUPPORTED)' 2> /dev/null || { echo "Python 3.11 to 3.14" \
		"with its venv module is needed, found $(or $(PYTHON),none): make PYTHON=/path/to/python3.12"; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	$(PIP) install --require-hashes --requirement $<
	@touch $@

.venv/base: uv.lock pyproject.toml .venv/uv
	@echo "installing the pinned packages of the base into .venv (0.6 GB), and this one to be imported from its folder"
	$(EXPORT) > .venv/base.txt
	$(UV) $(EXACTLY) .venv/base.txt || $(PIP) install $(EXACTLY) .venv/base.txt
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

.venv/runtime: .venv/base
	@$(BIN)/python -c '$(COMPLETE)' && echo "installing TensorFlow, OpenVINO, the clients of Google Cloud and openTSNE" \
		"into .venv (2.7 GB)" || echo "installing OpenVINO, the clients of Google Cloud and openTSNE into .venv (0.6 GB), but not" \
		"TensorFlow, which has no wheels for Python 3.14"
	$(EXPORT) $(RUNTIME) --extra map --extra openvino > .venv/runtime.txt
	$(UV) $(EXACTLY) .venv/runtime.txt || $(PIP) install $(EXACTLY) .venv/runtime.txt
	@touch $@

.venv/complete: .venv/uv
	@$(BIN)/python -c '$(COMPLETE)' || { echo "the tests need TensorFlow, which has no wheels for Python 3.14:" \
		"rm -rf .venv, then make PYTHON=/path/to/python3.13"; exit 1; }
	@touch $@

.venv/dev: .venv/complete .venv/runtime
	$(EXPORT) --only-group dev > .venv/dev.txt
	$(UV) $(EXACTLY) .venv/dev.txt || $(PIP) install $(EXACTLY) .venv/dev.txt
	@touch $@

install: .venv/runtime  ## make .venv with bert-embed and all that it can use

wheel: .venv/uv  ## build the package into build/wheel, to be installed with pip
	$(PIP) wheel --no-deps --no-build-isolation --wheel-dir build/wheel .

# Pins stay as they are unless pyproject.toml rules them out; `make lock UPGRADE=--upgrade` takes the
# newest ones. The lock names no index: whoever installs from it has one set.
lock: .venv/uv  ## pin the packages in uv.lock and requirements.txt, and name known weaknesses
	@mkdir -p build
	$(BIN)/uv lock --quiet $(UPGRADE)
	sed -E -e 's#registry = "[^"]*"#registry = "index"#' -e 's#url = "https?://[^"]*/([^"/]+)"#path = "\1"#' \
		-e 's#, (size = [0-9]+|upload-time = "[^"]*")##g' uv.lock > build/uv.lock
	mv build/uv.lock uv.lock
	$(PINS) > requirements.txt
	$(EXPORT) --only-group build > locks/build.txt
	@$(BIN)/uv audit --frozen || echo "the pins have weaknesses, or the service did not answer (see above)"

model: .venv/base
	$(BIN)/python -m bert_embed.bundle.find

build/language_reference.jsonl: examples/write_language_reference.py
	@mkdir -p build
	$(PYTHON) examples/write_language_reference.py $@

embed: model build/language_reference.jsonl  ## embed the Python language reference and search in it
	$(BIN)/bert-embed embed --input build/language_reference.jsonl --output $(OUT) --overwrite
	$(BIN)/bert-embed search $(OUT) "make an object callable" --k 3

# Two of the linters need Go.
GO_LINTERS := $(if $(shell command -v go),build/actionlint build/kubeconform)
SCHEMAS := tests/integration/deploy/schemas/{{.ResourceKind}}_{{.ResourceAPIVersion}}.json
# These import JAX, which is in an environment of its own.
JAX_ALONE := $(addprefix --ignore ,$(shell grep -lE "^(import|from) jax" bert_embed/backends/jax/*.py))
MANIFESTS := deploy/airflow/bert_embed_pod.yaml deploy/flink/kubernetes.yaml $(wildcard deploy/gke/*.yaml)
check: .venv/dev model $(GO_LINTERS)  ## lint code, scripts, images, workflows and manifests; types, layers, doctests, lock
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/shellcheck -x $(wildcard deploy/*.sh deploy/*/*.sh findings/*.sh) .ci/run
	$(BIN)/hadolint $(wildcard deploy/*/Dockerfile)
	$(BIN)/yamllint --strict --config-file .github/yamllint.yaml .github .pre-commit-config.yaml deploy mkdocs.yml
	$(if $(GO_LINTERS),build/actionlint -shellcheck $(BIN)/shellcheck,@echo "no Go here: workflows and manifests are not checked")
	$(if $(GO_LINTERS),build/kubeconform -strict -schema-location '$(SCHEMAS)' $(MANIFESTS))
	$(BIN)/uv lock --check --quiet
	@$(PINS) | diff requirements.txt - && $(EXPORT) --only-group build | diff locks/build.txt - && ! grep "://" uv.lock \
		|| { echo "the pins are not those of pyproject.toml: make lock"; exit 1; }
	$(BIN)/python -m pytest --doctest-modules --ignore bert_embed/integrations $(JAX_ALONE) bert_embed tests/test_house.py

build/actionlint build/kubeconform build/prism build/flink/bin/container: requirements.txt
	@mkdir -p $(@D)
	@command -v go > /dev/null || { echo "Go 1.21 or newer is needed (go), to build $@"; exit 1; }
	$(GO) $(GO_$(@F))
	@touch $@
GO_actionlint := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
GO_kubeconform := github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0
GO_prism := github.com/apache/beam/sdks/v2/go/cmd/prism@v$(BEAM)
GO_container := github.com/apache/beam/sdks/v2/python/container@v$(BEAM)

build/bqemulator-venv/made: uv.lock .venv/dev
	@mkdir -p build
	$(BIN)/python -m tests.support.servers.bigquery
	@touch $@

build/pyright/node_modules:
	npm install --silent --no-fund --no-audit --prefix build/pyright pyright@1.1.414

# Where there is no Go or npm, or they cannot fetch, tests that need what they bring are skipped.
.PHONY: programs
programs:
	@! command -v go > /dev/null || $(MAKE) --no-print-directory build/prism build/flink/bin/container || true
	@! command -v npm > /dev/null || $(MAKE) --no-print-directory build/pyright/node_modules || true

# Tests wait for disks, servers and processes as long as they compute: more processes than two cores. Each loads
# TensorFlow and the models, some 1.5 GB.
PARALLEL := -n 4 --dist loadfile --no-loadscope-reorder

test: .venv/dev model build/bqemulator-venv/made programs  ## run the tests (ARGS: words for pytest); test-NAME runs others, see CONTRIBUTING.md
	$(BIN)/python -m pytest $(PARALLEL) $(ARGS)

test-quick: .venv/dev model
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow" --ignore tests/cli --ignore tests/integration $(ARGS)

test-processors test-elsewhere: test-%: .venv/dev model
	$(BIN)/python -m tests.support.$* $(ARGS)

# Clean environments with the built wheel, for each extra and each Python that is here.
test-install: .venv/dev
	$(BIN)/python -m pytest tests/integration/install $(ARGS)

# An emulated machine: Debian's Python, the wheel and its base, for aarch64.
build/aarch64/made: uv.lock tests/integration/aarch64/machine.py .venv/dev
	$(BIN)/python -m tests.integration.aarch64.machine
	@touch $@

test-aarch64: model build/aarch64/made
	$(BIN)/python -m pytest tests/integration/aarch64 $(ARGS)

build/lowest-venv/made: pyproject.toml tests/integration/install/lowest.py .venv/dev
	$(BIN)/python -m tests.integration.install.lowest
	@touch $@

test-lowest: model build/lowest-venv/made
	BEAM_AS_IT_IS=1 build/lowest-venv/bin/python -m pytest $(PARALLEL) -m "not slow" $(ARGS)

build/flink/job_server: deploy/flink/pom.xml
	@command -v java > /dev/null && command -v mvn > /dev/null \
		|| { echo "Java 11 or 17 and Maven are needed (java, mvn)"; exit 1; }
	rm -rf $@
	mvn -B -q -f $< dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$(CURDIR)/$@"
	@touch $@

build/flink/libraries: uv.lock .venv/runtime
	@mkdir -p build/flink
	rm -rf $@
	$(EXPORT) --only-group flink > build/flink/libraries.txt
	$(PIP) install --no-deps --target $@ -r build/flink/libraries.txt
	@touch $@

flink: build/flink/job_server build/flink/libraries build/flink/bin/container  ## fetch what a Flink cluster needs (java, mvn, go)

test-flink: .venv/dev model flink
	$(BIN)/python -m pytest tests/integration/flink $(ARGS)

build/airflow-venv/made: uv.lock .venv/uv
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(@D)
	$(EXPORT) --only-group airflow > $(@D)/packages.txt
	$(BIN)/uv pip install --quiet --no-deps --require-hashes --python $(@D)/bin/python -r $(@D)/packages.txt
	@touch $@

test-airflow: .venv/dev build/airflow-venv/made
	$(BIN)/python -m pytest tests/integration/schedule/airflow_launches.py tests/integration/schedule/airflow_days.py $(ARGS)

build/ecosystem-venv/made build/peers-venv/made: build/%-venv/made: tests/integration/%/requirements.txt benchmarks/peers.py .venv/dev
	$(BIN)/python -c "from benchmarks.peers import environment; environment('$*-venv', open('$<').read())"
	@touch $@

# --noconftest: the fixtures of the other tests need TensorFlow and Beam, which are not there. The classes
# are LangChain's own tests.
test-ecosystem: model build/ecosystem-venv/made build/peers-venv/made build/readers-venv/made
	HF_HUB_OFFLINE=1 build/ecosystem-venv/bin/python -m pytest --noconftest -o python_classes=Test \
		-o asyncio_mode=auto tests/integration/ecosystem $(ARGS)
	HF_HUB_OFFLINE=1 build/peers-venv/bin/python -m pytest --noconftest -c /dev/null --rootdir . tests/integration/peers
	build/readers-venv/bin/python -m pytest --noconftest -c /dev/null --rootdir . tests/integration/readers

build/readers-venv/made: tests/integration/readers/requirements.txt .venv/dev
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(@D)
	$(BIN)/uv pip install --quiet --no-deps --python $(@D)/bin/python -r $<
	@touch $@

findings:  ## show where other programs surprise, by the scripts of findings/ (an hour)
	@for each in findings/*.sh; do echo "$$each"; bash "$$each" || exit 1; done

# What the second environment lacks it takes from .venv: a path file leads there.
OVERLAY = $(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" > \
	$$($(@D)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/runtime.pth

build/export-venv/made: tests/integration/export_readers/requirements.txt .venv/dev
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(@D)
	$(BIN)/uv pip install --quiet --no-deps --python $(@D)/bin/python -r $<
	$(OVERLAY)
	@touch $@

build/readers/opensearch: tests/integration/export_readers/java/opensearch.xml
	rm -rf $@
	mvn -B -q -f $< dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$(CURDIR)/$@" \
		|| { rm -rf $@; exit 1; }
	@touch $@

build/accelerators-venv/made: uv.lock .venv/dev
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(@D)
	$(EXPORT) --only-group accelerators > $(@D)/packages.txt
	$(BIN)/uv pip install --quiet --python $(@D)/bin/python $(EXACTLY) $(@D)/packages.txt
	$(OVERLAY)
	@touch $@

# Numeric tests with JAX's programs, on this processor; then they are compiled for the chips. The nightly run
# alone has what takes long and differs little: a GPU's kernel, step by step, in rows of 600 tokens of all families but
# ModernBERT, and poolings, which are no chip's, as on a TPU and a GPU.
SELDOM := 600 and GPU and not modernbert-600 or (TPU or GPU) and (each_pooling or each_combination)
test-accelerators: model build/accelerators-venv/made
	build/accelerators-venv/bin/python -m pytest -n 2 --dist worksteal \
		-k "(jax or accelerators)$(if $(COMPILED),, and not ($(SELDOM)))" \
		$$(grep -rl --include='*.py' ENGINES tests/unit) tests/integration/accelerators $(ARGS)
	build/accelerators-venv/bin/python -m benchmarks.compiled $(COMPILED)

# Where there is no Maven, or it cannot fetch, the tests of OpenSearch are skipped.
.PHONY: readers
readers:
	@! command -v mvn > /dev/null || $(MAKE) --no-print-directory build/readers/opensearch || true

test-export: build/export-venv/made readers
	build/export-venv/bin/python -m pytest tests/integration/export_readers tests/unit/storage $(ARGS)

FLINK_IMAGE ?= $(shell sed -n 's/^ARG FLINK=//p' deploy/flink/Dockerfile)
test-images: .venv/dev model images build/prism flink
	deploy/docker/bases.sh build/image_bases $(FLINK_IMAGE)
	$(BIN)/python -m pytest tests/integration/images $(ARGS)

# The site needs no runtime: its reference is read from the sources.
build/docs-venv/made: uv.lock .venv/uv
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(@D)
	$(EXPORT) --only-group docs > $(@D)/packages.txt
	$(BIN)/uv pip install --quiet --python $(@D)/bin/python $(EXACTLY) $(@D)/packages.txt
	$(OVERLAY)
	@touch $@

docs: build/docs-venv/made  ## build the site of docs/ into build/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 build/docs-venv/bin/mkdocs build --quiet --strict

notebooks: build/docs-venv/made .venv/dev embed  ## execute the notebooks of docs/notebooks (CHECK=--check changes none)
	build/docs-venv/bin/python docs/run_notebooks.py $(CHECK)
	build/docs-venv/bin/python -m pytest tests/integration/notebooks

bench: .venv/dev model  ## measure against the peers (an hour; own environment under build/)
	$(BIN)/python -m benchmarks.run $(ARGS)

# Bases that cannot be pulled get stand-ins. DEVICE=gpu and DEVICE=tpu make those of accelerators, CUDA=13 for
# drivers from 580 on, TENSORFLOW=no images without TensorFlow, and MODEL adds a model.
DEVICE := cpu
TENSORFLOW := yes
CUDA := 12
# Workers need the Python of the command that submits.
PYTHON_MINOR = $(shell $(PYTHON) -c 'import sys; print(sys.version_info.minor)')
images:  ## build the images of workers and templates with Docker (docs/cloud.md)
	PYTHON_MINOR=$(PYTHON_MINOR) deploy/docker/bases.sh build/image_bases
	for target in worker template; do DOCKER_BUILDKIT=1 docker build --network host --file deploy/docker/Dockerfile \
		--build-arg DEVICE=$(DEVICE) --build-arg PYTHON_MINOR=$(PYTHON_MINOR) --build-arg MODEL=$(MODEL) \
		--build-arg TENSORFLOW=$(TENSORFLOW) --build-arg CUDA=$(CUDA) \
		--build-arg REVISION=$$(git rev-parse HEAD) --target $$target \
		--tag bert-embed-$(DEVICE)$$([ $$target = worker ] || echo -$$target):test . || exit 1; done
	docker images --filter reference='bert-embed-$(DEVICE)*:test'

VARIABLES := deploy/dataflow/variables.env
DO := submit
dataflow: $(if $(PRINT),,.venv/runtime)  ## build the image and submit to Dataflow (PRINT=1 only shows; docs/cloud.md)
	deploy/dataflow/dataflow.sh $(DO) $(VARIABLES) $(if $(PRINT),--print)

clean:  ## remove what make wrote, but not .venv
	rm -rf build .cache .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
