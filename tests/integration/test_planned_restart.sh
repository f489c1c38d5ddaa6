#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A planned restart, and an upgrade, with sessions kept (issue 17, item 5): see planned_restart.py,
# restart_mixed.py.
#
#   TGT_RESTARTS      how many under load (default 20)
#   TGT_RESTART_KILLS how many in which the old or the new worker is killed (default 8)
#   TGT_RESTART_SEED  which load (default 1)
#   TGT_RESTART_HOLDS how many over which a RESERVE holds (default 5)
#   TGT_RESTART_MIXED how many in the middle of all that initiators do (default 8)
#   TGT_OTHER_BIN     a folder with the tgtd of another version: under load each takes the place of the other
set -u
cd "$(dirname "$0")/../.." || exit 1
bin=${TGT_BIN:-$PWD/build/bin}
dir=$(mktemp -d /var/tmp/tgtd-planned-XXXXXX)
trap 'rm -rf "$dir"' EXIT
slow=$(realpath "$bin/../tests/preload/slow_store.so")
[ -e "$slow" ] || slow=$PWD/build/tests/preload/slow_store.so
# (Sanitized, all that a session has under way may take longer than it gets: fewer, then.)
case $bin in */asan/* | */tsan/*) : "${TGT_RESTARTS:=6}" "${TGT_RESTART_MIXED:=3}" ;; esac
failed=0
run() {
	mkdir "$dir/$1"
	timeout 900 python3 -B tests/integration/planned_restart.py "$1" "$bin" "$dir/$1" "${@:2}" || failed=1
}
mkdir "$dir/holds"
timeout 300 python3 -B tests/integration/restart_holds.py "$bin" "$dir/holds" "${TGT_RESTART_HOLDS:-5}" || failed=1
run load "${TGT_RESTARTS:-20}" "${TGT_RESTART_SEED:-1}"
run state "$slow"
mkdir "$dir/mixed"
timeout 900 python3 -B tests/integration/restart_mixed.py "$bin" "$dir/mixed" "${TGT_RESTART_MIXED:-8}" "${TGT_RESTART_SEED:-1}" ||
	failed=1
run kill "${TGT_RESTART_KILLS:-8}" "${TGT_RESTART_SEED:-1}"
exit $failed
