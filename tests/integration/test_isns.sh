#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Targets and portals are registered with an iSNS server (a stand-in, isns_server.py), follow changes, are taken
# back with Off and at the end; a server that is not there, silent, or answers nonsense holds nothing up. It may ask
# whether we live, and say that something has changed; and with access control it says who may log in.
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
	for _ in $(seq "${2:-300}"); do
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
system iSNS On
is "iSNS On" test "$rc" = 0
adm --op show --mode system
is "it is shown" has_line "    iSNS=On"
is "a registration comes" next 1
registered() {
	local want="REG 9c00 32=${iqn}1 1=ENTITY 0= 1=ENTITY 2=2 6=300 16=127.0.0.1 17=$port 19=60 20=PORT 23=PORT 32=${iqn}1 33=1 32=${iqn}2 33=1"
	[ "$(printf '%s\n' "$out" | sed -E 's/ 1=[^ ]*\.tgtd-0/ 1=ENTITY/g; s/ (20|23)=[0-9]+/ \1=PORT/g')" = "$want" ]
}
is "with the entity, the portal and both targets" registered
entity=$(printf '%s\n' "$out" | sed -E 's/.* 1=([^ ]*) 2=.*/\1/')
ask_port=$(printf '%s\n' "$out" | sed -E 's/.* 20=([0-9]*).*/\1/')
[ "$(printf '%s\n' "$out" | sed -E 's/.* 23=([0-9]*).*/\1/')" = "$ask_port" ] || ask_port=0
ask() { out=$(timeout 30 python3 tests/integration/isns_server.py ask "$ask_port" "$@" 2>&1); }
more() { # until PATTERN is in the other messages, COUNT times in all
	for _ in $(seq "${3:-300}"); do
		[ "$(grep -cE "$1" "$dir/isns.log.more")" -ge "${2:-1}" ] && return 0
		sleep 0.1
	done
	out=$(tail -5 "$dir/isns.log.more")
	return 1
}
scnreg() { more "^SCNREG 8c00 32=$iqn$1 32=$iqn$1 0= 35=156\$"; }
is "each target is registered for changes of initiators and its own: the first" scnreg 1
is "... and the second" scnreg 2

# Questions of the server's
ask esi "$entity" 127.0.0.1 "$port"
is "an ESI is answered with what was asked" test "$out" = "0 as asked"
ask esi someone.else 127.0.0.1 "$port"
is "... but for nobody else" test "$out" = "9 as asked"
ask scn "${iqn}2" iqn.2026-11.org.tgtd.test:somebody
is "an SCN is answered with the name of the node" test "$out" = "0 as asked"
is "... and the server is asked what it knows" more "^QRY 8c00 32=${iqn}1 1=$entity 0= 16= 17= 32=\$"
ask scn "${iqn}7" iqn.2026-11.org.tgtd.test:somebody
is "... but not for a node that is not ours" test "$out" = "9 as asked"
ask unknown
is "what is not known is answered so" test "$out" = "15 as asked"
head -c 5000 /dev/urandom >"$dir/random"
ask "$dir/random"
is "nonsense ends the connection" test "$out" = "0 bytes"
: >"$dir/nothing"
for _ in $(seq 40); do ask "$dir/nothing"; done
exec 7<>"/dev/tcp/127.0.0.1/$ask_port"
for _ in $(seq 12); do eval "exec {fd}<>/dev/tcp/127.0.0.1/$ask_port" 2>/dev/null && held="${held:-} $fd"; done
ask esi "$entity" 127.0.0.1 "$port"
is "connections of others do not keep the server out" test "$out" = "0 as asked"
exec 7>&-
for fd in ${held:-}; do eval "exec $fd>&-"; done
n=$(wc -l <"$dir/isns.log")
sleep 1.5
is "an SCN does not make us register anew" test "$(wc -l <"$dir/isns.log")" = "$n"

