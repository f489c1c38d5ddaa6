#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Without a cache stores share the bounce blocks of their node. Two initiators of one unit that take
# nothing off the wire, or owe the data of their writes, keep them for long: who uses another unit
# does not wait for that.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.tgtd.test:uncached
daemon_start ours
for k in 1 2; do
	truncate -s 64M "$dir/disk-$k"
	adm -m target -o new -t $k -T "$iqn-$k"
	adm -m target -o update -t $k --name data_out_timeout --value 600
	adm -m target -o bind -t $k -I ALL
	adm -m lu -o new -t $k -l 1 -b "$dir/disk-$k" --bsopts cache=none
	is "a unit without a cache" done_silently
done
for way in "take nothing" "owe data"; do
	is "others are served beside two that $way" timeout 120 python3 -B - "$port" $iqn "$way" <<'END'
import sys, time
sys.path.insert(0, 'tests/support')
from iscsi_peer import Peer

Peer.address = ('127.0.0.1', int(sys.argv[1]))
Peer.target = sys.argv[2] + '-2'
p = Peer().login().ready()
Peer.target = sys.argv[2] + '-1'
greedy = [Peer(rcvbuf=4096).login().ready() for _ in range(2)]
for g in greedy:
    for _ in range(100):
        g.out(g.read(0, 2048) if sys.argv[3] == 'take nothing' else g.write(0, 2048))
time.sleep(0.5)
start = time.monotonic()
for n in range(20):
    at, data = n * 640, bytes([n]) * 16384
    p.out(p.write(at, 32))
    while True:
        head, _ = p.recv()
        if head[0] == 0x31:
            p.out(p.data_out(p.itt - 1, int.from_bytes(head[20:24], 'big'), data))
            break
    assert p.wait_status(p.itt - 1)[1] == 0
    p.out(p.read(at, 32))
    assert p.wait_status(p.itt - 1) == (data, 0)
took = time.monotonic() - start
print('# 40 requests in %.2f s' % took)
assert took < 15
for g in greedy:
    g.close(reset=True)
p.logout()
END
done
is "it ends with 0" daemon_stop
is "no report" no_report
finish 30
