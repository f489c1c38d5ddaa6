#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Each program's parser, --help and manual page have the same options (options.py); and a wrong one is refused on standard
# error, with the code that tgt's program of that name has.
set -u
cd "$(dirname "$0")/../.." || exit 1
bin=${TGT_BIN:-$(pwd)/build/bin}
failures=0
result() {
	if [ -z "$2" ]; then
		echo "ok $1"
	else
		echo "not ok $1"
		printf '%s\n' "$2" | sed 's/^/#   /'
		failures=$((failures + 1))
	fi
}
agree() {
	if [ ! -e "$bin/$1" ] && { [ "$1" = tgt-exporter ] || [ "$1" = tgt-top ]; }; then
		echo "ok $1 # SKIP it is not built: its library is missing"
		return
	fi
	result "$1: parser, --help and manual agree" "$(python3 tests/integration/options.py "$bin/$1" "$2" "$3" 2>&1)"
}
agree tgtd tgtd/options.c tgtd/tgtd.8
agree tgtadm tools/tgtadm.c tools/tgtadm.8
agree tgt-admin tools/tgt-admin/main.c tools/tgt-admin.8
agree tgtimg tools/tgtimg/tgtimg.c tools/tgtimg.8
agree tgt-setup-lun tools/tgt-setup-lun.sh tools/tgt-setup-lun.8
agree tgt-exporter tools/tgt-exporter/main.c tools/tgt-exporter.8
agree tgt-top tools/tgt-top/main.c tools/tgt-top.8
agree tgt-probe tools/tgt-probe.c tools/tgt-probe.8
agree tgt-load tools/bench/tgt-load/opts.c tools/bench/tgt-load.8
agree tgt-cachesim tools/bench/tgt-cachesim/main.c tools/bench/tgt-cachesim.8
agree tgt-cachebench tools/bench/tgt-cachebench/main.c tools/bench/tgt-cachebench.8
agree tgt-bench tools/bench/tgt-bench/__main__.py,tools/bench/tgt-bareloop/main.c,tgtd/options.c tools/bench/tgt-bench.8
agree tgt-bench-cache tools/bench/tgt-bench-cache.py,tools/bench/tgt-bench/__main__.py,tools/bench/tgt-bareloop/main.c tools/bench/tgt-bench.8
agree tgt-bareloop tools/bench/tgt-bareloop/main.c,tools/bench/tgt-bench/__main__.py,tgtd/options.c tools/bench/tgt-bench.8

# Every program that is built is one of them, or has no options.
for program in "$bin"/*; do
	name=$(basename "$program")
	grep -qE "^agree $name " "$0" || [ "$name" = tgt-bench-report ] ||
		result "$name is looked at" "it is not"
done

# A wrong option: exit code, and where it is said.
refuses() { # PROGRAM CODE
	local out rc
	out=$("$bin/$1" --no-such-option 2>&1 >/dev/null </dev/null)
	rc=$?
	result "$1 refuses an unknown option with $2, on standard error" "$([ $rc = "$2" ] && [ -n "$out" ] || echo "$rc: $out")"
}
refuses tgtd 1
result "tgtd --after-loss takes two words" "$("$bin/tgtd" --after-loss=maybe 2>&1 | grep -v "after-loss: bad value 'maybe'")"
result "tgtd --keep-connections takes three words" \
	"$("$bin/tgtd" --keep-connections=maybe 2>&1 | grep -v "keep-connections: bad value 'maybe'")"
refuses tgtadm 22
refuses tgt-admin 1
refuses tgtimg 22
refuses tgt-setup-lun 1
result "tgt-admin's complaint does not scroll away" "$("$bin/tgt-admin" --no-such-option 2>&1 | sed 1,2d)"

# Paths that begin where tgtd was started stay there when it leaves for the background.
work=$(mktemp -d /tmp/tgtd-options-XXXXXX)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null; rm -rf "$work"' EXIT
port=$((20000 + RANDOM % 10000))
out=$(cd "$work" && TGT_IPC_SOCKET=sock "$bin/tgtd" -C 5 --pid-file pid --state-dir state --cache size=16m \
	--iscsi portal=127.0.0.1:$port 2>&1)
pid=$(cat "$work/pid" 2>/dev/null)
result "relative paths in the background" "$([ -n "$pid" ] && kill -0 "$pid" && [ -S "$work/sock.5" ] ||
	{ echo "$out"; ls -l "$work"; })"
exit $((failures > 0))
