# `make` alone prints what there is.
.DEFAULT_GOAL := help
.PHONY: help demo test check house shape race sim-check faults examples steady bench-check network bench-redlock bench-deaths lost-updates test-engines test-monitoring test-console servers redis lint bench bench-redisson bench-compare bench-against bench-once far evidence outsider replay vectors vectors-check fuzz explore explore-check sim campaign failovers mutants \
	spell staticcheck vuln api licences sbom workflows shell oldest-go platforms servers-matrix release-notes release-test release-check profile upgrade

# Every package of the core and of the modules that go.work joins to it.
ALL := github.com/headwaiter/headwaiter/...

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## several processes and one lock, on an embedded Redis; ARGS="--redis URL" takes a real one
	go run ./examples/demo $(ARGS)

# Each test once. What hangs is found by its own limits; this one is for a machine with much other work.
GOTEST := go test -vet=off -count=1 -timeout 30m

# What needs servers of other kinds, what needs Prometheus, and what needs a browser.
ENGINES := /(contrib/(etcdlock|zklock|sqllock)|cmd/headwaiter/engines|examples/demo/engines|bench/rivals)(/|$$)
MONITORING := /contrib/(prometheus|otel)(/|$$)
BROWSER := /cmd/headwaiter/internal/console/browser(/|$$)
# Processes that are killed, stopped and cut off; simulated worlds, and histories of real runs.
FAULTS := /internal/verify/(campaign|chaos)(/|$$)
CAMPAIGN := /internal/verify/campaign$$
SIM := /internal/verify/(check|sim)(/|$$)
# What has cases that -short leaves out: they run once, without the race detector, which would make them miss their leases.
SLOW := /(fairlock|redlock|internal/testenv/family)$$
MODELS := /internal/verify/model(/|$$)
BENCH := /headwaiter/bench(/|$$)
EXAMPLES := /headwaiter/examples(/|$$)
# Adapters to other libraries.
ADAPTERS := /contrib/(certmagic|gocron|goredis|locker)(/|$$)
# What has no goroutines of its own: the models, scripts, texts, and what reads the tree itself.
SEQUENTIAL := /(lua|fence|internal/(tidy|tty|names|release|verify/(model|mutants|explore|vectors)))(/|$$)
HOUSE := /internal/tidy$$
EXPLORE := /internal/verify/explore$$
LATER := $(HOUSE)|$(EXPLORE)|$(ENGINES)|$(MONITORING)|$(BROWSER)|$(CAMPAIGN)|$(SIM)|$(BENCH)|$(EXAMPLES)|$(ADAPTERS)

test: servers ## the core, the primitives, the command, and all scripts on a real redis-server: minutes; ARGS="-run NAME" for a part of it
	$(GOTEST) -short -p 4 -parallel 8 $(ARGS) $$(go list $(ALL) | grep -v -E '$(LATER)')
	@echo
	@echo "not run: adapters and the race detector (make race), the rules of the house (make lint house), engines (make test-engines),"
	@echo "  longer faults on real processes (make faults), simulation and slow cases (make sim-check), search (make explore-check), benchmark"
	@echo "  (make bench-check), examples (make examples), monitoring and console (make test-monitoring test-console)."
	@echo "all of it: make check (some 35 minutes)"

check: ## all that a change must pass, step by step; CONTRIBUTING.md has the table; ARGS="STEP..." for some steps
	scripts/check $(ARGS)

race: servers ## what has goroutines, with the race detector
	CGO_ENABLED=1 $(GOTEST) -race -short -p 3 -parallel 6 $(ARGS) $$(go list $(ALL) | grep -v -E '$(ENGINES)|$(MONITORING)|$(BROWSER)|$(FAULTS)|/internal/verify/check|$(BENCH)|$(EXAMPLES)|$(SEQUENTIAL)')

sim-check: servers ## hundreds of simulated worlds, histories of real runs, all histories of the models, and cases that -short leaves out
	$(GOTEST) -p 2 $(ARGS) $$(go list $(ALL) | grep -E '$(SIM)')
	$(GOTEST) -p 2 -run WhatTheModelDoes $(ARGS) $$(go list $(ALL) | grep -E '$(MODELS)')
	$(GOTEST) -p 3 -run 'TestConformance|TestNothingIsLeftAfter' $(ARGS) $$(go list $(ALL) | grep -E '$(SLOW)')

faults: servers ## processes and servers in trouble, clusters, failovers
	$(GOTEST) -p 1 $(ARGS) $$(go list $(ALL) | grep -E '$(FAULTS)')

examples: servers ## each example as a program of its own
	$(GOTEST) $(ARGS) $$(go list $(ALL) | grep -E '$(EXAMPLES)' | grep -v -E '$(ENGINES)')

steady: ## run a target again and again under load: is any test red by chance? ARGS="test 20"
	scripts/steady $(ARGS)

