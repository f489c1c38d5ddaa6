# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# Sourced after admin_lib.sh by tests in which workers die and others take their place.
#
#   another          another worker than $worker serves, within 120 s; it is $worker then
#   peer ARGS...     keeper.py, a small initiator; sets $out
#   logged REGEX     the daemon's log says it
#   log_says REGEX [SECONDS]   ... within that many seconds (60)
#   ended PID        a process has gone, within 60 s, whether or not somebody has looked after it
#   ends_with STATUS the process that was started has gone so, and its worker with it
#   stored FILE LBA  the first byte of a sector of $dir/FILE, in decimal
#   preloaded NAME   the path of tests/preload/NAME.so
#   sanitized        sanitizers want to be the first library: nothing can be preloaded before them

may_restart=1

another() {
	local now until=$((SECONDS + 120))
	while [ $SECONDS -lt $until ]; do
		adm --mode system --op show
		now=$(printf '%s\n' "$out" | sed -n 's/^    Worker: //p')
		[ -n "$now" ] && [ "$now" != "$worker" ] && worker=$now && return 0
		sleep 0.02
	done
	return 1
}

peer() { out=$(timeout 60 python3 -B tests/integration/keeper.py "$@" 2>&1); }
logged() { grep -qE -- "$1" "$dir/log"; }
log_says() {
	local until=$((SECONDS + ${2:-60}))
	until logged "$1"; do
		[ $SECONDS -lt $until ] || return 1
		sleep 0.1
	done
}
ended() {
	local until=$((SECONDS + 60))
	while is_there "$1"; do
		[ $SECONDS -lt $until ] || return 1
		sleep 0.05
	done
}
ends_with() {
	local status=0
	ended "$pid" && ended "$worker" || return 1
	wait "$pid" || status=$?
	pid=
	out="status $status"
	[ $status = "$1" ]
}
stored() { dd if="$dir/$1" bs=512 skip="$2" count=1 status=none | od -An -tu1 -N1 | tr -d ' '; }

preloaded() {
	local so
	so=$(realpath "$bin/../tests/preload/$1.so" 2>/dev/null)
	[ -e "$so" ] || so=$PWD/build/tests/preload/$1.so
	echo "$so"
}
sanitized() { [[ $bin = *san/bin ]]; }
