# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# Sourced after worker_lib.sh by tests in which a store hangs when the worker is killed (tests/preload/late_store.c).
#
#   under_way N M      so many blocks of the cache are being written back, and loaded, within a minute
#   hangs_still        the store has not woken ($LATE)
#   await ARGS...      the command succeeds within a minute
#   reads IQN LBA BYTE, not_ready IQN   one look; the second: in process of becoming ready
#   gone               what worker $dead had asked for is over

arena() {
	for fd in "/proc/$worker/fd/"*; do
		[[ $(readlink "$fd") == */memfd:cache-0* ]] && echo "$fd" && return
	done
}
await() {
	local until=$((SECONDS + 60))
	while [ $SECONDS -lt $until ]; do
		"$@" && return 0
		sleep 0.02
	done
	return 1
}
blocks_under_way() {
	out=$("$bin/tgtimg" --arena "$(arena)" 2>&1)
	has_line "    Being written back: $1" && has_line "    Being loaded: $2"
}
under_way() { await blocks_under_way "$1" "$2"; }
hangs_still() { [ ! -e "$LATE.done" ]; }
reads() { peer read "$port" "$1" "$2" && [ "$out" = "$3" ]; }
not_ready() { peer readiness "$port" "$1" && [ "$out" = 2/04/01 ]; }
gone() { logged "keeper: worker $dead has gone, [0-9]+ ms after another one has begun"; }
