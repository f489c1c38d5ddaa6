#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What is there of a group is taken away while it lives: objects in RADOS are removed, or something
# else is written there; the unit is deleted at one gateway, and to go there. Each time the unit is
# served again, within a minute, and nothing that was acknowledged is lost. At last it is deleted
# where it is served, and the target everywhere: no worker dies of that.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
. tests/cluster/ceph_lib.sh
. tests/cluster/gateways_lib.sh
test_end() { load_kill; }
gateways_test "objects that are removed"

served() { # among GATEWAYS: and stays so
	await 60 some_serves "$@" && sleep 3 && some_serves "$@"
}
object() { timeout 60 rados -p rbd "$1" "tgtd.g.$2" ${3-}; }
unit_object() { timeout 60 rados -p rbd ls | sed -n 's/^tgtd\.g\.\(lu\..*\)$/\1/p'; }
same_after() { # WHAT: who writes went on
	further 30
	is "nothing is lost, nothing stale is read: $1" load_stop
	is "... it is in RADOS" image_has_it
}

group_start
echo "garbage" >"$dir/garbage"
is "one of them serves the unit" await 60 some_serves a b c
# Its incarnations are counted up: what comes after the removal is none of before.
for _ in 1 2; do
	child=$(worker_of "${gpid[$owner]}")
	kill -9 "$child"
	await 60 worker_changed "$owner" "$child"
	await 60 some_serves a b c
done

load_start "$owner"
echo "# the object of $owner, who serves, is removed"
object rm "gateway.$owner"
sleep 3
tells "the unit is served" served a b c
same_after "the owner's object is removed"

await 60 some_serves a b c
load_start "$owner"
echo "# the unit's object is removed"
object rm "$(unit_object)"
sleep 3
tells "the unit is served" served a b c
same_after "the unit's object is removed"

await 60 some_serves a b c
echo "# something else is where the object of $owner was, which is killed; then it is removed"
was=$owner
load_start "$was"
object put "gateway.$was" "$dir/garbage"
sleep 1
gw_kill "$was"
sleep 3
is "the log says so" grep -q 'the object of gateway . cannot be read: it is none of this kind' \
	"$dir/$(others "$was" | head -1)/log"
object rm "gateway.$was"
tells "another one serves" served $(others "$was")
gw_start "$was"
is "$was comes back" await 60 stands_by "$was"
same_after "the object of one that is dead is removed"

await 60 some_serves a b c
set -- $(others "$owner")
echo "# the unit is deleted at $1, and to go there"
load_start "$owner"
gadm "$1" --op delete --mode logicalunit --tid 1 --lun 1
is "it is deleted" test "$rc" = 0
unit "$owner" owner="$1"
is "it is to go there" test "$rc" = 0
tells "the unit is served" served "$owner" "$2"
gadm "$1" --op new --mode logicalunit --tid 1 --lun 1 --bstype rbd -b rbd/u --bsopts group=g
is "it is there again" test "$rc" = 0
unit "$2" owner="$1"
is "... and goes there when it is told to" await 60 serves "$1"
same_after "the unit was to go where it was not"

await 60 some_serves a b c
set -- $(others "$owner")
echo "# the unit is deleted at $owner, which serves it; then the target at whoever has it now, and all"
load_start "$1"
was=$owner
child=$(worker_of "${gpid[$was]}")
gadm "$was" --op delete --mode logicalunit --tid 1 --lun 1
is "it is deleted" test "$rc" = 0
is "... and served elsewhere" served "$@"
further 30
is "... by the same worker as before" test "$(worker_of "${gpid[$was]}")" = "$child"
gadm "$was" --op new --mode logicalunit --tid 1 --lun 1 --bstype rbd -b rbd/u --bsopts group=g
is "it is there again" test "$rc" = 0
is "... and stands by" await 60 stands_by "$was"
same_after "the unit was deleted where it was served"
workers=
for g in a b c; do workers="$workers $(worker_of "${gpid[$g]}")"; done
for g in a b c; do
	gadm $g --op delete --mode target --tid 1 --force
	is "the target is deleted at $g" test "$rc" = 0
done
sleep 1
is "... by the same workers as before" test \
	"$workers" = " $(for g in a b c; do worker_of "${gpid[$g]}"; done | tr '\n' ' ' | sed 's/ $//')"
for g in a b c; do
	gw_admin $g -e
	is "it is there again at $g" test "$rc" = 0
done
tells "the unit is served" served a b c
is "... it is in RADOS" image_has_it

for g in a b c; do is "$g ends with 0" gw_stop "$g"; done
cat "$dir"/[abc]/log >"$dir/log"
is "nothing has been reported" no_report
finish 60
