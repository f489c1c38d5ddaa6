#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Three initiators ask for 60 MiB each, all of it yet to be loaded, and take nothing off the wire: behind a
# cache of a few MiB they cannot have all of it, and others are served as if they were not there.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.tgtd.test:stuck
for size in 1m 16m; do
	daemon_start ours --cache size=$size
	adm --op new --mode target --tid 1 -T $iqn
	adm --op bind --mode target --tid 1 -I ALL
	rm -f "$dir/disk"
	truncate -s 256m "$dir/disk"
	adm --op new --mode logicalunit --tid 1 --lun 1 --bstype aio --backing-store "$dir/disk"
	is "a LUN behind a cache of $size" test "$rc" = 0
	is "others are served beside stuck readers, cache of $size" timeout 120 python3 -B - "$port" $iqn <<'PY'
import os, sys, time
sys.path.insert(0, 'tests/support')
from iscsi_peer import Peer

Peer.address, Peer.target = ('127.0.0.1', int(sys.argv[1])), sys.argv[2]

stuck = []
for i in range(3):
    p = Peer(rcvbuf=4096).login().ready()
    for k in range(40):
        p.out(p.read((k * 3 + i) * 4096, 3072))
    stuck.append(p)
time.sleep(0.5)
p = Peer().login().ready()
start = time.monotonic()
for n in range(20):
    at, data = 400000 + n * 640, os.urandom(16384)
    p.out(p.read(at + 320, 32))
    assert p.wait_status(p.itt - 1) == (bytes(16384), 0)
    p.out(p.write(at, 32, data))
    assert p.wait_status(p.itt - 1)[1] == 0
    p.out(p.read(at, 32))
    assert p.wait_status(p.itt - 1) == (data, 0)
print('# 60 requests in %.2f s' % (time.monotonic() - start))
p.logout()
for p in stuck:
    p.close()
PY
	is "it ends with 0" daemon_stop
done
exit $((failures > 0))
