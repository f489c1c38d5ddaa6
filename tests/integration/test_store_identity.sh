#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# C1: a store is what it is, not what it is called: other names of one are one, other stores of one
# name are others. Two views of one store have one cache or are refused.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
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
adm -m lu -o update -t 1 -l 1 -P refresh=1
is "a look at the first one" done_silently
is "says that its name is another's" grep -q "/a: is another store by now" "$dir/log"

lu 3 "$dir/old"
is "a hard link is the same store: refused, with whose it is" busy "target 1, LUN 1 has it open for writing"
ln -s "$dir/old" "$dir/link"
lu 3 "$dir/link"
is "a symbolic link, too" busy "target 1, LUN 1 has it open for writing"
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
finish
