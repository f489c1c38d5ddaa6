#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Three gateways with eight units, each an image, which serve those that they are home to. The owner
# of most is killed, keeper and worker: others take all of its units, each under load, and none is
# served twice. When it is back, owner=home brings its units to it. At last each is killed, and told
# so as soon as it is back.
#
# RBD=short once (make check), ROUNDS=N N times. Printed: how long each takes, and the longest wait
# of each unit's writer; with TGT_STRICT=1 judged by what is wanted of a quiet machine.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
. tests/cluster/ceph_lib.sh
. tests/cluster/gateways_lib.sh
test_end() { [ -z "$writers" ] || kill -9 $writers 2>/dev/null; }
writers=
ceph_pgs=64 # one for each object, or nearly: versions count by these, and are often the same then
gateways_test "gateways with several units"
luns="1 2 3 4 5 6 7 8"
unit_lines() {
	local n
	for n in $luns; do
		cat <<-END
			<backing-store rbd/u$n>
				lun $n
				bs-type rbd
				bsopts group=g
			</backing-store>
		END
	done
}
group_images() {
	local n
	for n in $luns; do rbd create "u$n" --size 16M --image-feature layering,exclusive-lock; done
}

rows() { # GATEWAY: of each unit "LUN OWNER HOME STATE", as it knows them: $units
	gadm "$1" --mode cluster --op show --json
	units=$(python3 -B -c '
import json, sys
for u in json.loads(sys.argv[1])["units"]:
    print(u["lun"], u["owner"], u["home"], u["state"])' "$out" 2>/dev/null)
}
here() { # GATEWAY STATE: its units of that state
	rows "$1"
	awk -v s="$2" '$4 == s { print $1 }' <<<"$units"
}
# Each has one who serves it, and the others stand by.
all_settled() {
	local g all=
	for g in "${!gpid[@]}"; do all="$all $(here "$g" active)"; done
	out=$all
	[ "$(tr ' ' '\n' <<<"$all" | grep . | sort -n | tr '\n' ' ')" = "$luns " ]
}
all_home() {
	all_settled || return 1
	rows a
	out=$units
	[ "$(awk '$2 == $3' <<<"$units" | wc -l)" = 8 ]
}
homes() { awk -v g="$1" '$3 == g { print $1 }' <<<"$units"; }
bring_home() { # GATEWAY: it is told
	local n
	for n in $luns; do
		gadm "$1" --op update --mode logicalunit --tid 1 --lun "$n" --params owner=home
		[ "$rc" = 0 ] || return 1
	done
}
# paths.py for each unit.
writers_start() {
	local n
	rm -f "$dir"/enough "$dir"/unit*.n
	for n in $luns; do
		LUN=$n python3 -B tests/cluster/paths.py $iqn "$dir/unit$n" "$dir/enough" write \
			"$(path_of a)" "$(path_of b)" "$(path_of c)" >"$dir/writer.$n" 2>&1 &
		writers="$writers $!"
	done
	all_further 20
}
count() { # LUN
	local n
	read -r n _ 2>/dev/null <"$dir/unit$1.n"
	echo "${n:-0}"
}
all_further() { # N: each of them
	local n
	declare -A from
	for n in $luns; do from[$n]=$(count "$n"); done
	for n in $luns; do await 120 test_count "$n" $((from[$n] + $1)) || return 1; done
}
test_count() { [ "$(count "$1")" -ge "$2" ]; }
writers_stop() {
	local p bad=0
	: >"$dir/enough"
	for p in $writers; do wait "$p" || bad=$((bad + 1)); done
	writers=
	out=$(cat "$dir"/writer.*)
	echo "# $(sed -n 's/.*longest stall \([0-9]*\) ms.*/\1/p' "$dir"/writer.* | tr '\n' ' ')ms"
	[ $bad = 0 ]
}

group_start
tells "each is served by one gateway" await 60 all_settled
is "they are told to go home" bring_home a
tells "... and do" await 60 all_home
rows a
for g in a b c; do echo "# home is $g: $(homes $g | tr '\n' ' ')"; done
# (By a hash of what names them.)
is "they have several homes" test "$(awk '{ print $3 }' <<<"$units" | sort -u | wc -l)" -gt 1
# Who has handed one over hears of its owner by the next look at the object.
agrees() { # GATEWAY
	rows "$1"
	[ "$(cut -d' ' -f1-3 <<<"$units")" = "$was" ]
}
was=$(cut -d' ' -f1-3 <<<"$units")
for g in b c; do
	is "$g says the same" await 10 agrees $g
done

for round in $(seq "$rounds"); do
	rows a
	owner=$(awk '{ print $2 }' <<<"$units" | sort | uniq -c | sort -rn | awk 'NR == 1 { print $2 }')
	its=$(homes "$owner" | tr '\n' ' ')
	writers_start
	is "all units are written ($round)" test_count 8 20
	echo "# $owner is killed, which serves ${its% }"
	began=$(day_ms)
	gw_kill "$owner"
	tells "others take all of its units" await 60 all_settled
	figure taken "$(since "$began" "$(said_ms 'owned here, epoch')")"
	set -- $(others "$owner")
	rows "$1"
	out=$units
	is "... none is $owner's now" test -z "$(awk -v g="$owner" '$2 == g' <<<"$units")"
	for g; do
		echo "# $g has taken $(here "$g" active | grep -cwE "$(tr ' ' '|' <<<"${its% }")")"
	done
	tells "all are written on" all_further 20
	gw_start "$owner"
	is "$owner comes back" test "$rc" = 0
	is "... and has none yet" test -z "$(here "$owner" active)"
	began=$(day_ms)
	is "all are told to go home" bring_home a
	tells "... and do" await 60 all_home
	figure home "$(since "$began" "$(said_ms 'owned here, epoch')")"
	tells "all are written there" all_further 20
	is "nothing is lost, nothing stale is read, of no unit ($round)" writers_stop
	sed -n 's/.*longest stall \([0-9]*\) ms.*/\1/p' "$dir"/writer.* >>"$dir/figures.units"
	for n in $luns; do
		is "... unit $n is in RADOS" image_has_it "$dir/unit$n" "u$n"
	done
done
# What it is told at once it writes by its first look at each unit.
for g in a b c; do
	gw_kill $g
	is "others take what $g serves" await 60 all_settled
	gw_start $g
	is "$g, which has just come back, is told that all go home" bring_home $g
	tells "... and they do" await 60 all_home
done
bar taken 60000 3500 "from the kill until all units are served"
bar home 60000 5000 "from owner=home until all are at home"
bar units 60000 5000 "the longest wait of each unit's writer"
rows a
owner=$(awk '$1 == 1 { print $2 }' <<<"$units")
peer() {
	out=$(timeout 60 python3 tests/integration/nbd.py "$(path_of "$owner")" $iqn "$@" 2>&1)
	rc=$?
}
peer offers 1
is "a unit of the group offers WRITE ATOMIC of 16 KiB" said 0 "32 3"
peer atomic 1 64 32 85
is "... and does it" said 0 good
peer bytes 1 64 32
is "... and it is read back" said 0 85
out=$(for g in a b c; do
	sed -n 's/.*rbd\/\(u[0-9]*\): owned here, epoch \([0-9]*\),.*/\1 \2/p' "$dir/$g/log" | sort -u
done | sort | uniq -d)
is "no epoch of a unit was owned twice" test -z "$out"
for g in a b c; do is "$g ends with 0" gw_stop "$g"; done
cat "$dir"/[abc]/log >"$dir/log"
is "nothing has been reported" no_report
finish 60
