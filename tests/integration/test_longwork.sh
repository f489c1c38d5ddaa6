#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# How far long work is, by tgtadm --op show --name work, as JSON, and in the log: SANITIZE and FORMAT
# UNIT at a rate, what is written back to a slow store before its LUN goes, and before the end.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.tgtd.test:longwork
daemon_start_slow --cache size=32m
adm --op new --mode target --tid 1 -T $iqn
adm --op bind --mode target --tid 1 -I ALL
adm --op new --mode logicalunit --tid 1 --lun 1 --bstype ram --backing-store 64m
truncate -s 64m "$dir/slow"
adm --op new --mode logicalunit --tid 1 --lun 2 --backing-store "$dir/slow"
work() { adm --mode system --op show --name work; }
becomes() { # PATTERN: of the whole answer, within a minute
	for _ in $(seq 600); do
		work
		[[ $out =~ $1 ]] && return
		sleep 0.1
	done
	return 1
}
is "nothing takes long" becomes '^$'

begin() { # "5a 81" and the like: a command of LUN 1, which IMMED answers at once
	out=$(python3 - "$port" $iqn "$@" <<'PY' 2>&1
import sys
sys.path.insert(0, 'tests/support')
sys.dont_write_bytecode = True
from iscsi_peer import Peer
Peer.address, Peer.target = ('127.0.0.1', int(sys.argv[1])), sys.argv[2]
p = Peer().login().ready()
cdb, data = bytes.fromhex(sys.argv[3]), bytes.fromhex(sys.argv[4])
p.out(p.command(cdb, 0xa1, len(data), data))
status = p.wait_status(p.itt - 1)[1]
p.logout()
sys.exit(status)
PY
	)
}
rate() { adm --op update --mode logicalunit --tid 1 --lun 1 --params "sanitize_rate=$1"; }
rate 1
# SANITIZE OVERWRITE, IMMED, once, with zeros
is "a SANITIZE begins" begin 48810000000000000800 0100000400000000
is "how far it is" becomes '^sanitizing target 1 LUN 1: [0-9]+ %, [1-9][0-9]* of 64 MiB, about [0-9]+ s left$'
out=$("$bin/tgtadm" --mode system --op show --name work --json)
is "as JSON" python3 -c '
import json, sys
(w,) = json.loads(sys.argv[1])["work"]
assert (w["what"], w["name"], w["total"]) == ("sanitizing", "target 1 LUN 1", 64 << 20), w
assert 0 < w["done"] < w["total"] and w["elapsed_ns"] > 0 and w["remaining_ns"] > 0, w' "$out"
in_log() {
	for _ in $(seq 600); do
		grep -qE "$1" "$dir/log" && return
		sleep 0.1
	done
	return 1
}
is "in the log, too" in_log 'sanitizing target 1 LUN 1: [0-9]+ %, [0-9]+ of 64 MiB'
rate 0
is "it is over" becomes '^$'
rate 1
is "a FORMAT UNIT begins" begin 041000000000 00020000
is "and is shown" becomes '^formatting target 1 LUN 1: '
rate 0
is "it is over, too" becomes '^$'

# Before a LUN goes, and before the end: data that a slow store takes its time for.
write() {
	"$bin/tgt-load" --portal "127.0.0.1:$port" --target $iqn --lun "$1" --read 0 --bs 64k --depth 8 \
		--count 200 --warmup 0 --quiet >/dev/null 2>&1
}
is "writes" write 2
echo "3000 w" >"$SLOW_MS"
is "more writes" write 2
adm --op delete --mode logicalunit --tid 1 --lun 2 &
deleter=$!
is "writing back is shown" becomes 'writing back .*/slow: [0-9]+ %, [0-9]+ of [0-9]+ MiB'
rm "$SLOW_MS"
wait $deleter
is "until it is done" becomes '^$'
no_report
is "it ends with 0" daemon_stop
finish
