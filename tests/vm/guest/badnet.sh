# SPDX-License-Identifier: GPL-2.0-or-later
#
# Bad networks (N7) for the kernel's initiator, by netem, with tgtd in a network namespace of its own.
# fio reads back all that it has written. More kinds of them, and figures, are in
# tests/integration/test_bad_network.sh; iSER is in badnet_iser.sh.

T=iqn.2026-11.net.tgtd:badnet
HERE=10.9.0.2 THERE=10.9.0.1
P=$THERE:3260

far() { ip netns exec far "$@"; }

link_up() {
	modules veth sch_netem && ip link set lo up && ip netns add far && far ip link set lo up &&
		ip link add near type veth peer name far netns far || return 1
	# Packets as on a wire: of one MTU each, so that one is lost at a time.
	ip link set near gso_max_segs 1 && far ip link set far gso_max_segs 1 &&
		ip addr add $HERE/24 dev near && far ip addr add $THERE/24 dev far &&
		ip link set near up && far ip link set far up && net delay 50us
}

# net NETEM-OPTIONS...: of both directions, from now on.
net() {
	tc qdisc replace dev near root netem limit 100000 "$@" &&
		far tc qdisc replace dev far root netem limit 100000 "$@"
}

far_tgtd() {
	# shellcheck disable=SC2086
	ip netns exec far "$TGT_BIN/tgtd" -f -C "$TGT_PORT" --iscsi "portal=$P" $TGTD_OPTIONS \
		>>/out/tgtd.log 2>&1 &
	TGTD_PID=$!
	until_true 60 adm --op show --mode system
}

over() { # NAME NETEM-OPTIONS...
	local name=$1
	shift
	net "$@"
	step "$name" fio_verify k "$SD" 1m --bssplit=4k/60:32k/40
}

hole() {
	local load
	net delay 5ms
	fio_verify hole "$SD" 8m --bssplit=4k/60:32k/40 &
	load=$!
	sleep 2
	net delay 5ms loss 100%
	sleep 3
	net delay 5ms
	wait $load
}

need 'a link of netem' link_up
need 'tgtd starts' far_tgtd
need 'target and LUN' eval "target_new 1 $T && lun_new 1 1 ram 64m"
need 'initiator' iscsid_up
need 'login' login $T $P
need 'disk' wait_sd SD $T 1
over '10 ms, loss 0.1 %' delay 5ms loss 0.1%
over '95 ms, loss 1 %' delay 47500us loss 1%
over '10 ms, reordered, duplicated' delay 5ms reorder 25% 50% duplicate 5%
step 'dead for 3 s' hole
net delay 50us
step 'logout' logout $T
step 'kernel log' kernel_clean 'detected conn error|ping timeout'
step 'tgtd stops' tgtd_stop
