#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Three initiators ask for much and take nothing off the wire: 60 MiB each, all of it yet to be loaded, or over and
# over what the cache has. Behind a cache of a few MiB they cannot have all of it, and others are served as if
# they were not there.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.tgtd.test:stuck
for way in '1m missing' '16m missing' '4m resident'; do
	size=${way% *}
	daemon_start ours --cache size=$size
	adm --op new --mode target --tid 1 -T $iqn
	adm --op bind --mode target --tid 1 -I ALL
	rm -f "$dir/disk"
	truncate -s 256m "$dir/disk"
	adm --op new --mode logicalunit --tid 1 --lun 1 --bstype aio --backing-store "$dir/disk"
	is "a LUN behind a cache of $size" test "$rc" = 0
	is "others are served beside stuck readers of what is ${way#* }, cache of $size" \
		timeout 120 python3 -B - "$port" $iqn "${way#* }" <<'PY'
import os, sys, time
sys.path.insert(0, 'tests/support')
from iscsi_peer import Peer

Peer.address, Peer.target = ('127.0.0.1', int(sys.argv[1])), sys.argv[2]

resident = sys.argv[3] == 'resident'
p = Peer().login().ready()
if resident:
    for at in list(range(0, 8192, 128)) * 2:
        p.out(p.read(at, 128))
        assert p.wait_status(p.itt - 1)[1] == 0
stuck = []
for i in range(3):
    s = Peer(rcvbuf=4096).login().ready()
    for k in range(40):
        if resident:
            s.out(s.read((k * 3 + i) % 16 * 512, 512))
        else:
            s.out(s.read((k * 3 + i) * 4096, 3072))
    stuck.append(s)
time.sleep(0.5)
start = time.monotonic()
for n in range(20):
    at, data = 400000 + n * 640, os.urandom(16384)
    p.out(p.read(at + 320, 32))
    assert p.wait_status(p.itt - 1) == (bytes(16384), 0)
    p.out(p.write(at, 32, data))
    assert p.wait_status(p.itt - 1)[1] == 0
    p.out(p.read(at, 32))
    assert p.wait_status(p.itt - 1) == (data, 0)
took = time.monotonic() - start
print('# 60 requests in %.2f s' % took)
assert took < 20, 'only when the stuck ones had been closed'
p.logout()
for s in stuck:
    s.close()
PY
	is "it ends with 0" daemon_stop
done
exit $((failures > 0))
