# Two commands do everything: `make demo` and `make test`. Both install what is missing (tools/setup.sh).
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
HOST := $(shell uname -m)-unknown-linux-gnu
# Which programs are built and tested: `release`, or `dev`, the profile in which tests are compiled. `make test` takes dev,
# since every crate is compiled once for programs and tests then; `make test PROFILE=release` takes those of a release.
PROFILE ?= release
$(if $(filter-out dev release,$(PROFILE)),$(error PROFILE is dev or release, not $(PROFILE)))
PROGRAMS := $(TARGET_DIR)/$(PROFILE:dev=debug)
RUNNER := $(TARGET_DIR)/$(HOST)/runner/knack-runner
FEATURES := knack/otel,knack-gateway-program/otel
# What tests and images take instead of building programs of their own.
THESE_PROGRAMS := KNACK_PROGRAM=$(abspath $(PROGRAMS))/knack KNACK_GATEWAY_PROGRAM=$(abspath $(PROGRAMS))/knack-gateway KNACK_RUNNER_PROGRAM=$(abspath $(RUNNER)) KNACK_RUNNER=$(abspath $(RUNNER))
# What tests/cluster_packages takes: the images as archives, and knack.
OF_PACKAGES := KNACK_IMAGES=$(abspath $(TARGET_DIR))/images $(THESE_PROGRAMS)

.PHONY: cluster-tests machine-tests light-tests cluster-demo sidecar-demo registry-demo dist test-dist test-chart test-chart-offline test-chart-cluster charts help setup build runner demo demo-programs demo-packages test test-rust test-machine test-cluster test-sdk test-frameworks test-examples test-standard test-office test-document-skills test-skew real-skills vectors lint audit advisories test-tools test-benches fuzz bench bench-peers bench-cluster clean recording times sizes \
	cluster-setup cluster-up cluster-down cluster-shell cluster-images cluster-of-tests images

help: ## Lists the commands
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Installs what building and testing need (as root on Debian), or names it
	@tools/setup.sh

runner: setup ## Builds the static sandbox runner
	@tools/progress.sh "sandbox runner" env RUSTFLAGS='-C target-feature=+crt-static' cargo build -p knack-runner --profile runner --target $(HOST)

# install -C leaves a runner that is the same already: tests of a suite beside may be starting it. In dev cargo puts one there, again at each
# of its commands if it is another file: installing over it would let the file be away for a moment at every command of every suite.
build: runner ## Builds the programs of a release, the runner beside them (PROFILE=dev: those of the tests, and the tests)
ifeq ($(PROFILE),dev)
	@tools/progress.sh "knack and its tests" cargo build --workspace --features $(FEATURES) --bins --tests --examples
else
	@tools/progress.sh "knack" cargo build --release -p knack -p knack-gateway-program --features $(FEATURES) --bin knack --bin knack-gateway
	@install -C -m 755 $(RUNNER) $(PROGRAMS)/knack-runner
endif

# Wheels come from the index that uv is configured for; what is there already is not asked for again.
packages_of_demo = @said=$$(KNACK_UV=$$(tools/uv.sh) tools/again.sh 3 $(1)/knack skill packages --build examples/packages) || { echo "$$said" >&2; exit 1; }

demo-packages: build
	$(call packages_of_demo,$(PROGRAMS))

# Often the first command of somebody new: unless PROFILE says otherwise it takes a program of a profile that is there in half the time.
ifeq ($(origin PROFILE),file)
DEMO := $(TARGET_DIR)/demo
demo-programs: runner
	@tools/progress.sh "knack" cargo build -p knack --profile demo --bin knack
	@install -C -m 755 $(RUNNER) $(DEMO)/knack-runner
else
DEMO := $(PROGRAMS)
demo-programs: build
endif

demo: demo-programs ## Shows the main job: real requests, real runs, a scripted model (UPSTREAM=openai|responses|anthropic|gemini for a real one)
	$(call packages_of_demo,$(DEMO))
	@python3 tests/demo/demo.py --knack $(DEMO)/knack $(if $(UPSTREAM),--upstream $(UPSTREAM))

recording: demo-packages ## Records the demo as docs/demo.svg, the animated picture of the README
	@tools/recording.py --knack $(PROGRAMS)/knack

cluster-demo: build cluster-setup ## Shows the main job on a real cluster: helm install, kubectl apply, a chat that runs skill code in a Job (root)
	@tests/cluster_demo/run.sh

sidecar-demo: build cluster-setup ## Shows the sidecar on a real cluster: a labelled namespace, the official SDKs unchanged, 100 changes of a Skill (root)
	@tests/sidecar_demo/run.sh

