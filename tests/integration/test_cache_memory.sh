#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What is said of the cache's memory is so: whether it is locked, and how much of it, where the limits allow all of
# it, some, or none. And where it runs out after the start the cache is so much smaller, and serves.
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

resize_failed() {
	local tries
	for tries in $(seq 600); do
		[[ $(shown Resize) =~ ^failed\ at\ ([0-9]+)\ of\ 256\ MiB:\ memory\ ran\ out ]] && size=${BASH_REMATCH[1]} && return 0
		sleep 0.1
	done
	adm --mode cache --op show
	return 1
}

# 320 MiB, which is more than there is, written and found again.
serves() {
	truncate -s 320m "$dir/disk"
	adm --op new --mode target --tid 1 -T iqn.2026-11.org.tgtd.test:memory && adm --op bind --mode target --tid 1 -I ALL &&
		adm --op new --mode logicalunit --tid 1 --lun 1 --bstype aio --backing-store "$dir/disk" || return 1
	timeout 200 python3 -B - "$port" iqn.2026-11.org.tgtd.test:memory <<-'PY'
		import sys
		sys.path.insert(0, 'tests/support')
		from iscsi_peer import Peer
		Peer.address, Peer.target = ('127.0.0.1', int(sys.argv[1])), sys.argv[2]
		p = Peer(timeout=60).login().ready()
		data = lambda at: bytes([at // 128 % 251 + 1]) * (128 * 512)
		for at in range(0, 320 << 11, 128):
		    p.out(p.write(at, 128, data(at)))
		    assert p.wait_status(p.itt - 1)[1] == 0, 'a write failed'
		for at in range(0, 320 << 11, 128):
		    p.out(p.read(at, 128))
		    assert p.wait_status(p.itt - 1) == (data(at), 0), 'wrong bytes at %d' % at
		p.logout()
	PY
}

size=0
NO_MEMORY_PREPARE=$((40 << 20)) start --cache size=256m,nodes=0
is "memory runs out: the daemon is up, and says at what size the cache stays" resize_failed
is "what had its memory from the start is in it" test "$size" -ge 128
is "it is not much more than that" test "$size" -le $((128 + 40))
is "that is its size" test "$(shown Size)" = "$size MiB"
is "an error in the log" grep -q 'error: cache-0: memory ran out while' "$dir/log"
is "it comes to an end" settled
is "all of what is left is locked" test "$(shown Memory)" = locked
is "it serves" serves
is "nobody has died" alive
is "nothing is wrong in its log" no_report
is "it ends with 0 then, too" daemon_stop
exit $((failures > 0))
