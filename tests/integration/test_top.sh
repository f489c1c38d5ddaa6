#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# tgt-top: --once as text and JSON beside what a peer has done; on a terminal (tmux): views, sorting, a filter, a
# pause, a daemon that goes and comes; a terminal that is small.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
if [ ! -x "$bin/tgt-top" ]; then
	echo "ok tgt-top # SKIP it is not built: libncurses-dev is missing"
	exit 0
fi
top=$bin/tgt-top
daemon_start ours --cache size=32m
iqn=iqn.2026-11.org.tgtd.test:top
for tid in 1 2; do
	adm --op new --mode target --tid $tid -T $iqn.$tid
	adm --op bind --mode target --tid $tid -I ALL
	for lun in 1 2; do adm --op new --mode logicalunit --tid $tid --lun $lun --bstype ram --backing-store 16m; done
done
truncate -s 16m "$dir/store"
adm --op new --mode logicalunit --tid 1 --lun 3 --backing-store "$dir/store"
python3 - "$port" $iqn.1 "$dir/stop" <<'PY' &
import os, sys, time
sys.path.insert(0, 'tests/support')
sys.dont_write_bytecode = True
from iscsi_peer import Peer
Peer.address, Peer.target = ('127.0.0.1', int(sys.argv[1])), sys.argv[2]
p = Peer()
p.name = 'iqn.2026-11.org.tgtd.test:worker'
p.login_step(1, 3, p.names())
p.ready()
end = time.monotonic() + 280
while time.monotonic() < end and not os.path.exists(sys.argv[3]):
    for i in range(20):
        p.out(p.read(i * 8, 8))
        p.wait_status(p.itt - 1)
    time.sleep(0.01)
PY
worker=$!
at_work() {
	for _ in $(seq 200); do
		adm --op stat --mode logicalunit --tid 1 --lun 1
		[ "$(awk 'END { print $5 + 0 }' <<<"$out")" -gt 20 ] && return 0
		sleep 0.1
	done
	return 1
}
is "the worker is at work" at_work

# ---- once
out=$("$top" --once --json --delay 1 2>&1)
rc=$?
is "--once --json: figures of what the worker does" python3 - "$out" <<'PY'
import json, sys
d = json.loads(sys.argv[1])
lus = {l['lu']: l for l in d['lus']}
assert sorted(lus) == ['1:1', '1:2', '1:3', '2:1', '2:2'], lus
busy = lus['1:1']
assert busy['iops'] > 1 and abs(busy['read_bytes'] / busy['iops'] - 4096) < 1 and 0 < busy['read_ns'] < 1e9, busy
assert lus['2:1']['iops'] == 0 and d['lus'][0] == busy and d['totals']['iops'] == busy['iops'], d
assert 0.9 < d['seconds'] < 60, d
assert [i['initiator'] for i in d['initiators']] == ['iqn.2026-11.org.tgtd.test:worker'] and d['initiators'][0]['commands'] > 1, d
assert any(t['thread'] == 'lu-1:1' for t in d['threads']) and d['nodes'][0]['size_bytes'] > 3e7, d
PY
first() { "$top" --once --json -d 0.1 "$@" | python3 -c 'import json, sys; print(json.load(sys.stdin)["lus"][0]["lu"])'; }
out=$(first --sort lu --reverse)
is "a sort the other way round" [ "$out" = 2:2 ]
out=$(first --filter "$dir/sto")
is "a filter" [ "$out" = 1:3 ]
out=$("$top" --once --delay 0.2)
is "--once as text" has "1:1"
is "... has all tables" has "lu-1:1"
out=$(python3 - "$port" $iqn.2 "$top" <<'PY'
import json, subprocess, sys
sys.path.insert(0, 'tests/support')
sys.dont_write_bytecode = True
from iscsi_peer import Peer
Peer.address, Peer.target = ('127.0.0.1', int(sys.argv[1])), sys.argv[2]
p = Peer()
name = b'iqn.2026-11.x:<b>"\\\xff\xc3\xa9\xc2\x9b2J'
p.send(p.login_pdu([], data=b'InitiatorName=' + name + b'\0SessionType=Normal\0TargetName=' + Peer.target.encode() + b'\0'))
assert not p.recv()[0][36]
text = subprocess.run([sys.argv[3], '--once', '-d', '0.1'], capture_output=True, check=True).stdout
d = json.loads(subprocess.run([sys.argv[3], '--once', '--json', '-d', '0.1'], capture_output=True, check=True).stdout.decode())
assert 'iqn.2026-11.x:<b>"\\\ufffd\u00e9??2J ' in text.decode(), text
assert name.decode('utf-8', 'replace') in [i['initiator'] for i in d['initiators']], d
PY
) 2>&1
is "a name with odd bytes does not speak to the terminal" test $? = 0
out=$("$top" --view nothing 2>&1)
is "a view that is none" [ $? = 22 ]
out=$("$top" --json 2>&1)
is "--json is for --once" [ $? = 22 ]
out=$(TGT_IPC_SOCKET=$dir/nobody "$top" --once 2>&1)
is "no daemon" [ $? = 107 ]

