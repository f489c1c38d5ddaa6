#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Tenants with CHAP accounts of their own at one target (defect W5): nobody passes for another.
# Accounts are tied to initiator names, by tgtadm and by targets.conf. And what a login may ask
# for: W8 (bursts), W11 (digests), W12 (serial numbers of others). The initiators are tenants.py.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.tgtd.test
conf=$dir/t.conf
scene() { python3 tests/integration/tenants.py "$port" "$@" || failures=$((failures + 1)); }
admin() {
	out=$("$bin/tgt-admin" -c "$conf" "$@" 2>&1)
	rc=$?
}
# A scene that waits for something to be done in the middle of it.
begin_scene() {
	coproc PEER { python3 tests/integration/tenants.py "$port" "$1"; }
	peer_out=${PEER[0]} peer_in=${PEER[1]} peer=$PEER_PID
	exec {lines}<&"$peer_out" {go}>&"$peer_in"
}
# Its first line says that it has begun.
begun() {
	read -r -t 30 line <&"$lines" || line="not ok $1 does not begin"
	echo "$line"
}
go_on() { echo >&"$go"; }
end_scene() {
	cat <&"$lines"
	wait "$peer" || failures=$((failures + 1))
	exec {lines}<&- {go}>&-
}
tie() { adm --lld iscsi --op bind --mode account --tid 1 --user "$1" --initiator-name "$2"; }
untie() { adm --lld iscsi --op unbind --mode account --tid 1 --user "$1" --initiator-name "$2"; }
names() {
	adm --op show --mode target
	has_line "        $1"
}

daemon_start ours
for n in a b c; do
	adm --op new --mode account --user tenant-$n --password secret-of-tenant-$n
done
adm --op new --mode target --tid 1 -T $iqn:shared
adm --op bind --mode target --tid 1 -I ALL
for lun in 1 2; do
	adm --op new --mode logicalunit --tid 1 --lun $lun --bstype ram --backing-store 8m
done
for n in a a2 b c; do adm --op bind --mode target --tid 1 -Q $iqn:host-$n; done
adm --op update --mode target --tid 1 -Q $iqn:host-a --expose 1
adm --op update --mode target --tid 1 -Q $iqn:host-b --expose 2
adm --op new --mode target --tid 2 -T $iqn:bursts
adm --op new --mode target --tid 3 -T $iqn:digests
for tid in 2 3; do
	adm --op bind --mode target --tid $tid -I ALL
	adm --op new --mode logicalunit --tid $tid --lun 1 --bstype ram --backing-store 8m
done
adm --op new --mode target --tid 4 -T $iqn:spelled
adm --op bind --mode target --tid 4 -I ALL
for lun in 1 2; do
	adm --op new --mode logicalunit --tid 4 --lun $lun --bstype ram --backing-store 8m
done
adm --op update --mode target --tid 4 -Q $iqn:host-b --expose 2
for n in a b c; do adm --op bind --mode account --tid 4 --user tenant-$n; done
adm --op update --mode target --tid 2 --name MaxBurstLength --value 8192
adm --op update --mode target --tid 3 --name HeaderDigest --value CRC32C
adm --op update --mode target --tid 3 --name DataDigest --value CRC32C

echo "# W8, W11"
scene bursts digests

echo "# W5: spellings of a name"
begin_scene spelling
adm --lld iscsi --op bind --mode account --tid 4 --user tenant-c --initiator-name $iqn:host-c
is "an account is tied to a name at another target" done_silently
go_on
end_scene
adm --lld iscsi --op unbind --mode account --tid 4 --user tenant-c --initiator-name $iqn:host-c

echo "# W5: who is shut out while its login is under way"
for n in a b c; do adm --op unbind --mode account --tid 4 --user tenant-$n; done
begin_scene overtaken
begun overtaken
for n in a b c; do adm --op bind --mode account --tid 4 --user tenant-$n; done
go_on
for _ in 1 2; do begun overtaken; done
adm --op delete --mode account --user tenant-a
adm --op new --mode account --user tenant-a --password secret-of-tenant-a
adm --op update --mode account --user tenant-b --password another-secret
adm --op unbind --mode account --tid 4 --user tenant-c
adm --op bind --mode account --tid 4 --user tenant-b
go_on
for _ in 1 2 3; do begun overtaken; done
adm --op update --mode account --user tenant-b --password secret-of-tenant-b
adm --op bind --mode account --tid 4 --user tenant-c
go_on
begun overtaken
adm --op unbind --mode target --tid 4 -I ALL
go_on
end_scene
adm --op bind --mode target --tid 4 -I ALL

echo "# W5: a session made without authentication"
begin_scene open_session
begun open_session
begun open_session
for n in a b c; do adm --op bind --mode account --tid 1 --user tenant-$n; done
go_on
for _ in 1 2; do begun open_session; done
for n in a b c; do adm --op unbind --mode account --tid 1 --user tenant-$n; done
go_on
end_scene

