#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Threads that serve commands ask the system for no memory, and give none back: such a call waits
# for whoever else changes what is mapped, above all for the cache's memory while its size changes
# (W10). They are counted under a load that hits, misses and writes.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.tgtd.test:mappings
case ${TGT_BIN:-} in
*/asan/* | */tsan/*)
	echo "ok mappings # SKIP a sanitized build has another malloc"
	exit 0
	;;
esac
command -v strace >/dev/null || { echo "ok mappings # SKIP no strace"; exit 0; }

daemon_start ours --cache size=32m
adm --op new --mode target --tid 1 -T $iqn
adm --op bind --mode target --tid 1 -I ALL
truncate -s 64m "$dir/disk"
adm --op new --mode logicalunit --tid 1 --lun 1 --bstype aio --backing-store "$dir/disk"
adm --op update --mode logicalunit --tid 1 --lun 1 --params thin_provisioning=1
is "a LUN of twice the cache" test "$rc" = 0

load() {
	build/bin/tgt-load --portal "127.0.0.1:$port" --target $iqn --quiet --read 50 --wait block \
		--bs 4k:1,64k:1 --connections 4 --depth 8 --warmup 0 --threads 1 --count 15000 &&
		python3 -B "$dir/lists.py" "$port" $iqn
}
# Commands whose answers are made in memory of the C library, several at a time.
cat >"$dir/lists.py" <<'PY'
import struct, sys
sys.path.insert(0, 'tests/support')
from iscsi_peer import Peer

Peer.address, Peer.target = ('127.0.0.1', int(sys.argv[1])), sys.argv[2]
p = Peer().login().ready()
cdb, length = struct.pack('>BBQI', 0x9e, 0x12, 0, 1 << 20), 1 << 20
for _ in range(100):
    for _ in range(8):
        p.out(p.command(cdb, 0xc0, length))
    missing = set(range(p.itt - 8, p.itt))  # in any order: they are made by several threads
    while missing:
        head, _ = p.recv()
        if head[0] == 0x21 or (head[0] == 0x25 and head[1] & 1):
            assert head[3] == 0
            missing.discard(struct.unpack('>I', head[16:20])[0])
p.logout()
PY
is "it is used" load
timeout 100 strace -f -qq --decode-pids=comm -e trace=mprotect,madvise,munmap \
	-o "$dir/calls" -p "$worker" 2>"$dir/strace.err" &
tracer=$!
for _ in $(seq 100); do
	grep -q "^TracerPid:.*[1-9]" "/proc/$worker/status" && break
	kill -0 $tracer 2>/dev/null || { echo "ok mappings # SKIP strace may not"; exit 0; }
	sleep 0.1
done
is "and used on" load
kill $tracer
wait $tracer 2>/dev/null
calls=$(grep -c "<lu-" "$dir/calls")
echo "# 15000 I/Os, 800 lists: $calls calls that change what is mapped, on the unit's thread"
is "none of them changes what is mapped" test "$calls" -le 2
[ "$calls" -le 2 ] || grep "<lu-" "$dir/calls" | head -20 | sed 's/^/# /'
is "nothing is wrong in its log" no_report
is "it ends with 0" daemon_stop
exit $((failures > 0))