registry-demo: build cluster-setup ## Shows uploads on a real cluster: the official SDK unchanged, versions, kubectl beside the API (root)
	@tools/setup.sh sdk
	@tests/registry_demo/run.sh

dist: build ## A release in dist/: charts, images, list, sums, bill of materials (PLATFORMS="linux/amd64 linux/arm64")
	@tools/dist.sh $(PLATFORMS)

test-dist: build cluster-of-tests ## The release: made for this machine, and installed with stock values from a local registry
	@$(THESE_PROGRAMS) tools/summary.sh run dist tests/dist/run.sh

test-chart: test-chart-offline test-chart-cluster ## Charts, deploy/ and the GitOps snippets (KNACK_NO_CLUSTER=1: without the cluster's part)

test-chart-offline: setup build
	@$(THESE_PROGRAMS) tools/summary.sh run chart-offline tests/chart/run.sh offline

test-chart-cluster: setup cluster-of-tests
	@$(THESE_PROGRAMS) tools/summary.sh run chart tests/chart/run.sh admission injection webhook cluster

charts: ## Writes the generated files of charts/ and deploy/
	@tools/charts.sh

test: ## Runs every test (root, for the cluster; KNACK_NO_CLUSTER=1: without it)
	@tools/test.sh

# Three lists, which run beside one another: what needs the cluster of the tests, which waits more than it works; the tests of programs
# and crates on this machine, some of which count milliseconds; and what gives way to both.
cluster-tests: build vectors test-cluster test-chart-cluster test-packages test-dist
machine-tests: build test-machine
light-tests: build audit test-tools test-benches test-examples test-sdk test-chart-offline

# In a folder of its own: a build does not wait for clippy, and it does not wait for a build.
lint: setup ## Formatting, clippy, file sizes, tracked binaries, citations
	@tools/summary.sh run lint env CARGO_TARGET_DIR=$(abspath $(TARGET_DIR))/lint tools/lint.sh

# Where tests are built anyway, by that build: alone it would compile what it depends on with features of its own.
vectors: $(if $(filter dev,$(PROFILE)),build,setup) ## Runs the behaviour vectors (folder: KNACK_VECTORS)
	@tools/summary.sh run vectors $(if $(filter dev,$(PROFILE)),$(PROGRAMS)/vectors,cargo run -q -p vectors)

# The first start builds Kubernetes (several minutes); it says how far it is.
cluster-of-tests: build
	@$(THESE_PROGRAMS) tests/cluster/for_tests.sh begin

# The tests of one part (tools/run_test.sh says which), and the targets of cargo to look for them in.
rust_tests = tools/summary.sh run rust-$(1) env KNACK_TEST_PART=$(1) CARGO_TARGET_$(subst -,_,$(shell echo $(HOST) | tr a-z A-Z))_RUNNER=$(abspath tools/run_test.sh) KNACK_UV=$$(tools/uv.sh) $(THESE_PROGRAMS) cargo test --workspace --features $(FEATURES) --no-fail-fast $(2)

test-rust: test-machine test-cluster

test-machine: runner
	@$(call rust_tests,machine)

# What breaks the cluster comes first and alone. Then two share it: the hub's part takes as long as the two others one after the other.
test-cluster: runner cluster-of-tests
	@status=0; $(call rust_tests,faults,--tests) || status=$$?; \
	(others=0; $(call rust_tests,jobs,--tests) || others=$$?; $(call rust_tests,operator,--tests) || others=$$?; exit $$others) & others=$$!; \
	$(call rust_tests,hub,--tests) || status=$$?; \
	wait $$others || status=$$?; exit $$status

test-examples: demo-packages
	@tools/summary.sh run examples env KNACK_UV=$$(tools/uv.sh) $(THESE_PROGRAMS) tests/examples/run.sh

real-skills: build ## Accepts a folder of skills: loads, lists, packages, does every import in the sandbox (REAL_SKILLS=DIR CONSTRAINTS="mcp<2")
	@[ -n "$(REAL_SKILLS)" ] || { echo "name a folder of skills: make real-skills REAL_SKILLS=DIR" >&2; exit 1; }
	@KNACK_UV=$$(tools/uv.sh) python3 tools/real_skills/main.py --knack $(PROGRAMS)/knack "$(REAL_SKILLS)" $(foreach constraint,$(CONSTRAINTS),--constraint "$(constraint)")

test-sdk: build
	@tools/setup.sh sdk
	@$(THESE_PROGRAMS) tools/summary.sh run sdk tests/sdk/run.sh $(PROGRAMS)/knack

