# `make` alone prints what there is.
.DEFAULT_GOAL := help
.PHONY: help demo test servers redis lint bench fuzz search sim chaos deploy soak mutants

# Every package of the core and of the modules that go.work joins to it.
ALL := github.com/headwaiter/headwaiter/...

help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## several processes and one lock, on an embedded Redis; ARGS="--redis URL" takes a real one
	go run ./cmd/headwaiter demo $(ARGS)

# Tests of what happens under load, or within a time, run one after the other.
ALONE := /internal/(chaos|check|deploy|soak)$$

test: servers ## the whole suite, with the race detector; ARGS="-run NAME" for a part of it
	go vet $(ALL)
	CGO_ENABLED=1 go test -race -count=1 $(ARGS) $$(go list $(ALL) | grep -v -E '$(ALONE)')
	CGO_ENABLED=1 go test -race -count=1 -p 1 $(ARGS) $$(go list $(ALL) | grep -E '$(ALONE)')

servers: redis ## fetch what the suite needs beside Go, if it is missing: redis-server, Postgres, a C compiler
	@scripts/need postgres gcc

redis:
	@scripts/need redis-server

lint: ## formatting and go vet
	@unformatted=$$(gofmt -l .) && if [ -n "$$unformatted" ]; then echo "run gofmt -w on:" $$unformatted; exit 1; fi
	go vet $(ALL)

bench: redis ## measure against the floors of this machine; ARGS="--help" tells the choices
	go run ./bench/cmd/bench $(ARGS)

FUZZTIME ?= 30s

fuzz: ## run every fuzz test for FUZZTIME (30s)
	@set -e; for package in $$(go list $(ALL)); do \
		for target in $$(go test -list '^Fuzz' $$package | grep '^Fuzz' || true); do \
			echo "$$package $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 5x $$package; \
		done; \
	done

search: ## go through more states of the protocol's model, and more random walks, than the tests do
	go test -count=1 -v -timeout 0 ./internal/search -search.most=3000000 -search.walks=1000000 $(ARGS)

SPAN ?= 20m

soak: redis ## sixteen workers and one lock for SPAN (20m), with calls that give up and waiters that are killed
	go test -count=1 -v -timeout 0 ./internal/soak -soak.for $(SPAN)

chaos: redis ## what happens in production, for a long time; ends with what was measured
	CHAOS_LONG=1 go test -count=1 -v -timeout 60m $(ARGS) ./internal/chaos

deploy: redis ## clusters, Sentinel, replicas: fifty failovers and twenty moving slots under load
	DEPLOY_LONG=1 go test -count=1 -v -timeout 60m $(ARGS) ./internal/deploy

SEEDS ?= 50000

sim: ## simulate SEEDS (50000) worlds full of faults; ARGS="-sim.first=N" begins with another than the first
	go test -count=1 -v -timeout 0 ./internal/sim -run 'TestSeeds$$' -sim.seeds=$(SEEDS) $(ARGS)

mutants: redis ## plant known bugs one by one and see that the tests find each; ARGS="-only NAME" for some of them
	go run ./internal/mutants/cmd $(ARGS)
