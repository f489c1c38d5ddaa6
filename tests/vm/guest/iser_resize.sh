# SPDX-License-Identifier: GPL-2.0-or-later
#
# The cache becomes larger and smaller while the kernel's initiator writes and verifies, over iSER and over TCP at
# once (W10): no error, no wrong byte, nothing is copied, and no command registers memory.

T=iqn.2026-11.net.tgtd:resize
P=$RDMA_IP:3260

configure() {
	target_new 1 $T-rdma && lun_new 1 1 aio /dev/ram0 && target_new 2 $T-tcp && lun_new 2 1 aio /dev/ram1
}
counter() { adm --mode system --op stat --name "$1" | awk -v n="$1" '$1 == n {print $2}'; }
shown() { adm --mode cache --op show | sed -n "s/^ *$1: //p"; }

# Writes and reads back, again and again, until the sizes have changed.
load() { # NAME DISK
	while :; do
		fio_verify "$1" "$2" 8m || return 1
		[ ! -e /run/enough ] || return 0
	done
}
resized() { # MIB
	adm --mode cache --op update --params "size=${1}m" || return 1
	until_true 600 eval 'case "$(shown Size)/$(shown Resize)" in "'"$1"' MiB/done"*) true ;; *) false ;; esac' ||
		{ adm --mode cache --op show; return 1; }
}
under_load() {
	local rc=0 iser tcp size
	load iser "$ISER" >/run/fio.iser 2>&1 &
	iser=$!
	load tcp "$TCP" >/run/fio.tcp 2>&1 &
	tcp=$!
	for size in ${SIZES:-320 64 128}; do
		resized "$size" || { rc=1; break; }
	done
	touch /run/enough
	wait $iser || rc=1
	wait $tcp || rc=1
	cat /run/fio.iser /run/fio.tcp
	return $rc
}
# What was there before is served from the same registrations; what came was registered in pieces.
registered() {
	adm --mode system --op stat --name iser_
	[ "$(counter iser_copied_bytes)" = 0 ] && [ "$(counter iser_wr_errors)" = 0 ] &&
		[ "$(counter iser_rnr)" = 0 ]
}
same_registrations() {
	local before after
	before=$(counter iser_registrations)
	fio_verify again "$ISER" 8m || return 1
	after=$(counter iser_registrations)
	echo "$before and $after registrations"
	[ "$before" = "$after" ]
}

need 'memory disks' brd_up 2 65536
need 'soft-RoCE device' rdma_up
need 'initiator' iscsid_up
need 'tgtd starts' tgtd_start $P
need 'two targets' configure
need 'login by iSER' login $T-rdma $P iser
need 'login by TCP' login $T-tcp $P
need 'disk by iSER' wait_sd ISER $T-rdma 1 iser
need 'disk by TCP' wait_sd TCP $T-tcp 1
step 'larger, smaller and larger again under load that is verified' under_load
step 'nothing was copied, and nothing failed' registered
step 'commands register nothing' same_registrations
step 'no kernel error' kernel_clean
step 'logout' eval 'logout $T-rdma && logout $T-tcp'
step 'tgtd stops on SIGTERM' tgtd_stop
