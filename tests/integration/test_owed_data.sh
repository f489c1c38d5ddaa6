#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# W1: six sessions announce 128 writes of 1 MiB each, answer pings, and never an R2T. Somebody else's write of 4 KiB to
# another target is served at once, long before the deadline of what is owed; and with a short one their writes
# fail, and the third time their connections end.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.tgtd.test:owed
daemon_start ours --cache size=64m
for tid in 1 2; do
	adm --op new --mode target --tid $tid -T $iqn-$tid
	adm --op bind --mode target --tid $tid -I ALL
	truncate -s 256m "$dir/disk$tid"
	adm --op new --mode logicalunit --tid $tid --lun 1 --bstype aio --backing-store "$dir/disk$tid"
	is "target $tid has a LUN" test "$rc" = 0
done
for deadline in 60 3; do
	adm --op update --mode target --tid 1 --name data_out_timeout --value $deadline
	[ "${OWED_BASE:-}" ] || is "the deadline is $deadline s" test "$rc" = 0
	is "others are served beside owed data, deadline $deadline s" \
		timeout 120 python3 -B - "$port" $iqn $deadline <<'PY'
import os, select, struct, sys, threading, time
sys.path.insert(0, 'tests/support')
from iscsi_peer import Gone, Peer

Peer.address, iqn, deadline = ('127.0.0.1', int(sys.argv[1])), sys.argv[2], int(sys.argv[3])
failed, gone, stop, lock = [], [], [], threading.Lock()

def greedy(s, again):
    """Reads what comes: pings are answered, R2Ts are not."""
    first = True
    try:
        while not stop:
            if not select.select([s.sock], [], [], 0.2)[0]:
                continue
            head, data = s.recv()
            if head[0] == 0x20:
                ttt = struct.unpack('>I', head[20:24])[0]
                from iscsi_peer import pdu, NONE
                s.out(pdu(0x40, 0x80, 0, NONE, struct.pack('>III', ttt, s.cmdsn, s.statsn)))
            elif head[0] == 0x21:
                assert head[3] == 2 and data[4] & 15 == 0xb and data[14:16] == b'\x0c\x0d', (head, data)
                with lock:
                    failed.append(1)
                if again:
                    s.out(s.write(len(failed) % 200 * 2048, 2048))
    except (Gone, OSError):
        with lock:
            gone.append(s)

Peer.target = iqn + '-2'
victim = Peer(timeout=10).login('ImmediateData=No').ready()
Peer.target = iqn + '-1'
threads, peers = [], []
for i in range(6):
    s = Peer().login('ImmediateData=No', 'InitialR2T=Yes').ready()
    for k in range(128):
        s.out(s.write((i * 128 + k) % 250 * 2048, 2048))
    threads.append(threading.Thread(target=greedy, args=(s, deadline < 10)))
    peers.append(s)
for t in threads:
    t.start()
try:
    time.sleep(1)
    start = time.monotonic()
    for n in range(20):
        victim.out(victim.write(n * 1000, 8))
        while True:
            head, _ = victim.recv()
            if head[0] == 0x31:
                break
        victim.out(victim.data_out(victim.itt - 1, struct.unpack('>I', head[20:24])[0], os.urandom(4096)))
        assert victim.wait_status(victim.itt - 1)[1] == 0
    took = time.monotonic() - start
    print('# 20 writes beside it in %.2f s' % took)
    assert took < 10, 'not before the deadline'
    if deadline > 10:
        assert not failed
    else:
        until = time.monotonic() + 60
        while len(gone) < 6 and time.monotonic() < until:
            time.sleep(0.2)
        print('# %u writes failed, %u connections ended' % (len(failed), len(gone)))
        assert failed and len(gone) == 6
    victim.logout()
finally:
    stop.append(1)
    for t in threads:
        t.join()
    for s in peers:
        s.close()
PY
done
is "it ends with 0" daemon_stop
exit $((failures > 0))