test-engines: servers bench-redisson ## the adapters to etcd, ZooKeeper, Postgres and MariaDB, and all rivals, on real servers; fetches those that are missing
	@scripts/need etcd zookeeper pgbouncer mariadbd
	CGO_ENABLED=1 $(GOTEST) -race -p 3 $(ARGS) $$(go list $(ALL) | grep -E '$(ENGINES)')

test-monitoring: servers ## metrics, rules and the dashboard with a real Prometheus, and traces
	@scripts/need prometheus promtool
	CGO_ENABLED=1 $(GOTEST) -race -p 1 $(ARGS) $$(go list $(ALL) | grep -E '$(MONITORING)')

test-console: redis ## the console in a browser; fetches Chromium where it is missing; ARGS=-args -update writes docs/pictures
	@scripts/need chromium
	$(GOTEST) $$(go list $(ALL) | grep -E '$(BROWSER)') $(ARGS)

servers: redis ## fetch what the suite needs except Go, if it is missing: redis-server, Postgres, a C compiler
	@scripts/need postgres gcc

redis:
	@scripts/need redis-server

servers-matrix: redis ## deployments and failovers on each server that packages bring; writes the table of docs/deploy.md; ARGS="-short NAME..." for some
	go run ./internal/verify/campaign -deployments $(ARGS)

lint: ## formatting and go vet
	@unformatted=$$(gofmt -l .) && if [ -n "$$unformatted" ]; then echo "run gofmt -w on:" $$unformatted; exit 1; fi
	go vet $(ALL)

house: ## the rules of the house: layers, circles, links, code and commands in pages, examples
	$(GOTEST) $(ARGS) $$(go list $(ALL) | grep -E '$(HOUSE)')

shape: redis ## what one contended Lock runs, circles, lines and words, at commit REV (default: before the cores) and now, with the goals; ARGS=-functions names what runs
	go run ./internal/tidy/shape/cmd $(if $(REV),-base $(REV)) $(ARGS)

bench: redis $(if $(ARGS),,bench-redisson) ## compare this with its rivals in pairs: writes docs/benchmarks.md, what other pages have of it, and the base line; ARGS="--help"
	@scripts/need postgres etcd zookeeper java
	go run ./bench/rivals/cmd/bench $(if $(ARGS),$(ARGS),-standard)
	$(if $(ARGS),,grep -E '^\{"kind":"(run|pair|result|recovery|missing)"' bench-results/results.jsonl >$(BASELINE))

network: redis ## the same over a network of 0.25 and 1 ms each way: writes docs/network.md, and what README has of it
	@scripts/need postgres etcd zookeeper
	go run ./bench/rivals/cmd/bench -delay 0,250us,1ms -locks headwaiter,headwaiter-unlock,redsync,etcd-mutex,zookeeper-lock,postgres-advisory \
		-work W1,W4,W5,W6 -clients 2,8,32 -dead 2 -rounds 7 -slice 100ms -floor-slice 30ms -out bench-results -docs docs/network.md -fill README.md $(ARGS)

bench-deaths: redis ## what a killed holder costs, with and without an identity, beside other locks: writes the table of docs/when-a-holder-dies.md
	go run ./bench/rivals/cmd/bench -locks headwaiter,redsync,redislock,rueidislock,etcd-mutex,zookeeper-lock,postgres-advisory -work W6 -within 6m -out bench-results -fill docs/when-a-holder-dies.md $(ARGS)

bench-redlock: redis ## redlock and redsync on the same five servers: writes the table of docs/redlock.md
	go run ./bench/rivals/cmd/bench -pairs -locks headwaiter,redsync -work R5 -rounds 9 -slice 200ms -floor-slice 60ms -pin -within 6m -out bench-results -fill docs/redlock.md $(ARGS)

lost-updates: servers ## updates lost under this lock and others, by faults, with and without a token: writes docs/lost-updates.md
	@scripts/need etcd
	$(GOTEST) -run TestLostUpdates ./bench/rivals/lost -args -page $(CURDIR)/docs/lost-updates.md $(ARGS)

BASELINE := bench/baseline.jsonl

bench-compare: redis ## measure this project's own pairs again, and say what has changed since the base line: about five minutes
	go run ./bench/cmd/bench -pairs -locks all -work W1,W2,W3,W4,R1,R4,S4,S16,RW,R5 -rounds 9 -slice 200ms -floor-slice 60ms -pin -out bench-results
	go run ./bench/cmd/bench compare $(BASELINE) bench-results/results.jsonl

