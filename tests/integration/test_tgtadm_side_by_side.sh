#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# tgtadm and its daemon against Debian's tgt: the same conversation with both, compared byte for byte,
# exit codes included. Our side is also compared with a golden file, so that the test says something
# where Debian's tgt is not installed (GOLDEN=write makes the file anew).
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
golden=tests/integration/golden/tgtadm.txt
store=$dir/store
truncate -s 64M "$store" "$store"{2..9}

# One answer, as a block of text that can be compared and read.
record() {
	adm "$@"
	printf '$ tgtadm'
	printf ' %s' "$@"
	printf '\n%s%sexit %s\n\n' "$out" "${out:+$'\n'}" "$rc"
}

# What may differ from run to run.
# (Process ids are ours alone, and differ.)
stable() { sed -e "s#$dir#DIR#g" -e "s#:$port\b#:PORT#g" -e '/^Processes:$/,/^    Restarts:/d'; }

say() { record "$@" | stable >>"$dir/$kind.same"; }
six() { ! grep -q . /proc/net/if_inet6 2>/dev/null || record "$@" | stable >>"$dir/$kind.six"; }
ours() {
	local why=$1
	shift
	[ "$kind" = ours ] && echo "# $why" >>"$dir/ours.other"
	record "$@" | stable >>"$dir/$kind.other"
}

# An initiator that stays and does nothing but be there. (iscsi-perf gives up when it was not
# scheduled for a second.)
login() {
	PYTHONPATH=tests/support exec_peer "$2" &
	initiator=$!
	for _ in $(seq 200); do
		adm -m conn -o show -t "$1"
		[ -n "$out" ] && break
		sleep 0.05
	done
}
exec_peer() {
	exec python3 -B -c 'import signal, sys
from iscsi_peer import Peer
peer = Peer(address=("127.0.0.1", int(sys.argv[1])))
Peer.target = sys.argv[2]
peer.login(name="iqn.2026-11.org.example:initiator")
signal.pause()' "$port" "$1"
}
logout() {
	kill -9 "$initiator"
	wait "$initiator" 2>/dev/null
	for _ in $(seq 200); do
		adm -m conn -o show -t 7
		[ -z "$out" ] && break
		sleep 0.05
	done
}

daemon_start ours
. tests/integration/tgtadm_dialogue.sh
is "the daemon ends cleanly after it all" daemon_stop

if [ "${GOLDEN:-}" = write ]; then
	cat "$dir/ours.same" "$dir/ours.other" >$golden
	echo "wrote $golden"
fi
out=$(diff -u $golden <(cat "$dir/ours.same" "$dir/ours.other"))
is "answers are as in the golden file" test -z "$out"
out=
is "no answer is a lost connection" test "$(grep -c 'exit 107' "$dir/ours.same")" = 0

if [ -s "$dir/ours.six" ]; then
	out=$(cat "$dir/ours.six")
	is "an IPv6 portal" has_line "Portal: [::1]:PORT,1"
else
	echo "ok an IPv6 portal # SKIP no IPv6 here"
fi

if [ ! -x /usr/sbin/tgtd ] || [ ! -x /usr/sbin/tgtadm ]; then
	echo "ok side by side with Debian's tgt # SKIP package tgt is not installed"
	exit $((failures > 0))
fi
daemon_start debian
. tests/integration/tgtadm_dialogue.sh
daemon_kill
out=$(diff -u "$dir/debian.same" "$dir/ours.same"; [ ! -s "$dir/ours.six" ] || diff -u "$dir/debian.six" "$dir/ours.six")
is "$(grep -c '^\$' "$dir/ours.same") commands are answered as by Debian's tgt" test -z "$out"

# A difference that is gone should not be documented any more.
stale=$(awk 'BEGIN { RS = ""; ORS = "\n" } { sub(/^#[^\n]*\n/, "") } NR == FNR { theirs[$0]; next } ($0 in theirs) { sub(/\n.*/, ""); print }' \
	"$dir/debian.other" "$dir/ours.other")
out=$stale
is "documented differences are differences" test -z "$stale"
exit $((failures > 0))
