#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# W1: what an initiator is to send has a bound, however many sessions it has, and wherever they come
# from: six of one name from six addresses are asked for no more than six of one address under six
# names. That is half of what may be dirty (cache/engine/README.md, "Accounts"), by partition. One
# connection is asked for 8 MiB at most in any case, so all six have to ask at the same time. And a
# write of 1 MiB by somebody else is served.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.tgtd.test:owed
daemon_start ours --cache size=64m
for tid in 1 2; do
	adm --op new --mode target --tid $tid -T $iqn-$tid
	adm --op bind --mode target --tid $tid -I ALL
	truncate -s 256m "$dir/disk$tid"
	adm --op new --mode logicalunit --tid $tid --lun 1 --backing-store "$dir/disk$tid"
	is "target $tid has a LUN" test "$rc" = 0
done
adm --op update --mode target --tid 1 --name data_out_timeout --value 300
# An R2T asks for all that there are blocks for.
adm --op update --mode target --tid 1 --name MaxBurstLength --value 1048576
for way in 'one name' 'one address'; do
	is "what six sessions of $way owe is bounded" timeout 300 python3 -B - "$port" $iqn "$way" <<'PY'
import os, select, struct, sys, time
sys.path.insert(0, 'tests/support')
from iscsi_peer import NONE, Peer, pdu

Peer.address, iqn, way = ('127.0.0.1', int(sys.argv[1])), sys.argv[2], sys.argv[3]
Peer.target = iqn + '-1'
# Of a store that nothing has been written back to nothing is known, and it gets little.
first = Peer(timeout=90).login().ready()
for k in range(16):
    first.out(first.write(k * 128, 128, bytes(65536)))
    assert first.wait_status(first.itt - 1)[1] == 0
    first.out(first.command(b'\x35', 0x80))
    assert first.wait_status(first.itt - 1)[1] == 0
first.logout()
peers = []
for i in range(6):
    address, name = (11 + i, 'one') if way == 'one name' else (11, 'n-%u' % i)
    s = Peer(source='127.0.0.%u' % address, timeout=90)
    s.login('ImmediateData=No', 'InitialR2T=Yes', 'MaxBurstLength=1048576', name=iqn + name).ready()
    peers.append(s)
# In turn: blocks that one session has wait for it alone. Each wants less than one connection is
# asked for, all together 36 MiB. And each write is of one partition, so none holds a part of what
# it needs.
for k in range(12):
    for i, s in enumerate(peers):
        s.out(s.write((i * 12 + k) * 1024, 1024))
# All that they are asked for: nothing comes for a while, and before that what must come.
asked, quiet, end = 0, time.monotonic() + 3, time.monotonic() + 90
while time.monotonic() < quiet or asked < 14 << 20 and time.monotonic() < end:
    for sock in select.select([s.sock for s in peers], [], [], 0.1)[0]:
        s = next(s for s in peers if s.sock is sock)
        head, _ = s.recv()
        if head[0] == 0x31:
            asked += struct.unpack('>I', head[44:48])[0]
            quiet = time.monotonic() + 3
        elif head[0] == 0x20:
            ttt = struct.unpack('>I', head[20:24])[0]
            s.out(pdu(0x40, 0x80, 0, NONE, struct.pack('>III', ttt, s.cmdsn, s.statsn)))
print('# asked for %.1f MiB of 32 that may be dirty' % (asked / 2 ** 20))
Peer.target = iqn + '-2'
victim = Peer(source='127.0.0.99', timeout=90).login('ImmediateData=No', 'InitialR2T=Yes').ready()
start = time.monotonic()
victim.out(victim.write(0, 2048))
itt, got = victim.itt - 1, 0
while got < 1 << 20:
    head, _ = victim.recv()
    assert head[0] == 0x31, head
    at, n = struct.unpack('>II', head[40:48])
    ttt, sn = struct.unpack('>I', head[20:24])[0], 0
    for part in range(at, at + n, 8192):
        size = min(8192, at + n - part)
        last = part + size == at + n
        victim.out(pdu(0x05, 0x80 if last else 0, 1, itt,
                       struct.pack('>IIIIII', ttt, 0, victim.statsn, 0, sn, part), bytes(size)))
        sn += 1
    got += n
assert victim.wait_status(itt)[1] == 0
print('# 1 MiB beside it in %.2f s' % (time.monotonic() - start))
for s in peers:
    s.close()
victim.logout()
assert 14 << 20 <= asked <= 16 << 20, asked
PY
	no_connection 1
done
is "it ends with 0" daemon_stop
exit $((failures > 0))
