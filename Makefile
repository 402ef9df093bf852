# Two commands do everything: `make demo` and `make test`. Both install what is missing (tools/setup.sh).
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
HOST := $(shell uname -m)-unknown-linux-gnu
RELEASE := $(TARGET_DIR)/release
RUNNER := $(TARGET_DIR)/$(HOST)/runner/knack-runner

.PHONY: every-test cluster-demo dist test-dist test-chart charts help setup build runner demo test test-rust test-sdk test-examples vectors lint audit advisories test-tools fuzz bench bench-cluster clean \
	cluster-setup cluster-up cluster-down cluster-shell cluster-images cluster-of-tests images

help: ## Lists the commands
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Installs what building and testing need (as root on Debian), or names it
	@tools/setup.sh

runner: setup ## Builds the static sandbox runner
	@tools/progress.sh "sandbox runner" env RUSTFLAGS='-C target-feature=+crt-static' cargo build -p knack-runner --profile runner --target $(HOST)

build: runner ## Builds the release binary, the runner beside it
	@tools/progress.sh "knack" cargo build --release --features otel --bin knack
	@install -m 755 $(RUNNER) $(RELEASE)/knack-runner

demo: build ## Shows the main job: real requests, real runs, a scripted model (UPSTREAM=openai|anthropic for a real one)
	@python3 tests/demo/demo.py --knack $(RELEASE)/knack $(if $(UPSTREAM),--upstream $(UPSTREAM))

cluster-demo: build cluster-setup ## Shows the main job on a real cluster: helm install, kubectl apply, a chat that runs skill code in a Job (root)
	@tests/cluster_demo/run.sh

dist: build ## A release in dist/: charts, images, list, sums, bill of materials (PLATFORMS="linux/amd64 linux/arm64")
	@tools/dist.sh $(PLATFORMS)

test-dist: build cluster-of-tests ## The release: made for this machine, and installed with stock values from a local registry
	@tools/summary.sh run dist tests/dist/run.sh

test-chart: setup cluster-of-tests ## Charts, deploy/ and the GitOps snippets (KNACK_NO_CLUSTER=1: without the cluster's part)
	@tools/summary.sh run chart tests/chart/run.sh

charts: ## Writes the generated files of charts/ and deploy/
	@tools/charts.sh

# Every suite runs, whatever failed before it; the cluster goes down, whatever failed.
test: ## Runs every test (root, for the cluster; KNACK_NO_CLUSTER=1: without it)
	@status=0; $(MAKE) --no-print-directory --keep-going every-test || status=$$?; \
	tests/cluster/for_tests.sh end; tools/summary.sh || status=1; exit $$status

every-test: build lint audit test-tools vectors test-rust test-examples test-sdk test-chart test-dist

lint: setup ## Formatting, clippy, file sizes, tracked binaries, citations
	@tools/lint.sh

vectors: setup ## Runs the behaviour vectors (folder: KNACK_VECTORS)
	@tools/summary.sh run vectors cargo run -q -p vectors --features knack/otel

# The first start builds Kubernetes (several minutes); it says how far it is.
cluster-of-tests: build
	@[ "$(KNACK_NO_CLUSTER)" = 1 ] || tools/setup.sh cluster
	@tests/cluster/for_tests.sh begin

test-rust: runner cluster-of-tests
	@mkdir -p $(TARGET_DIR)/debug && install -m 755 $(RUNNER) $(TARGET_DIR)/debug/knack-runner
	@tools/summary.sh run rust env CARGO_TARGET_$(subst -,_,$(shell echo $(HOST) | tr a-z A-Z))_RUNNER=$(abspath tools/run_test.sh) KNACK_RUNNER=$(abspath $(TARGET_DIR))/debug/knack-runner KNACK_PROGRAM=$(abspath $(RELEASE))/knack KNACK_RUNNER_PROGRAM=$(abspath $(RUNNER)) cargo test --workspace --features knack/otel --no-fail-fast

test-examples: setup
	@tools/summary.sh run examples tests/examples/run.sh

test-sdk: build
	@tools/summary.sh run sdk tests/sdk/run.sh $(RELEASE)/knack

test-tools: setup
	@tools/summary.sh run tools tests/tools/run.sh

audit: setup ## Banned crates, second versions, licences and sources of both lock files, by deny.toml
	@tools/summary.sh run audit tools/audit.sh

advisories: setup ## Known vulnerabilities of both lock files, from the RustSec database (needs github.com; says so without)
	@tools/advisories.sh

fuzz: setup ## Every fuzz target for 60 s
	@fuzz/run.sh $(or $(SECONDS_EACH),60)

bench: build ## Budgets against a floor measured in the same run; writes docs/benchmarks.md
	@tools/bench.sh $(ONLY)

bench-cluster: build cluster-setup ## Budgets of the cluster half on a cluster of its own (root; ONLY=warm|burst|cold|sustained|writes|propagation|skills|locks)
	@ONLY=$(ONLY) tools/bench_cluster.sh

cluster-setup:
	@tools/setup.sh cluster

cluster-up: cluster-setup ## Starts a real one-node Kubernetes for tests, in namespaces of its own (root; the first time builds it)
	@tests/cluster/bed up

cluster-down: ## Takes it down; nothing of it stays
	@tests/cluster/bed down

cluster-shell: ## A shell inside, kubectl and helm ready
	@tests/cluster/bed shell

images: build cluster-setup ## Image archives (knack, sandbox-python, sandbox-node, runner), without registry or engine
	@images/build.sh

cluster-images: cluster-up build ## Builds the images and puts them into the cluster
	@tests/cluster/images/load.sh --release

clean: ## Removes what builds made
	@cargo clean
