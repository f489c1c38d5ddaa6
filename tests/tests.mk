# Tests: their programs, and the targets that run them. Included by the Makefile at the top.
.PHONY: check check-all check-unit check-integration check-cluster check-cluster-shows check-others check-conformance check-cache-sizes check-layers check-package \
	prose check-vm check-vm-long check-shows check-cache-shows check-asan check-tsan check-tsan-inner check-fuzz fuzz

# tests/unit mirrors the tree; tests/unit/threads/ and names test_mt_* (of integration tests
# too) also run under TSan.
SUPPORT    := $(wildcard tests/support/*.c)
UNIT_SRC   := $(shell find tests/unit tests/sim -name 'test_*.c' 2>/dev/null)
INTEG_SRC  := $(wildcard tests/integration/test_*.c)
FUZZ_SRC   := $(wildcard tests/fuzz/fuzz_*.c)
UNIT       := $(patsubst %.c,$(O)/%,$(UNIT_SRC))
UNIT_MT    := $(patsubst %.c,$(O)/%,$(filter tests/unit/threads/% $(foreach f,$(UNIT_SRC),$(if $(findstring /test_mt_,$(f)),$(f))),$(UNIT_SRC)))
INTEG      := $(patsubst %.c,$(O)/%,$(INTEG_SRC))
INTEG_MT   := $(filter $(O)/tests/integration/test_mt_%,$(INTEG))
CLUSTER_SRC := $(wildcard tests/cluster/*.c)
CLUSTER    := $(patsubst %.c,$(O)/%,$(CLUSTER_SRC))
INTEG_SH   := $(wildcard tests/integration/test_*.sh)

# ---- tests ---------------------------------------------------------------------------------------
TEST_LIBS := -lcheck -lsubunit -lrt -lm
$(O)/libsupport.a: $(call obj,$(SUPPORT))
	@mkdir -p $(@D)
	@rm -f $@
	$(call say,AR $@)
	$(Q)$(AR) rcs $@ $^

define unit_rule
$(O)/$(1): $(O)/obj/$(1).o $(LIB) $(if $(SUPPORT),$(O)/libsupport.a)
	@mkdir -p $$(@D)
	$$(call say,LD $$@)
	$$(Q)$(CC) $(LDFLAGS) -o $$@ $$< -Wl,--start-group $(if $(SUPPORT),$(O)/libsupport.a) $(LIB) -Wl,--end-group $(2) $(TEST_LIBS) $(LIBS_tgtd)
endef
$(foreach t,$(UNIT_SRC),$(eval $(call unit_rule,$(patsubst %.c,%,$(t)),)))
$(foreach t,$(CLUSTER_SRC),$(eval $(call unit_rule,$(patsubst %.c,%,$(t)),)))
$(foreach t,$(INTEG_SRC),$(eval $(call unit_rule,$(patsubst %.c,%,$(t)),-liscsi)))

# Libraries that stand in for what this machine has not, preloaded into the daemon by a test.
PRELOAD  := $(patsubst %.c,$(O)/%.so,$(wildcard tests/preload/*.c))
$(O)/tests/preload/%.so: tests/preload/%.c
	@mkdir -p $(@D)
	$(call say,LD $@)
	$(Q)$(CC) -std=gnu17 -I. -O1 -g $(WARN) -fPIC -shared -o $@ $< -ldl

# The daemon of a version that does not know the arenas of this one, nor this one its.
OTHER    := $(O)/tests/other/tgtd
$(O)/tests/other/arena_super.o: cache/memory/arena_super.c cache/memory/layout.h
	@mkdir -p $(@D)
	$(call say,CC $@)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -DARENA_LAYOUT=1000000 -c -o $@ $<
$(OTHER): $(O)/obj/tgtd/main.o $(O)/tests/other/arena_super.o $(LIB)
	$(call say,LD $@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $(wordlist 1,2,$^) -Wl,--start-group $(LIB) -Wl,--end-group $(LIBS_tgtd)
$(INTEG): | $(PRELOAD) $(OTHER)

# libFuzzer targets, always clang with ASan+UBSan.
FUZZ_O   := build/fuzz
FUZZ     := $(patsubst tests/fuzz/%.c,$(FUZZ_O)/bin/%,$(FUZZ_SRC))
FUZZ_SECONDS ?= 60
FUZZ_CFLAGS := -std=gnu17 -O1 -g -DTGT_DEBUG=1 -DTGT_FUZZ=1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined $(WARN) -pthread -fno-strict-aliasing
FUZZ_OBJ := $(patsubst %.c,$(FUZZ_O)/obj/%.o,$(foreach l,$(LAYERS),$(SRC_$(l))) $(SUPPORT))
$(FUZZ_O)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC fuzz $@)
	$(Q)clang $(CPPFLAGS) $(FUZZ_CFLAGS) -MMD -MP -c -o $@ $<
$(FUZZ_O)/libfuzzed.a: $(FUZZ_OBJ)
	@rm -f $@
	$(call say,AR $@)
	$(Q)$(AR) rcs $@ $^
$(FUZZ_O)/bin/%: $(FUZZ_O)/obj/tests/fuzz/%.o $(FUZZ_O)/libfuzzed.a
	@mkdir -p $(@D)
	$(call say,LD fuzz $@)
	$(Q)clang -pthread -fsanitize=fuzzer,address,undefined -o $@ $< $(FUZZ_O)/libfuzzed.a $(LIBS_tgtd) -lcheck -lsubunit -lm

# Programs of all parts run beside each other by tests/pool, and its head says what a line for it is:
# jobs-PART prints those of a part, build-PART makes what they need.
SUMMARY := $(LOG)/summary
RUN      = tests/run -l $(LOG) $(if $(SUM),-s $(SUM) -r 1)
PART     = $(@:jobs-%=%)
NEEDS    = $(VARIANT)
# (Random faults take ten times as long under ASan: fewer seeds; check-shows has as many as check-unit.)
ENV_asan = TGT_FAULT_SEEDS=$(or $(TGT_FAULT_SEEDS),2)
ENV_tsan = TSAN_OPTIONS="suppressions=$(CURDIR)/tests/support/tsan.supp second_deadlock_stack=1 $(TSAN_OPTIONS)"
# Kind, seconds for each, logs, environment, programs.
jobs     = @printf '$(PART)\t$(NEEDS)\t$(1)\t$(2)\t$(3)\tTGT_BIN=$(abspath $(BIN)) $(ENV_$(VARIANT)) $(4)\t%s\n' $(5)
pool     = @set -o pipefail; $(MAKE) --no-print-directory -s $(1) | tests/pool $(if $(SUM),-s $(SUM))

# Seconds for each. Sanitizers take five times as long, and a busy machine ten times: at a load of 17
# scripts that take 30 s have met a limit of 300.
LIMIT := $(if $(filter asan tsan,$(VARIANT)),900,600)

build-check-unit: $(UNIT)
jobs-check-unit:
	$(call jobs,work,$(LIMIT),$(LOG),,$(UNIT))
check-unit: $(UNIT) ## unit tests and simulations
	$(call pool,jobs-check-unit)

# Some of them a second time behind a cache of 1 MiB, which thrashes.
THRASHED := $(filter $(O)/tests/integration/test_first_light $(O)/tests/integration/test_admin_online,$(INTEG)) \
	$(filter tests/integration/test_mt_churn.sh,$(INTEG_SH))
build-check-integration: all $(INTEG)
jobs-check-integration:
	$(call jobs,wait,$(LIMIT),$(LOG),,$(INTEG) $(INTEG_SH))
	$(call jobs,wait,$(LIMIT),$(LOG)/cache-1m,TGT_TEST_CACHE=size=1m,$(THRASHED))
check-integration: build-check-integration ## a real tgtd on a free port
	$(call pool,jobs-check-integration)

# Where Ceph's packages are; elsewhere they skip, with the reason. check has a short form (RBD=short).
check-cluster: all $(CLUSTER) ## a Ceph cluster of one machine behind the units (its packages: tests/README.md)
	@TGT_BIN=$(abspath $(BIN)) $(RUN) -j 1 -t 1800 $(wildcard tests/cluster/test_*.sh)

# At length, with what is wanted of a quiet machine judged: hours. CLUSTER_SHOWS='links bench' for some of it.
CLUSTER_SHOWS ?= sim gateways units links mirror rbd bench vm
SIMS := tests/sim/test_gateway tests/sim/test_mirror
SIM_CACHE := tests/sim/test_mirror_cache
check-cluster-shows: all $(CLUSTER) $(addprefix $(O)/,$(SIMS) $(SIM_CACHE)) ## what is promised of a group of gateways, at full length (hours)
	@rc=0; export TGT_BIN=$(abspath $(BIN)) TGT_STRICT=1; run="$(RUN) -l $(LOG)/cluster-shows -j 1"; \
	for show in $(CLUSTER_SHOWS); do case $$show in \
	sim) TGT_GATEWAY_SEEDS=100000 TGT_MIRROR_SEEDS=100000 $$run -t 14400 $(addprefix $(O)/,$(SIMS)); sims=$$?; \
		CK_FORK=no TGT_MIRROR_SEEDS=5000 $$run -t 14400 $(O)/$(SIM_CACHE) && test $$sims = 0 ;; \
	gateways) KILLS=100 ROUNDS=$(or $(ROUNDS),67) $$run -t 14400 tests/cluster/test_gateways.sh ;; \
	units) ROUNDS=20 $$run -t 3600 tests/cluster/test_units.sh ;; \
	links) ROUNDS=20 $$run -t 7200 tests/cluster/test_links.sh ;; \
	mirror) KILLS=200 PEERS=50 CUTS=20 $$run -t 28800 tests/cluster/test_mirror.sh ;; \
	rbd) $$run -t 3600 tests/cluster/test_rbd.sh tests/cluster/test_rbd_cu.sh ;; \
	bench) $$run -t 3600 tests/bench/rbd-shows tests/bench/mirror-shows ;; \
	vm) $$run -t 3600 tests/vm/test_gateways.sh ;; \
	*) echo "no such show: $$show"; false ;; \
	esac || rc=1; done; \
	grep -hE '^# .*(p50|longest|passed)|: p50 |of its rate|seeds' $(LOG)/cluster-shows/*.log; exit $$rc

build-check-others: all $(CLUSTER)
jobs-check-others:
	$(call jobs,wait,900,$(LOG),RBD=short,$(wildcard tests/conformance/test_*.sh tests/cluster/test_*.sh))
check-others: build-check-others ## conformance and, in a short form, clusters
	$(call pool,jobs-check-others)

check-conformance: all ## libiscsi's iscsi-test-cu
	@TGT_BIN=$(abspath $(BIN)) $(RUN) -j 1 -t 900 $(wildcard tests/conformance/test_*.sh)

# All of the daemon's tests behind caches from one that thrashes to one larger than the LUNs, then a file
# system from a stock kernel behind the smallest. Half an hour.
CACHE_SIZES ?= 1m 4m 300m
check-cache-sizes: all $(INTEG) ## all of the daemon's tests behind caches of three sizes (half an hour)
	@rc=0; for size in $(CACHE_SIZES); do \
		echo "== cache of $$size"; export TGT_TEST_CACHE=size=$$size TGT_BIN=$(abspath $(BIN)); \
		$(RUN) -l $(LOG)/cache-$$size -j 2 -t 300 $(INTEG) $(INTEG_SH) || rc=1; \
		$(RUN) -l $(LOG)/cache-$$size -j 1 -t 900 $(wildcard tests/conformance/test_*.sh) || rc=1; \
	done; \
	TGT_TEST_CACHE=size=$(firstword $(CACHE_SIZES)) TGT_BIN=$(abspath $(BIN)) \
		$(RUN) -l $(LOG)/cache-vm -j 1 -t 900 tests/vm/test_first_light.sh || rc=1; exit $$rc

build-check-layers: all
jobs-check-layers:
	$(call jobs,work,$(LIMIT),$(LOG),,tests/check-layers tests/prose)
check-layers: all ## who may include whom; how long lines and sentences may be
	$(call pool,jobs-check-layers)

prose: ## how long sentences and lines of the READMEs and man pages are
	@tests/prose --table

# The long ones (two conformance suites, a million reads, a hundred kills, a comparison with LIO, a
# hundred restarts) take many minutes each under emulation, so that only check-vm-long runs them; the
# kills once more with tgtd under ASan.
VM_LONG  := $(addprefix tests/vm/test_,iser_writes.sh iser_resize.sh iser_reads.sh iser_kills.sh \
	iser_load.sh iser_cu.sh iser_conformance.sh iser_vs_lio.sh sg3_utils.sh badnet.sh \
	badnet_iser.sh restart_long.sh restart_postgres.sh gateways.sh)
VM_SHORT := $(filter-out $(VM_LONG),$(wildcard tests/vm/test_*.sh))
build-check-vm: all
jobs-check-vm:
	$(call jobs,vm,900,$(LOG),,$(VM_SHORT))
check-vm: all ## a stock kernel in QEMU
	$(call pool,jobs-check-vm)
check-vm-long: all ## the VM tests that take many minutes
	@tools/install-deps postgresql-15
	@$(MAKE) --no-print-directory VARIANT=asan build/asan/bin/tgtd build/asan/bin/tgtadm
	@TGT_BIN=$(abspath $(BIN)) $(RUN) -j 1 -t 3600 $(VM_LONG)
	@TGT_BIN=$(abspath build/asan/bin) KILLS=$(or $(KILLS),20) $(RUN) -j 1 -t 1800 tests/vm/test_iser_kills.sh

# What check has short forms of, at length, with its figures; by another build of libiscsi's test tool if ISCSI_TEST_CU
# names one. Half an hour.
SHOW_STORMS ?= 60
RANDOM_FAULTS := tests/unit/cache/engine/test_random_faults
check-shows: all $(INTEG) ## long forms, with their figures (half an hour)
	@$(MAKE) --no-print-directory VARIANT=asan all && $(MAKE) --no-print-directory VARIANT=tsan all
	@rc=0; export TGT_BIN=$(abspath $(BIN)); \
	TGT_CAW_INCREMENTS=100000 $(RUN) -l $(LOG)/shows -j 1 -t 900 $(O)/tests/integration/test_mt_caw || rc=1; \
	$(RUN) -l $(LOG)/shows -j 1 -t 600 $(O)/tests/integration/test_scale tests/integration/test_wire.sh || rc=1; \
	grep -h '^#' $(LOG)/shows/*test_scale.log $(LOG)/shows/*test_mt_caw.log $(LOG)/shows/*test_wire.sh.log; \
	for v in asan tsan; do for seed in 11 12 13; do \
		TGT_BIN=$(abspath build)/$$v/bin TGT_STORM_SECONDS=$(SHOW_STORMS) TGT_STORM_SEED=$$seed \
		TSAN_OPTIONS="suppressions=$(CURDIR)/tests/support/tsan.supp second_deadlock_stack=1" \
		$(RUN) -l $(LOG)/shows/$$v-$$seed -j 1 -t 600 tests/integration/test_mt_storm.sh || rc=1; \
	done; done; \
	$(RUN) -l $(LOG)/shows -j 1 -t 1800 $(wildcard tests/conformance/test_*.sh) || rc=1; \
	$(RUN) -l $(LOG)/shows -j 1 -t 900 $(addprefix tests/vm/test_,wire.sh multipath.sh reservations.sh) || rc=1; \
	MATRIX=long $(RUN) -l $(LOG)/shows -j 1 -t 1800 tests/integration/test_bad_network.sh || rc=1; \
	grep -h '^#' $(LOG)/shows/*test_bad_network.sh.log; \
	$(MAKE) --no-print-directory VARIANT=asan build/asan/$(RANDOM_FAULTS) && \
		$(RUN) -l $(LOG)/shows/asan -j 1 -t 1800 build/asan/$(RANDOM_FAULTS) || rc=1; \
	$(RUN) -l $(LOG)/shows -j 1 -t 1800 tests/vm/test_badnet.sh tests/vm/test_badnet_iser.sh || rc=1; exit $$rc

# The same for what the cache promises: SHOWS='sick walk' for some of it.
check-cache-shows: all $(UNIT) ## what the cache promises, at full length (an hour)
	@TGT_BIN=$(abspath $(BIN)) tests/bench/cache-shows $(SHOWS)

check-package: ## build, judge and install the Debian packages (needs a mirror; five minutes)
	@tools/install-deps dpkg-dev debhelper fakeroot lintian mmdebstrap systemd-container
	@$(RUN) -j 1 -t 1800 tests/package/test_package.sh

sanitized = @$(MAKE) --no-print-directory VARIANT=$(1) PART=check-$(1)
build-check-asan:
	$(call sanitized,asan) build-check-unit build-check-integration
jobs-check-asan:
	$(call sanitized,asan) -s jobs-check-unit jobs-check-integration
check-asan: build-check-asan ## unit and integration tests under ASan and UBSan
	$(call pool,jobs-check-asan)

build-check-tsan:
	$(call sanitized,tsan) build-threaded
build-threaded: all $(UNIT_MT) $(INTEG_MT)
jobs-check-tsan:
	$(call sanitized,tsan) -s jobs-threaded
jobs-threaded:
	$(call jobs,work,600,$(LOG),,$(UNIT_MT))
	$(call jobs,wait,600,$(LOG),,$(INTEG_MT) $(filter tests/integration/test_mt_%,$(INTEG_SH)))
check-tsan: build-check-tsan ## threaded tests under TSan
	$(call pool,jobs-check-tsan)

# Every fuzz target for FUZZ_SECONDS each, from its committed seeds; a crash fails.
fuzz: $(FUZZ) ## every fuzz target for FUZZ_SECONDS (60) each
	@FUZZ_SECONDS=$(FUZZ_SECONDS) $(RUN) -j 2 -t $$(($(FUZZ_SECONDS) + 120)) $(foreach f,$(notdir $(FUZZ)),$(FUZZ_O)/bin/$(f).run)
$(FUZZ_O)/bin/%.run: $(FUZZ_O)/bin/% tests/fuzz/run-one
	@printf '#!/bin/sh\nexec tests/fuzz/run-one %s\n' $< >$@; chmod +x $@
fuzz: $(addsuffix .run,$(FUZZ))
build-check-fuzz: $(FUZZ) $(addsuffix .run,$(FUZZ))
jobs-check-fuzz: NEEDS = fuzz
jobs-check-fuzz:
	$(call jobs,work,120,$(LOG),FUZZ_SECONDS=$(or $(FUZZ_CHECK_SECONDS),5),$(addsuffix .run,$(FUZZ)))
check-fuzz: build-check-fuzz ## every fuzz target for five seconds
	$(call pool,jobs-check-fuzz)

check: deps ## install what is missing, build, run every test; the last line counts
	@$(MAKE) --no-print-directory check-all

# All parts run even when one fails; the last line is the sum. What sanitizers need is built while tests
# that wait run already. A part that has no jobs-PART runs by itself at the end.
CHECK_PARTS := check-layers check-unit check-integration check-others check-vm check-asan check-tsan check-fuzz
POOLED    := $(filter check-layers check-unit check-integration check-others check-vm check-asan check-tsan check-fuzz,$(CHECK_PARTS))
SANITIZED := $(filter check-asan check-tsan check-fuzz,$(POOLED))
HALF      := $(shell echo $$((($$(nproc) + 1) / 2)))
MAKE_HALF  = $(MAKE) --no-print-directory -j$(HALF) WERROR=1
check-all:
	@mkdir -p $(LOG); rm -f $(SUMMARY); touch $(SUMMARY)
	@$(MAKE) --no-print-directory -j$$(nproc) WERROR=1 all $(addprefix build-,$(filter-out $(SANITIZED),$(POOLED))) || \
		echo '0 1 0' >>$(SUMMARY)
	@{ for part in $(SANITIZED); do printf "$$part\t\tbuild\t0\t-\t\t$${part#check-} $(MAKE_HALF) build-$$part\n"; done; \
	for part in $(filter-out $(POOLED),$(CHECK_PARTS)); do printf "$$part\t\tmake\t0\t-\t\t$$part $(MAKE_HALF) $$part\n"; done; \
	$(MAKE) --no-print-directory -s $(addprefix jobs-,$(POOLED)); } >$(LOG)/jobs || echo '0 1 0' >>$(SUMMARY)
	@tests/pool -s $(SUMMARY) -k $(LOG)/costs <$(LOG)/jobs || awk '$$2 > 0 {bad = 1} END {exit !bad}' $(SUMMARY) || \
		{ echo 'FAIL check: did not run to its end'; echo '0 1 0' >>$(SUMMARY); }
	@awk '{p += $$1; f += $$2; s += $$3} END {if (s) printf "%d skipped, each with its reason above\n", s; printf "%d passed, %d failed\n", p, f; exit f > 0}' $(SUMMARY)
