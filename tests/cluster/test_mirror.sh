#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Mirrored write-back: three gateways before one Ceph, all of one machine. A write is answered when
# the owner and a second gateway have it in memory; Ceph gets it later. One initiator writes by all
# paths, and reads what it has written. A second one has the owner's path alone: it would see stale
# reads. A third one changes the unit in other ways, and knows each byte (changes.py). In all of this
# nothing that was answered may be lost:
#
#   owner     its keeper and worker are killed; its memory is gone, another one has the blocks
#   worker    the owner's worker is killed, or replaced as planned; what it had cached is found again
#   peer      the one that mirrors is killed
#   found     ... its worker alone, or that is replaced: its memory is found again
#   cut       the link between the two carries nothing any more, or is ended
#   both      the link is cut, and then the owner killed; the peer killed, and then the owner
#   full      Ceph is full: what cannot be rid of is not answered, though the peer has it. The owner
#             is killed, and then there is room
#   handover  the unit is handed over; its owner is stopped, and its peer
#   stopped   the one that mirrors stands still, keeper and worker, under a load of 32 at a time:
#             answers go on when it has been given up, and what waits for it takes no memory
#   woken     the owner stands still with dirty blocks and queued commands, and is woken when another
#             one has what it had, and newer
#
# At last both are killed at once: then nobody serves the unit before that is given up.
#
# A persistent reservation is held meanwhile, and outlives takeovers.
#
# RBD=short does each once (make check). KILLS=, PEERS=, CUTS=: how often owner, peer and cut are
# done; ROUNDS= the others. PARTS="stopped cut": these. STILL=SECONDS of a peer that stands still.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
. tests/cluster/ceph_lib.sh
. tests/cluster/gateways_lib.sh
wires= changer=
test_end() {
	local p
	load_kill
	queued_stop
	for p in $wires $changer; do kill -9 "$p" 2>/dev/null; done
}
gateways_test mirror
kills=${KILLS:-6} peers=${PEERS:-3} cuts=${CUTS:-3}
[ "${RBD-}" != short ] || kills=1 peers=1 cuts=1

# ---- each gateway has a file of its own: it reaches the others by wires -------------------------
own_files=yes
declare -A mport wport
for g in a b c; do
	mport[$g]=$(pick_port "${addr[$g]}")
	for x in a b c; do wport[$g$x]=$(pick_port 127.0.0.1); done
done
gateway_line() {
	local at=127.0.0.1:${wport[$1$2]}
	[ "$1" != "$2" ] || at=${addr[$2]}:${mport[$2]}
	echo "gateway $2 ${tag[$2]} $at"
}
group_lines() {
	echo "	mirror-secret-file $dir/secret"
	echo "	mirror-memory 32m"
}
unit_lines() {
	cat <<-END
		<backing-store rbd/u>
			bs-type rbd
			bsopts group=g
			thin_provisioning 1
		</backing-store>
	END
}
wires_start() {
	local g x list=
	for g in a b c; do
		for x in a b c; do
			[ $g = $x ] || list="$list $g$x=127.0.0.1:${wport[$g$x]}=${addr[$x]}:${mport[$x]}"
		done
	done
	python3 -B tests/cluster/wires.py "$dir/cut" $list >"$dir/wires" 2>&1 &
	wires=$!
	await 30 grep -q wired "$dir/wires"
}
cut() { # GATEWAY GATEWAY [end]: both of their links
	printf '%s\n' "$1$2" "$2$1" ${3-} >"$dir/cut.new"
	mv "$dir/cut.new" "$dir/cut"
}
heal() { rm -f "$dir/cut"; }

