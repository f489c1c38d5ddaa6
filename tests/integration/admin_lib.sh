# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# Sourced by the admin tests: a private daemon (ours or Debian's), and running the tools on it.
#
#   daemon_start ours|debian [tgtd options...]     daemon_stop
#   daemon_start_slow [tgtd options...]            ours, with stores that can be slow ($SLOW_MS)
#   $pid is the process that was started, the keeper; $worker the one that serves
#   adm ARGS...      tgtadm of that daemon; sets $out (stdout and stderr) and $rc
#   is NAME CONDITION...   one TAP line
#   no_connection TID      within 10 s nobody is connected to that target any more
#   no_report              no sanitizer and no assertion has said anything in the daemon's log
#   restarted              a worker has died that nobody has killed (daemon_stop fails then)
#   finish [LINES]         ends the script; after a failure with that much of the daemon's log

bin=${TGT_BIN:-$(pwd)/build/bin}
dir=$(mktemp -d /var/tmp/tgtd-admin-XXXXXX)
export TGT_IPC_SOCKET=$dir/socket
pid=
worker=
kind=
failures=0
tries=0 # ports that were taken
trap 'daemon_kill; rm -rf "$dir"' EXIT

# A port that nobody has now at ADDRESS (127.0.0.1), and that this test has not been given before.
# The kernel gives it to nobody; another test may take it before the daemon does, and daemon_start
# then tries another.
pick_port() {
	local p
	while :; do
		p=$(PYTHONPATH=tests/support python3 -B -c 'import ports, sys; print(ports.free_port(sys.argv[1]))' \
			"${1:-127.0.0.1}") || return
		grep -qsx "$p" "$dir/picked" || break
	done
	echo "$p" | tee -a "$dir/picked"
}
port=${TGT_TEST_PORT:-$(pick_port)}

# The worker of a keeper; or the process itself, when it has none (--no-keeper, Debian's).
worker_of() {
	local child
	child=$(grep -ls "^PPid:[[:space:]]*$1\$" /proc/[0-9]*/status | head -1)
	child=${child#/proc/}
	child=${child%/status}
	echo "${child:-$1}"
}
# (Its first thread may have ended before others, who have its files still.)
is_there() {
	local status
	status=$(cat "/proc/$1/status" 2>/dev/null) && { [[ $status =~ State:[[:space:]]*[^ZX[:space:]] ]] ||
		[[ ! $status =~ Threads:[[:space:]]*[01]$'\n' ]]; }
}
# Until a process that need not be ours has ended, whether or not somebody has looked after it.
await_end() {
	while is_there "$1"; do sleep 0.02; done
}

# As a machine that fails: nothing is left to write anything back.
daemon_kill() {
	local child
	[ -z "$pid" ] && return
	kill -STOP "$pid" 2>/dev/null # it starts no other one
	child=$(worker_of "$pid")
	kill -9 "$child" "$pid" 2>/dev/null
	wait "$pid" 2>/dev/null
	await_end "$child"
	pid=
}

daemon_start() {
	kind=$1
	shift
	rm -f "$dir"/socket.*
	if [ "$kind" = ours ]; then
		mkdir -p "$dir/state"
		"$bin/tgtd" -f -C 0 --state-dir "$dir/state" --cache "${TGT_TEST_CACHE:-size=32m}" \
			--iscsi "portal=127.0.0.1:$port,nop_interval=0,nop_count=0" "$@" >"$dir/log" 2>&1 &
	else
		/usr/sbin/tgtd -f -C 0 --iscsi "portal=127.0.0.1:$port" "$@" >"$dir/log" 2>&1 &
	fi
	pid=$!
	for _ in $(seq 300); do
		adm --mode system --op show
		[ "$rc" = 0 ] && worker=$(worker_of "$pid") && return 0
		if ! kill -0 "$pid" 2>/dev/null; then
			grep -q "Address already in use" "$dir/log" && [ $tries -lt 5 ] || break
			tries=$((tries + 1))
			port=$(pick_port)
			daemon_start "$kind" "$@"
			return
		fi
		sleep 0.1
	done
	echo "not ok: $kind tgtd does not come up"
	tail -20 "$dir/log"
	exit 1
}

# With tests/preload/slow_store.c: stores called slow* take as long as the file $SLOW_MS says.
daemon_start_slow() {
	local preload
	preload=$(realpath "$bin/../tests/preload/slow_store.so")
	[ -e "$preload" ] || preload=$PWD/build/tests/preload/slow_store.so
	export SLOW_MS=$dir/slow_ms
	export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
	LD_PRELOAD=$preload daemon_start ours "$@" --seccomp off
}

restarted() { grep -q 'keeper: worker .*; starting another' "$dir/log"; }
# The one that serves is the one that was started.
alive() { [ "$(worker_of "$pid")" = "$worker" ] && kill -0 "$worker"; } 2>/dev/null

# A regular end: the daemon exits by itself with 0.
daemon_stop() {
	local status=0
	kill -TERM "$pid" 2>/dev/null
	wait "$pid" || status=$?
	pid=
	[ $status = 0 ] && [ -z "${may_restart-}" ] && restarted && status=99
	[ $status = 0 ] || out=$(tail -60 "$dir/log")
	return $status
}

tool() {
	[ "$kind" = ours ] && echo "${tools:-$bin}/$1" || echo "/usr/sbin/$1"
}

adm() {
	# the programs print the name they were called by: call both by the same
	out=$(cd "$(dirname "$(tool tgtadm)")" && exec -a tgtadm ./tgtadm "$@" 2>&1)
	rc=$?
}

is() {
	local name=$1
	shift
	if "$@"; then
		echo "ok $name"
	else
		echo "not ok $name"
		failures=$((failures + 1))
		# what was last said, for the log
		printf '%s\n' "$out" | sed 's/^/#   /'
	fi
}

# Exit status and output of the last command.
said() { [ "$rc" = "$1" ] && [ "$out" = "$2" ]; }
refused() { said 22 "tgtadm: $1"; }
done_silently() { said 0 ""; }
has_line() { printf '%s\n' "$out" | grep -qxF -- "$1"; }
has() { printf '%s\n' "$out" | grep -qF -- "$1"; }
not() { ! "$@"; }

no_connection() {
	for _ in $(seq 100); do
		adm --op show --mode conn --tid "$1"
		[ -z "$out" ] && return 0
		sleep 0.1
	done
	return 1
}

no_report() { ! grep -qE 'WARNING: ThreadSanitizer|ERROR: (Address|Leak)Sanitizer|runtime error|BUG:' "$dir/log"; }

finish() {
	[ $failures = 0 ] || sed 's/^/# /' "$dir/log" | tail -"${1:-200}"
	exit $((failures > 0))
}