test-packages: runner cluster-of-tests
	@$(OF_PACKAGES) tools/summary.sh run packages tests/cluster_packages/run.sh

test-frameworks: build ## LangChain and LiteLLM, and its proxy in the chain, against a running gateway (much to download; not part of make test)
	@tests/sdk/run.sh $(PROGRAMS)/knack frameworks

test-standard: build ## The standard environment on the test cluster: 45 packages built once, imported in pods, given by a runtime (root; 120 MB to download; not part of make test)
	@$(OF_PACKAGES) tests/cluster/for_tests.sh around tools/summary.sh run standard tests/cluster_packages/run.sh standard

test-office: build ## The image sandbox-office: its programs on real documents, and the attacks, inside every lock and in pods of the test cluster (root; 250 MB to download; not part of make test)
	@$(OF_PACKAGES) tools/summary.sh run office tests/office.sh

test-document-skills: build ## The scripts of the public document skills inside sandbox-office, each result decoded (REAL_SKILLS=DIR with docx, pptx, xlsx, pdf; root; 370 MB to download)
	@[ -n "$(REAL_SKILLS)" ] || { echo "name the folder of the skills: make test-document-skills REAL_SKILLS=DIR" >&2; exit 1; }
	@$(THESE_PROGRAMS) tools/summary.sh run document-skills tests/document_skills.sh "$(abspath $(REAL_SKILLS))"

test-skew: build ## The gateway of the last protocol, built from its commit, and this one at one hub (root; needs the history; not part of make test)
	@$(THESE_PROGRAMS) tests/cluster/for_tests.sh around tools/summary.sh run skew env CARGO_TARGET_$(subst -,_,$(shell echo $(HOST) | tr a-z A-Z))_RUNNER=$(abspath tools/run_test.sh) tests/skew.sh

test-benches: build ## The benches of gateway, local runs and packages, one pair of each row: they run, and nothing is judged
	@cargo build -q $(if $(filter dev,$(PROFILE)),--profile dev,--release) -p floor-proxy
	@KNACK_UV=$${KNACK_UV:-$$(tools/uv.sh)} KNACK_RUNNER=$(abspath $(RUNNER)) tools/summary.sh run benches cargo bench -q $(if $(filter dev,$(PROFILE)),--profile dev) --workspace --features $(FEATURES) --bench gateway --bench local_exec --bench packages -- --once

test-tools: build
	@$(THESE_PROGRAMS) tools/summary.sh run tools tests/tools/run.sh

audit: setup ## Banned crates, second versions, licences and sources of both lock files, by deny.toml
	@tools/summary.sh run audit tools/audit.sh

advisories: setup ## Known vulnerabilities of both lock files, from the RustSec database (needs github.com; says so without)
	@tools/advisories.sh

fuzz: setup ## Every fuzz target for 60 s, or until it has had INPUTS inputs
	@fuzz/run.sh $(or $(SECONDS_EACH),$(if $(INPUTS),7200,60))

bench: build ## Budgets against a floor measured in the same run; writes docs/benchmarks.md
	@tools/bench.sh $(ONLY)

bench-peers: build ## Knack's gateway beside LiteLLM's proxy and Portkey's gateway, in one run; writes docs/benchmarks.md (much to download)
	@tools/setup.sh peers
	@tools/bench_peers.sh

bench-cluster: build cluster-setup ## Budgets of the cluster part on a cluster of its own (root; ONLY=warm|burst|cold|sustained|writes|propagation|few|skills|changes|locks)
	@ONLY=$(ONLY) tools/bench_cluster.sh

sizes: build ## What the programs of a release are made of; writes docs/release.md
	@python3 tools/sizes.py

times: setup ## How long developers wait: demo of a fresh clone, CI, warm tests, an edit (hours; ONLY="demo ci warm edit" for some)
	@tools/times.sh $(ONLY)

cluster-setup:
	@tools/setup.sh cluster

cluster-up: cluster-setup ## Starts a real one-node Kubernetes for tests, in namespaces of its own (root; the first time builds it)
	@tests/cluster/bed up

cluster-down: ## Takes it down; nothing of it stays
	@tests/cluster/bed down

cluster-shell: ## A shell inside, kubectl and helm ready
	@tests/cluster/bed shell

images: build cluster-setup ## Image archives (knack, knack-gateway, sandbox-python, sandbox-node, packages-builder, runner), without registry or engine
	@images/build.sh

cluster-images: cluster-up build ## Builds the images and puts them into the cluster
	@tests/cluster/images/load.sh --release

clean: ## Removes what builds made
	@cargo clean
