#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Defect C11: tgtd is killed with acknowledged data in its cache. The next one must not say GOOD to a SYNCHRONIZE CACHE
# (nor to a write with FUA) over it: not until an administrator has looked after the store.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.example:loss
loop=
mounted=
trap 'daemon_kill; [ -z "$mounted" ] || umount "$mounted"; [ -z "$loop" ] || losetup -d "$loop"; rm -rf "$dir"' EXIT
truncate -s 64M "$dir/a.img"

# start STORE OPTIONS-OF-new -- OPTIONS-OF-tgtd: LUN 1 on the store
start() {
	local store=$1 opts=()
	shift
	while [ $# -gt 0 ] && [ "$1" != -- ]; do opts+=("$1"); shift; done
	shift
	daemon_start ours "$@"
	adm --mode target --op new --tid 1 --targetname $iqn
	adm --mode target --op bind --tid 1 -I ALL
	adm --mode logicalunit --op new --tid 1 --lun 1 -b "$store" "${opts[@]}"
	[ "$rc" = 0 ] || echo "# LUN 1: $out"
}

# io OP...: what LUN 1 answers, a word each in $out: "good", KEY/ASC in hex, or what was read. Two such words stand for
# writing and comparing 4 KiB of that byte: write=N fua=N caw=N verify=N (at LBA 64), read, sync.
io() {
	out=$(timeout 60 python3 -B - "$port" $iqn "$@" 2>&1 <<'PY'
import struct, sys
sys.path.insert(0, 'tests/support')
from iscsi_peer import Peer

Peer.address, Peer.target = ('127.0.0.1', int(sys.argv[1])), sys.argv[2]
p = Peer().login().ready()
AT, LEN = 64, 4096


def answer():
    whole = b''
    while True:
        head, data = p.recv()
        if struct.unpack('>I', head[16:20])[0] != p.itt - 1:
            continue
        if head[0] == 0x25:
            whole += data
            if not head[1] & 1:
                continue
        if head[3] == 2:
            return '%x/%02x%02x' % (data[2 + 2] & 15, data[2 + 12], data[2 + 13])
        if head[3]:
            return 'status-%x' % head[3]
        return str(whole[0]) if whole else 'good'


def run(op):
    name, _, value = op.partition('=')
    data = bytes([int(value or 0)]) * LEN
    if name == 'read':
        p.out(p.read(AT, 8))
    elif name == 'sync':
        p.out(p.command(struct.pack('>BB', 0x35, 0), 0x81))
    elif name == 'caw':  # one block; what is there is what is written
        p.out(p.command(struct.pack('>BBQxxxBxx', 0x89, 8, AT, 1), 0xa1, 1024, data[:1024]))
    else:
        code, fua = {'write': (0x2a, 0), 'fua': (0x2a, 8), 'verify': (0x2e, 0)}[name]
        p.out(p.command(struct.pack('>BBIxHx', code, fua, AT, 8), 0xa1, LEN, data))
    return answer()


print(*[run(op) for op in sys.argv[3:]])
p.logout()
PY
	)
}
answers() { # WHAT OP...
	local want=$1
	shift
	io "$@"
	[ "$out" = "$want" ]
}
records() { find "$dir/state" -name 'dirty-*' | wc -l; }
until_records() { # HOW MANY, within 20 s
	for _ in $(seq 200); do
		[ "$(records)" = "$1" ] && return 0
		sleep 0.1
	done
	out="$(records) records, not $1"
	return 1
}
log_has() { grep -qF -- "$1" "$dir/log"; }
shows_doubt() { # of LUN 1, in both places
	adm --mode cache --op stat --tid 1 --lun 1
	has "In doubt: $1" || return 1
	adm --mode target --op show
	has "In doubt: $1"
}
trust() { adm --mode logicalunit --op update --tid 1 --lun 1 --params refresh=1; }

# Killed before write-back, which begins after three seconds: the loop until that was so. Fails when it never was.
lose() { # STORE
	local try
	for try in $(seq 50 79); do
		start "$1" -- || return 1
		io write="$try" || return 1
		[ "$out" = good ] || return 1
		daemon_kill
		# what was acknowledged is not there: then it is lost
		[ "$(dd if="$1" bs=512 skip=64 count=1 iflag=direct 2>/dev/null | od -An -tu1 -N1 | tr -d ' ')" = "$try" ] || return 0
		rm -f "$dir"/state/dirty-* # it was written back first: once more
	done
	return 1
}

loses_and_says_so() { # STORE WHAT
	is "$2: a write is acknowledged, and tgtd killed" lose "$1"
	start "$1" --
	is "$2: the next one says in its log that data is lost" log_has "IN DOUBT"
	is "$2: SYNC and FUA fail, and WRITE AND VERIFY" answers "3/0c00 3/0c00 3/0c00" sync fua=7 verify=8
	is "$2: plain reads and writes go on" answers "good 9" write=9 read
	is "$2: COMPARE AND WRITE with FUA fails, and has not written" answers "3/0c00 9" caw=9 read
	is "$2: tgtadm says so" shows_doubt "an earlier tgtd ended"
	daemon_kill
	start "$1" --
	is "$2: a kill later it is in doubt as before" answers "3/0c00" sync
	is "$2: it ends with 0" daemon_stop
	start "$1" --
	is "$2: and after a regular end" answers "3/0c00" sync
	trust
	is "$2: refresh=1 ends that" done_silently
	is "$2: SYNC and FUA are GOOD again" answers "good good 8" sync fua=8 read
	is "$2: tgtadm does not speak of it any more" not shows_doubt ""
	is "$2: the record goes" until_records 0
	daemon_kill
	start "$1" --
	is "$2: it was clean: nothing is in doubt after a kill" answers "good" sync
	is "$2: it ends with 0" daemon_stop
}
loses_and_says_so "$dir/a.img" "a file"

start "$dir/a.img" --
io write=1
is "a record is there while data is dirty" until_records 1
is "a regular end writes back" daemon_stop
is "and leaves no record" until_records 0
start "$dir/a.img" --
is "nothing is in doubt then" answers "1 good" read sync
is "no word of doubt in the log" not log_has "IN DOUBT"
is "it ends with 0" daemon_stop

start "$dir/a.img" --params write_cache=off --
is "write-through" answers "good good" write=2 sync
is "write-through needs no record" until_records 0
is "it ends with 0" daemon_stop

# Who opens it does not matter, nor what it is called by now.
is "a write is acknowledged, and tgtd killed again" lose "$dir/a.img"
start "$dir/a.img" --params write_cache=off --
is "a write-through unit is in doubt, too" answers "3/0c00 3/0c00 good" sync fua=3 write=3
daemon_kill
start "$dir/a.img" --bsopts cache=none --
is "one without a cache, too" answers "3/0c00 3/0c00 good 4" sync fua=3 write=4 read
daemon_kill
mv "$dir/a.img" "$dir/b.img"
truncate -s 64M "$dir/a.img"
start "$dir/a.img" --
is "another file under the old name is not in doubt" answers "good" sync
is "it ends with 0" daemon_stop
start "$dir/b.img" --bsopts cache=none --
is "the file under another name is" answers "3/0c00" sync
trust
is "it is trusted without a cache" answers "good good" sync fua=4
is "its record is gone" until_records 0
daemon_stop

is "a write is acknowledged, and tgtd killed once more" lose "$dir/a.img"
start "$dir/a.img" -- --after-loss=accept
is "--after-loss=accept: a warning" log_has "may be LOST, which --after-loss=accept takes for known"
is "--after-loss=accept: as if nothing were" answers "good good" sync fua=5
is "it ends with 0" daemon_stop
is "--after-loss=accept: the record is dropped" until_records 0

# A record that cannot be read says enough.
is "a write is acknowledged, and tgtd killed for a damaged record" lose "$dir/a.img"
for f in "$dir"/state/dirty-*; do truncate -s 30 "$f"; done
start "$dir/a.img" --
is "a damaged record is a doubt" answers "3/0c00" sync
is "and called so" shows_doubt "there is a record of data that was not written back, but it is damaged"
trust
is "refresh=1 ends that as well" answers "good" sync
daemon_stop

# Killed, but its parent has not looked yet (in a container, nobody may ever): a process without memory has no data.
cat >"$dir/parent.py" <<'PY'
import subprocess, sys
print(subprocess.Popen(sys.argv[1:]).pid, flush=True)
sys.stdin.read()
PY
mkfifo "$dir/stay"
exec 7<>"$dir/stay"
python3 -B "$dir/parent.py" "$bin/tgtd" -f -C 0 --no-keeper --state-dir "$dir/state" \
	--cache size=32m --iscsi "portal=127.0.0.1:$port,nop_interval=0,nop_count=0" <"$dir/stay" >"$dir/child" 2>"$dir/log" &
parent=$!
for _ in $(seq 300); do
	adm --mode system --op show
	[ "$rc" = 0 ] && break
	sleep 0.1
done
adm --mode target --op new --tid 1 --targetname $iqn
adm --mode target --op bind --tid 1 -I ALL
adm --mode logicalunit --op new --tid 1 --lun 1 -b "$dir/a.img"
is "a write is acknowledged by another's child" answers "good" write=1
child=$(cat "$dir/child")
kill -9 "$child"
for _ in $(seq 100); do
	grep -q '^State:.Z' "/proc/$child/status" && break
	sleep 0.1
done
start "$dir/a.img" --
is "one that nobody has waited for has lost its data, too" answers "3/0c00" sync
kill $parent
wait $parent 2>/dev/null
exec 7>&-
trust
is "refresh=1 ends that" answers "good" sync
daemon_stop

# Records cannot be made: nothing is acknowledged that is not stable.
start "$dir/a.img" --
mv "$dir/state" "$dir/gone"
is "no record can be made: writes go on" answers "good 77" write=77 read
is "the log says why" log_has "no record of what is dirty can be made"
adm --mode cache --op stat --tid 1 --lun 1
is "and tgtadm" has "Write-back: off while the state directory takes no record of what is dirty"
is "what was acknowledged is in the store" test \
	"$(dd if="$dir/a.img" bs=512 skip=64 count=1 iflag=direct 2>/dev/null | od -An -tu1 -N1 | tr -d ' ')" = 77
mv "$dir/gone" "$dir/state"
is "it ends with 0" daemon_stop

touch "$dir/no-directory"
start "$dir/a.img" -- --state-dir "$dir/no-directory"
is "no state directory: a warning" log_has "the next one will not know"
adm --mode cache --op show
is "no state directory: tgtadm says what that means" has "After loss: not noticed: the state directory cannot be written to"
is "no state directory: as ever" answers "good good" write=1 sync
is "it ends with 0" daemon_stop

# The state directory's file system can only be read by now (as after an error of its own).
if mount -t tmpfs none "$dir/state" 2>/dev/null; then
	mounted=$dir/state
	is "a write is acknowledged, and tgtd killed, with state that is read-only then" lose "$dir/a.img"
	mount -o remount,ro "$dir/state"
	start "$dir/a.img" --
	is "what an earlier one has left counts" answers "3/0c00 3/0c00" sync fua=1
	trust
	is "refresh=1 cannot end that for good, and says so" not done_silently
	is "nor does it for now" answers "3/0c00" sync
	is "it ends with 0" daemon_stop
	mount -o remount,rw "$dir/state"
	start "$dir/a.img" --
	trust
	is "refresh=1 does when it can be written to" answers "good" sync
	daemon_stop
	umount "$dir/state" && mounted=
else
	echo "ok read-only state # SKIP nothing can be mounted here"
fi

if loop=$(losetup -f --show --direct-io=on "$dir/b.img" 2>/dev/null); then
	loses_and_says_so "$loop" "a disk"
else
	loop=
	echo "ok a disk # SKIP no loop device can be had here"
fi
is "no sanitizer has anything to say" no_report
finish
