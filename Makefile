# tgtd: one non-recursive Makefile. `make help` lists the targets.
#
# Sources are found by their place (see README.md, "Where things are"): a new .c file in a layer's
# folder is built into that layer's archive, a new tests/unit/**/test_*.c is a new test program, a
# new tools/NAME.c is a new tool; nothing is listed here twice.
#
#   VARIANT=release|debug|asan|tsan   what is built; each has its own tree below build/
#   VARIANT=lto                       release, optimized over all files at once (gcc): some per cent
#                                     faster, and slow to link; for packages and benches
#   CC=clang                          any C17 compiler with GNU extensions
#   WERROR=1                          warnings are errors (CI sets it)

VARIANT ?= release
SHELL   := /bin/bash
# V=1 shows whole command lines.
Q       := $(if $(V),,@)
say      = $(if $(V),,@echo '  $(1)')
.DELETE_ON_ERROR:
.SECONDARY:

ifeq ($(VARIANT),release)
  O := build
else
  O := build/$(VARIANT)
endif
BIN := $(O)/bin
LOG := $(O)/log

# ---- flags ---------------------------------------------------------------------------------------
WARN     := -Wall -Wextra -Wshadow -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wno-unused-parameter
OPT      := -O2 -g
ifeq ($(VARIANT),debug)
  OPT    := -O0 -g3 -DTGT_DEBUG=1
else ifeq ($(VARIANT),lto)
  ifneq ($(findstring clang,$(CC)),)
    $(error VARIANT=lto is for gcc)
  endif
  OPT    := -O2 -g -flto=auto
  AR     := gcc-ar
else ifeq ($(VARIANT),asan)
  OPT    := -O1 -g -DTGT_DEBUG=1 -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
else ifeq ($(VARIANT),tsan)
  OPT    := -O1 -g -DTGT_DEBUG=1 -fsanitize=thread -fno-omit-frame-pointer
endif
ifneq ($(WERROR)$(CI),)
  WARN   += -Werror
endif
VERSION  := 0.1.0
HAVE_RDMA := $(shell pkg-config --exists libibverbs librdmacm 2>/dev/null && echo 1)
CPPFLAGS += -D_GNU_SOURCE -I. -DTGT_VERSION='"$(VERSION)"' $(if $(HAVE_RDMA),-DHAVE_RDMA=1)
# Programs only, no shared objects: a thread's own variables are at fixed places.
CFLAGS   += -std=gnu17 $(OPT) $(WARN) -pthread -fno-strict-aliasing -ftls-model=local-exec
LDFLAGS  += -pthread $(filter -fsanitize=% -fno-sanitize%,$(OPT)) $(if $(filter -flto%,$(OPT)),$(OPT))
RDMA_LIBS := $(if $(HAVE_RDMA),-lrdmacm -libverbs)
LIBS_events := -lnuma
LIBS_conf   :=
LIBS_tgtd   := -laio -lnuma -lisal -lcrypto -lsystemd -lrt -lm $(RDMA_LIBS)

# ---- layers: one archive each, in link order (upper first) -----------------------------------------
SRC_events := $(wildcard events/*.c)
SRC_conf   := $(wildcard conf/*.c)
SRC_cache  := $(wildcard cache/*.c cache/backend/*.c)
SRC_scsi   := $(wildcard tgtd/scsi/*.c)
SRC_iscsi  := $(wildcard tgtd/iscsi/*.c)
SRC_tcp    := $(wildcard tgtd/tcp/*.c)
SRC_iser   := $(if $(HAVE_RDMA),$(wildcard iser/*.c))
SRC_admin  := $(wildcard tgtd/admin/*.c)
SRC_main   := $(filter-out tgtd/main.c,$(wildcard tgtd/*.c))
LAYERS     := main admin iser tcp iscsi scsi cache conf events
obj         = $(patsubst %.c,$(O)/obj/%.o,$(1))
LIB        := $(foreach l,$(LAYERS),$(if $(SRC_$(l)),$(O)/lib$(l).a))

# ---- programs ------------------------------------------------------------------------------------
# tools/NAME.c is a program; tools/NAME/*.c is one too. tools/NAME.sh and NAME.py are installed as NAME.
TOOL_FILES := $(wildcard tools/*.c)
TOOL_DIRS  := $(patsubst tools/%/,%,$(sort $(dir $(wildcard tools/*/*.c))))
TOOLS      := $(patsubst tools/%.c,$(BIN)/%,$(TOOL_FILES)) $(addprefix $(BIN)/,$(TOOL_DIRS))
SCRIPTS_SH := $(patsubst tools/%.sh,$(BIN)/%,$(wildcard tools/*.sh))
SCRIPTS_PY := $(patsubst tools/%.py,$(BIN)/%,$(wildcard tools/*.py))
# tools/NAME/__main__.py and the modules beside it are packed into one program.
SCRIPTS_PYZ := $(patsubst tools/%/__main__.py,$(BIN)/%,$(wildcard tools/*/__main__.py))
SCRIPTS    := $(SCRIPTS_SH) $(SCRIPTS_PY) $(SCRIPTS_PYZ)
DAEMON     := $(if $(wildcard tgtd/main.c),$(BIN)/tgtd)

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
INTEG_SH   := $(wildcard tests/integration/test_*.sh)

