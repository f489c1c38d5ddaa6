#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Discovery needs no account, so whoever discovers takes nothing from those who log in, nor from the
# administrator (W3, W4), and hears of every target, however many there are (W9). See discovery.py.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
name=iqn.2026-11.org.tgtd.test:a-name-as-long-as-those-of-provisioners-
targets() { # N: as a file of tgt-admin's; the first wants CHAP
	for n in $(seq "$1"); do
		echo "<target $name$n>"
		[ "$n" = 1 ] && echo "incominguser joe secretsecret"
		echo "initiator-address ALL"
		echo "</target>"
	done >"$dir/targets.conf"
	out=$("$bin/tgt-admin" -C 0 -c "$dir/targets.conf" -e 2>&1)
}
try() { # TARGETS PORTALS WHAT
	python3 tests/integration/discovery.py "$port" "$1" "$2" "$bin/tgtadm" "$3" ||
		failures=$((failures + 1))
}
daemon_start ours
targets 20
try 20 1 sessions
# ... and units, of whose unit attentions it takes one alone for what it is
if command -v iscsi-ls >/dev/null; then
	truncate -s 64M "$dir/disk"
	adm -m target -o new -t 99 -T "$name-disk"
	adm -m target -o bind -t 99 -I ALL
	adm -m lu -o new -t 99 -l 1 -b "$dir/disk"
	adm -m lu -o new -t 99 -l 3 -E ram -b 16m
	out=$(timeout 60 iscsi-ls -s "iscsi://127.0.0.1:$port" 2>&1 | grep -A3 "^Target:$name-disk")
	is "libiscsi lists a target's units" test "$(printf '%s\n' "$out" | grep -o '^Lun:.*DIRECT_ACCESS')" = \
		$'Lun:1    Type:DIRECT_ACCESS\nLun:3    Type:DIRECT_ACCESS'
	adm -m target -o delete -t 99
fi
# (1.19 takes no answer in several PDUs)
if command -v iscsi-ls >/dev/null; then
	out=$(timeout 60 iscsi-ls "iscsi://127.0.0.1:$port" 2>&1 | grep -c "^Target:$name")
	is "libiscsi lists them" test "$out" = 20
fi
is "it ends with 0" daemon_stop
is "no report" no_report

daemon_start ours --iscsi max_connections=4
targets 4
try 4 1 full
is "it ends with 0" daemon_stop

daemon_start ours
targets 1300
try 1300 1 pipelining
for n in 2 3 4; do
	adm --mode portal --op new --param "portal=127.0.0.$n:$port"
done
is "three more portals" done_silently
targets 1500
try 1500 4 whole
is "it ends with 0" daemon_stop
is "no report" no_report
finish 60
