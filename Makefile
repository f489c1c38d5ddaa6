# tgtd: one non-recursive Makefile. `make help` lists the targets.
#
# Sources are found by their place (see README.md, "Where things are"): a new .c file in a layer's
# folder is built into that layer's archive, a new tests/unit/**/test_*.c is a new test program, a
# new tools/NAME.c is a new tool; nothing is listed here twice.
#
#   VARIANT=release|debug|asan|tsan|cov   what is built; each has its own tree below build/
#   VARIANT=checked                   release with what debug builds assert and measure
#   VARIANT=lto                       release, optimized over all files at once (gcc): some per cent
#                                     faster, and slow to link; for packages and benches
#   VARIANT=unmeasured                release without latency's figures: what they cost (tests/bench)
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
else ifeq ($(VARIANT),checked)
  OPT    := -O2 -g -DTGT_DEBUG=1 -DTGT_CHECKED=1
else ifeq ($(VARIANT),lto)
  ifneq ($(findstring clang,$(CC)),)
    $(error VARIANT=lto is for gcc)
  endif
  OPT    := -O2 -g -flto=auto
  AR     := gcc-ar
else ifeq ($(VARIANT),unmeasured)
  OPT    := -O2 -g -DTGT_UNMEASURED=1
else ifeq ($(VARIANT),asan)
  OPT    := -O1 -g -DTGT_DEBUG=1 -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
else ifeq ($(VARIANT),cov)
  OPT    := -O0 -g -DTGT_DEBUG=1 --coverage -fprofile-update=atomic
else ifeq ($(VARIANT),tsan)
  OPT    := -O1 -g -DTGT_DEBUG=1 -fsanitize=thread -fno-omit-frame-pointer
endif
ifneq ($(WERROR)$(CI),)
  WARN   += -Werror
endif
VERSION  := 0.1.0
HAVE_RDMA := $(shell pkg-config --exists libibverbs librdmacm 2>/dev/null && echo 1)
HAVE_SECCOMP := $(shell pkg-config --exists libseccomp 2>/dev/null && echo 1)
HAVE_LIBNBD := $(shell pkg-config --exists libnbd 2>/dev/null && echo 1)
# Programs that are left out where their library is missing, and what to say of it.
HAVE_MICROHTTPD := $(shell pkg-config --exists libmicrohttpd 2>/dev/null && echo 1)
HAVE_NCURSES := $(shell pkg-config --exists ncursesw 2>/dev/null && echo 1)
LEFT_OUT := $(if $(HAVE_MICROHTTPD),,tgt-exporter:libmicrohttpd-dev) $(if $(HAVE_NCURSES),,tgt-top:libncurses-dev)
left_out  = $(firstword $(subst :, ,$(1)))
CPPFLAGS += -D_GNU_SOURCE -I. -DTGT_VERSION='"$(VERSION)"' $(if $(HAVE_RDMA),-DHAVE_RDMA=1) \
	$(if $(HAVE_SECCOMP),-DHAVE_SECCOMP=1) $(if $(HAVE_LIBNBD),-DHAVE_LIBNBD=1)
# Programs only, no shared objects: a thread's own variables are at fixed places.
CFLAGS   += -std=gnu17 $(OPT) $(WARN) -pthread -fno-strict-aliasing -ftls-model=local-exec
LDFLAGS  += -pthread $(filter -fsanitize=% -fno-sanitize% --coverage,$(OPT)) $(if $(filter -flto%,$(OPT)),$(OPT))
RDMA_LIBS := $(if $(HAVE_RDMA),-lrdmacm -libverbs)
LIBS_events := -lnuma
LIBS_conf   :=
LIBS_tgtd   := -laio -lnuma -lisal -lcrypto -ljansson -lsystemd -lrt -lm $(RDMA_LIBS) $(if $(HAVE_SECCOMP),-lseccomp) \
	$(if $(HAVE_LIBNBD),-lnbd)

