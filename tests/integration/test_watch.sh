#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# tgtadm --op watch: logins, failed logins, what befalls stores, reservations taken away, changes and
# messages come as lines and as JSON, whatever names have in them; a watcher that does not read keeps
# nobody waiting and is told what it missed; there is a limit on watchers.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.tgtd.test:watch
# As long as there is a file $SICK, every third write to a store called bad-* fails.
export SICK=$dir/sick
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
preload=
if command -v cc >/dev/null; then
	cc -shared -fPIC -O1 -o "$dir/sick.so" tests/preload/sick_stores.c -ldl
	preload=$dir/sick.so
fi
LD_PRELOAD=$preload daemon_start ours --seccomp off
watchers=()
watcher() { # FILE OPTIONS...
	local file=$1
	shift
	"$bin/tgtadm" --mode system --op watch "$@" >"$file" 2>"$file.err" &
	watchers+=($!)
	comes "$file" watching
}
# A line like this comes within 20 s.
comes() {
	for _ in $(seq 200); do
		grep -qE -- "$2" "$1" 2>/dev/null && return 0
		sleep 0.1
	done
	out=$(cat "$1")
	return 1
}
is "it begins" watcher "$dir/all"
is "as JSON" watcher "$dir/json" --json
is "and of one kind" watcher "$dir/logins" --name login,logout

adm --mode target --op new --tid 1 -T $iqn
adm --mode logicalunit --op new --tid 1 --lun 1 --bstype ram -b 16m
adm --mode logicalunit --op latency --tid 1 --lun 1
adm --mode logicalunit --op slow --tid 1 --lun 1
adm --mode logicalunit --op explain --tid 1 --lun 1
adm --mode target --op bind --tid 1 -I ALL
adm --mode account --op new --user joe --password secret-of-joe-1
adm --mode logicalunit --op update --tid 1 --lun 1 --params iops_limit=700
is "a new target" comes "$dir/all" "Z change what=target_new tid=1 text=$iqn\$"
is "a new LU" comes "$dir/all" "Z change what=logicalunit_new tid=1 lun=1 text=16m\$"
is "who may log in" comes "$dir/all" 'change what=target_bind tid=1 address=ALL$'
is "a parameter" comes "$dir/all" 'what=logicalunit_update tid=1 lun=1 text=iops_limit=700$'
is "an account" comes "$dir/all" 'what=account_new text=joe$'
is "nothing that only looks" not grep -qE 'what=[a-z]*_(latency|slow|explain|show)' "$dir/all"
is "without its password" not grep -rq secret-of "$dir/all" "$dir/json"
load() { timeout 60 "$bin/tgt-load" --portal "127.0.0.1:$port" --target "$1" --time 1 --warmup 0 --quiet "${@:2}"; }
load $iqn --initiator iqn.2026-11.x:w >/dev/null 2>&1
is "a login" comes "$dir/all" 'Z login tid=1 session=[0-9]+ initiator=iqn.2026-11.x:w address=127.0.0.1$'
is "a logout" comes "$dir/all" 'Z logout tid=1 session=[0-9]+ initiator=iqn.2026-11.x:w'
iscsi-inq -i iqn.2026-11.x:w "iscsi://127.0.0.1:$port/$iqn.none/1" >/dev/null 2>&1
is "a failed login" comes "$dir/all" "Z login_failed what=0203 initiator=.* address=127.0.0.1 text=$iqn.none: "
is "a message of the log" comes "$dir/all" 'Z message what=notice text=login of '
is "those of one kind" comes "$dir/logins" logout
is "and no others" not grep -qE 'change|message|login_failed' "$dir/logins"
is "JSON" comes "$dir/json" '"event":"logout"'
is "each an object" python3 -c '
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
kinds = {line["event"] for line in lines}
assert all("time" in line for line in lines), lines
assert {"watching", "change", "login", "logout", "login_failed", "message"} <= kinds, kinds
assert any(line["event"] == "login" and line["tid"] == 1 for line in lines)' "$dir/json"

# Who may not come in.
adm --mode target --op new --tid 2 -T $iqn.2
load $iqn.2 --initiator iqn.2026-11.x:stranger >/dev/null 2>&1
is "an initiator that is not let in" comes "$dir/all" \
	"Z login_failed what=020[123] initiator=iqn.2026-11.x:stranger address=127.0.0.1 text=$iqn.2: "

# Reservations taken away; names with anything in them that a login lets in.
python3 - "$port" $iqn <<'PY' || failures=$((failures + 1))
import struct, sys
sys.path.insert(0, 'tests/support')
sys.dont_write_bytecode = True
from iscsi_peer import Peer
Peer.address, Peer.target = ('127.0.0.1', int(sys.argv[1])), sys.argv[2]


def pr_out(p, action, key, action_key, kind=1):
    data = struct.pack('>QQ8x', key, action_key)
    p.out(p.command(bytes([0x5f, action, kind, 0, 0, 0, 0, 0, 24]), 0xa1, 24, data))
    return p.wait_status(p.itt - 1)[1]


