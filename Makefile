# Everything here needs Go and git alone. Tools are built from pinned modules into .cache/bin.

BIN := $(CURDIR)/.cache/bin
GO ?= go
# The race detector needs a C compiler. A machine without one still runs every test.
RACE := $(shell command -v cc >/dev/null 2>&1 && echo -race)
# Several packages run servers and nodes at once: two cores carry two.
TESTFLAGS ?= -timeout 20m -p 2

default: build

build: ## both programs into bin/
	@tools/slowly "building Postern (about 6 minutes the first time: it compiles Tailscale's tsnet)" \
		sh -c '$(GO) build -o bin/postern ./agent && $(GO) build -o bin/terraform-provider-postern ./provider'

demo: tools terraform build ## the whole chain on loopback, from terraform apply to a peer's answer
	@$(GO) run ./internal/demo

test: tools terraform ## every test, against real servers
	@if [ -z "$(RACE)" ]; then echo "==> no C compiler: testing without the race detector"; fi
	$(GO) test $(RACE) $(TESTFLAGS) ./...

bench: tools build ## first figures, as ratios in one run, into bench/out
	$(GO) run ./bench

lint: $(BIN)/golangci-lint
	$(BIN)/golangci-lint run ./...

fmt:
	gofmt -w $$(git ls-files '*.go')

generate: build terraform $(BIN)/tfplugindocs ## the reference in docs/
	$(GO) run ./internal/docs

clean: ## what was built, but for the tools
	rm -rf bin bench/out

tools: $(BIN)/headscale

# Terraform is taken from the PATH, or OpenTofu is; where neither is there, OpenTofu is built.
terraform:
	@command -v terraform >/dev/null 2>&1 || command -v tofu >/dev/null 2>&1 || [ -n "$$POSTERN_TERRAFORM" ] || $(MAKE) --no-print-directory tofu

tofu: $(BIN)/tofu

$(BIN)/headscale: tools/headscale/go.mod tools/headscale/go.sum
	@tools/slowly "building Headscale for tests and the demo (about 4 minutes the first time)" \
		$(GO) -C tools/headscale build -o $@ github.com/juanfont/headscale/cmd/headscale

$(BIN)/tofu: tools/opentofu/go.mod tools/opentofu/go.sum
	@tools/slowly "building OpenTofu, since no terraform is on the PATH (about 10 minutes the first time)" \
		$(GO) -C tools/opentofu build -o $@ github.com/opentofu/opentofu/cmd/tofu

$(BIN)/tfplugindocs: tools/docs/go.mod tools/docs/go.sum
	@tools/slowly "building the generator of the reference (about a minute the first time)" \
		$(GO) -C tools/docs build -o $@ github.com/hashicorp/terraform-plugin-docs/cmd/tfplugindocs

$(BIN)/golangci-lint: tools/lint/go.mod tools/lint/go.sum
	@tools/slowly "building the linters (about 4 minutes the first time)" \
		$(GO) -C tools/lint build -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.PHONY: default build demo test bench lint fmt generate clean tools terraform tofu
