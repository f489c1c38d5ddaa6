#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What is said of the cache's memory is so: whether it is locked, and how much of it, where the limits allow all of
# it, some, or none.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
preload=$(realpath "$bin/../tests/preload/no_memory.so")
[ -e "$preload" ] || preload=$PWD/build/tests/preload/no_memory.so
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}

start() { LD_PRELOAD=$preload daemon_start ours --seccomp off "$@"; }

# What tgtadm shows of the cache.
shown() {
	adm --mode cache --op show
	printf '%s\n' "$out" | sed -n "s/^ *$1: //p"
}

# The cache's memory has been tried to be locked.
settled() {
	local tries
	for tries in $(seq 600); do
		case "$(shown Memory)" in
		is\ being*) ;;
		*) return 0 ;;
		esac
		sleep 0.1
	done
	return 1
}

# What the kernel has locked for the daemon, in MiB: all of its mappings that are.
kernel_locked() { awk '/^VmLck/ { print int($2 / 1024) }' "/proc/$worker/status"; }

memory_json() { # FIELD
	adm --mode cache --op show --json
	printf '%s\n' "$out" | python3 -c 'import json, sys; print(json.load(sys.stdin)["memory"][sys.argv[1]])' "$1"
}

# "locked in part: X of Y MiB, because ...": X is no more than the limit, and than what the kernel says; Y is all.
in_part() {
	local said x y
	said=$(shown Memory)
	[[ $said =~ ^locked\ in\ part:\ ([0-9]+)\ of\ ([0-9]+)\ MiB,\ because\ .*LimitMEMLOCK ]] || { echo "# $said"; return 1; }
	x=${BASH_REMATCH[1]} y=${BASH_REMATCH[2]}
	echo "# $said; the kernel: $(kernel_locked) MiB"
	[ "$x" -gt 0 ] && [ "$x" -le "$1" ] && [ "$x" -le "$(kernel_locked)" ] && [ "$y" -ge 64 ] && [ "$y" -le 100 ]
}

start --cache size=64m
is "without a limit it comes to an end" settled
is "all of it is locked" test "$(shown Memory)" = locked
is "the kernel says so, too" test "$(kernel_locked)" -ge 64
is "JSON: all that is to be" test "$(memory_json locked)" = "$(memory_json to_be_locked)"
is "JSON: nothing is wrong" test "$(memory_json error)" = None
# More than the blocks: the index, of which each block has 40 bytes at least.
is "the index belongs to it" test "$(memory_json locked)" -gt $(((64 << 20) + (64 << 20) / 4096 * (64 + 40)))
is "it ends with 0" daemon_stop

NO_MEMORY_LOCK=$((24 << 20)) start --cache size=64m
is "with a limit it comes to an end" settled
is "what is locked is said, and why no more is" in_part 24
is "the log says so" grep -q 'not all of its memory can be locked' "$dir/log"
is "JSON: less than is to be" test "$(memory_json locked)" -lt "$(memory_json to_be_locked)"
is "JSON: why" grep -q LimitMEMLOCK <<<"$(memory_json error)"
is "it ends with 0 all the same" daemon_stop

NO_MEMORY_LOCK=0 start --cache size=64m
is "where nothing may be locked it comes to an end" settled
is "it says that nothing is" grep -q '^not locked: .*LimitMEMLOCK' <<<"$(shown Memory)"
is "JSON: nothing" test "$(memory_json locked)" = 0
is "nothing is wrong in its log" no_report
is "and it ends with 0" daemon_stop
exit $((failures > 0))