a, b = Peer().login().ready(), Peer().login().ready()
done = [pr_out(a, 0, 0, 1), pr_out(b, 0, 0, 2), pr_out(a, 1, 1, 0), pr_out(b, 4, 2, 1), pr_out(b, 3, 2, 0)]
print('ok registered, reserved, preempted, cleared' if done == [0] * 5 else 'not ok preempted: %r' % done)
for name in (b'iqn.2026-11.x:<script>alert("1")</script>\\', b'iqn.2026-11.x:\xc3\xa9\xff\xc2\x9b31m'):
    p = Peer()
    keys = b'InitiatorName=' + name + b'\0SessionType=Normal\0TargetName=' + Peer.target.encode() + b'\0'
    p.send(p.login_pdu([], data=keys))
    head, _ = p.recv()
    assert head[0] == 0x23 and not head[36], head
    p.close()
sys.exit(done != [0] * 5)
PY
is "a preempted reservation" comes "$dir/all" 'Z access what=preempt tid=1 lun=1 initiator=iqn\S+ address=127.0.0.1'
is "one that was cleared" comes "$dir/all" 'Z access what=clear tid=1 lun=1 initiator='
is "odd names: as a line" comes "$dir/all" 'login tid=1 .*initiator=iqn.2026-11.x:é\?\?\?31m address'
is "odd names: as JSON" comes "$dir/json" '"event":"login".*x:é'
is "each an object with the name" python3 -c '
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
names = {line.get("initiator") for line in lines}
assert "iqn.2026-11.x:<script>alert(\"1\")</script>\\" in names, names
assert "iqn.2026-11.x:\u00e9\ufffd\u009b31m" in names, names' "$dir/json"

# A store that fails, and is well again.
if [ -z "$preload" ]; then
	echo "ok a store that fails # SKIP no compiler"
else
	truncate -s 64m "$dir/bad-1"
	adm --mode logicalunit --op new --tid 1 --lun 2 -b "$dir/bad-1"
	touch "$SICK"
	fails() {
		for _ in $(seq 90); do
			load $iqn --lun 2 --read 0 --bs 64k --depth 4 --count 12 >/dev/null 2>&1
			sleep 0.5
			grep -q "$1" "$dir/all" && return
		done
		out=$(cat "$dir/all")
		return 1
	}
	is "a store that fails" fails "Z store what=failing text=.*/bad-1: "
	rm "$SICK"
	# ten seconds after the last failure, and the pause before the next try
	is "and is well again" fails "Z store what=recovered text=.*/bad-1: "
fi

# One that does not read: the daemon answers, and it hears how much it has missed.
python3 - "$dir/socket.0" <<'PY' || failures=$((failures + 1))
import re, socket, struct, sys, time

# conf/adm_proto.h
SYSTEM, LU, UPDATE, WATCH, OK = 0, 2, 5, 9, 0
MODE, OP, TID, LUN, NAME, PARAMS = 1, 2, 6, 9, 32 + 1, 32 + 13


def field(tag, value):
    data = struct.pack('<Q', value) if isinstance(value, int) else value.encode() + b'\0'
    return struct.pack('<BH', tag, len(data)) + data


class Client:
    def __init__(self):
        self.s = socket.socket(socket.AF_UNIX)
        self.s.settimeout(60)
        self.s.connect(sys.argv[1])

    def send(self, *fields):
        data = b''.join(field(*f) for f in fields)
        self.s.sendall(b'TGTq' + struct.pack('<HHI', 1, 0, len(data)) + data)

    def take(self, n):
        data = b''
        while len(data) < n:
            more = self.s.recv(n - len(data))
            assert more, 'the daemon has closed the connection'
            data += more
        return data

    def reply(self):
        status, n, m = struct.unpack('<III', self.take(16)[4:])
        return status, self.take(n).decode(), self.take(m)


def change(n):
    admin.send((MODE, LU), (OP, UPDATE), (TID, 1), (LUN, 1), (PARAMS, 'scsi_sn=%d-%s' % (n, 'x' * 480)))
    status, _, detail = admin.reply()
    assert status == OK, detail


watcher, admin = Client(), Client()
watcher.send((MODE, SYSTEM), (OP, WATCH), (NAME, 'change'))
status, text, _ = watcher.reply()
assert status == OK and 'watching' in text, text
N = 3000
for n in range(N):
    change(n)
    if n % 100 == 99: # so that reports are taken, and are not too many at a time
        time.sleep(0.15)
print('ok the daemon answers beside a watcher that does not read')
seen, lost, end = 0, 0, time.time() + 60
def told():
    return lost > 100 and seen > 100 and seen + lost >= N - 200
while not told() and time.time() < end:
    status, text, _ = watcher.reply()
    seen += text.count(' change ')
    lost += sum(map(int, re.findall(r' lost count=(\d+)', text)))
    change(N) # something for the line about what was lost to come before
    N += 1
print('# %d seen, %d lost' % (seen, lost))
print('ok it is told what it has missed' if told() else 'not ok it is told what it has missed')
sys.exit(not told())
PY

for n in $(seq 5); do
	watcher "$dir/more.$n"
done
adm --mode system --op watch
is "not more than 8 watch" refused "invalid request"
kill "${watchers[0]}"
wait "${watchers[0]}" 2>/dev/null
again() {
	for _ in $(seq 100); do
		timeout 1 "$bin/tgtadm" --mode system --op watch >"$dir/again" 2>/dev/null
		grep -q watching "$dir/again" && return 0
	done
	return 1
}
is "one that goes makes room" again
adm --mode system --op watch --name nothing
is "kinds that there are not are refused" refused "invalid request"
adm --mode target --op watch
is "there is nothing else to watch" test "$rc" = 22
is "no report" no_report
is "it ends with 0 while some watch" daemon_stop
kill "${watchers[@]}" 2>/dev/null
finish 20