# ---- layers: one archive each, in link order (upper first) -----------------------------------------
SRC_events := $(wildcard events/*.c)
SRC_conf   := $(wildcard conf/*.c)
SRC_memory := $(wildcard cache/memory/*.c)
SRC_blk    := $(wildcard cache/blk/*.c)
SRC_engine := $(wildcard cache/engine/*.c)
SRC_backend := $(filter-out $(if $(HAVE_LIBNBD),,cache/backend/nbd%),$(wildcard cache/backend/*.c))
SRC_state  := $(wildcard tgtd/state/*.c)
SRC_scsi   := $(wildcard tgtd/scsi/*.c)
SRC_cluster := $(wildcard tgtd/cluster/*.c)
SRC_live   := $(filter-out $(if $(HAVE_RDMA),,tgtd/cluster/live/mirror_rdma%),$(wildcard tgtd/cluster/live/*.c))
SRC_commands := $(wildcard tgtd/scsi/commands/*.c)
SRC_iscsi  := $(wildcard tgtd/iscsi/*.c)
SRC_tcp    := $(wildcard tgtd/tcp/*.c)
SRC_rdma   := $(if $(HAVE_RDMA),$(wildcard tgtd/rdma/*.c))
SRC_iser   := $(if $(HAVE_RDMA),$(wildcard iser/*.c))
SRC_admin  := $(wildcard tgtd/admin/*.c)
SRC_isns   := $(wildcard tgtd/isns/*.c)
SRC_keeper := $(wildcard tgtd/keeper/*.c)
SRC_main   := $(filter-out tgtd/main.c,$(wildcard tgtd/*.c))
LAYERS     := keeper main admin isns live iser rdma tcp iscsi cluster commands scsi state engine backend blk memory conf events
obj         = $(patsubst %.c,$(O)/obj/%.o,$(1))
LIB        := $(foreach l,$(LAYERS),$(if $(SRC_$(l)),$(O)/lib$(l).a))

# ---- programs ------------------------------------------------------------------------------------
# NAME.c is a program; NAME/*.c is one too; NAME.sh and NAME.py are installed as NAME; NAME/__main__.py
# and the modules beside it are packed into one program. tools/ is what users run, tools/bench/ what
# measures.
tool_at    = $(firstword $(wildcard tools/$(1) tools/$(1).* tools/bench/$(1) tools/bench/$(1).*))
tool_src   = $(wildcard $(foreach d,tools tools/bench,$(d)/$(1).c $(d)/$(1)/*.c))
in_dir     = $(sort $(notdir $(basename $(wildcard $(1)/*.c))) $(patsubst $(1)/%/,%,$(dir $(wildcard $(1)/*/*.c))))
USER_TOOLS := $(addprefix $(BIN)/,$(filter-out $(foreach p,$(LEFT_OUT),$(call left_out,$(p))),$(call in_dir,tools)))
BENCH_TOOLS := $(addprefix $(BIN)/,$(call in_dir,tools/bench))
TOOLS      := $(USER_TOOLS) $(BENCH_TOOLS)
SH_SRC     := $(wildcard tools/*.sh tools/bench/*.sh)
PY_SRC     := $(wildcard tools/*.py tools/bench/*.py)
PYZ_SRC    := $(patsubst %/__main__.py,%,$(wildcard tools/*/__main__.py tools/bench/*/__main__.py))
script     = $(addprefix $(BIN)/,$(notdir $(basename $(1))))
SCRIPTS_SH := $(call script,$(SH_SRC))
SCRIPTS_PY := $(call script,$(PY_SRC))
SCRIPTS_PYZ := $(call script,$(PYZ_SRC))
BENCH_SCRIPTS := $(call script,$(filter tools/bench/%,$(SH_SRC) $(PY_SRC) $(PYZ_SRC)))
SCRIPTS    := $(SCRIPTS_SH) $(SCRIPTS_PY) $(SCRIPTS_PYZ)
DAEMON     := $(if $(wildcard tgtd/main.c),$(BIN)/tgtd)

.PHONY: all help deps run bench bench-real install install-bench uninstall clean

all: ## the daemon, the tools, the instruments
all: $(LIB) $(DAEMON) $(TOOLS) $(SCRIPTS)
	$(if $(strip $(LEFT_OUT)),@$(foreach p,$(LEFT_OUT),echo '  $(call left_out,$(p)) is not built: $(lastword $(subst :, ,$(p))) is missing (make deps)';))

# Every target whose line has a phrase behind two number signs.
help: ## this list
	@sed -nE 's/^([a-z][a-z-]*):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | sort | expand -t 20
	@echo; echo 'VARIANT=release|lto|debug|checked|asan|tsan chooses the build, CC the compiler, V=1 shows commands.'

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
-include $(wildcard tools/*.mk tools/*/*.mk tools/bench/*/*.mk)
toollib = $(if $(filter all,$(TOOLLIBS_$(1))),$(LIB),$(filter $(LIB),$(TOOL_LIB)))
define tool_rule
$(BIN)/$(1): $(call obj,$(call tool_src,$(1))) $(call toollib,$(1))
	@mkdir -p $$(@D)
	$$(call say,LD $$@)
	$$(Q)$(CC) $(LDFLAGS) -o $$@ $(call obj,$(call tool_src,$(1))) -Wl,--start-group $(call toollib,$(1)) -Wl,--end-group $(LIBS_tgtd) $(TOOLLDLIBS_$(1))
endef
$(foreach t,$(notdir $(TOOLS)),$(eval $(call tool_rule,$(t))))

define script_rule
$(BIN)/$(notdir $(basename $(1))): $(1)
	@mkdir -p $$(@D)
	$$(Q)install -m 755 $$< $$@
endef
$(foreach f,$(SH_SRC) $(PY_SRC),$(eval $(call script_rule,$(f))))

define pyz_rule
$(BIN)/$(notdir $(1)): $(wildcard $(1)/*.py)
	@mkdir -p $$(@D)
	$$(call say,ZIP $$@)
	$$(Q)rm -rf $(O)/obj/$(1).pyz && mkdir -p $(O)/obj/$(1).pyz && cp $$^ $(O)/obj/$(1).pyz/
	$$(Q)python3 -m zipapp $(O)/obj/$(1).pyz -o $$@ -p '/usr/bin/env python3'
endef
$(foreach d,$(PYZ_SRC),$(eval $(call pyz_rule,$(d))))

include tests/tests.mk

# ---- running -------------------------------------------------------------------------------------
deps: ## install what is missing (Debian packages; tools/install-deps lists them)
	@tools/install-deps

run: deps ## build, serve a disk of memory on 127.0.0.1:3260, prove it
	@$(MAKE) --no-print-directory -j2 all
	@exec tools/try-it $(abspath $(BIN))

bench: deps ## this build beside Debian's tgt and the bare loop, in one run
	@$(MAKE) --no-print-directory -j2 all
	@TGT_BIN=$(abspath $(BIN)) tests/bench/run

bench-real: ## PostMark and YCSB on both targets
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
BENCHDIR ?= $(PREFIX)/lib/tgtd/bench
MAN8     := $(wildcard tgtd/*.8 tools/*.8)
MAN8_BENCH := $(wildcard tools/bench/*.8)
MAN5     := $(wildcard conf/*.5)
# Programs that have their page with another's.
MAN_WITH_BENCH := tgt-bench-cache tgt-bench-report tgt-bareloop
COMPLETED := tgtadm tgt-admin tgtd tgt-setup-lun tgtimg tgt-probe tgt-exporter tgt-top
COMPLETED_BENCH = $(notdir $(BENCH_TOOLS) $(BENCH_SCRIPTS))
UNITS     := $(notdir $(wildcard conf/*.service))
EXAMPLES  := conf/targets.conf.example tools/tgt-exporter/tgt-exporter.grafana.json $(wildcard tools/trace/*.bt)
install: all ## programs, man pages, unit, completion (DESTDIR, PREFIX)
	install -d $(addprefix $(DESTDIR),$(SBINDIR) $(MANDIR)/man8 $(MANDIR)/man5 $(UNITDIR) $(BASHDIR) $(DOCDIR)/examples /etc/tgt/conf.d)
	install -m 755 $(DAEMON) $(USER_TOOLS) $(filter-out $(BENCH_SCRIPTS),$(SCRIPTS)) $(DESTDIR)$(SBINDIR)
	install -m 644 $(MAN8) $(DESTDIR)$(MANDIR)/man8
	install -m 644 $(MAN5) $(DESTDIR)$(MANDIR)/man5
	for unit in $(UNITS); do sed 's|/usr/sbin/|$(SBINDIR)/|' conf/$$unit | install -m 644 /dev/stdin $(DESTDIR)$(UNITDIR)/$$unit; done
	for program in $(COMPLETED); do install -m 644 tools/completion.bash $(DESTDIR)$(BASHDIR)/$$program; done
	install -m 644 $(EXAMPLES) $(DESTDIR)$(DOCDIR)/examples
	[ -e $(DESTDIR)/etc/tgt/targets.conf ] || install -m 600 conf/targets.conf.example $(DESTDIR)/etc/tgt/targets.conf

# The instruments call each other by their place beside them.
install-bench: all ## the instruments, below PREFIX/lib/tgtd/bench, and their pages
	install -d $(addprefix $(DESTDIR),$(BENCHDIR) $(MANDIR)/man8 $(BASHDIR))
	for program in $(COMPLETED_BENCH); do install -m 644 tools/completion.bash $(DESTDIR)$(BASHDIR)/$$program; done
	install -m 755 $(BENCH_TOOLS) $(BENCH_SCRIPTS) $(DESTDIR)$(BENCHDIR)
	install -m 644 $(MAN8_BENCH) $(DESTDIR)$(MANDIR)/man8
	for page in $(MAN_WITH_BENCH); do echo '.so man8/tgt-bench.8' | install -m 644 /dev/stdin $(DESTDIR)$(MANDIR)/man8/$$page.8; done

# The configuration and what the daemon keeps in /var/lib/tgt stay.
uninstall: ## what install and install-bench put there
	rm -f $(addprefix $(DESTDIR)$(SBINDIR)/,$(notdir $(DAEMON) $(TOOLS) $(SCRIPTS)))
	rm -f $(addprefix $(DESTDIR)$(MANDIR)/,$(addprefix man8/,$(notdir $(MAN8) $(MAN8_BENCH)) $(addsuffix .8,$(MAN_WITH_BENCH))) $(addprefix man5/,$(notdir $(MAN5))))
	rm -rf $(DESTDIR)$(BENCHDIR)
	rm -f $(addprefix $(DESTDIR)$(UNITDIR)/,$(UNITS)) $(addprefix $(DESTDIR)$(BASHDIR)/,$(COMPLETED) $(COMPLETED_BENCH))
	rm -f $(addprefix $(DESTDIR)$(DOCDIR)/examples/,$(notdir $(EXAMPLES)))
	-rmdir $(DESTDIR)$(DOCDIR)/examples $(DESTDIR)$(DOCDIR) 2>/dev/null

# ---- habits --------------------------------------------------------------------------------------
.PHONY: coverage compile_commands.json pictures tags tidy
coverage: ## lines and branches by folder, from unit and integration tests: build/cov/html
	@tools/install-deps gcovr
	@$(MAKE) --no-print-directory -j2 VARIANT=cov all
	@find build/cov/obj -name '*.gcda' -delete
	@$(MAKE) --no-print-directory -k VARIANT=cov check-unit check-integration || echo 'coverage: of tests that failed, too'
	@tests/coverage build/cov

ALL_SRC := $(foreach l,$(LAYERS),$(SRC_$(l))) tgtd/main.c $(SUPPORT) $(UNIT_SRC) $(INTEG_SRC) $(FUZZ_SRC) \
	$(wildcard tools/*.c tools/*/*.c tools/bench/*/*.c)
compile_commands.json: ## for clangd and clang-tidy
	@echo $(ALL_SRC) | CC='$(CC)' FLAGS='$(subst ','\'',$(CPPFLAGS) $(CFLAGS))' python3 -c 'import json, os, shlex, sys; \
		flags = [os.environ["CC"]] + shlex.split(os.environ["FLAGS"]); json.dump([{"directory": os.getcwd(), \
		"file": f, "arguments": flags + ["-c", f]} for f in sys.stdin.read().split()], open("$@", "w"), indent=1)'

tidy: compile_commands.json ## clang-tidy and cppcheck; what is excepted has its reason beside it
	@tools/install-deps clang-tidy cppcheck
	@clang-tidy --quiet -p . $(filter-out tests/%,$(ALL_SRC)) 2>/dev/null
	@cppcheck -q --error-exitcode=1 --enable=warning,performance,portability --std=c11 --inline-suppr -I. -j2 \
		--suppressions-list=tests/tidy.supp --template='{file}:{line}: {id}: {message}' \
		events cache conf tgtd iser tools/*.c tools/tgt-admin

pictures: ## draw tgtd/architecture.svg from its source
	@tools/install-deps graphviz
	dot -Tsvg tgtd/architecture.dot -o tgtd/architecture.svg

tags: ## for editors
	@tools/install-deps universal-ctags
	@ctags --languages=C,Python,Sh -R --exclude=build -o tags .

clean: ## remove build/
	rm -rf build

-include $(shell find $(O)/obj $(FUZZ_O)/obj -name '*.d' 2>/dev/null)
