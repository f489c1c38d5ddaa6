#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The kernel kills the worker because memory has run out (issue 17, restart.md): the next one first gives back what is clean,
# and its cache is a quarter smaller. Nothing acknowledged is lost, and there is no second kill. First with a count of our own
# in place of the kernel's; then in a memory cgroup, where this machine lets us make one.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
. tests/integration/worker_lib.sh
iqn=iqn.2026-11.org.tgtd:oom
ulimit -c 0
group= out_of= hog=
trap 'daemon_kill; leave_group; rm -rf "$dir"' EXIT
peer() { out=$(timeout 120 python3 -B "tests/integration/$1.py" "${@:2}" 2>&1); }
becomes() { # the cache has so many MiB, and that is all
	for _ in $(seq 300); do
		adm --mode cache --op show
		has_line "    Size: $1 MiB" && has "    Resize: done" && return 0
		sleep 0.1
	done
	return 1
}
configure() {
	rm -f "$dir/store"
	truncate -s 128m "$dir/store"
	adm --mode target --op new --tid 1 --targetname $iqn
	adm --mode target --op bind --tid 1 -I ALL
	adm --mode logicalunit --op new --tid 1 --lun 1 -b "$dir/store"
}
filled() { # with what is clean, and sector $1 is dirty
	peer oom fill "$port" $iqn 32 60 && peer keeper write "$port" $iqn "$1" "$2"
}

# ---- a count of our own
export TGTD_TEST_OOM_EVENTS=$dir/oom_events
echo "oom_kill 7" >"$TGTD_TEST_OOM_EVENTS"
TGT_TEST_CACHE=size=64m daemon_start ours
configure
adm --mode cache --op update --name size --value 64m # which is restored
is "the cache is filled, and something is dirty" filled 64 77
sleep 10.5 # a death of which is not quick
kill -9 "$worker"
is "a worker that somebody else has killed is replaced" another
adm --mode cache --op show
is "... and the cache is as large as it was" has_line "    Size: 64 MiB"
is "... and nothing was given back" not has "Given back"
killed=7
for size in 48 36; do
	is "the cache is filled" filled $((size + 1)) $size
	killed=$((killed + 1))
	echo "oom_kill $killed" >"$TGTD_TEST_OOM_EVENTS"
	kill -9 "$worker"
	is "the kernel kills the worker: another one" another
	is "... whose cache becomes $size MiB" becomes $size
	is "... which shows why" has "    Out of memory: $((killed - 7)) worker"
	is "... and that what was clean is given back" has "    Given back: "
	adm --mode cache --op show --json
	is "... as JSON, too" test "$(printf '%s' "$out" | python3 -c 'import json, sys
c = json.load(sys.stdin)
print(c["size"] >> 20, c["found"]["given_back_bytes"] > 16 << 20, c["found"]["damaged"])')" = "$size True 0"
	peer keeper read "$port" $iqn $((size + 1))
	is "... and nothing is lost" test "$out" = $size
	peer keeper read "$port" $iqn 64
	is "... nor what was written before" test "$out" = 77
	sleep 10.5
done
is "the log says who did it" logged 'killed by the kernel: memory had run out; starting another'
is "... and what came of it" logged 'cache: memory had run out: it becomes 36 MiB'
adm --mode system --op show
is "show counts them" has "    Restarts: 3, 2 of them when memory had run out"
adm --mode system --op stat --name worker_restarts_oom
is "... and so does a counter" has "worker_restarts_oom 2"
kill -9 "$worker"
is "who dies otherwise is replaced" another
adm --mode cache --op show
is "... and the cache stays as it has become" has_line "    Size: 36 MiB"
adm --mode cache --op update --name size --value 64m
is "somebody makes it larger again" becomes 64
peer keeper sync "$port" $iqn
is "SYNCHRONIZE CACHE succeeds" test "$?" = 0
is "it ends with 0" daemon_stop
unset TGTD_TEST_OOM_EVENTS

# ---- the kernel's
# One below our own, with the shell in it until the daemon has been started.
join_group() {
	local own
	if own=$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup) && [ -n "$own" ]; then
		out_of=/sys/fs/cgroup/memory$own limit=memory.limit_in_bytes usage=memory.usage_in_bytes
		events=memory.oom_control
	else
		out_of=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup) limit=memory.max usage=memory.current
		events=memory.events
	fi
	mkdir "$out_of/tgtd-oom-$$" || return 1
	group=$out_of/tgtd-oom-$$
	[ -e "$group/$limit" ] && grep -q '^oom_kill ' "$group/$events" && echo $$ >"$group/cgroup.procs"
} 2>/dev/null
leave_group() {
	[ -n "$hog" ] && kill "$hog" 2>/dev/null && wait "$hog" 2>/dev/null
	hog=
	[ -z "$group" ] && return
	echo $$ >"$out_of/cgroup.procs"
	for _ in $(seq 100); do
		rmdir "$group" 2>/dev/null && break
		sleep 0.1
	done
	group=
}
real_kills() { sed -n 's/^oom_kill //p' "$group/$events"; }

if ! join_group; then
	leave_group
	echo "ok a kill by the kernel # SKIP no memory cgroup can be made here"
	finish
fi
# What is in the arenas stays when their worker is killed, so the kernel may go on at once with
# whoever comes next. That must not be the keeper.
if ! (echo -1000 >/proc/self/oom_score_adj) 2>/dev/null && [ -z "${TGT_STRICT:-}" ]; then
	leave_group
	echo "ok a kill by the kernel # SKIP no process can be spared here: it takes CAP_SYS_RESOURCE"
	finish
fi
was=$(cat /proc/$$/oom_score_adj)
echo 900 >/proc/$$/oom_score_adj # the worker, which is the largest of those, rather than the hog
TGT_TEST_CACHE=size=64m daemon_start ours
echo "$was" >/proc/$$/oom_score_adj
echo $$ >"$out_of/cgroup.procs"
configure
is "the cache is filled, and something is dirty" filled 64 91
# What is there now, and a little more; the hog takes that.
echo $(($(cat "$group/$usage") + (32 << 20))) >"$group/$limit"
mkfifo "$dir/to" "$dir/from"
# shellcheck disable=SC2016 # the inner shell's
bash -c 'echo $$ >"$1/cgroup.procs"; exec python3 -B tests/integration/oom.py hog "$1/$2"' _ "$group" "$events" \
	<"$dir/to" >"$dir/from" &
hog=$!
exec 8>"$dir/to" 9<"$dir/from"
sleep 10.5
for size in 48 36; do
	before=$(real_kills)
	echo grow >&8
	read -r said <&9
	is "memory runs out ($said)" test "$said" = killed
	is "... and the worker has died of it: another one" another
	is "... whose cache becomes $size MiB" becomes $size
	# How soon it gets memory back is a race with the hog's last page.
	echo "# $(($(real_kills) - before)) kills"
	[ -z "${TGT_STRICT:-}" ] || is "... and that is all: no second kill" test "$(real_kills)" = $((before + 1))
	peer keeper read "$port" $iqn 64
	is "... and nothing is lost" test "$out" = 91
	before=$(real_kills)
	sleep 10.5
	is "... and there is no other kill then" test "$(real_kills)" = "$before"
done
is "the log says who did it" logged 'killed by the kernel: memory had run out; starting another'
kill "$hog"
wait "$hog" 2>/dev/null
hog=
is "it ends with 0" daemon_stop
is "... with all of it in the store" test "$(dd if="$dir/store" bs=512 skip=64 count=1 status=none | od -An -tu1 -N1 | tr -d ' ')" = 91
leave_group
finish