bench-against: redis ## compare this tree's lock with that of commit REV in pairs, and say whether it has become slower: three minutes
	@test -n "$(REV)" || { echo "bench-against: say REV=<commit>" >&2; exit 2; }
	set -e; folder=$$(mktemp -d); trap 'test ! -e "$$folder/tree" || git worktree remove --force "$$folder/tree"; rm -r "$$folder"' EXIT; \
	git worktree add --quiet --detach "$$folder/tree" $(REV); \
	(cd "$$folder/tree" && go build -o "$$folder/before" ./bench/cmd/bench); \
	go run ./bench/cmd/bench -against "$$folder/before" -work W1,W3,W4 -clients 2,8,32 -rounds 21 -slice 200ms -floor-slice 20ms -pin -restless $(ARGS)

evidence: servers ## run what docs/evidence.md is made of on this commit, and write it: some hours, and it may be interrupted; ARGS="campaign far" for some steps
	@scripts/need postgres etcd zookeeper java mvn
	scripts/evidence $(ARGS)

outsider: servers ## README's commands, the programs of first adopters and an upgrade, with empty caches: writes how long that takes into docs/evidence.md
	scripts/outsider

far: redis ## how far one server and a cluster go, with 10,000 clients and 1,000,000 names: writes docs/how-far.md and what `bench plan` reckons with; ARGS="-help"
	go run ./bench/cmd/bench far -docs docs/how-far.md -data bench/report/far.jsonl $(ARGS)

bench-redisson: ## build the Java program that measures Redisson; fetches Java and Maven where they are missing
	@scripts/need java mvn
	mvn -q -B -f bench/rivals/redisson/pom.xml package

profile: redis ## where the time of W1 to W8 goes, into out/profile (Linux: perf, strace); ARGS="W1 W4"
	scripts/profile $(ARGS)

bench-once: servers ## run every micro-benchmark once, to see that it still does
	@scripts/need etcd zookeeper
	set -e; packages=$$(scripts/having Benchmark); go test -vet=off -run '^$$' -short -bench . -benchtime 1x $$packages

bench-check: bench-once ## the benchmark's own tests, and every micro-benchmark once
	$(GOTEST) -p 1 $(ARGS) $$(go list $(ALL) | grep -E '$(BENCH)' | grep -v -E '$(ENGINES)')

FUZZ ?= 4000

# A number of inputs, as an end by time now and then fails a run that found nothing (golang/go#75804, until Go 1.27).
replay: servers ## the newest bugs of the track record on the commit before their mend, and on this tree: red, then green; ARGS="20"
	scripts/replay $(ARGS)

vectors: ## write the golden vectors of the scripts to lua/vectors, from the histories of their models
	rm -f lua/vectors/*.jsonl
	$(GOTEST) -p 2 -run 'WhatTheModelDoes$$' $$(go list $(ALL) | grep -E '$(MODELS)') -args -vectors

vectors-check: redis ## the golden vectors on each server that packages bring; make test has the installed one
	@set -e; $(GOTEST) -c -o out/vectors.test ./internal/verify/vectors; \
	for name in $$(scripts/server); do \
		echo "$$name"; server=$$(scripts/server "$$name"); HEADWAITER_REDIS_SERVER=$$server out/vectors.test -test.count=1; \
	done

fuzz: ## run every fuzz test with FUZZ (4000) new histories, those of texts with forty times as many
	@set -e; packages=$$(scripts/having Fuzz); \
	for package in $$packages; do \
		targets=$$(go test -list '^Fuzz' $$package); \
		case $$package in */model*|*/fence) n=$(FUZZ);; *) n=$$(($(FUZZ) * 40));; esac; \
		for target in $$targets; do case $$target in Fuzz*) \
			echo "$$package $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $${n}x -fuzzminimizetime 5x $$package; \
		esac; done; \
	done

campaign: redis ## all faults on real processes and on each server there is, by turns: writes docs/campaign.md; ARGS="-for 10m -only clients,soak -on installed"
	go run ./internal/verify/explore -walks 50000
	go test -count=1 -timeout 1h -run AKilledHolderCostsItsRestart ./internal/verify/chaos -kills 1000
	go run ./internal/verify/campaign $(ARGS)

failovers: redis ## 200 failovers of each kind, with WithReplicas and without: writes docs/failovers.md (an hour and a half; ROUNDS=20 for fewer)
	DEPLOY_ROUNDS=$(or $(ROUNDS),200) DEPLOY_PAGE=$(CURDIR)/docs/failovers.md \
		go test -count=1 -v -timeout 6h -parallel 6 -run TestFaults/failovers/._ ./internal/verify/chaos

SEEDS ?= 50000

sim: ## simulate SEEDS (50000) worlds full of faults; ARGS="-sim.first=N" begins with another than the first
	go test -count=1 -v -timeout 0 ./internal/verify/sim -run 'TestSeeds$$' -sim.seeds=$(SEEDS) $(ARGS)

