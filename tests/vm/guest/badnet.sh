# SPDX-License-Identifier: GPL-2.0-or-later
#
# Bad networks (N7) for the kernel's initiator, by netem: over TCP, with tgtd in a network namespace of
# its own, and over iSER. fio reads back all that it has written. What other initiators meet there,
# and figures: tests/integration/test_bad_network.sh.

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
	step "TCP, $name" fio_verify k "$SD" 1m --bssplit=4k/60:32k/40
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

# Soft-RoCE has its sockets in the machine's own namespace alone. So both ends are here, and rules
# send what is for the other end over the link instead of over `lo`.
rdma_link() {
	local dev
	modules crc32_generic crc32c_generic crct10dif_generic rdma_rxe ib_uverbs rdma_cm rdma_ucm || return 1
	ip link add ra type veth peer name rb && ip link set ra mtu 4200 up &&
		ip link set rb mtu 4200 up && ip addr add 10.8.0.1/32 dev ra &&
		ip addr add 10.8.0.2/32 dev rb || return 1
	for dev in all ra rb; do
		echo 1 >/proc/sys/net/ipv4/conf/$dev/accept_local
		echo 0 >/proc/sys/net/ipv4/conf/$dev/rp_filter
		echo 1 >/proc/sys/net/ipv4/conf/$dev/arp_ignore
	done
	ip route add 10.8.0.1 dev rb src 10.8.0.2 table 101 &&
		ip route add 10.8.0.2 dev ra src 10.8.0.1 table 102 &&
		ip rule add pref 10 lookup local &&
		ip rule add pref 5 to 10.8.0.1 iif lo lookup 101 &&
		ip rule add pref 6 to 10.8.0.2 iif lo lookup 102 &&
		ip rule del pref 0 lookup local || return 1
	rdma link add rxa type rxe netdev ra && rdma link add rxb type rxe netdev rb && rdma_net delay 50us
}

rdma_net() {
	tc qdisc replace dev ra root netem limit 100000 "$@" &&
		tc qdisc replace dev rb root netem limit 100000 "$@"
}

rb_sent() { cat /sys/class/net/rb/statistics/tx_packets; }

rdma_over() { # NAME NETEM-OPTIONS...
	local name=$1
	shift
	rdma_net "$@"
	step "iSER, $name" fio_verify r "$SD" 1m --bssplit=4k/60:32k/40
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
step 'TCP, dead for 3 s' hole
net delay 50us
step 'logout' logout $T
step 'kernel log' kernel_clean 'detected conn error|ping timeout'
step 'tgtd stops' tgtd_stop

need 'a link for soft-RoCE' rdma_link
P=10.8.0.1:3270
need 'tgtd starts, for iSER' tgtd_start $P
if ! adm --op show --mode system | grep -q 'iser: ready'; then
	skip 'iSER' 'this tgtd serves no iSER'
	exit 0
fi
need 'target and LUN for iSER' eval "target_new 1 $T && lun_new 1 1 ram 64m"
need 'login over iSER' login $T $P iser
need 'its disk' wait_sd SD $T 1 iser
SENT=$(rb_sent)
rdma_over '0.1 ms' delay 50us
step '... which goes over the link' eval '[ $(($(rb_sent) - SENT)) -gt 200 ]'
rdma_over '10 ms' delay 5ms
rdma_over '10 ms, loss 0.1 %' delay 5ms loss 0.1%
rdma_over '10 ms, duplicated' delay 5ms duplicate 2%
rdma_net delay 50us
step 'logout from iSER' logout $T
step 'kernel log after iSER' kernel_clean \
	'detected conn error|ping timeout|rxe_|rx[ab]|Login/Text in progress'
step 'tgtd stops again' tgtd_stop
