#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Limits on connections: who comes beyond them is refused in so many words (RFC 7143 11.13.5: status 0302, target
# out of resources), the others are served on, and a place that becomes free is given to the next.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.tgtd.test:limits
start() {
	daemon_start ours "$@"
	adm --op new --mode target --tid 1 -T $iqn
	adm --op bind --mode target --tid 1 -I ALL
	adm --op new --mode logicalunit --tid 1 --lun 1 --bstype ram --backing-store 16m
}
peers() {
	out=$(timeout 100 python3 - "$port" $iqn 2>&1)
	rc=$?
}

start --iscsi max_connections=24
peers <<'PY'
import sys
sys.path.insert(0, 'tests/support')
sys.dont_write_bytecode = True
from iscsi_peer import Gone, Peer
Peer.address, Peer.target = ('127.0.0.1', int(sys.argv[1])), sys.argv[2]
all = []
for _ in range(24):
    p = Peer()
    assert p.login_step(1, 3, p.names())[None] == (0, True)
    all.append(p)
for session in 'Normal', 'Discovery', 'Normal':
    for _ in range(10):
        p = Peer()
        status = p.login_step(1, 3, p.names(session))[None][0]
        if session == 'Discovery':  # has room of its own
            assert status == 0, 'status %#x' % status
            p.close()
            break
        assert status == 0x302, 'status %#x' % status
        assert p.closed_by_target()
        p.close()
for p in all:
    assert p.answers()
for p in all[:5]:
    p.logout()
del all[:5]
for _ in range(5):
    for _ in range(100):  # the end of a session takes a moment
        p = Peer()
        if p.login_step(1, 3, p.names())[None] == (0, True):
            break
        p.close()
    assert p.answers()
    all.append(p)
# A session that is reinstated needs no second place in the end, but one for a moment.
for p in all:
    p.logout()
PY
is "24 connections are served, more are refused with 0302" test $rc = 0
adm --op show --mode target
is "the daemon is well" test "$rc" = 0
is "it ends with 0" daemon_stop

# As many as there are descriptors for, whatever was asked for; the administrator gets his.
# Root would raise the limit; not without that capability.
mkdir "$dir/bin"
ln -s "$bin"/* "$dir/bin/"
rm "$dir/bin/tgtd"
cat >"$dir/bin/tgtd" <<SH
#!/bin/sh
drop='setpriv --bounding-set=-sys_resource --inh-caps=-sys_resource'
\$drop true 2>/dev/null || drop=
exec \$drop prlimit --nofile=64:64 "$bin/tgtd" "\$@"
SH
chmod +x "$dir/bin/tgtd"
bin=$dir/bin
start
peers <<'PY'
import sys
sys.path.insert(0, 'tests/support')
sys.dont_write_bytecode = True
from iscsi_peer import Gone, Peer
Peer.address, Peer.target = ('127.0.0.1', int(sys.argv[1])), sys.argv[2]
inside, refused, silent = [], 0, []
for _ in range(40):
    p = Peer()
    status = p.login_step(1, 3, p.names())[None][0]
    assert status in (0, 0x302), 'status %#x' % status
    refused += status != 0
    inside += [p] if not status else []
print('%u inside, %u refused' % (len(inside), refused))
assert refused and len(inside) > 10
for _ in range(60):  # connections that say nothing: the oldest makes room for the next
    silent.append(Peer())
for p in inside:
    assert p.answers()
for p in inside[:5]:
    p.logout()
for _ in range(5):
    for _ in range(100):
        p = Peer()
        if p.login_step(1, 3, p.names())[None] == (0, True):
            break
    assert p.answers()
PY
is "few descriptors: those inside are served, others are refused with 0302" test $rc = 0
printf '%s\n' "$out" | sed 's/^/# /'
adm --op show --mode target
is "the administrator gets in" test "$rc" = 0
is "it ends with 0" daemon_stop
finish 60
