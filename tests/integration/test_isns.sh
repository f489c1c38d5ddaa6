#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Targets and portals are registered with an iSNS server (a stand-in, isns_server.py), follow changes, are taken
# back with Off and at the end; a server that is not there, silent, or answers nonsense holds nothing up.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.tgtd.test:isns
server=
trap '[ -n "$server" ] && kill $server 2>/dev/null; daemon_kill; rm -rf "$dir"' EXIT
mode() { echo "$1" >"$dir/mode"; }
mode good
python3 tests/integration/isns_server.py "$dir/isns.port" "$dir/isns.log" "$dir/mode" &
server=$!
for _ in $(seq 100); do [ -s "$dir/isns.port" ] && break; sleep 0.1; done
isns_port=$(cat "$dir/isns.port")

daemon_start ours
system() { adm --op update --mode system --name "$1" --value "$2"; }
target() { adm --op new --mode target --tid "$1" -T "$iqn$1"; }
# The last line of the log, once there are N more of them than before.
lines=0
next() {
	for _ in $(seq "${2:-100}"); do
		[ "$(wc -l <"$dir/isns.log")" -ge $((lines + $1)) ] && break
		sleep 0.1
	done
	[ "$(wc -l <"$dir/isns.log")" -ge $((lines + $1)) ] || return 1
	lines=$(wc -l <"$dir/isns.log")
	out=$(tail -1 "$dir/isns.log")
}
touch "$dir/isns.log"

target 1
target 2
system iSNS On
is "without a server's address it is refused" test "$rc" = 22
system iSNSServerIP 127.0.0.1
system iSNSServerPort "$isns_port"
system iSNSAccessControl On
system iSNS On
is "access control by iSNS is refused, not pretended" test "$rc" = 22
system iSNSAccessControl Off
system iSNS On
is "iSNS On" test "$rc" = 0
adm --op show --mode system
is "it is shown" has_line "    iSNS=On"
is "a registration comes" next 1
registered() {
	local want="REG 9c00 32=${iqn}1 1=ENTITY 0= 1=ENTITY 2=2 6=300 16=127.0.0.1 17=$port 32=${iqn}1 33=1 32=${iqn}2 33=1"
	[ "$(printf '%s\n' "$out" | sed -E 's/ 1=[^ ]*\.tgtd-0/ 1=ENTITY/g')" = "$want" ]
}
is "with the entity, the portal and both targets" registered
adm --op show --mode system --name config
is "it is in the configuration that is written out" has "iSNS On"
target 3
is "a target is made: registered anew" next 1
is "... with it" has "32=${iqn}3 33=1"
adm --op delete --mode target --tid 1
is "a target is deleted: registered anew" next 1
is "... without it" not has "${iqn}1"
portal2=127.0.0.1:$(pick_port)
adm --op new --mode portal --param portal="$portal2"
is "a portal is made: registered anew" next 1
is "... with it" has "17=${portal2#*:}"
for tid in $(seq 10 409); do target "$tid"; done
sleep 1
lines=$(wc -l <"$dir/isns.log")
adm --op delete --mode target --tid 409
is "many targets take several messages" next 3
out=$(tail -3 "$dir/isns.log")
many() {
	[ "$(printf '%s\n' "$out" | tr ' ' '\n' | grep -c "^33=1")" = 401 ] &&
		[ "$(printf '%s\n' "$out" | cut -d' ' -f1,2 | tr '\n' ' ')" = "REG 9c00 REG 8c00 REG 8c00 " ]
}
is "... the first of which replaces what was known" many

# Servers that do not behave: the administrator does not feel it, and it goes on when they do again.
for bad in slow refuse silent close garbage; do
	mode $bad
	lines=$(wc -l <"$dir/isns.log")
	adm --op delete --mode target --tid 408
	start=$(date +%s%N)
	target 408
	took=$((($(date +%s%N) - start) / 1000000))
	is "a server that is $bad: the target is made at once" test "$rc" = 0 -a $took -lt 2000
	is "... and the server was asked" next 1
done
mode good
lines=$(wc -l <"$dir/isns.log")
is "when it answers well again all is registered" next 3 150
lines=$(wc -l <"$dir/isns.log")
system iSNS Off
is "iSNS Off" test "$rc" = 0
is "takes the registration back" next 1
is "... all of the entity" has "DEREG 8c00 32=${iqn}2 0= 1="
system iSNSServerPort 1
system iSNS On
is "a server that is not there is no fault of the command" test "$rc" = 0
sleep 0.5
system iSNSServerPort "$isns_port"
system iSNS On
is "another server is registered with" next 3
daemon_stop
rc=$?
is "the daemon ends with 0" test $rc = 0
is "... and has taken its registration back" next 1
is "... at its end" has "DEREG"
out=$(grep WRONG "$dir/isns.log")
is "each message was well-formed" test -z "$out"

# tgt-admin, whatever the order in its file
mode good
daemon_start ours
printf 'iSNS On\niSNSServerIP 127.0.0.1\niSNSServerPort %s\n<target %s1>\n</target>\n' "$isns_port" $iqn >"$dir/targets.conf"
lines=$(wc -l <"$dir/isns.log")
out=$("$bin/tgt-admin" -e -c "$dir/targets.conf" 2>&1)
rc=$?
is "tgt-admin takes it from targets.conf" test $rc = 0
is "... and the daemon registers" next 1
is "... the target of that file" has "32=${iqn}1 33=1"
out=$("$bin/tgt-admin" --dump 2>&1)
is "tgt-admin --dump has it" has "iSNS On"
is "it ends with 0" daemon_stop

# A silent server does not hold up the end.
mode silent
daemon_start ours
target 1
system iSNSServerIP 127.0.0.1
system iSNSServerPort "$isns_port"
system iSNS On
next 1
start=$SECONDS
daemon_stop
rc=$?
is "a silent server does not hold up the daemon's end" test $rc = 0 -a $((SECONDS - start)) -le 4
finish 60
