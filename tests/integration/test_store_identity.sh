#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# C1: a store is what it is, not what it is called: other names of one are one, other stores of one
# name are others. Two views of one store have one cache or are refused. A store whose name leads to
# another one by now is said by the next show and the next update of its unit, which a name that
# hangs does not stop (tests/preload/late_name.c).
set -u
cd "$(dirname "$0")/../.." || exit 1
# Bind mounts are nobody else's.
[ -n "${IDENTITY_NS-}" ] || ! unshare -m true 2>/dev/null || IDENTITY_NS=1 exec unshare -m "$BASH" "$0" "$@"
. tests/integration/admin_lib.sh
. tests/integration/worker_lib.sh
may_restart=
iqn=iqn.2026-11.org.example:identity
loop=
loops=()
trap 'daemon_kill; for l in $loop "${loops[@]}"; do losetup -d "$l"; done; rm -rf "$dir"' EXIT

# put LUN CHAR: writes one block of these at 0, and synchronizes.
cat >"$dir/peer.py" <<'END2'
import os, sys
sys.path.insert(0, 'tests/support')
from iscsi_peer import Peer
Peer.address, Peer.target = ('127.0.0.1', int(sys.argv[1])), sys.argv[2]
peer = Peer()
peer.name += '-%u' % os.getpid()
peer.login()
lun, char = int(sys.argv[3]), sys.argv[4].encode()


def ask(p):
    peer.out(p)
    return peer.wait_status(peer.itt - 1)[1]


while ask(peer.command(b'', 0x80, lun=lun)):
    pass
