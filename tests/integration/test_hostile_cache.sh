#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Stores that hang, fail, fill up and come back, a hostile tenant, an administrator who changes the
# cache's size, and (at last) kills of the worker, all at once beside a unit that is well:
# hostile_cache.py says what is judged. TGT_HOSTILE_SECONDS, TGT_HOSTILE_SEED; TGT_HOSTILE_KILLS: of
# the worker, in each round; TGT_HOSTILE_CACHE: its size, and TGT_HOSTILE_SIZES those that follow.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.tgtd.test:hostile
seconds=${TGT_HOSTILE_SECONDS:-8}
command -v cc >/dev/null || { echo "ok hostile_cache # SKIP no compiler"; exit 0; }
cc -shared -fPIC -O1 -o "$dir/hostile.so" tests/preload/hostile_store.c -ldl -lpthread
export HOSTILE=$dir/hostile
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
mkdir "$HOSTILE"
may_restart=1
round() { # KILLS
	local k stores=(well tenant sick-1 sick-2 sick-3)
	rm -rf "$dir/state"
	# (What stands in for a sick disk makes calls that event threads may not make.)
	LD_PRELOAD=$dir/hostile.so daemon_start ours --cache "size=${TGT_HOSTILE_CACHE:-32m}" --seccomp off
	for k in "${!stores[@]}"; do
		rm -f "$dir/${stores[k]}"
		truncate -s 32M "$dir/${stores[k]}"
		adm -m target -o new -t $((k + 1)) -T "$iqn:${stores[k]}"
		adm -m target -o update -t $((k + 1)) -n data_out_timeout -v 2
		adm -m target -o bind -t $((k + 1)) -I ALL
		adm -m lu -o new -t $((k + 1)) -l 1 -b "$dir/${stores[k]}"
		is "a unit on ${stores[k]}" done_silently
		adm -m lu -o update -t $((k + 1)) -l 1 --params thin_provisioning=1
	done
	python3 tests/integration/hostile_cache.py "$port" "$iqn" "$dir" "$seconds" \
		"${TGT_HOSTILE_SEED:-1}" "$bin/tgtadm" "$pid" "$1" || failures=$((failures + 1))
	[ "$1" = 0 ] && is "nobody was replaced" not restarted
	for k in "${!stores[@]}"; do
		adm -m target -o delete -t $((k + 1)) --force
		is "... and ${stores[k]} can go" test "$rc" = 0
	done
	adm -m cache -o show
	printf '%s\n' "$out" | sed 's/^/# /' | head -30
	is "it ends with 0" daemon_stop
	is "no report" no_report
}
for kills in ${TGT_HOSTILE_KILLS:-0 2}; do
	round "$kills"
done
finish 30
