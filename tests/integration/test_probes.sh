#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# U9: static probes are in the binary, and the bpftrace examples run on a daemon that serves.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.tgtd.test:probes
if ! echo '#include <sys/sdt.h>' | ${CC:-cc} -E - >/dev/null 2>&1; then
	echo "ok probes # SKIP no sys/sdt.h (systemtap-sdt-dev)"
	exit 0
fi
out=$(readelf -n "$bin/tgtd" | grep -A1 'Provider: tgtd' | sed -n 's/^ *Name: //p' | sort -u)
is "the probes are in the binary" \
	test "$(echo $out)" = "cache_miss cmd_answer cmd_start store_done store_start"
why=$(timeout 60 bpftrace -e 'BEGIN { printf("works\n"); exit(); }' 2>&1)
if ! grep -qx works <<<"$why"; then
	echo "ok bpftrace runs the examples # SKIP ${why##*$'\n'}"
	exit $((failures > 0))
fi
truncate -s 64m "$dir/disk"
daemon_start ours --cache size=32m
adm --op new --mode target --tid 1 -T $iqn
adm --op bind --mode target --tid 1 -I ALL
adm --op new --mode logicalunit --tid 1 --lun 1 --backing-store "$dir/disk" --bsoflags direct

traffic() {
	python3 -B - "$port" $iqn "$1" <<'PY'
import sys
sys.path.insert(0, 'tests/support')
from iscsi_peer import Peer

Peer.address, Peer.target = ('127.0.0.1', int(sys.argv[1])), sys.argv[2]
p = Peer().login().ready()
for i in range(20):
    p.out(p.read((int(sys.argv[3]) * 20 + i) * 512, 8))
    assert p.wait_status(p.itt - 1)[1] == 0
p.close()
PY
}

# traced EXAMPLE PATTERN: it has seen traffic and says so. How long it takes until all probes are
# there, nobody says: it is tried anew, for longer.
at=0
traced() {
	local tracer try
	for try in 1 2 4 8; do
		timeout -k 10 120 bpftrace -p "$worker" "tools/trace/$1" >"$dir/traced" 2>&1 &
		tracer=$!
		for _ in $(seq 300); do
			grep -q Attaching "$dir/traced" && break
			kill -0 $tracer 2>/dev/null || break
			sleep 0.1
		done
		sleep $try
		traffic $((at++))
		kill -TERM $tracer 2>/dev/null
		wait $tracer
		out=$(cat "$dir/traced")
		grep -q "$2" "$dir/traced" && return 0
	done
	return 1
}

is "latency.bt has READ(10)" traced latency.bt '^@microseconds\[40\]:'
is "misses.bt has the store" traced misses.bt '^@misses\[file:.*\]: [1-9]'
is "store.bt has reads" traced store.bt '^@microseconds\[0\]:'
is "it ends with 0" daemon_stop
finish
