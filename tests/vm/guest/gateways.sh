# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# Three gateways of the host, and a path to each: dm-multipath by ALUA with the multipath.conf of
# tgtd/cluster/live/README.md. Under a file system and a persistent reservation, gateways are killed and
# come back; the unit is moved. What is written is verified, and nobody else may write.

T=$IQN
KEY=0xabc
KILLS=${KILLS:-5}

ask() { # WORDS...: $ANSWER; test_gateways.sh says which there are
	rm -f /out/answer
	echo "$*" >/out/ask.new
	mv /out/ask.new /out/ask
	until_true 600 [ -e /out/answer ] && read -r ANSWER </out/answer && echo "$*: $ANSWER"
}
does() { ask "$@" && [ "$ANSWER" = yes ]; }

to_the_host() {
	modules virtio_net && ip link set eth0 up && ip addr add 10.0.2.15/24 dev eth0 && ip route add default via 10.0.2.2
}

# The page's, as it stands there.
page_conf() {
	sed -n '/`\/etc\/multipath.conf`:/,/^   [^ ]/p' "$REPO/tgtd/cluster/live/README.md" |
		sed -n 's/^       //p' >/run/multipath.conf
	cat /run/multipath.conf
	grep -q 'prio alua' /run/multipath.conf
}

all_logged_in() {
	local g port
	for g in a b c; do
		port=PORT_$g
		login "$T" "10.0.2.2:${!port}" || return 1
	done
}

gateway_of() { # sdX
	local session g port
	session=$(readlink -f "/sys/block/$1/device")
	session=${session#*/session}
	port=$(cat "/sys/class/iscsi_connection/connection${session%%/*}:0/persistent_port")
	for g in a b c; do
		local is=PORT_$g
		[ "$port" != "${!is}" ] || echo $g
	done
}

# A line a path: gateway, priority, "active ready", "active ghost" or "failed faulty".
paths() {
	local sd prio state
	multipathd show paths raw format '%d %p %t %T' 2>/dev/null | while read -r sd prio state; do
		echo "$(gateway_of "$sd") $prio $state"
	done
}

# GATEWAY's path is the one for I/O, and has the highest priority; GHOSTS others stand by.
follows() { # GATEWAY GHOSTS
	paths >/run/paths
	awk -v g="$1" -v want="$2" '
		/active ready/ { ready++; if ($1 == g) best = $2; next }
		/active ghost/ { ghosts++; if ($2 + 0 > other + 0) other = $2 }
		END { exit !(ready == 1 && best + 0 > other + 0 && ghosts + 0 >= want + 0) }' /run/paths
}
soon_follows() { until_true 300 follows "$@" || { cat /run/paths; multipathd show topology; return 1; }; }

disks_of_one_size() {
	local n sd size first=
	for n in 0 1 2; do
		wait_sd sd "$T" 1 $n || return 1
		size=$(blockdev --getsize64 "$sd")
		[ "$size" -gt 0 ] && [ "${first:=$size}" = "$size" ] || return 1
	done
}

map_of_three() {
	local dm
	soon_follows "$OWNER" 2 || return 1
	dm=$(echo /sys/block/"$(basename "$(sd_of "$T" 1)")"/holders/dm-*)
	DM=/dev/${dm##*/}
	[ -b "$DM" ] && multipath -ll
}

registered() { # N: by so many paths
	mpathpersist --in --read-keys "$DM" >/run/keys 2>&1
	cat /run/keys
	[ "$(grep -ci "^ *$KEY" /run/keys)" = "$1" ]
}
reserved() {
	mpathpersist --out --register --param-sark=$KEY "$DM" && registered 3 &&
		mpathpersist --out --reserve --param-rk=$KEY --prout-type=5 "$DM" &&
		mpathpersist --in --read-reservation "$DM" | tee /run/held && grep -qi $KEY /run/held
}
released() {
	mpathpersist --out --release --param-rk=$KEY --prout-type=5 "$DM" &&
		mpathpersist --out --register --param-rk=$KEY --param-sark=0 "$DM" && registered 0
}
intruder() { # GATEWAY ANSWER; RESERVATION CONFLICT is status 18h
	ask intrude "$1" && [ "$ANSWER" = "$2" ]
}

load() {
	while [ ! -e /run/enough ]; do
		fio_verify gw /mnt/gw/load 6m --rate=1m || return 1
	done
}
load_goes_on() { kill -0 "$LOAD" || { cat /run/load; return 1; }; }
load_ends() {
	: >/run/enough
	wait "$LOAD"
	local rc=$?
	cat /run/load
	return $rc
}

kill_and_return() {
	local was=$OWNER
	does kill "$was" && ask owner && [ "$ANSWER" != "$was" ] || return 1
	OWNER=$ANSWER
	soon_follows "$OWNER" 1 && intruder "$OWNER" "status 18" && load_goes_on && does start "$was" &&
		soon_follows "$OWNER" 2 && load_goes_on
}
moved() { does move "$1" && OWNER=$1 && soon_follows "$1" 2 && load_goes_on; }
another() { [ "$OWNER" = a ] && echo b || echo a; }

need 'network to the host' to_the_host
need "the page's multipath.conf" page_conf
need 'initiator' iscsid_up node.session.timeo.replacement_timeout=5
need 'multipathd' multipath_up /run/multipath.conf
need 'login to three gateways' all_logged_in
need 'three disks of one size' disks_of_one_size
need 'who serves' ask owner
OWNER=$ANSWER
need 'one map: a path for I/O, two that stand by' map_of_three
step 'registered by all paths, and reserved' reserved
step 'another initiator may not write' intruder "$OWNER" "status 18"
need 'mkfs.ext4 and mount' make_fs ext4 "$DM" /mnt/gw
load >/run/load 2>&1 &
LOAD=$!
for n in $(seq "$KILLS"); do
	step "gateway killed and back, the path's priority follows ($n)" kill_and_return
done
step 'moved by the administrator, the priority follows' moved "$(another)"
step 'what was written is what is read' load_ends
step 'the key is still registered by all paths' registered 3
step 'umount' umount /mnt/gw
step 'fsck' check_fs ext4 "$DM"
step 'released and unregistered' released
step 'the other initiator may write' intruder "$OWNER" good
step 'multipath down' multipath_down
step 'logout' logout "$T"
step 'kernel log: nothing but lost paths' kernel_clean \
	'detected conn error|session recovery|offline device|I/O error, dev sd|cannot continue recovery|rtpg|ALUA|alua|unable to read RDB|Power-on or device reset|Reservation'