# ---- what is seen of it -------------------------------------------------------------------------
# The last word of the owner's log: by which gateway it is mirrored; nothing: by none.
mirror_of() { # GATEWAY
	local n
	n=$(grep -E 'cluster: .*: (mirror.*: is (valid|over)|owned here)|mirror [0-9]* at gateway [0-9]*: (does not|has|takes|was)' \
		"$dir/$1/log" | tail -1 | sed -n 's/.*mirror [0-9]* at gateway \([0-9]*\): is valid.*/\1/p')
	case $n in 0) echo a ;; 1) echo b ;; 2) echo c ;; esac
}
is_mirrored() { # among GATEWAYS: $owner by $peer
	some_serves "$@" && peer=$(mirror_of "$owner") && [ -n "$peer" ]
}
by_another() { is_mirrored a b c && [ "$peer" != "$1" ]; } # than GATEWAY
in_log() { grep -c "$2" "$dir/$1/log"; }
replayed() { # blocks that takeovers have brought to the store
	cat "$dir"/[abc]/log | sed -n 's/.*: \([0-9]*\) blocks that were mirrored here are in the store.*/\1/p' |
		awk '{ n += $1 } END { print n + 0 }'
}
rss() { awk '/^VmRSS/ { print $2 }' "/proc/$(worker_of "${gpid[$1]}")/status"; } # KiB
unavailable() { [ "$(field "$1" Here)" = unavailable ]; }
all_up() {
	local g
	for g in a b c; do [ -n "${gpid[$g]-}" ] || gw_start $g; done
}
# A round begins: mirrored, under load, with what is not in the store yet.
begins() {
	heal
	all_up
	await 90 is_mirrored a b c || return 1
	load_start "$owner"
	NEXUS=v python3 -B tests/cluster/changes.py $iqn "$dir/enough" 256 64 \
		"$(path_of a)" "$(path_of b)" "$(path_of c)" >"$dir/changer" 2>&1 &
	changer=$!
	await 60 grep -q 'at work' "$dir/changer" || return 1
	further 200
	is_mirrored a b c
}
ends() { # NAME
	further 100
	is "$1: nothing is lost, nothing stale is read" load_stop
	wait $changer
	rc=$?
	out=$(cat "$dir/changer")
	changer=
	echo "# $(tail -1 "$dir/changer")"
	is "... and nothing that was changed in other ways" test "$rc" = 0
}

head -c 24 /dev/urandom | base64 >"$dir/secret"
chmod 600 "$dir/secret"
wires_start
group_start
hold wvqrs
is "a unit is served, and mirrored" await 60 is_mirrored a b c

# What tgtadm says of it.
says() { [ "$(field "$1" Mirror)" = "$2" ]; } # GATEWAY STATE
is "... as the owner says" await 30 says "$owner" mirrored
is "... by whom" test "$(field "$owner" Peer)" = "$peer"
gadm "$owner" --mode cluster --op show
is "... the link between them is up" test -n "$(sed -n "/Gateway: $peer/,/Gateway:\|Unit:/p" <<<"$out" | grep 'Link: up')"
is "... its peer says so" await 30 says "$peer" "kept here"
is "... and the third one" await 30 says "$(third "$owner" "$peer")" mirrored
gadm "$owner" --json --mode cluster --op show
is "... the same as JSON" python3 -c 'import json, sys
said = json.loads(sys.argv[1])
unit = said["units"][0]["mirror"]
links = {g["name"]: g["link"] for g in said["gateways"]}
assert unit["state"] == "mirrored" and unit["peer"] == sys.argv[3] and unit["owned"], unit
assert links[sys.argv[3]]["up"] and links[sys.argv[3]]["frames_sent"], links
assert links[sys.argv[2]] is None and said["mirrors"]["memory_bytes"] == 32 << 20, said' \
	"$out" "$owner" "$peer"
gadm "$owner" --op update --mode logicalunit --tid 1 --lun 1 --params write_cache=mirror
is "write_cache=mirror is taken" test "$rc" = 0
gw_admin "$owner" --dump
is "... and dumped" grep -q 'write-cache mirror' <<<"$out"
gadm "$owner" --op update --mode logicalunit --tid 1 --lun 1 --params write_cache=through
is "write_cache=through ends the mirror" await 30 says "$owner" through
gadm "$owner" --op update --mode logicalunit --tid 1 --lun 1 --params write_cache
is "... and without it another one begins" await 30 says "$owner" mirrored
gadm "$owner" --op stat --mode system --name mirror_
is "frames are counted" grep -Eq 'mirror_frames_sent *[1-9]' <<<"$out"

