#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# W7: target port groups are the administrator's: which ports are in which, their access states, the
# preferred one, the implicit transition time; what initiators at two portals are told, and what
# each state lets them do; as part of the configuration. And targets that are bound to portals. The
# initiator is answers.py.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.tgtd.test
conf=$dir/t.conf
export SECOND
update() { adm --op update --mode target --tid 1 --name "$1" --value "$2"; }
must() { [ "$rc" = 0 ] || { echo "not ok $*: $out"; failures=$((failures + 1)); }; }
shows() {
	adm --op show --mode target --tid 1
	is "shown: $1" has_line "$1"
}
# The initiator's next line, then what is to be done before it goes on.
go_on() {
	while IFS= read -r -t 60 line <&"${PEER[0]}"; do
		echo "$line"
		case $line in
		"not ok"*) failures=$((failures + 1)) ;;
		esac
		[ "$line" != "${line#*ok "$1"}" ] && return
	done
	echo "not ok the initiator does not come to: $1"
	failures=$((failures + 1))
}
second_portal() {
	for _ in 1 2 3 4 5; do
		SECOND=$(pick_port)
		adm --op new --mode portal --param "portal=127.0.0.1:$SECOND,2"
		[ "$rc" = 0 ] && return
	done
	echo "not ok no second portal: $out"
	exit 1
}
make_target() {
	adm --op new --mode target --tid 1 -T $iqn:answers
	adm --op bind --mode target --tid 1 -I ALL
	adm --op new --mode logicalunit --tid 1 --lun 1 --bstype ram --backing-store 8m
}

daemon_start ours
second_portal
make_target
update allow_explicit_alua Yes
coproc PEER { python3 tests/integration/answers.py "$port" port_groups 2>&1; }
go_on 'VPD 83h: ports'
update alua_groups 2=2
must a group
echo >&"${PEER[1]}"
go_on 'VPD 83h: groups'
update alua_preferred 1
update alua_transition_time 30
must times
# the preferred one is news, too: one attention for all of it
update alua_state '1=active-optimized;2=standby'
must states
shows 'alua_state=1=active-optimized;2=standby'
shows 'alua_groups=2=2'
shows 'alua_preferred=1'
shows 'alua_transition_time=30'
echo >&"${PEER[1]}"
go_on '... what standby takes'
tgt_dump() { "$bin/tgt-admin" --dump; }
tgt_dump >"$conf"
update alua_state '1=transitioning;2=unavailable'
echo >&"${PEER[1]}"
go_on '... and both are told'
update alua_state ''
echo >&"${PEER[1]}"
go_on '... the other one hears'
shows 'alua_state of LUN 1=1=standby;2=active-non-optimized'
update alua_state active-optimized
echo >&"${PEER[1]}"
cat <&"${PEER[0]}"
# what makes no sense is refused, and changes nothing
for bad in 'alua_state 2=offline' 'alua_state 2=standby;2=standby' 'alua_groups 2' 'alua_groups 2=3,3' \
	'alua_groups 0=1' 'alua_groups 2=1;' 'alua_preferred -1' 'alua_transition_time 256' 'alua_other 1'; do
	# shellcheck disable=SC2086
	update ${bad% *} "${bad#* }"
	is "refused: $bad" [ "$rc" != 0 ]
done
shows 'alua_groups=2=2'

# a transition ends by itself, in the state that was said with it
update alua_transition_time 1
update alua_state '1=active-optimized;2=transitioning-to-active-non-optimized'
must a transition
"$bin/tgt-admin" --dump >"$conf.going"
is "it is configured" grep -q 'alua_state 1=active-optimized;2=transitioning-to-active-non-opt' \
	"$conf.going"
for _ in $(seq 300); do
	adm --op show --mode target --tid 1
	has_line 'alua_state=1=active-optimized;2=active-non-optimized' && break
	sleep 0.1
done
is "it has ended" has_line 'alua_state=1=active-optimized;2=active-non-optimized'
is "... for the LUN, too" not has 'alua_state of LUN'

# bound to portals
on() { adm --op "$1" --mode target --tid 2 --portal "$2"; }
adm --op new --mode target --tid 2 -T $iqn:bound
adm --op bind --mode target --tid 2 -I ALL
adm --op new --mode logicalunit --tid 2 --lun 1 --bstype ram --backing-store 8m
on bind "127.0.0.1:$SECOND"
must bind
on bind "127.0.0.1:$SECOND"
is "twice is refused" [ "$rc" != 0 ]
on bind 127.0.0.1:99999
is "... as is nonsense" [ "$rc" != 0 ]
on unbind 127.0.0.9
is "... and to unbind what is not bound" [ "$rc" != 0 ]
coproc PEER { python3 tests/integration/answers.py "$port" bound 2>&1; }
go_on '... in VPD 88h'
on bind "127.0.0.1:$port"
must bind
adm --op show --mode target --tid 2
is "it is shown" has_line "portals=127.0.0.1:$SECOND;127.0.0.1:$port"
tgt_dump >"$conf.bound"
echo >&"${PEER[1]}"
go_on '... and discovery shows both'
on bind 127.0.0.9:3260
on unbind "127.0.0.1:$SECOND"
on unbind "127.0.0.1:$port"
must unbind
echo >&"${PEER[1]}"
cat <&"${PEER[0]}"
"$bin/tgt-admin" -c "$conf.bound" --update ALL || must tgt-admin
adm --op show --mode target --tid 2
is "targets.conf has it back" has_line "portals=127.0.0.1:$SECOND;127.0.0.1:$port"
daemon_stop || must end

daemon_start ours --iscsi "portal=127.0.0.1:$SECOND,tag=2"
"$bin/tgt-admin" -e -c "$conf" || must tgt-admin
python3 tests/integration/answers.py "$port" restarted || failures=$((failures + 1))
"$bin/tgt-admin" --dump >"$conf.2"
# (Portals of the command line are not.)
out=$(diff <(grep -v '^portal ' "$conf") <(grep -v '^portal ' "$conf.2") 2>&1)
is "what was loaded is dumped as it was" test -z "$out"
is "no report" no_report
finish
