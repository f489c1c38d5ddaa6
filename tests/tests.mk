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

# Most tests of a daemon wait rather than work: twice as many at a time as there are processors.
WAITING := $(shell echo $$(($$(nproc) * 2)))
# What takes longest begins first: else it ends alone, with nobody beside it.
LONGEST := attach_resize random_faults attach_steps cache_crash sync layout gateway mirror attach account_book dirty_index resize \
	quiet_sessions.sh worker_kills.sh left_damaged.sh exporter.sh mappings.sh scale nbd.sh keeper.sh isns.sh hanging_store.sh
longest_first = $(foreach t,$(LONGEST),$(filter %/test_$(t),$(1))) $(filter-out $(addprefix %/test_,$(LONGEST)),$(1))
SUMMARY := $(LOG)/summary
RUN      = tests/run -l $(LOG) $(if $(SUM),-s $(SUM) -r 1)

# Seconds for each. Sanitizers take five times as long, and a busy machine as much again.
LIMIT := $(if $(filter asan tsan,$(VARIANT)),900,300)

check-unit: $(UNIT) ## unit tests and simulations
	@$(RUN) -j 2 -t $(LIMIT) $(call longest_first,$(UNIT))

# Some of them a second time behind a cache of 1 MiB, which thrashes.
THRASHED := $(filter $(O)/tests/integration/test_first_light $(O)/tests/integration/test_admin_online,$(INTEG)) \
	$(filter tests/integration/test_mt_churn.sh,$(INTEG_SH))
check-integration: all $(INTEG) ## a real tgtd on a free port
	@TGT_BIN=$(abspath $(BIN)) $(RUN) -j $(WAITING) -t $(LIMIT) $(call longest_first,$(INTEG) $(INTEG_SH)); rc=$$?; \
	TGT_TEST_CACHE=size=1m TGT_BIN=$(abspath $(BIN)) $(RUN) -l $(LOG)/cache-1m -j 2 -t 300 $(THRASHED) && exit $$rc

# Where Ceph's packages are; elsewhere they skip, with the reason. check has a short form (RBD=short).
check-cluster: all $(CLUSTER) ## a Ceph cluster of one machine behind the units (its packages: tests/README.md)
	@TGT_BIN=$(abspath $(BIN)) $(RUN) -j 1 -t 1800 $(wildcard tests/cluster/test_*.sh)

# At length, with what is wanted of a quiet machine judged: hours. CLUSTER_SHOWS='links bench' for some of it.
CLUSTER_SHOWS ?= sim gateways units links mirror rbd bench vm
SIMS := tests/sim/test_gateway tests/sim/test_mirror
check-cluster-shows: all $(CLUSTER) $(addprefix $(O)/,$(SIMS)) ## what is promised of a group of gateways, at full length (hours)
	@rc=0; export TGT_BIN=$(abspath $(BIN)) TGT_STRICT=1; run="$(RUN) -l $(LOG)/cluster-shows -j 1"; \
	for show in $(CLUSTER_SHOWS); do case $$show in \
	sim) TGT_GATEWAY_SEEDS=100000 TGT_MIRROR_SEEDS=100000 $$run -t 14400 $(addprefix $(O)/,$(SIMS)) ;; \
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

# Conformance is one connection that waits for its answers, and a cluster waits for its daemons: beside each other.
check-others: all $(CLUSTER)
	@RBD=short TGT_BIN=$(abspath $(BIN)) $(RUN) -j 2 -t 900 $(wildcard tests/conformance/test_*.sh tests/cluster/test_*.sh)

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

check-layers: all ## who may include whom; how long lines and sentences may be
	@$(RUN) tests/check-layers tests/prose

prose: ## how long sentences and lines of the READMEs and man pages are
	@tests/prose --table