part_owner() {
	echo "# the owner's keeper and worker are killed"
	before=$(replayed)
	for round in $(seq "$kills"); do
		is "the unit is mirrored" begins
		was=$owner to=$peer
		gw_kill "$was"
		is "$to has what $was had, and serves" await 60 serves "$to"
		ends "owner killed ($round)"
		is "... reservations are the same" holds
	done
	is "blocks were not in the store yet ($(($(replayed) - before)))" \
		test "$(($(replayed) - before))" -gt "$kills"
}

part_worker() {
	echo "# the owner's worker is killed, or replaced"
	for round in $(seq "$rounds"); do
		for how in kill restart; do
			is "the unit is mirrored" begins
			was=$owner
			[ "$rounds" = 1 ] || await 60 has_served "$was"
			child=$(worker_of "${gpid[$was]}")
			if [ $how = kill ]; then
				kill -9 "$child"
			else
				gadm "$was" --mode system --op update --name restart
			fi
			is "another worker comes" await 120 worker_changed "$was" "$child"
			is "the unit is served" await 60 some_serves a b c
			ends "worker, $how ($round)"
			is "... reservations are the same" holds
		done
	done
}

part_peer() {
	echo "# the peer's keeper and worker are killed"
	for round in $(seq "$peers"); do
		is "the unit is mirrored" begins
		was=$peer first=$owner
		gw_kill "$was"
		is "another one mirrors it" await 60 by_another "$was"
		is "... for the same owner" test "$owner" = "$first"
		ends "peer killed ($round)"
	done
}

part_found() {
	echo "# the peer's worker is killed, or replaced: its memory is found again"
	for round in $(seq "$rounds"); do
		for how in kill restart; do
			is "the unit is mirrored" begins
			was=$peer first=$owner
			[ "$rounds" = 1 ] || await 60 has_served "$was"
			child=$(worker_of "${gpid[$was]}")
			n=$(in_log "$was" 'of other gateways are here still')
			if [ $how = kill ]; then
				kill -9 "$child"
			else
				gadm "$was" --mode system --op update --name restart
			fi
			is "another worker comes" await 120 worker_changed "$was" "$child"
			is "... which has the blocks" test "$(in_log "$was" 'of other gateways are here still')" -gt "$n"
			further 100
			is "... and the unit is mirrored" await 60 is_mirrored "$first"
			ends "peer's worker, $how ($round)"
		done
	done
}

part_cut() {
	echo "# the link is cut"
	for round in $(seq "$cuts"); do
		for how in "" end; do
			is "the unit is mirrored" begins
			was=$peer first=$owner n=$(rss "$owner")
			cut "$owner" "$peer" $how
			is "another one mirrors it" await 60 by_another "$was"
			further 200
			is "... and $first has not grown ($(($(rss "$first") - n)) KiB)" \
				test $(($(rss "$first") - n)) -lt 40000
			ends "link cut${how:+ and ended} ($round)"
		done
		is "the unit is mirrored" begins
		was=$owner to=$peer
		cut "$owner" "$peer"
		gw_kill "$was"
		is "cut, then killed: $to serves" await 60 serves "$to"
		ends "link cut, owner killed ($round)"
		is "the unit is mirrored" begins
		was=$owner to=$peer
		gw_kill "$was"
		cut "$was" "$to"
		is "killed, then cut: $to serves" await 60 serves "$to"
		ends "owner killed, link cut ($round)"
	done
}

part_both() {
	echo "# both are lost, one after the other"
	for round in $(seq "$rounds"); do
		is "the unit is mirrored" begins
		was=$owner to=$peer next=$(third "$owner" "$peer")
		gw_kill "$to"
		is "the third one mirrors it" await 60 by_another "$to"
		gw_kill "$was"
		is "... and serves" await 60 serves "$next"
		ends "peer, then owner killed ($round)"
		is "the unit is mirrored" begins
		was=$owner to=$peer next=$(third "$owner" "$peer")
		gw_kill "$was"
		is "the peer serves, mirrored by the third" await 60 is_mirrored "$to"
		gw_kill "$to"
		is "... which serves then" await 60 serves "$next"
		ends "owner, then the next owner killed ($round)"
	done
}

