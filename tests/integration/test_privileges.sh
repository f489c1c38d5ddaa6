#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Defect W10: what the daemon may still do once it serves. Capabilities, no_new_privs and filters of
# all of its threads, from /proc; --user with every path that the administrator names, where the
# state directory is root's, prepared, or closed; a call that a thread may not make; a group that
# may look, and change nothing.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
[ "$(id -u)" = 0 ] || { echo "ok privileges # SKIP only root has any to give up"; exit 0; }
case $bin in */asan/* | */tsan/*) sanitized=1 ;; *) sanitized= ;; esac
iqn=iqn.2026-11.org.tgtd.test
conf=$dir/t.conf
chmod 755 "$dir"
admin() {
	out=$("$bin/tgt-admin" -c "$conf" "$@" 2>&1)
	rc=$?
}
# NAME CapEff NoNewPrivs Seccomp Uid of each thread of the worker, or of that process; a line each
threads() {
	for t in /proc/"${1:-$worker}"/task/*; do
		awk '/^Name:/ {n = $2} /^CapEff:/ {c = $2} /^NoNewPrivs:/ {p = $2}
			/^Seccomp:/ {s = $2} /^Uid:/ {u = $2 "," $3 "," $4 "," $5}
			END {print n, c, p, s, u}' "$t/status"
	done
}
show_threads() {
	threads "$pid" | sed 's/^/# keeper, thread /'
	threads | sed 's/^/# worker, thread /'
}
every() { ! threads | grep -qvE "$1"; }
some() { threads | grep -qE "$1"; }
use_both() {
	python3 - "$port" $iqn:t <<'PYTHON'
import os, sys
sys.path.insert(0, 'tests/support')
sys.dont_write_bytecode = True
from iscsi_peer import Peer
Peer.address, Peer.target = ('127.0.0.1', int(sys.argv[1])), sys.argv[2]
p = Peer().login()
for lun in 1, 2:
    data = os.urandom(4096)
    for _ in range(3):
        p.out(p.write(8, 8, data, lun=lun))
        status = p.wait_status(p.itt - 1)[1]
        if not status:
            break
    p.out(p.read(8, 8, lun=lun))
    got = p.wait_status(p.itt - 1)
    assert not status and got[0] == data, (lun, status)
    p.out(p.command(b'\x35', 0x80, lun=lun))  # SYNCHRONIZE CACHE
    assert not p.wait_status(p.itt - 1)[1]
p.logout()
PYTHON
}
stores() { # A target with a store of each kind; reads and writes by way of it
	truncate -s 8m "$dir/store1" "$dir/store2" "$dir/store3" "$dir/store4"
	chmod 600 "$dir"/store[123]
	chmod 400 "$dir/store4"
	adm --op new --mode target --tid 1 -T $iqn:t
	is "$1: a target" done_silently
	adm --op bind --mode target --tid 1 -I ALL
	adm --op new --mode logicalunit --tid 1 --lun 1 -b "$dir/store1"
	is "$1: a store that is root's" done_silently
	adm --op new --mode logicalunit --tid 1 --lun 2 -b "$dir/store2" --bsoflags sync
	is "$1: ... synchronous" done_silently
	adm --op update --mode logicalunit --tid 1 --lun 2 --params "path=$dir/store3"
	is "$1: ... exchanged for another" done_silently
	adm --op new --mode logicalunit --tid 1 --lun 4 --bstype ram -b 8m
	is "$1: ... of memory" done_silently
	adm --op new --mode logicalunit --tid 1 --lun 5 -b "$dir/nothing"
	is "$1: ... that is not there" refused "invalid request"
	adm --op new --mode logicalunit --tid 1 --lun 5 -b "$dir"
	is "$1: ... that is none" refused "invalid request"
	out=$(use_both 2>&1)
	rc=$?
	is "$1: both are written to and read" done_silently
	is "$1: what was written is in the files" \
		test "$(od -An -tx1 -j4096 -N4 "$dir/store3" | tr -d ' ')" != 00000000
	no_connection 1
	adm --op delete --mode target --tid 1 --force
	is "$1: a target goes" done_silently
	printf '<target %s:conf>\n\tbacking-store %s\n\tbacking-store %s\n</target>\n' $iqn \
		"$dir/store1" "$dir/store4" >"$conf"
	admin -e
	is "$1: tgt-admin makes what a file names" said 0 ""
	admin --update ALL -v
	is "$1: ... once" said 0 ""
	adm --op stat --mode system --name guard_refused
	has "guard_refused 0" || out=$(grep 'system call' "$dir/log")
	is "$1: no thread has asked for what it may not" has "guard_refused 0"
	admin --delete ALL
}

echo "# as root"
daemon_start ours
stores root
show_threads
is "W10: no thread has a privilege to gain" every '^\S+ \S+ 1 '
filtered() { [ -n "$sanitized" ] || every ' 1 2 '; }
is "W10: every thread has a filter" filtered
is "W10: event threads have no capability" every '^(lu-|node-)\S* 0{16} |^tgtd'
is "W10: the main thread has few" some '^tgtd 0000000000804406 '
out=$(grep CapBnd "/proc/$worker/status")
is "... and none to come by" not has 000001f
keeper_status() { awk '/^(CapInh|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp):/ {printf "%s %s ", $1, $2}' "/proc/$pid/status"; }
# Of the keeper: what a worker begins with, and CAP_SYS_RESOURCE; with --user also CAP_KILL, CAP_SETUID, CAP_SETGID
keeper_has() {
	out=$(keeper_status)
	echo "# keeper $out"
	python3 - "$1" $out <<'PYTHON'
import sys
allowed, words = int(sys.argv[1], 16), sys.argv[2:]
has = dict(zip(words[::2], words[1::2]))
for name in 'CapEff:', 'CapBnd:', 'CapInh:', 'CapAmb:':
    assert not int(has[name], 16) & ~allowed, name
assert has['NoNewPrivs:'] == '1'
PYTHON
}
is "the keeper has few capabilities, and none to come by" keeper_has 000000000180450f
[ -n "$sanitized" ] || is "... and a filter" grep -q '^Seccomp:[[:space:]]*2' "/proc/$pid/status"
if [ -z "$sanitized" ] && command -v gdb >/dev/null; then
	# A thread is made to do what it may not.
	thread=$(for t in /proc/"$worker"/task/*; do grep -qx node-0 "$t/comm" && basename "$t"; done)
	gdb -q -batch -p "$thread" -ex "handle SIGSYS nostop noprint pass" \
		-ex 'print ((int (*)(const char *, int))open)("/etc/passwd", 0)' >"$dir/gdb" 2>&1
	out=$(cat "$dir/gdb")
	is "an event thread that is made to open a file gets an error" has "= -1"
	for _ in $(seq 100); do
		adm --op stat --mode system --name guard_refused
		has "guard_refused 1" && break
		sleep 0.1
	done
	is "... is counted" has "guard_refused 1"
	out=$(cat "$dir/log")
	is "... and logged with its name" has "thread node-0: system call"
	adm --op show --mode system
	is "... and the daemon goes on" test "$rc" = 0
fi
is "it ends with 0" daemon_stop
daemon_start ours --seccomp off
is "--seccomp off: no filters" every ' 1 0 '
is "... nor has the keeper one" grep -q '^Seccomp:[[:space:]]*0' "/proc/$pid/status"
is "it ends with 0" daemon_stop

echo "# --user, a state directory of root's"
rm -rf "$dir/state"
mkdir -m 700 "$dir/state"
: >"$dir/state/mode-0123456789abcdef"
daemon_start ours --user nobody
stores "root's state"
show_threads
is "every thread is nobody's" every ' 65534,65534,65534,65534$'
is "... but the keeper" test "$(stat -c %u "/proc/$pid/fd")" = 0
is "... which may end them" keeper_has 00000000018045ef
kill -9 "$worker"
other_worker() {
	for _ in $(seq 200); do
		now=$(worker_of "$pid")
		[ "$now" != "$worker" ] && [ "$now" != "$pid" ] && adm --op show --mode system && worker=$now && return 0
		sleep 0.1
	done
	return 1
}
may_restart=1
is "... and replaces them" other_worker
is "... by one of nobody's" every ' 65534,65534,65534,65534$'
is "... without capabilities, but for ports" every '^tgtd 0000000000000400 |^\S+ 0{16} '
owners() { stat -c %U "$@" | sort -u; }
is "the state directory is handed over" \
	test "$(owners "$dir/state" "$dir/state/mode-0123456789abcdef")" = nobody
low=$(python3 -c '
import socket, random
for p in random.sample(range(600, 1000), 300):
    s = socket.socket()
    try:
        s.bind(("127.0.0.1", p)); print(p); break
    except OSError: pass')
adm --op new --mode portal --param "portal=127.0.0.1:$low"
is "a port below 1024 is still to be had" done_silently
is "it ends with 0" daemon_stop

echo "# a program whose file has a capability, run by somebody else"
capped() { # a worker has what its file gives it, though nobody may gain anything
	install -d -m 700 -o nobody "$dir/theirs" && cp "$bin/tgtd" "$dir/capped" &&
		setcap cap_net_bind_service+ep "$dir/capped" 2>/dev/null || return 1
	TGT_IPC_SOCKET=$dir/theirs/socket setpriv --reuid=65534 --regid=65534 --clear-groups \
		"$dir/capped" -f --state-dir "$dir/theirs" --cache off \
		--iscsi "portal=127.0.0.1:$low" >"$dir/log" 2>&1 &
	pid=$!
	for _ in $(seq 300); do
		grep -q 'is serving' "$dir/log" && return 0
		kill -0 $pid 2>/dev/null || return 1
		sleep 0.1
	done
	return 1
}
if [ -z "$sanitized" ] && command -v setcap >/dev/null && command -v setpriv >/dev/null; then
	is "a port below 1024 is to be had" capped
	[ -z "$pid" ] || { kill "$pid" 2>/dev/null; wait "$pid" 2>/dev/null; }
	pid=
else
	echo "ok a file's capability # SKIP no setcap or setpriv, or a sanitizer"
fi

echo "# ... a prepared one"
rm -rf "$dir/state"
install -d -m 700 -o nobody "$dir/state"
daemon_start ours --user nobody
stores "prepared state"
is "it ends with 0" daemon_stop

echo "# ... one that cannot be handed over"
cannot() {
	timeout 20 "$bin/tgtd" -f --user nobody --state-dir "$1" --cache off \
		--iscsi "portal=127.0.0.1:$port" >"$dir/log" 2>&1
	rc=$?
	out=$(cat "$dir/log")
	is "$2: it does not start" test "$rc" = 1
	is "... and says why" has "$3"
}
mkdir -p "$dir/foreign" "$dir/closed/state" && chmod 700 "$dir/closed" && : >"$dir/foreign/shadow"
cannot "$dir/foreign" "other files are in it" "there is something else in it"
is "... which stay whose they are" test "$(owners "$dir/foreign" "$dir/foreign/shadow")" = root
cannot "$dir/closed/state" "the user cannot reach it" "a directory above it, is closed"
timeout 20 "$bin/tgtd" -f --user no-such-user --cache off >"$dir/log" 2>&1
out=$(cat "$dir/log")
is "no such user" has "--user no-such-user: no such user"

echo "# who may look"
group=games
daemon_start ours --admin-ro-group $group
adm --op new --mode target --tid 1 -T $iqn:t
adm --op new --mode account --user joe --password secret-of-joe-1
cp "$bin/tgtadm" "$dir/tgtadm"
as() { # UID GID GROUPS tgtadm ARGS
	out=$(python3 -c '
import os, sys
os.setgroups([int(g) for g in sys.argv[3].split(",") if g])
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[1]))
os.execv(sys.argv[4], ["tgtadm"] + sys.argv[5:])' "$1" "$2" "$3" "$dir/tgtadm" "${@:4}" 2>&1)
	rc=$?
}
gid=$(getent group $group | cut -d: -f3)
onlooker() { as 65534 65534 "$gid" "$@"; }
for mode in system target account portal lld; do
	onlooker --op show --mode $mode
	is "a member sees --mode $mode" test "$rc" = 0
done
as 65534 "$gid" "" --op show --mode target
is "... also of a first group" has $iqn:t
onlooker --op show --mode system --name config
is "... the configuration" has $iqn:t
onlooker --op stat --mode system
is "... figures" test "$rc" = 0
no() {
	onlooker --debug "$@"
	is "no member may $*" has "read-only group"
}
no --op new --mode target --tid 2 -T $iqn:x
no --op delete --mode target --tid 1 --force
no --op update --mode target --tid 1 --name state --value offline
no --op bind --mode target --tid 1 -I ALL
no --op new --mode account --user x --password secret-of-x-123
no --op delete --mode account --user joe
no --op update --mode system --name State --value offline
no --op delete --mode system
no --op stop --mode lld
no --op update --mode cache --name readahead --value 0
no --op delete --mode conn --tid 1 --sid 1 --cid 0
as 65534 65534 "" --op show --mode target
is "a stranger sees nothing" test "$rc" != 0 -a -z "$(printf %s "$out" | grep $iqn)"
adm --op show --mode target
is "nothing has changed" has $iqn:t
# onlookers are many, and the administrator gets in
python3 - "$dir/socket.0" "$gid" <<'PYTHON' &
import os, socket, sys, time
os.setgroups([int(sys.argv[2])]); os.setgid(65534); os.setuid(65534)
many = []
for i in range(200):
    s = socket.socket(socket.AF_UNIX); s.setblocking(False)
    try:
        s.connect(sys.argv[1])
    except OSError:
        pass
    many.append(s)
time.sleep(30)
PYTHON
many=$!
sleep 1
adm --op show --mode target
is "onlookers who stay leave room for the administrator" has $iqn:t
kill $many
wait $many 2>/dev/null
is "it ends with 0" daemon_stop
timeout 20 "$bin/tgtd" -f --admin-ro-group no-such-group --cache off --state-dir "$dir/state" \
	--iscsi "portal=127.0.0.1:$port" >"$dir/log" 2>&1
out=$(cat "$dir/log")
is "no such group" has "--admin-ro-group no-such-group: no such group"
is "no report" no_report

echo "# the unit"
if command -v systemd-analyze >/dev/null; then
	out=$(systemd-analyze security --offline=true --no-pager conf/tgtd.service 2>&1 | tail -1)
	exposure=$(printf '%s\n' "$out" | grep -o '[0-9][0-9.]*')
	is "W10: its exposure is 3.0 at most" awk -v e="$exposure" 'BEGIN {exit !(e > 0 && e <= 3.0)}'
	echo "# $out"
	out=$(systemd-analyze syscall-filter --no-pager 2>/dev/null | python3 -c '
import re, sys
sets, now = {}, None
for line in sys.stdin:
    if line.startswith("@"):
        now = sets.setdefault(line.strip(), [])
    elif line.startswith("    ") and not line.strip().startswith("#"):
        now.append(line.strip())
def all_of(word):
    return set().union(*map(all_of, sets[word])) if word in sets else {word}
allowed = all_of("@default")
for words in re.findall("^SystemCallFilter=(.*)$", open("conf/tgtd.service").read(), re.M):
    given = set().union(*map(all_of, words.lstrip("~").split()))
    allowed = allowed - given if words[0] == "~" else allowed | given
source = open("tgtd/guard_filter.c").read()
for name in "living", "loops", "blocking":
    calls = re.findall(r"\"(\w+)\"", re.search(name + r"\[\] = \{(.*?)\};", source, re.S)[1])
    assert len(calls) > 20
    print("\n".join(sorted(set(calls) - allowed)))')
	is "what it filters leaves what threads may call" test -z "$out"
else
	echo "ok the unit # SKIP systemd-analyze is not installed"
fi
finish