explore: ## go through real cores, the model of the scripts and a network, and write scopes.tsv there, and docs/explore.md; ARGS="-scope NAME" for a part, DEPTH=N for N steps
	go run ./internal/verify/explore $(if $(ARGS)$(DEPTH),,-page docs/explore.md) $(if $(DEPTH),-depth $(DEPTH)) $(ARGS)

explore-check: ## a named part of that, and walks
	$(GOTEST) $(ARGS) $$(go list $(ALL) | grep -E '$(EXPLORE)')

mutants: redis ## plant known bugs one by one and see that the tests find each; ARGS="-only NAME" for some of them
	go run ./internal/verify/mutants/cmd $(ARGS)

# Tools, each pinned; go run fetches them once.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.8.0
ACTIONLINT  := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

spell: ## British spelling of pages and comments; words of our own are in scripts/words.txt
	@scripts/need hunspell
	scripts/spell

staticcheck: ## staticcheck over all modules
	go run $(STATICCHECK) $(ALL)

vuln: ## known vulnerabilities that our code reaches, over all modules; asks vuln.go.dev
	go run $(GOVULNCHECK) $(ALL)

api: ## whether users of the last release, or of the frozen version 1, would have to change their code
	scripts/api

workflows: ## check the workflow files
	go run $(ACTIONLINT)

shell: ## check the shell scripts
	@scripts/need shellcheck
	shellcheck scripts/api scripts/check scripts/evidence scripts/frozen scripts/having scripts/need scripts/outsider scripts/profile scripts/release scripts/replay scripts/server scripts/spell scripts/steady scripts/upgrade .ci/run

# The core's go.mod says which Go it promises to work with; the toolchain is fetched where it is not here. The modules
# that promise the same are in a workspace of their own: the workspace of the tree is as new as the newest module needs.
OLDEST_GO := $(shell sed -n 's/^go //p' go.mod)

oldest-go: servers ## the tests of the core, and of each module that promises the same Go, with that Go
	@scripts/need zookeeper pgbouncer
	@GOTOOLCHAIN=go$(OLDEST_GO) GOWORK=off go version || { echo "go$(OLDEST_GO) is not here and cannot be fetched"; exit 1; }
	set -e; folder=$$(mktemp -d); trap 'rm -r "$$folder"' EXIT; \
	modules=$$(go list -m -f '{{if eq .GoVersion "$(OLDEST_GO)"}}{{.Dir}}{{end}}' $$(go list -m)); \
	export GOTOOLCHAIN=go$(OLDEST_GO); cp go.work.sum "$$folder"; (cd "$$folder" && GOWORK=off go work init $$modules); \
	export GOWORK="$$folder/go.work"; go vet $(ALL); \
	go test -count=1 $(ARGS) $$(go list $(ALL) | grep -v -E '/internal/(verify|tidy)(/|$$)')

# Their tests stop processes, which Windows cannot.
STOPPING := /(barrier|countdown|election|fairlock|reentrant|rwlock|semaphore|internal/testenv/family)$$|/internal/verify/

platforms: ## vet the core, and what tests of users need, for macOS and for Windows
	GOOS=darwin CGO_ENABLED=0 go vet ./... ./headwaitertest/... ./bench
	GOOS=windows CGO_ENABLED=0 go build ./... ./headwaitertest/... ./bench
	GOOS=windows CGO_ENABLED=0 go vet $$(GOOS=windows go list ./... ./headwaitertest/... ./bench | grep -v -E '$(STOPPING)')

licences: ## write docs/licences.tsv: the licences of what the modules need
	cd internal/release && GOWORK=off go run . licences

VERSION ?= v0.0.0-unreleased

sbom: ## write a bill of materials to dist/sbom.json; VERSION=vX.Y.Z
	@mkdir -p dist
	cd internal/release && GOWORK=off go run . sbom $(VERSION) >../../dist/sbom.json

release-notes: ## write what CHANGELOG.md says of VERSION=vX.Y.Z to dist/notes.md
	@mkdir -p dist
	awk -v section='## [$(VERSION:v%=%)]' 'index($$0, "## [") == 1 { on = index($$0, section) == 1; next } on' CHANGELOG.md >dist/notes.md
	@grep -q '[^[:space:]]' dist/notes.md || { echo "CHANGELOG.md says nothing of $(VERSION)"; exit 1; }

release-test: ## release a copy of this repository, and build a stranger's module against each
	cd internal/release && GOWORK=off go vet ./... && GOWORK=off go test -count=1 -timeout 30m $(ARGS) ./...

# The commit that froze version 1; from the first release on name the last release.
FROM ?= $(shell scripts/frozen)

upgrade: redis ## clients of commit FROM and of this tree share names under load and faults; then of this tree and of a minor version after it
	scripts/upgrade $(FROM) $(ARGS)

release-check: lint platforms staticcheck vuln spell workflows shell api sbom release-test oldest-go upgrade ## all that is checked before a release, except the tests