part_handover() {
	echo "# hand-over, and a stop"
	for round in $(seq "$rounds"); do
		is "the unit is mirrored" begins
		to=$peer
		gadm "$owner" --op update --mode logicalunit --tid 1 --lun 1 --params owner="$to"
		is "it is handed over" await 60 serves "$to"
		ends "handed over ($round)"
		is "... reservations are the same" holds
		is "the unit is mirrored" begins
		was=$owner
		is "its owner ends with 0" gw_stop "$was"
		is "another one serves" await 60 some_serves $(third "$was" "$was")
		ends "stopped ($round)"
		is "the unit is mirrored" begins
		was=$peer
		is "its peer ends with 0" gw_stop "$was"
		is "another one mirrors it" await 60 by_another "$was"
		ends "peer stopped ($round)"
	done
}

# Blocks that the image has not had are written until three in a row are refused, 500 at most: how
# many were answered, and the last answer. read: those that were are there.
fills() { # GATEWAY write|read
	NEXUS=v python3 -B - $iqn "$(path_of "$1")" "$2" "$dir/answered" <<'END'
import struct, sys, time
sys.path.insert(0, 'tests/cluster')
from initiator import Path, Peer, addresses_of
Peer.target = sys.argv[1]
path, until, refused = Path(addresses_of([sys.argv[2]])[0]), time.monotonic() + 60, 0
def do(make):
    while time.monotonic() < until:
        data, status = path.do(make)
        if status[:2] not in ('6/', '2/', 'go'):
            return data, status
        time.sleep(0.05)
    sys.exit('no answer: ' + status)
def block(n):
    return struct.pack('<QQ', n, 7) * 256
if sys.argv[3] == 'write':
    good = []
    for n in range(2048, 2548):
        _, status = do(lambda p: p.write(8 * n, 8, block(n), lun=1))
        good += [n] if status == 'good' else []
        refused = 0 if status == 'good' else refused + 1
        if refused == 3:
            break
        time.sleep(0.02)
    open(sys.argv[4], 'w').write(' '.join(map(str, good)))
    print(len(good), status)
else:
    for n in map(int, open(sys.argv[4]).read().split()):
        assert do(lambda p: p.read(8 * n, 8, lun=1))[0] == block(n), n
END
}
part_full() {
	echo "# Ceph is full"
	for round in $(seq "$rounds"); do
		heal
		all_up
		is "the unit is mirrored" await 90 is_mirrored a b c
		was=$owner
		load_start "$was"
		filled full
		is "the pool is full" await 60 full
		out=$(fills "$was" write 2>&1)
		is "what cannot be rid of is refused, after $out" test "${out#* }" = 7/27/07
		gw_kill "$was"
		filled none
		is "another one serves when there is room" await 90 some_serves $(others "$was")
		further 50
		out=$(fills "$owner" read 2>&1)
		is "... what was answered is there" test $? = 0
		is "full ($round): nothing is lost, nothing stale is read" load_stop
	done
}

