#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Nobody is locked out (W3, W4, W14): all that strangers can do at once, in small;
# tests/bench/lockout has it in full. And room that is kept for initiators whom the administrator knows.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
name=iqn.2026-11.org.tgtd.test:target-with-a-name-of-some-length-
for n in $(seq 200); do
	echo "<target $name$n>"
	[ "$n" = 1 ] && echo "incominguser joe secret-of-joe-1
	incominguser ann secret-of-ann-1"
	echo "initiator-address ALL"
	echo "</target>"
done >"$dir/targets.conf"

daemon_start ours
for n in 2 3 4; do adm --mode portal --op new --param "portal=127.0.0.$n:$port"; done
out=$("$bin/tgt-admin" -C 0 -c "$dir/targets.conf" -e 2>&1)
is "200 targets at 4 portals" test -z "$out"
# (On a busy machine: what takes longer than this hangs.)
python3 tests/integration/lockout.py "$port" "$bin/tgtadm" ${name}1 300 200 10 500 8 20 10 ||
	failures=$((failures + 1))
is "it ends with 0" daemon_stop
is "no report" no_report

# Six connections in all. Two initiators are known at target 2, by a rule and by a tie.
daemon_start ours --iscsi max_connections=6
for tid in 1 2; do
	adm --op new --mode target --tid $tid -T $name$tid
	adm --op bind --mode target --tid $tid -I ALL
done
adm --op new --mode target --tid 3 -T ${name}3
adm --op bind --mode target --tid 3 -Q $name-a
adm --op new --mode account --user joe --password secret-of-joe-1
adm --op bind --mode account --tid 2 --user joe --initiator-name $name-b
python3 - "$port" "$name" <<'PYTHON' || failures=$((failures + 1))
import sys, time
sys.path.insert(0, 'tests/support')
sys.dont_write_bytecode = True
from iscsi_peer import Gone, Peer
Peer.address, name = ('127.0.0.1', int(sys.argv[1])), sys.argv[2]
bad = 0

def is_(what, ok, more=''):
    global bad
    bad += not ok
    print('%sok %s # %s' % ('' if ok else 'not ', what, more), flush=True)

def enter(target, who=None, isid=None, chap=False):
    p = Peer()
    p.name = who or p.name
    keys = p.names(target=target)
    if chap:
        assert p.chap(5, 'joe', 'secret-of-joe-1', names=keys, isid=isid) == 0
        keys = []
    return p, p.login_step(1, 3, keys, isid=isid)[None][0]

strangers, status = [], 0
while not status and len(strangers) < 10:
    p, status = enter(name + '1')
    strangers.append(p)
is_('strangers get what is left', len(strangers) == 5 and status == 0x302,
    '%u, %#x' % (len(strangers) - 1, status))
a, status = enter(name + '3', name + '-a', b'\x80\1\2\3\4\5')
is_('who is known by a rule gets in', status == 0, '%#x' % status)
_, status = enter(name + '3', name + '-a', b'\x80\1\2\3\4\6')
is_('... once', status == 0x302, '%#x' % status)
b, status = enter(name + '2', name + '-b', chap=True)
is_('who is known by a tie gets in', status == 0, '%#x' % status)
_, status = enter(name + '3', name + '-a', b'\x80\1\2\3\4\5')
is_('where all is full a session is reinstated all the same', status == 0, '%#x' % status)
is_('... whose old one ends', a.closed_by_target())
strangers[0].close()
deadline, status = time.monotonic() + 20, 1
while status and time.monotonic() < deadline:
    _, status = enter(name + '1')
is_('what a stranger leaves is for strangers', status == 0, '%#x' % status)
sys.exit(bad != 0)
PYTHON
is "it ends with 0" daemon_stop
is "no report" no_report
finish 60
