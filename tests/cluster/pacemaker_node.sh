#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# One node of test_pacemaker.sh: the first process in namespaces of its own (mount, network, process
# ids, host name, IPC), which is all that a machine is to corosync and pacemaker. Whoever kills it
# has killed the machine.
#
#   pacemaker_node.sh NAME ADDRESS DIR BIN
#
# DIR: what the node keeps over its deaths, with corosync.conf. Its network device is "front".
set -u
name=$1 address=$2 dir=$3 bin=$4

hostname "$name"
mkdir -p "$dir"/{etc,pacemaker,corosync,log,state,sbin}
mount -t tmpfs none /run && mount -t tmpfs none /dev/shm || exit 1
mkdir -p /run/crm /run/resource-agents /run/lock
cp "$dir/corosync.conf" "$dir/etc/corosync.conf"
mount --bind "$dir/etc" /etc/corosync
mount --bind "$dir/corosync" /var/lib/corosync
mount --bind "$dir/pacemaker" /var/lib/pacemaker
mount --bind "$dir/log" /var/log/pacemaker
mkdir -p /var/lib/pacemaker/{cib,pengine,cores,blackbox}
chown -R hacluster:haclient /var/lib/pacemaker /var/log/pacemaker /run/crm || exit 1
# What agents call by name, before Debian's tgt; and the fence agent, where pacemaker looks for it.
ln -sf "$bin/tgtadm" "$dir/sbin/tgtadm"
install -m 755 "${0%/*}/fence_node" "$dir/sbin/fence_node"
mount -t overlay none -o "lowerdir=$dir/sbin:/usr/sbin" /usr/sbin || exit 1

ip link set lo up
while ! ip link show front >/dev/null 2>&1; do sleep 0.02; done
ip link set front up
ip addr add "$address/24" dev front

"$bin/tgtd" -f --state-dir "$dir/state" --cache size=8m --iscsi nop_interval=0,nop_count=0 \
	>>"$dir/tgtd.out" 2>&1 &
corosync -f >>"$dir/corosync.out" 2>&1 &
until corosync-quorumtool -s >/dev/null 2>&1; do sleep 0.1; done
pacemakerd -f >>"$dir/pacemakerd.out" 2>&1 &
# (The shell reaps what it inherits.)
while :; do wait; sleep 1; done