# ---- on a terminal
if ! command -v tmux >/dev/null; then
	echo "ok on a terminal # SKIP tmux is not installed"
else
	tm() { tmux -S "$dir/tmux" "$@"; }
	tm -f /dev/null new-session -d -x 170 -y 20 "$top --delay 0.3; echo left with \$?; sleep 300"
	screen() { out=$(tm capture-pane -p); }
	shows() { # within 20 s
		for _ in $(seq 100); do
			screen
			has "$1" && return 0
			sleep 0.2
		done
		return 1
	}
	line() { out=$(tm capture-pane -p | sed -n "$1p"); }
	line_begins() { # NUMBER TEXT, within 20 s
		for _ in $(seq 100); do
			line "$1"
			[[ $out == *([ ])"$2"* ]] && return 0
			sleep 0.2
		done
		return 1
	}
	shopt -s extglob
	is "logical units" shows "$iqn.2"
	is "the busiest is first" line_begins 4 "1:1 "
	screen
	[ -z "${TGT_TEST_PICTURES:-}" ] || printf '%s\n' "$out" >"$TGT_TEST_PICTURES/top.txt"
	tm send-keys r
	is "the other way round" line_begins 8 "1:1 "
	tm send-keys r / '.2'
	sleep 0.2
	tm send-keys BSpace BSpace 't' 'o' 'p' '.' '2' Enter
	is "a filter: what it keeps" line_begins 4 "2:"
	is "and what it does not" not has "1:1 "
	tm send-keys / Escape
	is "Escape ends it" shows "1:1 "
	tm send-keys i
	is "initiators" shows "iqn.2026-11.org.tgtd.test:worker"
	tm send-keys t
	is "threads" shows "lu-1:1"
	tm send-keys '<' '<' '<'
	is "threads by name" line_begins 4 "lu-1:1"
	tm send-keys n
	is "nodes" shows "resident"
	[ -z "${TGT_TEST_PICTURES:-}" ] || { screen; printf '%s\n' "$out" >>"$TGT_TEST_PICTURES/top.txt"; }
	tm send-keys p
	is "a pause" shows "paused"
	tm send-keys p l
	tm resize-window -x 40 -y 6
	is "a small terminal" line_begins 4 "1:1 "
	tm resize-window -x 170 -y 20
	touch "$dir/stop"
	wait $worker
	is "the daemon ends well" daemon_stop
	is "a daemon that goes" shows "no tgtd answers"
	daemon_start ours --cache size=32m
	is "and one that comes" shows " 0 IOPS"
	tm send-keys q
	is "it leaves when asked to" shows "left with 0"
	tm kill-server
fi
touch "$dir/stop"
wait $worker 2>/dev/null
is "no report" no_report
is "the daemon ends well, at last" daemon_stop
finish