bad = ask(peer.write(0, 1, char * 512, lun=lun))
bad |= ask(peer.command(b'\x35', 0x80, lun=lun))
sys.exit(bad)
END2
put() { timeout 30 python3 -B "$dir/peer.py" "$port" "$iqn" "$1" "$2"; }
begins_with() { [ "$(head -c 4 "$1")" = "$2$2$2$2" ]; }
lu() { adm -m lu -o new -t 1 -l "$1" -b "$2" ${3:+-S "$3"}; }
busy() { [ "$rc" = 22 ] && tail -1 "$dir/log" | grep -qF "in use: $1"; } # the reason is in the log
show() { adm -m target -o show; }
another_by_now="is another store by now: what was opened is served"
gone_by_now="is not there by this name any more (No such file or directory): what was opened is served"
# The numbers of the units of which show says that, as text and as JSON.
replaced() {
	show
	text=$(printf '%s\n' "$out" | sed -n "s/^        LUN: //p; s/^            Replaced: its path $1\$/!/p" |
		tr '\n' ' ' | grep -oE '[0-9]+ !' | tr -d ' !' | tr '\n' ' ')
	adm --json -m target -o show
	json=$(printf '%s' "$out" | python3 -c 'import json, sys
print(*[l["lun"] for t in json.load(sys.stdin)["targets"] for l in t["luns"] if l["replaced"] == "its path " + sys.argv[1]])' "$1")
	[ "$text" = "${json:+$json }" ] || text="text $text, JSON $json"
	echo "$text" | sed 's/ $//'
}
# A name is looked at once a second.
next_look() { sleep 1.1; }
update_says() { # WARNING ARGS...
	local says=$1
	shift
	adm -m lu -o update -t 1 "$@"
	said 0 "${says:+tgtadm: warning: $says}"
}
tgt_admin_says() {
	"$bin/tgt-admin" --dump >"$dir/conf" && out=$("$bin/tgt-admin" -c "$dir/conf" --update ALL 2>&1)
	rc=$?
	said 0 "${1:+warning: $1}"
}

truncate -s 8M "$dir/a" "$dir/new"
daemon_start ours
adm -m target -o new -t 1 -T "$iqn"
adm -m target -o bind -t 1 -I ALL
lu 1 "$dir/a"
is "the first file" put 1 x
ln "$dir/a" "$dir/old"
mv "$dir/new" "$dir/a"
lu 2 "$dir/a"
is "another file by the same name is opened" done_silently
is "and the log says that it is another" grep -q "is not the store any more that target 1, LUN 1 has" "$dir/log"
is "it is written to" put 2 y
is "and has what was written" begins_with "$dir/a" y
is "the first one is as it was" begins_with "$dir/old" x
next_look
is "show says whose name is another's" test "$(replaced "$another_by_now")" = 1
is "... and the log, once" test "$(grep -c "/a: $another_by_now" "$dir/log")" = 1
is "an update of it says so, too" update_says "target 1 LUN 1: $dir/a: $another_by_now" -l 1 -P refresh=1
is "... any of them" update_says "target 1 LUN 1: $dir/a: $another_by_now" -l 1 -P online=1
is "... of this unit alone" update_says "" -l 2 -P online=1
is "tgt-admin says so, who finds nothing to do" tgt_admin_says "target 1 LUN 1: $dir/a: $another_by_now"
mv "$dir/a" "$dir/moved"
next_look
is "a name that is nothing's: an update says it" update_says "target 1 LUN 2: $dir/a: $gone_by_now" -l 2 -P online=1
is "... and show, of both" test "$(replaced "$gone_by_now")" = "1 2"
is "... and tgt-admin" tgt_admin_says "target 1 LUN 1: $dir/a: $gone_by_now
warning: target 1 LUN 2: $dir/a: $gone_by_now"
mv "$dir/moved" "$dir/a"
next_look
is "it is there again: the other's alone" test "$(replaced "$another_by_now")" = 1
is "... of which nothing is said as before" test "$(replaced "$gone_by_now")" = ""
is "... as the log says" grep -q "/a: is the store again that was opened" "$dir/log"

lu 3 "$dir/old"
is "a hard link is the same store: refused, with whose it is" busy "target 1, LUN 1 has it open for writing"
ln -s "$dir/old" "$dir/link"
lu 3 "$dir/link"
is "a symbolic link, too" busy "target 1, LUN 1 has it open for writing"
if touch "$dir/bound" && [ -n "${IDENTITY_NS-}" ] && mount --bind "$dir/old" "$dir/bound" 2>/dev/null; then
	lu 3 "$dir/bound"
	is "a bind mount of the file, too" busy "target 1, LUN 1 has it open for writing"
	umount "$dir/bound"
	mkdir "$dir/folder"
	mount --bind "$dir" "$dir/folder"
	lu 3 "$dir/folder/old"
	is "and one of its folder" busy "target 1, LUN 1 has it open for writing"
	umount "$dir/folder"
else
	echo "ok a bind mount of the file # SKIP nothing can be mounted here"
fi
lu 3 "$dir/old" cache=none
is "without the cache beside it: refused" busy "target 1, LUN 1 has it open, with the cache"
lu 3 "$dir/old" share=yes
is "shared: taken" done_silently
is "and written to" put 3 z
adm -m lu -o delete -t 1 -l 1
lu 4 "$dir/old"
is "who is left has it still" busy "target 1, LUN 3 has it open for writing"
adm -m lu -o delete -t 1 -l 3
lu 4 "$dir/old"
is "nobody has it: taken" done_silently
is "what was written by the other name is there" begins_with "$dir/old" z

truncate -s 8M "$dir/disk"
if loop=$(losetup -f --show "$dir/disk" 2>/dev/null) && mknod "$dir/node" b "$(printf %d "0x$(stat -c %t "$loop")")" \
	"$(printf %d "0x$(stat -c %T "$loop")")" && : <"$dir/node"; then
	lu 5 "$loop"
	is "a loop device" done_silently
	lu 6 "$dir/node"
	is "another node of it: refused" busy "target 1, LUN 5 has it open for writing"
	lu 6 "$dir/disk"
	is "its file: refused" busy "target 1, LUN 5 has a store open that lies on it"
	lu 6 "$dir/node" share=yes
	is "another node, shared: taken" done_silently
	is "it is written to" put 6 q
	is "through one cache" begins_with "$loop" q
	for part in "" "-o 4M" "--sizelimit 4M"; do
		# shellcheck disable=SC2086
		loops+=("$(losetup -f --show $part "$dir/disk")")
	done
	for l in "${loops[@]}"; do
		lu 7 "$l"
		is "another loop device of its file: refused" busy \
			"target 1, LUN 5 has another loop device of the same file open"
	done
	ln "$dir/disk" "$dir/disk2"
	rm "$dir/disk"
	adm -m lu -o delete -t 1 -l 5
	adm -m lu -o delete -t 1 -l 6
	lu 5 "${loops[0]}"
	lu 6 "$dir/disk2"
	is "its file, of which the name is gone: refused" busy "target 1, LUN 5 has a store open that lies on it"
	adm -m lu -o delete -t 1 -l 5
	lu 5 "${loops[1]}"
	is "one half of the file" done_silently
	lu 6 "${loops[2]}"
	is "and the other" done_silently
else
	echo "ok another node of a device # SKIP no loop device to be had"
fi
is "no report" no_report
is "it ends" daemon_stop

# ---- who asks about a name may wait for a dead server
if sanitized; then
	echo "ok a name that hangs # SKIP sanitizers want to be the first library"
	finish
fi
export LATE_NAME=$dir/hangs
rm -rf "$dir/state"
truncate -s 8M "$dir/late-a" "$dir/late-b" "$dir/well" "$dir/new"
LD_PRELOAD=$(preloaded late_name) daemon_start ours --seccomp off
adm -m target -o new -t 1 -T "$iqn"
for at in 1:late-a 2:late-b 3:well; do
	lu "${at%:*}" "$dir/${at#*:}"
done
touch "$LATE_NAME"
mv "$dir/new" "$dir/well"
next_look
# Runs a command, which takes $ms milliseconds.
timed() {
	local began
	began=$(date +%s%N)
	"$@"
	ms=$((($(date +%s%N) - began) / 1000000))
}
# (The first waits for the answer a little; none waits for it for long.)
timed show
is "two names hang: show answers all the same, after $ms ms" test "$ms" -lt 3000
timed adm -m lu -o update -t 1 -l 1 -P online=1
is "... and an update of such a unit, after $ms ms" test "$ms" -lt 3000
is "... which is done" done_silently
is "the third is noticed" test "$(replaced "$another_by_now")" = 3
mv "$dir/late-a" "$dir/late-c"
rm "$LATE_NAME"
next_look
is "they answer: what happened meanwhile is noticed" test "$(replaced "$gone_by_now")" = 1
touch "$LATE_NAME"
next_look
show
is "while they hang what was known last is shown" test "$(replaced "$gone_by_now")" = 1
threads=$(grep -l tgtd-library "/proc/$worker/task/"*/comm | wc -l)
for _ in 1 2 3; do next_look && show; done
is "no more threads wait for that than did, $threads" test "$(grep -l tgtd-library "/proc/$worker/task/"*/comm | wc -l)" -le "$threads"
kill -9 "$worker"
is "another worker, while they hang" another
may_restart=1
timed daemon_stop
is "the daemon ends while they hang, after $ms ms" test "$ms" -lt 20000
finish
