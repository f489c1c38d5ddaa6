#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A portal without an address is all addresses, IPv4's and IPv6's, as with tgt; and an initiator is told of
# addresses that it can reach.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.tgtd.test:portals
six() { python3 -c 'import socket; socket.socket(socket.AF_INET6).bind(("::1", 0))' 2>/dev/null; }
target_addresses() { # HOST PORT: what SendTargets says
	out=$(python3 - "$1" "$2" <<'EOP'
import socket, struct, sys
sys.path.insert(0, 'tests/support')
sys.dont_write_bytecode = True
from iscsi_peer import NONE, Peer, pdu
if ':' in sys.argv[1]:
    socket.socket = lambda make=socket.socket: make(socket.AF_INET6)
p = Peer(address=(sys.argv[1], int(sys.argv[2]))).login(session='Discovery')
p.send(pdu(0x44, 0x80, 0, 5, struct.pack('>III', NONE, p.cmdsn, p.statsn), b'SendTargets=All\0'))
for key in p.recv()[1].decode().split('\0'):
    if key.startswith('TargetAddress='):
        print(key[14:])
EOP
	)
}
is_text() { [ "$out" = "$1" ]; }
both=$(pick_port) only=$(pick_port)
daemon_start ours --iscsi "portal=:$both"
adm --op new --mode target --tid 1 -T $iqn
adm --op bind --mode target --tid 1 -I ALL
adm --mode portal --op show
is "all addresses of IPv4" has_line "Portal: 0.0.0.0:$both,1"
if ! six; then
	echo "ok IPv6 # SKIP no IPv6 here"
	finish
fi
is "and of IPv6" has_line "Portal: [::]:$both,1"
adm --mode portal --op new --param "portal=[::]:$only"
is "one of IPv6 only" done_silently
target_addresses 127.0.0.1 "$both"
is "IPv4: no address twice, none that only IPv6 reaches" is_text "127.0.0.1:$port,1
127.0.0.1:$both,1"
target_addresses ::1 "$both"
is "IPv6 is served, and told of its own" is_text "127.0.0.1:$port,1
[::1]:$both,1
[::1]:$only,1"
adm --mode portal --op new --param "portal=:$both"
is "not twice" test "$rc" = 22
adm --mode portal --op delete --param "portal=0.0.0.0:$both"
adm --mode portal --op new --param "portal=:$both"
is "what is missing is added" done_silently
adm --mode portal --op delete --param "portal=:$both"
is "both go" done_silently
adm --mode portal --op show
is "and are gone" not has ":$both,"
adm --mode portal --op delete --param "portal=:$both"
is "once" test "$rc" = 22
python3 -c 'import socket, sys, time
s = socket.create_server(("0.0.0.0", int(sys.argv[1]))); print(flush=True); time.sleep(60)' "$both" >"$dir/taken" &
taken=$!
while [ ! -s "$dir/taken" ]; do sleep 0.05; done
adm --mode portal --op new --param "portal=:$both"
is "a port that is taken in one of them is refused" test "$rc" = 22
adm --mode portal --op show
is "and nothing is left of it" not has ":$both,"
kill $taken
wait $taken 2>/dev/null
out=
is "it ends with 0" daemon_stop
is "no report" no_report
finish
