# Every target with "##" is shown by `make help`.

SHELL := /bin/bash
GO ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
BIN := bin
LDFLAGS := -s -w -X policyd.dev/policyd/internal/buildinfo.Version=$(VERSION)
TOOL := $(GO) tool -modfile=$(CURDIR)/tools/go.mod

export CGO_ENABLED ?= 0

.DEFAULT_GOAL := help

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## bin/policyd, policyctl, policyd-launch, policyd-runc, policyd-nri
	@mkdir -p $(BIN)
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/...

quickstart: build ## run the main job once, in a folder of its own, and end
	@bash test/quickstart.sh

deb: ## a Debian package in dist/
	@bash deploy/package/build.sh deb

rpm: ## an RPM package in dist/
	@bash deploy/package/build.sh rpm

tarball: ## an archive with install.sh in dist/
	@bash deploy/package/build.sh tarball

packages: ## all three, with SHA256SUMS (docs/packages.md)
	@bash deploy/package/build.sh deb rpm tarball

test: ## everything: set-up, kernels, lint, unit and end-to-end tests
	@bash test/run.sh

kernels: ## build the kernels that tests run on (cached outside the checkout)
	@bash test/kernels/build.sh

lint: ## go vet, golangci-lint, gofumpt, buf
	$(GO) vet ./...
	$(TOOL) golangci-lint run ./...
	cd test/fleet && $(GO) vet ./... && $$($(TOOL) -n golangci-lint) run ./... # a module of its own
	cd api && $(TOOL) buf lint && $(TOOL) buf format --exit-code -d
	cd api && $(TOOL) buf breaking --against baseline.binpb

generate: ## regenerate code and documents made from code
	cd api && $(TOOL) buf generate
	$(GO) generate ./...

bench: ## measure; benchstat-able output (docs/performance.md)
	@bash test/bench.sh

fuzz: ## every fuzz target for a minute each
	@bash test/fuzz.sh

fuzz-kernel: ## N=1000000 [SEED=..] random operations on the engine and on kernels side by side
	@N='$(N)' SEED='$(SEED)' KERNELS='$(KERNELS)' JOBS='$(JOBS)' bash test/fuzz-kernel.sh

vm: ## a machine with policyd under systemd and a shell, in user-mode-linux; PACKAGE=file.deb installs that
	@PACKAGE='$(PACKAGE)' bash test/vm.sh

clean: ## remove what was built in the checkout
	rm -rf $(BIN) dist

.PHONY: help build quickstart deb rpm tarball packages test kernels lint generate bench fuzz fuzz-kernel vm clean