echo "# W5, W12: tenants without ties"
for n in a b c; do adm --op bind --mode account --tid 1 --user tenant-$n; done
scene reinstatement numbers
begin_scene changed_account
begun changed_account
adm --op delete --mode account --user tenant-a
adm --op new --mode account --user tenant-a --password another-secret-of-a
adm --op bind --mode account --tid 1 --user tenant-a
go_on
end_scene
adm --op update --mode account --user tenant-a --password secret-of-tenant-a

echo "# W5: ties"
begin_scene owner
for _ in 1 2; do begun owner; done
tie tenant-a $iqn:host-a
is "an account is tied to a name" done_silently
go_on
end_scene
tie tenant-a $iqn:host-a2
is "... and to another" done_silently
tie tenant-a $iqn:host-a2
is "... once" refused "this binding already exists"
tie nobody $iqn:host-a
is "an account that is not there" refused "can't find the account"
tie tenant-a ''
is "a name that is none" refused "invalid request"
tie tenant-a 'iqn.x,iqn.y'
is "... nor a list of them" refused "invalid request"
adm --op bind --mode account --user tenant-a --initiator-name $iqn:host-a
is "discovery has no ties" refused "'initiator-name' requires 'tid', and an incoming account"
adm --op bind --mode account --tid 1 --user tenant-a --outgoing --initiator-name $iqn:host-a
is "nor have outgoing accounts" refused "'initiator-name' requires 'tid', and an incoming account"
is "mode target shows ties" names "tenant-a (names $iqn:host-a,$iqn:host-a2)"
is "... and untied accounts as ever" has_line "        tenant-b"
adm --op show --mode account
is "mode account shows them" said 0 "Account list:
    tenant-a
        tid 1: $iqn:host-a
        tid 1: $iqn:host-a2
    tenant-c
    tenant-b"
scene ties
untie tenant-a $iqn:host-b
is "no such tie" refused "can't find the binding"
untie tenant-a $iqn:host-a2
is "a tie is undone" done_silently
is "... the other stays" names "tenant-a (names $iqn:host-a)"
untie tenant-a $iqn:host-a
is "the last tie is undone" done_silently
is "... and the account is bound still" names "tenant-a"
scene untied
tie tenant-a $iqn:host-a
adm --op unbind --mode account --tid 1 --user tenant-a
is "unbinding undoes it all" done_silently
tie tenant-a $iqn:host-a2
is "an account is bound with its name" done_silently
is "... and has no older one" names "tenant-a (names $iqn:host-a2)"
adm --op delete --mode account --user tenant-a
is "a tied account is deleted" done_silently
adm --op new --mode account --user tenant-a --password secret-of-tenant-a
adm --op bind --mode account --tid 1 --user tenant-a
is "... and has no ties when it is made anew" names "tenant-a"

echo "# W5: targets.conf"
target() {
	printf '<target %s:shared>\n\tcontroller_tid 1\n' $iqn
	for lun in 1 2; do
		printf '\t<%s>\n' "backing-store 8m"
		printf '\t\t%s\n' "lun $lun" "bs-type ram"
		printf '\t</backing-store>\n'
	done
	for n in b c a; do printf '\tincominguser tenant-%s secret-of-tenant-%s\n' $n $n; done
	printf '\tinitiator-address ALL\n'
	for n in a a2 b c; do printf '\tinitiator-name %s:host-%s\n' $iqn $n; done
	printf '\texpose %s:host-a 1\n\texpose %s:host-b 2\n' $iqn $iqn
	for line in "$@"; do printf '\t%s\n' "$line"; done
	printf '</target>\n'
}
target "bind-user tenant-a $iqn:host-a" "bind-user tenant-a $iqn:host-a2" >"$conf"
admin --update $iqn:shared --verbose
is "a file ties accounts" test "$rc" = 0
is "... by commands that tgtadm takes" \
	has "--mode account --op bind --tid=1 --user=tenant-a --initiator-name=$iqn:host-a2"
is "... as it says" names "tenant-a (names $iqn:host-a,$iqn:host-a2)"
admin --update $iqn:shared --pretend
is "... and has nothing to do then" not has tgtadm
scene ties
admin --dump
is "a dump says it" has "	bind-user tenant-a $iqn:host-a2"
target "bind-user tenant-a $iqn:host-a" "bind-user tenant-b $iqn:host-b" >"$conf"
admin --update $iqn:shared
is "a changed file" test "$rc" = 0
is "... ties and unties" names "tenant-a (names $iqn:host-a)"
is "... whoever it names" has_line "        tenant-b (names $iqn:host-b)"
target >"$conf"
admin --update $iqn:shared
is "a file without ties" names "tenant-a"
wrong() {
	target "${@:2}" >"$conf"
	admin --update $iqn:shared
	is "$1" test "$rc" = 1
	is "... which is said" has "$1"
}
wrong "bind-user needs an incominguser tenant-x before it" "bind-user tenant-x $iqn:host-a"
wrong "expected: bind-user <user> <initiator name>" "bind-user tenant-a"
twice="bind-user tenant-a iqn.x"
wrong "$twice is given twice" "$twice" "$twice"
wrong "bind-user: 'iqn.x iqn.y' is no initiator name" "bind-user tenant-a iqn.x iqn.y"

is "no session is left" no_connection 1
is "it ends with 0" daemon_stop
is "no report" no_report
finish