# Who may log in
a=iqn.2026-11.org.tgtd.test:initiator-a
b=iqn.2026-11.org.tgtd.test:initiator-b
adm --op bind --mode target --tid 1 -I ALL
adm --op bind --mode target --tid 2 -Q $a
may_log_in() { iscsi-inq -i "$1" "iscsi://127.0.0.1:$port/$iqn$2/0" >"$dir/inq" 2>&1; }
# On a busy machine an exchange may fail after 5 s, and is tried again 5 s later.
soon() { for _ in $(seq 300); do "$@" && return 0; sleep 0.1; done; return 1; }
is "without access control the server is not asked" may_log_in $b 1
is "... for anything but what it knows of us" not grep -q " 33=2 " "$dir/isns.log.more"
system iSNSAccessControl On
is "access control is switched on" test "$rc" = 0
is "at once nobody comes in whom the server has not named" not may_log_in $b 1
is "the server is asked for the initiators of each target" more "^QRY 8c00 32=${iqn}2 33=2 0= 32=\$"
is "... and names nobody" not may_log_in $a 1
printf '%s %s\n' "${iqn}1" $a "${iqn}1" "$(echo $b | tr a-z A-Z)" "${iqn}2" $b >"$dir/mode.initiators"
ask scn "${iqn}1" $a
is "after an SCN it is asked again: a is in" soon may_log_in $a 1
is "... and b, whatever the case of its name" may_log_in $b 1
is "our own rules hold as well: a is not named" not may_log_in $a 2
is "... and b is no name of ours" not may_log_in $b 2
printf '%s %s\n' "${iqn}1" $b "${iqn}2" $a >"$dir/mode.initiators"
ask scn "${iqn}2" $a
is "a moves to the other target: in there" soon may_log_in $a 2
is "... and out here" not may_log_in $a 1
if command -v iscsi-ls >/dev/null; then
	out=$(iscsi-ls -i $a "iscsi://127.0.0.1:$port" 2>&1)
	is "discovery shows what may be logged in to" has "${iqn}2"
	is "... and nothing else" not has "${iqn}1"
fi
seq -f "${iqn}1 iqn.2026-11.org.tgtd.test:somebody-with-a-long-name-%06g" 4000 >"$dir/mode.initiators"
echo "${iqn}1 $a" >>"$dir/mode.initiators"
ask scn "${iqn}1" $a
is "thousands of initiators are named" soon may_log_in $a 1
system iSNSAccessControl Off
is "without access control again our own rules are all" may_log_in $b 1

# A server that has lost us
sleep 10
mode forgot
ask scn "${iqn}1" $a
is "a server that has lost us is told anew" next 1
is "... all of it" registered
mode once
adm --op delete --mode target --tid 2
is "a server that takes one question a connection: registered" next 1
n=$(grep -c "^SCNREG.*35=156" "$dir/isns.log.more")
target 2
is "... and so anew" next 1
is "... with each of its questions" more "^SCNREG" $((n + 2))
adm --op delete --mode target --tid 2
next 1
mode no-esi
target 2
is "a server that does not ask is registered with" next 2
is "... without its asking" not has " 20="
is "... but to be notified" has " 23=$ask_port"
mode good
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

# Targets that are bound to portals: what is registered is what serves
on() { adm --op "$1" --mode target --tid "$2" --portal "$3"; }
# What the last registration says of nodes, which follow the portals
nodes_are() {
	out=$(grep '^REG 9' "$dir/isns.log" | tail -1)
	[ "$(printf '%s\n' "$out" | sed 's/.* 23=[0-9]* //')" = "$1" ]
}
here="16=127.0.0.1 17=$port" not_here="49=127.0.0.1 50=$port 51="
on bind 2 "$portal2"
is "a target is bound to a portal: at the other one it has a portal group without a tag" \
	soon nodes_are "32=${iqn}2 33=1 $not_here 32=${iqn}3 33=1"
adm --op update --mode target --tid 3 --name portals --value "$portal2"
is "all are bound to it: nobody need say so" soon nodes_are "32=${iqn}2 33=1 32=${iqn}3 33=1"
is "... the portal that serves nobody is left out" not has "$here"
adm --op update --mode target --tid 3 --name portals --value 127.0.0.1:1
is "one is bound to a portal that is not there: it is left out" soon nodes_are "32=${iqn}2 33=1"
on unbind 2 "$portal2"
adm --op update --mode target --tid 3 --name portals --value ''
is "all are at all portals again" soon nodes_are "32=${iqn}2 33=1 32=${iqn}3 33=1"
is "... the first of them, too" has "$here"
# (Free at all addresses; others may be quicker.)
for _ in 1 2 3 4 5; do
	any=$(pick_port 0.0.0.0)
	adm --op new --mode portal --param portal="0.0.0.0:$any"
	[ "$rc" = 0 ] && break
done
is "a portal of all addresses" done_silently
on bind 3 "127.0.0.9:$any"
is "... and a target bound to one of them" done_silently
is "one is bound to one address of a portal of all addresses: it is there alone" soon nodes_are \
	"32=${iqn}2 33=1 32=${iqn}3 33=1 $not_here 49=127.0.0.1 50=${portal2#*:} 51= 49=127.0.0.1 50=$any 51="
is "... and that address is registered" has "16=127.0.0.9 17=$any"
on unbind 3 "127.0.0.9:$any"
adm --op delete --mode portal --param portal="0.0.0.0:$any"
is "... not any more" soon nodes_are "32=${iqn}2 33=1 32=${iqn}3 33=1"
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
is "when it answers well again all is registered" next 3
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
