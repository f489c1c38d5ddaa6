# SPDX-License-Identifier: GPL-2.0-or-later
#
# Bad networks (N7) for iSER: the kernel's ib_iser and tgtd, each on a soft-RoCE device of its own, and
# between these a link of netem. Soft-RoCE has its sockets in the machine's own namespace alone, so both
# ends are there, and rules for routing send what is for the other end over the link: an address of our own
# is local only to what comes in by its interface. fio reads back all that it has written. PEER=lio has
# the kernel's target in place of tgtd: what is the initiator's or soft-RoCE's shows there, too.

T=iqn.2026-11.net.tgtd:badnet-iser
HERE=10.9.1.2 THERE=10.9.1.1
P=$THERE:3260

one_way() { # ADDRESS DEVICE TABLE: what goes to the address leaves by the device
	ip route add "$1" dev "$2" table "$3" && ip rule add pref "$3" to "$1" lookup "$3"
}

link_up() {
	local dev
	modules veth sch_netem && ip link set lo up &&
		ip link add rdma0 type veth peer name rdma1 || return 1
	for dev in rdma0 rdma1; do
		# Packets of one MTU each: 4 KiB and headers.
		ip link set $dev mtu 4200 gso_max_segs 1 up &&
			echo 1 >/proc/sys/net/ipv4/conf/$dev/accept_local &&
			echo 0 >/proc/sys/net/ipv4/conf/$dev/rp_filter || return 1
		ip rule add pref 10 iif $dev lookup local
	done
	echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
	ip addr add $HERE/32 dev rdma0 && ip addr add $THERE/32 dev rdma1 &&
		one_way $THERE rdma0 20 && one_way $HERE rdma1 30 &&
		ip rule add pref 100 lookup local && ip rule del pref 0 || return 1
	ip neigh replace $THERE lladdr "$(cat /sys/class/net/rdma1/address)" dev rdma0 nud permanent &&
		ip neigh replace $HERE lladdr "$(cat /sys/class/net/rdma0/address)" dev rdma1 nud permanent
	net delay 50us
	ip route get $THERE | grep -q 'dev rdma0'
}

# net NETEM-OPTIONS...: of both directions, from now on.
net() {
	tc qdisc replace dev rdma0 root netem limit 100000 "$@" &&
		tc qdisc replace dev rdma1 root netem limit 100000 "$@"
}

rxe_up() {
	modules crc32_generic crc32c_generic crct10dif_generic rdma_rxe ib_uverbs rdma_cm rdma_ucm || return 1
	rdma link add rxe0 type rxe netdev rdma0 && rdma link add rxe1 type rxe netdev rdma1 || return 1
	until_true 5 grep -q ACTIVE /sys/class/infiniband/rxe0/ports/1/state &&
		until_true 5 grep -q ACTIVE /sys/class/infiniband/rxe1/ports/1/state
}

pings() {
	local server rc
	rping -s -a $THERE -p 7174 -C 5 &
	server=$!
	sleep 1
	timeout 60 rping -c -a $THERE -I $HERE -p 7174 -C 5 -v
	rc=$?
	[ $rc = 0 ] || kill $server 2>/dev/null
	wait $server || rc=1
	return $rc
}

sent() { cat /sys/class/net/rdma0/statistics/tx_packets; }
lost() { # in both directions
	{
		tc -s qdisc show dev rdma0
		tc -s qdisc show dev rdma1
	} | sed -n 's/.*dropped \([0-9]*\).*/\1/p' | awk '{n += $1} END {print n + 0}'
}

hundredths() { # of a second, since the machine began
	local up
	read -r up _ </proc/uptime
	echo "${up/./}"
}

# The longest time in which nothing ended of what was under way at the disk, to /run/still, until
# /run/watched is gone.
watch_disk() {
	local reads writes busy ended='' was='' since longest=0
	since=$(hundredths)
	while [ -e /run/watched ]; do
		read -r reads _ _ _ writes _ _ _ busy _ <"/sys/block/${SD#/dev/}/stat"
		ended="$reads $writes"
		[ "$ended" = "$was" ] && [ "$busy" != 0 ] || since=$(hundredths)
		was=$ended
		[ $(($(hundredths) - since)) -le $longest ] || longest=$(($(hundredths) - since))
		sleep 0.1
	done
	echo $longest >/run/still
}

over() { # NAME NETEM-OPTIONS...
	local name=$1 before were watcher
	shift
	net "$@"
	before=$(sent) were=$(lost)
	touch /run/watched
	watch_disk &
	watcher=$!
	step "$name" fio_verify k "$SD" 1m --bssplit=4k/60:32k/40
	rm /run/watched
	wait $watcher
	echo "# $name: $(($(sent) - before)) packets from the initiator; $(($(lost) - were)) of both were lost;" \
		"for $(($(cat /run/still) / 100)) s nothing ended"
}

ours() { [ "${PEER:-ours}" = ours ]; }

hole() {
	local load
	net delay 5ms
	fio_verify hole "$SD" 2m --bssplit=4k/60:32k/40 &
	load=$!
	sleep 2
	net delay 5ms loss 100%
	sleep 3
	net delay 5ms
	wait $load
}


need 'a link of netem to ourselves' link_up
need 'a soft-RoCE device at each end' rxe_up
need 'rping over the link' pings
packets=$(sent)
if ours; then
	need 'tgtd starts' tgtd_start $P
	need 'target and LUN' eval "target_new 1 $T && lun_new 1 1 ram 64m"
else
	need 'memory disk' brd_up 1 65536
	need 'LIO target' lio_target $T /dev/ram0 $P iser
fi
# Connections that stand still after a loss are given up by this (tests/bench/README.md).
need 'initiator' iscsid_up 'node.conn[0].timeo.noop_out_timeout=30'
need 'login over iSER' login $T $P iser
need 'disk' wait_sd SD $T "$(ours && echo 1 || echo 0)" iser
# Else commands are aborted after 30 s, and ib_iser of Linux 6.1 now and then crashes in that (a null
# pointer in iser_dma_unmap_task_data).
need 'commands have time' eval 'echo 300 >"/sys/block/${SD#/dev/}/device/timeout"'
step 'it goes over the link' test "$(sent)" -gt "$packets"
for rtt in 0.1 10; do
	for loss in 0 0.1 1; do
		delay=$(echo "$rtt" | awk '{ print $1 * 500 }')us
		if [ $loss = 0 ]; then
			over "$rtt ms, loss $loss %" delay "$delay"
		else
			over "$rtt ms, loss $loss %" delay "$delay" loss $loss%
		fi
	done
done
step 'dead for 3 s' hole
net delay 50us
step 'logout' logout $T
# Connections that soft-RoCE has given up are made anew.
step 'kernel log' kernel_clean 'detected conn error|ping timeout|Login/Text in progress'
if ours; then
	step 'tgtd stops' tgtd_stop
fi
