# Everything a person or CI does with this tree. `make` alone lists it.
#
# Needs: Linux, Go 1.26, git, make, gcc (for the race detector). Tools come from
# Go modules under tools/ and are built into ./bin the first time they are used.
#
# What a recipe says for people goes to stderr, so that the output of `demo`,
# `bench`, `fuzz` and `test` can be piped; each of the last three ends its stdout
# with one JSON line of figures.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS   += --no-builtin-rules --no-print-directory
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

GO        ?= go
BIN       := $(CURDIR)/bin
# The race detector runs in every test; `make test RACE=` leaves it out.
RACE      ?= -race
# make lint vets everything; doing it here as well would double the time for nothing.
TESTFLAGS ?= -vet=off -timeout=20m
FUZZTIME  ?= 10s
BINDINGS  ?= 1000
HARNESS   ?= native
CALLS     ?= 1000
# Cases of docs/model/cases.txt: ci, all, or names.
CASES     ?= ci
OPS       ?= 10000
DURATION  ?= 10m
KILLS     ?= 1000
# One cut of each benchmark; 5 of them and benchstat tell noise from change.
BENCHFLAGS ?= -benchmem -count=1

# The workspace has no module at its root, so ./... means nothing here.
MODULES     = $(shell $(GO) list -m -f '{{.Dir}}')
UNIT_PKGS   = $(shell $(GO) list -m -f '{{if ne .Path "cofferdam.dev/tests"}}{{.Dir}}/...{{end}}')
# Outside the workspace: their dependencies must not move the services' versions.
TOOL_MODULES := $(patsubst %/go.mod,%,$(wildcard tools/*/go.mod))
# Those of them that hold code of our own.
OWN_TOOLS    := tools/coredns tools/ferretdb tools/images tools/manifests tools/openfga tools/protobuf tools/repocheck tools/versitygw
COMMANDS     := $(patsubst %/main.go,./%,$(wildcard services/*/cmd/*/main.go deploy/local/cmd/*/main.go tests/certify/cmd/*/main.go))
BENCH_PKGS   := ./pkg/fence/... ./pkg/binding/sqlitestore/... ./pkg/capability/... ./pkg/event/...

say        = printf '%s\n' '$(1)' >&2
# Build in the tool module tools/$(1); $(2) is where to put what.
build_tool = CGO_ENABLED=0 GOWORK=off $(GO) -C tools/$(1) build -buildvcs=false -o $(2) >&2

##@ Use

.PHONY: help
help: ## List the targets (the default)
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@ / {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z-]+:.*## / {printf "  %-17s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: bin/cofferdam-openfga ## Build every service, the command `cofferdam` and the OpenFGA server into ./bin
	@$(call say,building $(words $(COMMANDS)) commands (a few minutes the first time) ...)
	@mkdir -p $(BIN)
	@CGO_ENABLED=0 $(GO) build -buildvcs=false -o $(BIN)/ $(COMMANDS) >&2

.PHONY: run
run: build ## Start everything on loopback, run one conversation, stay up until Ctrl-C
	@exec $(BIN)/cofferdam run

.PHONY: demo
demo: build ## The same with a worker killed between two turns, then exit; stdout is JSON lines, one an event
	@exec $(BIN)/cofferdam demo

# Names of `bin/images list`, or all of them; KEY is the private key that signs.
IMAGES  ?= $(shell $(BIN)/images list)
KEY     ?= $(BIN)/oci/development.key
.PHONY: images
images: bin/images ## Build OCI images, their bills of materials and signatures into ./bin/oci, and print their digests
	@mkdir -p $(BIN)/oci
	@[ -e $(KEY) ] || [ $(KEY) != $(BIN)/oci/development.key ] || $(BIN)/images keygen --private $(KEY) --public $(BIN)/oci/development.pub
	@$(BIN)/images build --output $(BIN)/oci --key $(KEY) $(IMAGES)

##@ Check

# Its own programs but for those that are killed, which know where (pkg/failpoint).
# Nothing of it is shipped.
FAILPOINTS := controlplane statefacade worker
.PHONY: failpoints
failpoints: build ## Build the programs into ./bin/failpoint, with points at which chaos-state and certify kill them
	@$(call say,building $(FAILPOINTS) once more with points at which they can be killed ...)
	@mkdir -p $(BIN)/failpoint
	@CGO_ENABLED=0 $(GO) build -buildvcs=false -tags failpoint -o $(BIN)/failpoint/ $(foreach s,$(FAILPOINTS),./services/$s/cmd/$s) >&2
	@for program in $(filter-out $(FAILPOINTS),$(notdir $(COMMANDS))) cofferdam-openfga; do \
		ln -f $(BIN)/$$program $(BIN)/failpoint/$$program; \
	done

.PHONY: test
test: build failpoints node-modules bin/cofferdam-ferretdb bin/cofferdam-s3 ## Run every test with the race detector
	@start=$$SECONDS; \
	$(GO) test $(RACE) $(TESTFLAGS) $(UNIT_PKGS); \
	$(GO) test -run 'Fill.*Memory$$' $(TESTFLAGS) ./services/controlplane/internal/api ./services/controlplane/internal/workerclient; \
	COFFERDAM_BIN_DIR=$(BIN) $(GO) test $(RACE) -count=1 -p=1 $(TESTFLAGS) ./tests/...; \
	for module in $(OWN_TOOLS); do CGO_ENABLED=0 GOWORK=off $(GO) -C $$module test ./...; done; \
	printf '{"target":"test","passed":true,"seconds":%d}\n' $$((SECONDS - start))
# The heap is weighed without the race detector, under which it takes minutes.
# tests/ runs what is in ./bin, which the test cache does not see: hence -count=1.
# Its tests start whole stacks, so one package at a time.

# On a cluster, as root; GVISOR=1 adds gVisor. Compiled before, because there is no way
# out of the cluster's network. TESTS picks some of them.
CLUSTER_IMAGES ?= cofferdam-probe
TESTS          ?= .
CLUSTER_PACKAGE ?= ./tests/cluster
CLUSTER_TIMEOUT ?= 15m
.PHONY: test-cluster
test-cluster: bin/manifests ## Start a Kubernetes cluster (deploy/cluster), run tests/cluster in its network, and end it
	@start=$$SECONDS; \
	$(MAKE) images IMAGES="$(CLUSTER_IMAGES)" >&2; \
	CGO_ENABLED=0 $(GO) test -c $(TESTFLAGS) -tags cluster -o $(BIN)/cluster.test $(CLUSTER_PACKAGE); \
	cd tests/cluster; \
	COFFERDAM_BIN_DIR=$(BIN) CLUSTER_IMAGES=$(BIN)/oci/images.json ../../deploy/cluster/run.sh $(BIN)/cluster.test -test.v -test.timeout $(CLUSTER_TIMEOUT) -test.run '$(TESTS)' >&2; \
	printf '{"target":"test-cluster","passed":true,"seconds":%d}\n' $$((SECONDS - start))

# Not in .ci/run: the images of everything take minutes.
INSTALLED := $(addprefix cofferdam-,dns ferretdb mcp-files nodeidentity openfga) $(notdir $(wildcard services/*))
.PHONY: test-installation
test-installation: build ## Test a cluster with everything in pods, the README's demo among it (tests/cluster/installation)
	@$(MAKE) test-cluster CLUSTER_PACKAGE=./tests/cluster/installation CLUSTER_TIMEOUT=90m CLUSTER_IMAGES="$(INSTALLED)"

.PHONY: test-hosted
test-hosted: build ## Have programs of the profiles acp and stdio work in pods of a cluster (tests/cluster/hosted)
	@$(MAKE) test-cluster CLUSTER_PACKAGE=./tests/cluster/hosted CLUSTER_IMAGES="$(INSTALLED) cofferdam-acpagent cofferdam-lineprogram"

.PHONY: test-provider
test-provider: ## On a cluster: test the control plane's provider against the real controller of sandboxes
	@start=$$SECONDS; \
	$(MAKE) images IMAGES=cofferdam-probe >&2; \
	CGO_ENABLED=0 $(GO) test -c $(TESTFLAGS) -o $(BIN)/provider.test ./services/controlplane/internal/sandbox/kubernetes; \
	cd tests/cluster; ../../deploy/cluster/run.sh bash -euc 'image=$$(../../deploy/cluster/load.sh $(BIN)/oci/cofferdam-probe.tar); \
		COFFERDAM_TEST_KUBECONFIG=$$KUBECONFIG COFFERDAM_TEST_SANDBOX_IMAGE=$$image exec $(BIN)/provider.test -test.v -test.run OnACluster' >&2; \
	printf '{"target":"test-provider","passed":true,"seconds":%d}\n' $$((SECONDS - start))

# An installation with sandboxes for hard use. By hand: AT_ONCE is how many bindings work at a time.
SANDBOXES = COFFERDAM_BIN_DIR=$(BIN) CLUSTER_IMAGES=$(BIN)/oci/images.json ../../deploy/cluster/run.sh $(BIN)/sandboxes.test -test.v -test.timeout 4h
bin/sandboxes.test: build bin/manifests
	@$(MAKE) images IMAGES="$(addprefix cofferdam-,dns ferretdb mcp-files nodeidentity openfga) $(notdir $(wildcard services/*))" >&2
	@CGO_ENABLED=0 $(GO) test -c $(TESTFLAGS) -tags cluster -o $(BIN)/sandboxes.test ./tests/cluster/sandboxes
.PHONY: bin/sandboxes.test test-sandboxes cluster-bindings bench-claim

test-sandboxes: bin/sandboxes.test ## On a cluster: limits of pods, disks, and some bindings of which nothing is left
	@start=$$SECONDS; cd tests/cluster; $(SANDBOXES) >&2; printf '{"target":"test-sandboxes","passed":true,"seconds":%d}\n' $$((SECONDS - start))

cluster-bindings: bin/sandboxes.test ## Let BINDINGS (1000) run on a cluster, at most 20 alive at a time, and look for what they leave
	@cd tests/cluster; BINDINGS=$(BINDINGS) $(SANDBOXES) -test.run '^TestTurnover$$' | tee /dev/stderr | grep '^{"target":"cluster-bindings"'

bench-claim: bin/sandboxes.test ## Time a claim until its worker is bound beside the bare claim of agent-sandbox, CLAIMS (20) rounds
	@cd tests/cluster; CLAIMS=$${CLAIMS:-20} $(SANDBOXES) -test.run '^TestClaims$$' | tee /dev/stderr | grep '^{"target":"bench-claim"'

.PHONY: test-race
test-race: build failpoints node-modules bin/cofferdam-ferretdb bin/cofferdam-s3 ## Look for races: every test uncached, in random order, on 1 and 4 processors
	@start=$$SECONDS; \
	$(GO) test -race -count=1 -shuffle=on -cpu=1,4 $(TESTFLAGS) $(UNIT_PKGS); \
	COFFERDAM_BIN_DIR=$(BIN) $(GO) test -race -count=1 -shuffle=on -p=1 $(TESTFLAGS) ./tests/...; \
	printf '{"target":"test-race","passed":true,"seconds":%d}\n' $$((SECONDS - start))

.PHONY: lint
lint: bin/buf bin/golangci-lint bin/repocheck ## Lint and check the format of protobuf, Go and shell
	@$(BIN)/buf lint
	@$(BIN)/buf format --diff --exit-code
	@CGO_ENABLED=0 $(BIN)/repocheck leaks >&2
	@CGO_ENABLED=0 $(GO) vet work
	@CGO_ENABLED=0 $(GO) vet -tags cluster ./tests/cluster/...
	@CGO_ENABLED=0 $(GO) vet -tags benchtools ./services/toolbroker ./services/controlplane/internal/api ./pkg/binding/bindingstore
	@CGO_ENABLED=0 $(BIN)/golangci-lint run $(addsuffix /...,$(MODULES))
	@for module in $(OWN_TOOLS); do \
		(cd $$module && CGO_ENABLED=0 GOWORK=off $(BIN)/golangci-lint run ./...); \
	done

	@if command -v shellcheck >/dev/null; then shellcheck -x -P SCRIPTDIR deploy/cluster/*.sh; \
	else $(call say,WARNING: shellcheck is missing: the scripts of deploy/cluster are NOT linted); fi

.PHONY: check-generate
check-generate: bin/buf bin/protoc-gen-go ## Fail if generated files are not what `make generate` makes
	@scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT; \
	$(BIN)/vendor-validate $$scratch/third_party/validate.proto; \
	$(BIN)/buf format -w $$scratch/third_party; \
	$(BIN)/buf generate --output $$scratch; \
	diff -u $(VALIDATE_PROTO) $$scratch/third_party/validate.proto && diff -ru pkg/gen $$scratch/pkg/gen || \
		{ $(call say,generated files are stale: run `make generate` and commit the result); exit 1; }

.PHONY: check-deps
check-deps: bin/repocheck ## Check module by module what an image builds: versions, arrows between modules, licences
	@CGO_ENABLED=0 $(BIN)/repocheck deps

.PHONY: model
model: ## Check the model of the committed record (docs/model), and that leaving a guard out is found; CASES=all takes an hour
	@command -v spin >/dev/null && command -v gcc >/dev/null || { $(call say,the model needs spin and gcc: apt-get install spin gcc); exit 1; }
	@docs/model/check.sh $(CASES)

.PHONY: fuzz
fuzz: bin/repocheck ## Fuzz every fuzz target for FUZZTIME (10s)
	@$(BIN)/repocheck fuzz -time $(FUZZTIME)

.PHONY: bench
bench: bin/repocheck ## Benchmarks of the fence, capabilities and events
	@$(GO) test -run='^$$' -bench=. $(BENCHFLAGS) $(BENCH_PKGS) | $(BIN)/repocheck bench

##@ Check by hand, for longer

.PHONY: agents-hard
agents-hard: build tests/agents/node_modules/.installed tests/agents/hard/node_modules/.installed ## Test the agent programs that need patience: codex and gemini
	@COFFERDAM_BIN_DIR=$(BIN) COFFERDAM_TEST_HARD_AGENTS=1 $(GO) test -count=1 -timeout 20m -v $(TESTFLAGS) ./tests/agents >&2

.PHONY: scale
scale: build ## Run BINDINGS (1000) conversations at once, each in its own sandbox; needs about 10 MiB for each
	@COFFERDAM_BIN_DIR=$(BIN) $(GO) run ./tests/scale/cmd/scale -bindings $(BINDINGS)

.PHONY: certify
certify: build ## Check HARNESS (native) against the fifteen requirements of the worker protocol; says which it cannot show
	@exec $(BIN)/cofferdam certify --harness $(HARNESS)

.PHONY: chaos-tools
chaos-tools: build ## Make CALLS (1000) tool calls while broker, workers and control plane are killed; counts what happened twice
	@COFFERDAM_BIN_DIR=$(BIN) $(GO) run ./tests/chaostools/cmd/chaostools -calls $(CALLS)

.PHONY: chaos-replicas
chaos-replicas: build ## Run three replicas for DURATION (10m) while replicas, workers and their host are killed; checks every run and every stream
	@COFFERDAM_BIN_DIR=$(BIN) $(GO) run ./tests/chaosreplicas/cmd/chaosreplicas -duration $(DURATION)

.PHONY: chaos-state
chaos-state: failpoints ## Kill state facade, control plane and workers KILLS (1000) times at points in their code; counts saved turns that are lost
	@COFFERDAM_BIN_DIR=$(BIN) $(GO) run ./tests/chaosstate/cmd/chaosstate -kills $(KILLS)

.PHONY: bench-tools
bench-tools: bin/cofferdam-openfga ## Time a tool call through the broker beside the same call made directly, and what each part of it costs
	@$(GO) test -tags benchtools $(TESTFLAGS) -run '^TestBenchTools$$' -count=1 -v ./services/toolbroker | tee /dev/stderr | grep '^{"target"'

.PHONY: bench-state
bench-state: bin/cofferdam-ferretdb ## Time the commit of a head beside the bare database's conditional write, with 1 to 100000 bindings
	@$(GO) test -tags benchtools $(TESTFLAGS) -run '^TestBenchState$$' -count=1 -v ./pkg/binding/bindingstore | tee /dev/stderr | grep '^{"target"'

.PHONY: bench-stream
bench-stream: ## Time events from a worker to a reader beside a bare stream of the same, at 1 to 1000 streams, and what streams and encoders cost
	@$(GO) test -tags benchtools $(TESTFLAGS) -run '^TestBenchStream$$' -count=1 -v ./services/controlplane/internal/api | tee /dev/stderr | grep '^{"target"'

.PHONY: linearizability
linearizability: bin/cofferdam-ferretdb ## Have 64 clients make OPS (10000) writes on each back end, with lost answers and kills, and check that one order explains them
	@COFFERDAM_BIN_DIR=$(BIN) $(GO) run ./services/statefacade/internal/linearizability/cmd/linearizability -ops $(OPS)

##@ Change

VALIDATE_PROTO := pkg/proto/third_party/protovalidate/buf/validate/validate.proto

.PHONY: generate
generate: bin/buf bin/protoc-gen-go ## Write pkg/gen from pkg/proto
	@$(BIN)/vendor-validate $(VALIDATE_PROTO)
	@$(BIN)/buf format -w pkg/proto/third_party/protovalidate
	@$(BIN)/buf generate

.PHONY: chart
chart: bin/manifests ## Write the Helm chart from the kustomize manifests
	@$(BIN)/manifests chart deploy/kubernetes

.PHONY: tidy
tidy: ## Tidy every module by itself, as check-deps wants it
	@for module in $(MODULES) $(TOOL_MODULES); do (cd $$module && GOWORK=off $(GO) mod tidy); done

.PHONY: clean
clean: ## Remove ./bin and npm packages; data in ./.cofferdam stays
	@rm -rf $(BIN) $(wildcard tests/*/node_modules tests/*/*/node_modules)

# What the targets above need.

.PHONY: tools
tools: bin/buf bin/golangci-lint bin/protoc-gen-go bin/repocheck

bin/cofferdam-openfga: $(filter-out %_test.go,$(wildcard tools/openfga/*))
	@$(call say,building the OpenFGA server (about 2 minutes the first time) ...)
	@$(call build_tool,openfga,$(BIN)/cofferdam-openfga .)

# A MongoDB server for tests; nothing that is shipped needs it.
bin/cofferdam-ferretdb: $(filter-out %_test.go,$(wildcard tools/ferretdb/*))
	@$(call say,building FerretDB for the tests (about a minute the first time) ...)
	@$(call build_tool,ferretdb,$(BIN)/cofferdam-ferretdb .)

# An S3 server for tests; nothing that is shipped needs it.
bin/cofferdam-s3: $(filter-out %_test.go,$(wildcard tools/versitygw/*))
	@$(call say,building an S3 server for the tests (about a minute the first time) ...)
	@$(call build_tool,versitygw,$(BIN)/cofferdam-s3 .)

# The resolver of sandboxes; `make images` builds it by itself.
bin/cofferdam-dns: $(filter-out %_test.go,$(wildcard tools/coredns/*))
	@$(call say,building the resolver (about 2 minutes the first time) ...)
	@$(call build_tool,coredns,$(BIN)/cofferdam-dns .)

bin/images: $(filter-out %_test.go,$(wildcard tools/images/*))
	@$(call build_tool,images,$(BIN)/ .)

bin/manifests: $(filter-out %_test.go,$(wildcard tools/manifests/*) $(wildcard tools/manifests/internal/*/*))
	@$(call build_tool,manifests,$(BIN)/manifests .)

bin/buf: tools/buf/go.mod tools/buf/go.sum
	@$(call say,building buf (about 2 minutes the first time) ...)
	@$(call build_tool,buf,$(BIN)/ tool)

bin/golangci-lint: tools/golangci-lint/go.mod tools/golangci-lint/go.sum
	@$(call say,building golangci-lint (about 2 minutes the first time) ...)
	@$(call build_tool,golangci-lint,$(BIN)/ tool)

# One build makes protoc-gen-go, protoc-gen-connect-go and vendor-validate.
bin/protoc-gen-go: $(filter-out %_test.go,$(wildcard tools/protobuf/go.* tools/protobuf/cmd/*/*.go))
	@$(call say,building the protobuf plugins ...)
	@$(call build_tool,protobuf,$(BIN)/ tool ./cmd/...)

bin/repocheck: $(filter-out %_test.go,$(wildcard tools/repocheck/*))
	@$(call build_tool,repocheck,$(BIN)/ .)

.PHONY: node-modules
node-modules: $(patsubst %/package-lock.json,%/node_modules/.installed,$(wildcard tests/*/package-lock.json))

%/node_modules/.installed: %/package-lock.json
	@if command -v npm >/dev/null; then \
		$(call say,installing the npm packages of $* ...); \
		cd $* && npm ci --no-audit --no-fund >&2 && touch node_modules/.installed; \
	else \
		$(call say,WARNING: npm is missing: what needs the packages of $* is NOT tested); \
	fi
