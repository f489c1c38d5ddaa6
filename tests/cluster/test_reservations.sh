#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Persistent reservations of a unit that three gateways serve by turns. Initiators x and y have a
# path to each. Whatever one registers or reserves by any of them holds at all, whoever serves:
# after a hand-over, a planned restart, and a kill. Unit attentions come to the nexus that they are
# for. A gateway that is killed in the middle of a PERSISTENT RESERVE OUT has made it, or not.
#
# RBD=short kills once (make check); ROUNDS=N N times.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
. tests/cluster/ceph_lib.sh
. tests/cluster/gateways_lib.sh
test_end() { [ -z "$nexuses" ] || kill -9 "$nexuses" 2>/dev/null; }
gateways_test reservations

gives() { # EXPECTED NAME LINE...
	local expected=$1 name=$2
	shift 2
	ask "$@"
	is "$name" test "$is" = "$expected"
	[ "$is" = "$expected" ] || echo "#   $*: $is, not $expected"
}
becomes() { # EXPECTED LINE...
	local expected=$1
	shift
	ask "$@"
	[ "$is" = "$expected" ]
}
attention() { # ASC NAME NEXUS: what it is told next, in time
	is "$2" await 60 becomes "06/$1" tur "$3"
}
move_to() {
	gadm a --op update --mode logicalunit --tid 1 --lun 1 --params owner="$1"
	await 60 serves "$1" && owner=$1
}
register_all() { # INITIATOR KEY: on all paths, as mpathpersist does
	local g
	for g in a b c; do
		gives good "$1 registers by $g" out "$1$g" ignore 0 0 "$2"
	done
}

group_start
nexuses_start
is "a gateway serves the unit" await 60 some_serves a b c
move_to a
for g in b c; do is "$g stands by" await 60 stands_by $g; done

echo "# registered on all paths"
gives none "nobody is registered" keys xb
register_all x 1a
register_all y 2b
for g in a b c; do gives "1a 1a 1a 2b 2b 2b" "$g shows them" keys x$g; done
gives "x/11/1a x/12/1a x/13/1a y/11/2b y/12/2b y/13/2b" "... with the ports" full xc
gives 6 "each was counted" gen yb
gives good "x reserves by a standby gateway: WRITE EXCLUSIVE, REGISTRANTS ONLY" out xb reserve 5 1a 0
gives good "... again: nothing changes" out xb reserve 5 1a 0
gives "5 1a" "the owner shows it" res ya
gives "5 1a" "... and the third one" res yc
gives good "y is registered and may write" write ya
gives "status 18" "who is not registered may not" write za
gives good "... but read" read za
gives "status 18" "y cannot reserve it" out yc reserve 5 2b 0
gives "status 18" "a wrong key" out yc release 5 1a 0
gives "05/20/00" "RESERVE(6) is not offered" reserve6 xa
gives "05/26/00" "AP TPL needs nothing, SPEC_I_PT of who is registered does" out xa register 0 1a 1a 8

echo "# a preempted one"
gives good "x makes it EXCLUSIVE ACCESS, by the third gateway" out xb release 5 1a 0
attention "2a/04" "a registrant at the owner hears of the release" ya
attention "2a/04" "... one at another gateway" yc
for n in xa xc yb; do attention "2a/04" "... $n" $n; done
gives good "x reserves" out xc reserve 6 1a 0
gives good "y may write as well" write ya
gives good "x preempts y by a standby gateway" out xc preempt 6 1a 2b
gives "1a 1a 1a" "y is out" keys xb
attention "2a/05" "y hears of it at the owner" ya
attention "2a/05" "... at the others" yb
attention "2a/05" "... each once" yc
gives good "... and then nothing more" tur ya
gives "status 18" "y cannot write" write ya
gives "status 18" "... nor read" read ya
# The response may have been lost: whoever repeats it learns so, and looks.
gives "status 18" "the same PREEMPT again finds nobody: 'maybe', see the keys" out xc preempt 6 1a 2b

echo "# it holds wherever the unit is served"
held() { # WHEN
	gives "6 1a" "$1: the reservation is there" res "x$owner"
	gives "1a 1a 1a" "... and who is registered" keys "y$owner"
	is "... it keeps y out" await 60 becomes "status 18" write "y$owner"
	is "... and lets x write" await 60 becomes good write "x$owner"
}
held "served by a"
move_to b
held "handed over to b"
for round in $(seq "$rounds"); do
	was=$owner
	gw_kill "$was"
	is "another gateway takes it" await 60 some_serves $(others "$was")
	held "keeper and worker of $was are killed ($round)"
	gw_start "$was"
	is "$was comes back" await 60 stands_by "$was"