sync() { # GATEWAY [LETTER]
	NEXUS=${2-} python3 -B - $iqn "$(path_of "$1")" <<'END'
import sys
sys.path[:0] = ['tests/cluster', 'tests/support']
from initiator import Peer, addresses_of, login_of
Peer.target = sys.argv[1]
p = login_of(Peer(timeout=20, address=addresses_of(sys.argv[2:])[0])).ready()
p.out(p.command(b'\x35', 0x81))
sys.exit(p.wait_status(p.itt - 1)[1] != 0)
END
}
# RSS of the owner, until the file goes; the most of it.
rss_most() { # FILE
	local n most=0
	while [ -e "$1" ]; do
		n=$(rss "$owner")
		[ "${n:-0}" -le $most ] || most=$n
		sleep 0.1
	done
	echo "$most" >"$1.most"
}
gone='at gateway [0-9]*: \(does not\|has\|takes\|was\)'
given_up() { [ "$(in_log "$owner" "$gone")" -gt "$n" ]; }
part_stopped() {
	echo "# the peer stands still"
	still=${STILL:-30}
	[ "${RBD-}" != short ] || still=6
	for round in $(seq "$rounds"); do
		is "the unit is mirrored" begins
		was=$peer first=$owner
		is "32 writes are at work" queued_start "$owner"
		n=$(in_log "$owner" "$gone")
		before=$(rss "$owner")
		: >"$dir/rss"
		rss_most "$dir/rss" &
		watch=$!
		began=$(day_ms)
		is "$was stands still" gw_freeze "$was"
		is "... and is given up" await 60 given_up
		dismissed=$(said_ms "$gone")
		further 1
		figure dismissal "$(since "$began" "$dismissed")"
		figure answers "$(since "$dismissed" "$(day_ms)")"
		while [ "$(since "$began" "$(day_ms)")" -lt $((still * 1000)) ]; do further 1 && sleep 0.1; done
		rm "$dir/rss"
		wait $watch
		grown=$(($(cat "$dir/rss.most") - before))
		is "$first has grown by $grown KiB at most, of a backlog of 34 MB" test $grown -lt 12288
		is "... and serves" serves "$first"
		gw_wake
		is "$was is there again" await 60 stands_by "$was"
		queued_stop
		ends "peer stood still for $still s ($round)"
		is "... reservations are the same" holds
	done
	bar dismissal 30000 3000 "from the stop of the peer until it is given up"
	bar answers 20000 2000 "from there until writes are answered"
}

image_settles() { some_serves a b c && sync "$owner" s; }
part_woken() {
	echo "# the owner stands still, and is woken"
	for round in $(seq "$rounds"); do
		is "the unit is mirrored" begins
		was=$owner to=$peer
		is "32 writes are at work, 32 blocks cached" queued_start "$was"
		stopped_and_fenced
		is "$to, which has what $was had, serves" serves "$to"
		further 50
		woken "$round"
		ends "owner stopped and woken ($round)"
		goes_on
	done
	figures detect.stop "from the stop of the owner to the deposition"
	bar serve.stop 30000 1000 "from there until the unit is served"
}

for part in ${PARTS:-owner worker peer found cut both full handover stopped woken}; do part_$part; done

all_up
is "the unit is mirrored" await 60 is_mirrored a b c
is "it is synced" sync "$owner" s
is "... RADOS has what the last writer had acknowledged" image_has_it
ask_out out "h$owner" clear 0 1a 0
is "the reservation goes" test "$is" = good
letter=
cat "$dir"/[abc]/log >"$dir/log"
is "nothing is in doubt" test -z "$(grep 'IN DOUBT' "$dir/log")"

echo "# both are lost at once"
gave_up() { gadm "$1" --op update --mode logicalunit --tid 1 --lun 1 --params mirror=lost && [ "$rc" = 0 ]; }
is "the unit is mirrored" begins
gadm "$owner" --op update --mode logicalunit --tid 1 --lun 1 --params mirror=lost
is "what is there is not given up" test "$rc" != 0
ends "before"
begins
next=$(third "$owner" "$peer")
kill -9 $writer $reader $changer
wait $writer $reader $changer 2>/dev/null
writer= reader= changer=
for g in $owner $peer; do gw_kill $g; done
is "the third one does not serve what it cannot know" await 90 unavailable "$next"
is "... until it is given up" await 60 gave_up "$next"
is "... and then does" await 60 serves "$next"
is "... in doubt: SYNC fails" test "$(sync "$next" && echo good)" != good
gadm "$next" --op update --mode logicalunit --tid 1 --lun 1 --params refresh=1
is "somebody has looked" test "$rc" = 0
is "... and SYNC is GOOD" sync "$next"
all_up
is "the unit is mirrored again" await 60 is_mirrored a b c
for g in a b c; do is "$g ends with 0" gw_stop "$g"; done
out=$(for g in a b c; do
	sed -n 's/.*owned here, epoch \([0-9]*\),.*/\1/p' "$dir/$g/log" | sort -nu
done | sort -n | uniq -d)
is "no epoch was owned twice" test -z "$out"
cat "$dir"/[abc]/log >"$dir/log"
is "nothing has been reported" no_report
finish 40