# The long ones (two conformance suites, a million reads, a hundred kills, a comparison with LIO, a
# hundred restarts) take many minutes each under emulation, so that only check-vm-long runs them; the
# kills once more with tgtd under ASan.
VM_LONG  := $(addprefix tests/vm/test_,iser_writes.sh iser_resize.sh iser_reads.sh iser_kills.sh \
	iser_load.sh iser_cu.sh iser_conformance.sh iser_vs_lio.sh sg3_utils.sh badnet.sh \
	badnet_iser.sh restart_long.sh restart_postgres.sh gateways.sh)
VM_SHORT := $(filter-out $(VM_LONG),$(wildcard tests/vm/test_*.sh))
check-vm: all ## a stock kernel in QEMU
	@TGT_BIN=$(abspath $(BIN)) $(RUN) -j 1 -t 900 $(VM_SHORT)
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

# (Random faults take ten times as long there: fewer seeds; check-shows has as many as check-unit.)
check-asan: ## unit and integration tests under ASan and UBSan
	@TGT_FAULT_SEEDS=$(or $(TGT_FAULT_SEEDS),2) $(MAKE) --no-print-directory VARIANT=asan check-unit check-integration

check-tsan: ## threaded tests under TSan
	@$(MAKE) --no-print-directory VARIANT=tsan check-tsan-inner
check-tsan-inner: all $(UNIT_MT) $(INTEG_MT)
	@TSAN_OPTIONS="suppressions=$(CURDIR)/tests/support/tsan.supp second_deadlock_stack=1 $(TSAN_OPTIONS)" TGT_BIN=$(abspath $(BIN)) $(RUN) -j 2 -t 600 $(UNIT_MT) $(INTEG_MT) $(filter tests/integration/test_mt_%,$(INTEG_SH))

# Every fuzz target for FUZZ_SECONDS each, from its committed seeds; a crash fails.
fuzz: $(FUZZ) ## every fuzz target for FUZZ_SECONDS (60) each
	@FUZZ_SECONDS=$(FUZZ_SECONDS) $(RUN) -j 2 -t $$(($(FUZZ_SECONDS) + 120)) $(foreach f,$(notdir $(FUZZ)),$(FUZZ_O)/bin/$(f).run)
$(FUZZ_O)/bin/%.run: $(FUZZ_O)/bin/% tests/fuzz/run-one
	@printf '#!/bin/sh\nexec tests/fuzz/run-one %s\n' $< >$@; chmod +x $@
fuzz: $(addsuffix .run,$(FUZZ))
check-fuzz: ## every fuzz target for ten seconds
	@$(MAKE) --no-print-directory fuzz FUZZ_SECONDS=$(or $(FUZZ_CHECK_SECONDS),10)

check: deps ## install what is missing, build, run every test; the last line counts
	@$(MAKE) --no-print-directory check-all

# All parts run even when one fails; the last line is the sum.
CHECK_PARTS := check-layers check-unit check-integration check-others check-vm check-asan check-tsan check-fuzz
check-all:
	@mkdir -p $(LOG); rm -f $(SUMMARY); touch $(SUMMARY)
	@$(MAKE) --no-print-directory -j2 all WERROR=1 || echo '0 1 0' >>$(SUMMARY)
	@for part in $(CHECK_PARTS); do \
		echo "== $$part"; start=$$SECONDS; before=$$(wc -l <$(SUMMARY)); \
		$(MAKE) --no-print-directory -j2 $$part WERROR=1 SUM=$(abspath $(SUMMARY)) && rc=0 || rc=1; \
		if [ $$rc -ne 0 ] && ! tail -n +$$((before + 1)) $(SUMMARY) | awk '$$2 > 0 {bad = 1} END {exit !bad}'; then \
			echo "FAIL $$part: did not run to its end"; echo '0 1 0' >>$(SUMMARY); fi; \
		echo "== $$part took $$((SECONDS - start)) s"; \
	done; \
	awk '{p += $$1; f += $$2; s += $$3} END {if (s) printf "%d skipped, each with its reason above\n", s; printf "%d passed, %d failed\n", p, f; exit f > 0}' $(SUMMARY)