done
was=$owner
child=$(worker_of "${gpid[$was]}")
kill -9 "$child"
is "another worker comes" await 120 worker_changed "$was" "$child"
await 60 some_serves a b c
held "the worker alone is killed"
await 60 agrees "$owner"
child=$(worker_of "${gpid[$owner]}")
was=$owner
gadm "$was" --mode system --op update --name restart
is "another worker comes" await 120 worker_changed "$was" "$child"
await 60 some_serves a b c
held "the worker is replaced as planned"

echo "# killed in the middle of PERSISTENT RESERVE OUT"
for round in $(seq $((rounds * 2))); do
	some_serves a b c
	set -- $(others "$owner")
	via=$1
	key=$((round + 10))
	ask out "x$2" ignore 0 0 1a
	ask begin k out "z$via" ignore 0 0 "$key"
	sleep "0.0$((round % 4 * 2))"
	gw_kill "$via"
	ask end k
	said=$is
	ask keys "x$owner"
	made=no
	[[ " $is " != *" $(printf %x "0x$key") "* ]] || made=yes
	is "it is made ($made) if it was GOOD ($said)" test "$made" = yes -o "$said" != good
	is "... all gateways say the same" becomes "$is" keys "x$2"
	gw_start "$via"
	is "$via comes back" await 60 stands_by "$via"
	gives good "z registers again" out "z$via" ignore 0 0 "$key"
	gives good "... and goes" out "z$via" ignore 0 0 0
done
some_serves a b c
set -- $(others "$owner")
for g in a b c; do ask out y$g ignore 0 0 2b; done
ask begin k out "x$1" abort 6 1a 2b
gw_kill "$owner"
ask end k
is "PREEMPT AND ABORT, and the owner is killed: $is" test "$is" = good -o "$is" = "status 18"
gives "1a 1a 1a" "y is out" keys "x$1"
is "another gateway takes it" await 60 some_serves "$@"
is "... and keeps y out" await 60 becomes "status 18" write "y$owner"
for g in a b c; do [ -n "${gpid[$g]-}" ] || gw_start "$g"; done
for g in a b c; do await 60 agrees $g; done

echo "# the other actions"
set -- $(others "$owner")
gives good "REGISTER AND MOVE to y at the owner" move xc 1a 2b "y$owner"
is "... who holds it now" test "$(ask full "x$2"; grep -c "y/${tag[$owner]}/2b\*" <<<"$is")" = 1
is "... and may write" await 60 becomes good write "y$owner"
for g in a b c; do ask tur x$g; done # it is there to hear of it
gives good "CLEAR by who holds it" out "y$owner" clear 0 2b 0
gives none "nobody is registered" keys "z$1"
for g in a b c; do attention "2a/03" "x hears of it by $g" x$g; done
gives good "z registers at all ports at once" out zb register 0 0 3c 4
gives good "... so it reserves by another one" out zc reserve 8 3c 0
gives "status 18" "x is kept out" read "x$owner"
is "z is not" await 60 becomes good read "z$owner"
ask caps xb
is "capabilities: persistence, all types, ALL_TG_PT, SPEC_I_PT" test "$is" = 00081d80ea010000
gives good "z goes" out za register 0 3c 0

echo "# a tenant fills it"
ask stuff xb
is "it has its share, and is told so: $is" \
	test "${is#* }" = 05/55/04 -a "${is% *}" -gt 20 -a "${is% *}" -le 128
ask tur yc
gives good "another one registers" out yc register 0 0 2b
gives good "... and clears" out yc clear 0 2b 0

cu=${ISCSI_TEST_CU:-iscsi-test-cu}
if command -v "$cu" >/dev/null; then
	echo "# libiscsi's tests, by the owner"
	some_serves a b c
	for t in PrinReadKeys PrinServiceactionRange PrinReportCapabilities ProutRegister \
		ProutReserve ProutClear ProutPreempt; do
		timeout 280 "$cu" -d -t "ALL.$t" "iscsi://$(path_of "$owner")/$iqn/1" \
			>"$dir/cu.log" 2>&1
		is "$t" grep -qE '^ +tests +[0-9]+ +[1-9][0-9]* +[1-9][0-9]* +0' "$dir/cu.log"
	done
fi

for g in a b c; do is "$g ends with 0" gw_stop "$g"; done
cat "$dir"/[abc]/log >"$dir/log"
is "nothing has been reported" no_report
[ $failures = 0 ] || tail -5 "$dir/nexuses.log"
finish 60