.PHONY: all help deps run check check-unit check-integration check-conformance check-cache-sizes check-vm check-vm-long check-shows check-asan \
	check-tsan check-layers check-fuzz fuzz bench bench-real install uninstall clean tools

all: $(LIB) $(DAEMON) $(TOOLS) $(SCRIPTS)

help:
	@echo 'make all run check check-unit check-integration check-conformance check-vm check-asan check-tsan'
	@echo '     check-layers fuzz bench bench-real install uninstall clean (VARIANT=release|lto|debug|asan|tsan)'

# ---- compiling -----------------------------------------------------------------------------------
$(O)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC $@)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(if $(filter tests/% ,$<),$(TEST_CFLAGS)) -MMD -MP -c -o $@ $<

define layer_rule
$(O)/lib$(1).a: $(call obj,$(SRC_$(1)))
	@mkdir -p $$(@D)
	@rm -f $$@
	$$(call say,AR $$@)
	$$(Q)$(AR) rcs $$@ $$^
endef
$(foreach l,$(LAYERS),$(eval $(call layer_rule,$(l))))

$(BIN)/tgtd: $(O)/obj/tgtd/main.o $(LIB)
	@mkdir -p $(@D)
	$(call say,LD $@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $< -Wl,--start-group $(LIB) -Wl,--end-group $(LIBS_tgtd)

TOOL_LIB := $(O)/libconf.a $(O)/libevents.a
# A tool that measures or simulates the real code may ask for more: TOOLLIBS_name := all
-include $(wildcard tools/*.mk tools/*/*.mk)
toollib = $(if $(filter all,$(TOOLLIBS_$(1))),$(LIB),$(filter $(LIB),$(TOOL_LIB)))
define tool_rule
$(BIN)/$(1): $(call obj,$(wildcard tools/$(1).c tools/$(1)/*.c)) $(call toollib,$(1))
	@mkdir -p $$(@D)
	$$(call say,LD $$@)
	$$(Q)$(CC) $(LDFLAGS) -o $$@ $(call obj,$(wildcard tools/$(1).c tools/$(1)/*.c)) -Wl,--start-group $(call toollib,$(1)) -Wl,--end-group $(LIBS_tgtd) $(TOOLLDLIBS_$(1))
endef
$(foreach t,$(notdir $(TOOLS)),$(eval $(call tool_rule,$(t))))

$(SCRIPTS_SH): $(BIN)/%: tools/%.sh
	@mkdir -p $(@D)
	install -m 755 $< $@
$(SCRIPTS_PY): $(BIN)/%: tools/%.py
	@mkdir -p $(@D)
	install -m 755 $< $@

define pyz_rule
$(BIN)/$(1): $(wildcard tools/$(1)/*.py)
	@mkdir -p $$(@D)
	$$(call say,ZIP $$@)
	$$(Q)rm -rf $(O)/obj/$(1).pyz && mkdir -p $(O)/obj/$(1).pyz && cp $$^ $(O)/obj/$(1).pyz/
	$$(Q)python3 -m zipapp $(O)/obj/$(1).pyz -o $$@ -p '/usr/bin/env python3'
endef
$(foreach t,$(notdir $(SCRIPTS_PYZ)),$(eval $(call pyz_rule,$(t))))

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
$(foreach t,$(INTEG_SRC),$(eval $(call unit_rule,$(patsubst %.c,%,$(t)),-liscsi)))

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

SUMMARY := $(LOG)/summary
RUN      = tests/run -l $(LOG) $(if $(SUM),-s $(SUM) -r 1)

check-unit: $(UNIT)
	@$(RUN) -j 2 -t 300 $(UNIT)

# Some of them a second time behind a cache of 1 MiB, which thrashes.
THRASHED := $(filter $(O)/tests/integration/test_first_light $(O)/tests/integration/test_admin_online,$(INTEG)) \
	$(filter tests/integration/test_mt_churn.sh,$(INTEG_SH))
check-integration: all $(INTEG)
	@TGT_BIN=$(abspath $(BIN)) $(RUN) -j 2 -t 300 $(INTEG) $(INTEG_SH); rc=$$?; \
	TGT_TEST_CACHE=size=1m TGT_BIN=$(abspath $(BIN)) $(RUN) -l $(LOG)/cache-1m -j 2 -t 300 $(THRASHED) && exit $$rc

check-conformance: all
	@TGT_BIN=$(abspath $(BIN)) $(RUN) -j 1 -t 900 $(wildcard tests/conformance/test_*.sh)

# All of the daemon's tests behind caches from one that thrashes to one larger than the LUNs, then a file
# system from a stock kernel behind the smallest. Half an hour.
CACHE_SIZES ?= 1m 4m 300m
check-cache-sizes: all $(INTEG)
	@rc=0; for size in $(CACHE_SIZES); do \
		echo "== cache of $$size"; export TGT_TEST_CACHE=size=$$size TGT_BIN=$(abspath $(BIN)); \
		$(RUN) -l $(LOG)/cache-$$size -j 2 -t 300 $(INTEG) $(INTEG_SH) || rc=1; \
		$(RUN) -l $(LOG)/cache-$$size -j 1 -t 900 $(wildcard tests/conformance/test_*.sh) || rc=1; \
	done; \
	TGT_TEST_CACHE=size=$(firstword $(CACHE_SIZES)) TGT_BIN=$(abspath $(BIN)) \
		$(RUN) -l $(LOG)/cache-vm -j 1 -t 900 tests/vm/test_first_light.sh || rc=1; exit $$rc

check-layers:
	@$(RUN) tests/check-layers

# The long ones (two conformance suites, a million reads, a hundred kills, a comparison with LIO) take many minutes
# each under emulation, so that only check-vm-long runs them; the kills once more with tgtd under ASan.
VM_LONG  := $(addprefix tests/vm/test_,iser_writes.sh iser_reads.sh iser_kills.sh iser_load.sh iser_cu.sh iser_conformance.sh iser_vs_lio.sh sg3_utils.sh)
VM_SHORT := $(filter-out $(VM_LONG),$(wildcard tests/vm/test_*.sh))
check-vm: all
	@TGT_BIN=$(abspath $(BIN)) $(RUN) -j 1 -t 900 $(VM_SHORT)
check-vm-long: all
	@$(MAKE) --no-print-directory VARIANT=asan build/asan/bin/tgtd build/asan/bin/tgtadm
	@TGT_BIN=$(abspath $(BIN)) $(RUN) -j 1 -t 3600 $(VM_LONG)
	@TGT_BIN=$(abspath build/asan/bin) KILLS=$(or $(KILLS),20) $(RUN) -j 1 -t 1800 tests/vm/test_iser_kills.sh

# What check has short forms of, at length, with its figures; by another build of libiscsi's test tool if ISCSI_TEST_CU
# names one. Half an hour.
SHOW_STORMS ?= 60
check-shows: all $(INTEG)
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
	$(RUN) -l $(LOG)/shows -j 1 -t 900 $(addprefix tests/vm/test_,wire.sh multipath.sh reservations.sh) || rc=1; exit $$rc

check-asan:
	@$(MAKE) --no-print-directory VARIANT=asan check-unit check-integration

check-tsan:
	@$(MAKE) --no-print-directory VARIANT=tsan check-tsan-inner
check-tsan-inner: all $(UNIT_MT) $(INTEG_MT)
	@TSAN_OPTIONS="suppressions=$(CURDIR)/tests/support/tsan.supp second_deadlock_stack=1 $(TSAN_OPTIONS)" TGT_BIN=$(abspath $(BIN)) $(RUN) -j 2 -t 600 $(UNIT_MT) $(INTEG_MT) $(filter tests/integration/test_mt_%,$(INTEG_SH))

# Every fuzz target for FUZZ_SECONDS each, from its committed seeds; a crash fails.
fuzz: $(FUZZ)
	@FUZZ_SECONDS=$(FUZZ_SECONDS) $(RUN) -j 2 -t $$(($(FUZZ_SECONDS) + 120)) $(foreach f,$(notdir $(FUZZ)),$(FUZZ_O)/bin/$(f).run)
$(FUZZ_O)/bin/%.run: $(FUZZ_O)/bin/% tests/fuzz/run-one
	@printf '#!/bin/sh\nexec tests/fuzz/run-one %s\n' $< >$@; chmod +x $@
fuzz: $(addsuffix .run,$(FUZZ))
check-fuzz:
	@$(MAKE) --no-print-directory fuzz FUZZ_SECONDS=$(or $(FUZZ_CHECK_SECONDS),10)

check: deps
	@$(MAKE) --no-print-directory check-all

# All parts run even when one fails; the last line is the sum.
CHECK_PARTS := check-layers check-unit check-integration check-conformance check-vm check-asan check-tsan check-fuzz
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

# ---- running -------------------------------------------------------------------------------------
deps:
	@tools/install-deps

run: deps
	@$(MAKE) --no-print-directory -j2 all
	@exec tools/try-it $(abspath $(BIN))

bench: deps
	@$(MAKE) --no-print-directory -j2 all
	@TGT_BIN=$(abspath $(BIN)) tests/bench/run

bench-real:
	@tools/install-deps postmark libwiredtiger-dev qemu-system-common qemu-block-extra
	@$(MAKE) --no-print-directory -j2 all
	@TGT_BIN=$(abspath $(BIN)) tests/bench/run-real $(BENCH_ARGS)

# ---- installing ----------------------------------------------------------------------------------
# A packager sets DESTDIR and, for another place than Debian's, PREFIX. What is in /etc/tgt already stays.
PREFIX   ?= /usr
DESTDIR  ?=
SBINDIR  ?= $(PREFIX)/sbin
MANDIR   ?= $(PREFIX)/share/man
DOCDIR   ?= $(PREFIX)/share/doc/tgtd
BASHDIR  ?= $(PREFIX)/share/bash-completion/completions
UNITDIR  ?= $(if $(filter /usr,$(PREFIX)),/lib,$(PREFIX)/lib)/systemd/system
MAN8     := $(wildcard tgtd/*.8 tools/*.8)
MAN5     := $(wildcard conf/*.5)
# Programs that have their page with another's.
MAN_WITH_BENCH := tgt-bench-cache tgt-bench-report tgt-bareloop
COMPLETED := tgtadm tgt-admin
install: all
	install -d $(addprefix $(DESTDIR),$(SBINDIR) $(MANDIR)/man8 $(MANDIR)/man5 $(UNITDIR) $(BASHDIR) $(DOCDIR)/examples /etc/tgt/conf.d)
	install -m 755 $(DAEMON) $(TOOLS) $(SCRIPTS) $(DESTDIR)$(SBINDIR)
	install -m 644 $(MAN8) $(DESTDIR)$(MANDIR)/man8
	install -m 644 $(MAN5) $(DESTDIR)$(MANDIR)/man5
	for page in $(MAN_WITH_BENCH); do echo '.so man8/tgt-bench.8' | install -m 644 /dev/stdin $(DESTDIR)$(MANDIR)/man8/$$page.8; done
	sed 's|/usr/sbin/|$(SBINDIR)/|' conf/tgtd.service | install -m 644 /dev/stdin $(DESTDIR)$(UNITDIR)/tgtd.service
	for program in $(COMPLETED); do install -m 644 tools/completion.bash $(DESTDIR)$(BASHDIR)/$$program; done
	install -m 644 conf/targets.conf.example $(DESTDIR)$(DOCDIR)/examples
	[ -e $(DESTDIR)/etc/tgt/targets.conf ] || install -m 600 conf/targets.conf.example $(DESTDIR)/etc/tgt/targets.conf

# The configuration and what the daemon keeps in /var/lib/tgt stay.
uninstall:
	rm -f $(addprefix $(DESTDIR)$(SBINDIR)/,$(notdir $(DAEMON) $(TOOLS) $(SCRIPTS)))
	rm -f $(addprefix $(DESTDIR)$(MANDIR)/,$(addprefix man8/,$(notdir $(MAN8)) $(addsuffix .8,$(MAN_WITH_BENCH))) $(addprefix man5/,$(notdir $(MAN5))))
	rm -f $(DESTDIR)$(UNITDIR)/tgtd.service $(addprefix $(DESTDIR)$(BASHDIR)/,$(COMPLETED))
	rm -f $(DESTDIR)$(DOCDIR)/examples/targets.conf.example
	-rmdir $(DESTDIR)$(DOCDIR)/examples $(DESTDIR)$(DOCDIR) 2>/dev/null

clean:
	rm -rf build

-include $(shell find $(O)/obj $(FUZZ_O)/obj -name '*.d' 2>/dev/null)
