# SPDX-License-Identifier: GPL-2.0-or-later
#
# What the stock initiator negotiates: CHAP both ways with each of its algorithms alone and with wrong
# secrets, discovery authentication, each combination of digests under verified load, IPv6, several
# sessions. Then what an initiator that is logged in sees of administration: LUNs that grow, go read-only,
# offline, come and go.

P=127.0.0.1:3260
P6=[::1]:3260
T=iqn.2026-11.net.tgtd:wire
declare -A CHAP_NUMBER=([MD5]=5 [SHA1]=6 [SHA256]=7 [SHA3-256]=8)
CHAP_ALGS='SHA3-256 SHA256 SHA1 MD5'
ISCSID_DEBUG=6 # iscsid logs each key that it sends and gets: much, and each line to /out costs
ISCSID_LOG=/run/iscsid-all.log
NOT_AUTHORIZED=24 # as iscsiadm ends when the target refuses: ISCSI_ERR_LOGIN_AUTH_FAILED
NOT_TRUSTED=19    # and when it refuses the target: ISCSI_ERR_FATAL_LOGIN

stores() { # room for a file that grows
	brd_up 1 262144 && modules ext4 && mkfs.ext4 -q -F /dev/ram0 && mkdir /store && mount /dev/ram0 /store &&
		truncate -s 64m /store/lun
}

configure() { target_new 1 $T && lun_new 1 1 aio /store/lun; }

accounts() {
	local way
	for way in initiator target; do
		adm --lld iscsi --op new --mode account --user $way --password ${way}secret12 || return 1
	done
	adm --lld iscsi --op bind --mode account --tid 1 --user initiator &&
		adm --lld iscsi --op bind --mode account --tid 1 --user target --outgoing
}

# No session and no record, whatever the step before left.
forget() {
	! grep -qsx $T /sys/class/iscsi_session/*/targetname || logout $T
	rm -rf /etc/iscsi/nodes/$T
}

# chap ALGS PASSWORD PASSWORD_IN: a login with these; how iscsiadm ends. What iscsid logged of it stands
# behind byte CHAP_FROM of its log.
chap() {
	local args
	forget
	CHAP_FROM=$(wc -c <$ISCSID_LOG)
	mapfile -t args < <(node_chap initiator "$2" ${3:+target "$3"})
	node_new $T $P tcp "node.session.auth.chap_algs=$1" "${args[@]}" || return 99
	login $T $P
}

chap_log() { tail -c +$((CHAP_FROM + 1)) $ISCSID_LOG; }

# chap_only COUNT PATTERN: of what iscsid has logged since the last chap, so many lines or more are of that
# kind, and none speaks of another algorithm. A process of its own writes the log, so on a busy machine the
# lines come after iscsiadm has ended (defect U12). The initiator may have tried twice: README.md,
# "Login/Text in progress".
chap_only() {
	until_true 60 eval "[ \"\$(chap_log | grep -c '$2')\" -ge $1 ]" && ! chap_log | grep CHAP_A= | grep -v "$2" ||
		{ chap_log; return 1; }
}

chap_accepted() { # ALG
	local n=${CHAP_NUMBER[$1]}
	chap "$1" initiatorsecret12 targetsecret12 || return 1
	# Only this one was offered, and this one was chosen.
	chap_only 2 "CHAP_A=$n\$" || return 1
	wait_sd SD $T 1 && dd if="$SD" of=/dev/null bs=64k count=4 iflag=direct && logout $T
}

chap_refused() { # STATUS ALG PASSWORD PASSWORD_IN
	chap "$2" "$3" "$4"
	local rc=$?
	[ $rc -eq "$1" ] || { echo "login ended with $rc"; chap_log; return 1; }
}

no_chap_refused() {
	forget
	node_new $T $P || return 1
	login $T $P
	[ $? -eq $NOT_AUTHORIZED ]
}

preferred() { # all four offered: the first that we know is taken, and it is the strongest
	chap SHA3-256,SHA256,SHA1,MD5 initiatorsecret12 targetsecret12 || return 1
	until_true 60 eval 'chap_log | grep -q "CHAP_A=8$"' && chap_only 2 'CHAP_A=8$\|CHAP_A=8,7,6,5$' || return 1
	logout $T
}

# Discovery has accounts of its own; the initiator keeps its side in the discovery record.
discovery_chap() { # ALG PASSWORD PASSWORD_IN: how iscsiadm ends
	local auth=discovery.sendtargets.auth rc
	rm -rf /etc/iscsi/send_targets/* /etc/iscsi/nodes/*
	iscsiadm -m discoverydb -t st -p $P -o new &&
		iscsiadm -m discoverydb -t st -p $P -o update -n $auth.authmethod -v CHAP -n node.session.auth.chap_algs -v "$1" \
			-n $auth.username -v initiator -n $auth.password -v "$2" -n $auth.username_in -v target -n $auth.password_in -v "$3" || return 99
	timeout 30 iscsiadm -m discoverydb -t st -p $P --discover -d 6 >/run/discovered 2>&1
	rc=$?
	grep -E 'CHAP_[AN]=|auth|iqn|rror' /run/discovered
	return $rc
}

discovery_accounts() {
	adm --lld iscsi --op bind --mode account --user initiator &&
		adm --lld iscsi --op bind --mode account --user target --outgoing
}

discovery_refused() { # [ALG PASSWORD PASSWORD_IN]
	rm -rf /etc/iscsi/nodes/*
	if [ $# -eq 0 ]; then
		timeout 30 iscsiadm -m discovery -t st -p $P && return 1
	else
		discovery_chap "$@" && return 1
	fi
	[ -z "$(ls /etc/iscsi/nodes)" ]
}

discovery_accepted() { # ALG
	discovery_chap "$1" initiatorsecret12 targetsecret12 && [ "$(ls /etc/iscsi/nodes)" = $T ] &&
		grep -q "CHAP_A=${CHAP_NUMBER[$1]}\$" /run/discovered
}

no_accounts() {
	adm --lld iscsi --op unbind --mode account --tid 1 --user initiator &&
		adm --lld iscsi --op unbind --mode account --tid 1 --user target --outgoing &&
		adm --lld iscsi --op unbind --mode account --user initiator &&
		adm --lld iscsi --op unbind --mode account --user target --outgoing
}

# digests HEADER DATA WANT_HEADER WANT_DATA [KEY=VALUE...]: what was asked for and what must come of it, and fio.
digests() {
	local header=$1 data=$2 want=$3$4 c
	shift 4
	forget
	node_new $T $P tcp "node.conn[0].iscsi.HeaderDigest=$header" "node.conn[0].iscsi.DataDigest=$data" "$@" &&
		login $T $P && wait_sd SD $T 1 || return 1
	c=$(echo /sys/class/iscsi_connection/connection*)
	[ "$(cat "$c/header_digest")$(cat "$c/data_digest")" = "$want" ] || { grep . "$c"/*_digest; return 1; }
	adm --op show --mode target --tid 1
	fio_verify digests "$SD" 4m && logout $T
}

over_ipv6() {
	forget
	iscsiadm -m discovery -t st -p $P6 | grep "^\[::1\]:3260,[0-9]* $T\$" && login $T $P6 && wait_sd SD $T 1 &&
		dd if="$SD" of=/dev/null bs=64k count=4 iflag=direct && iscsiadm -m session | grep -F "$P6" && logout $T
}

# Sessions of one initiator, told apart by their ISIDs: each has its own disk.
three_sessions() {
	forget
	node_new $T $P tcp node.session.nr_sessions=3 && login $T $P && wait_sd SD $T 1 && wait_sd SD2 $T 1 1 && wait_sd SD3 $T 1 2 || return 1
	[ "$(iscsiadm -m session | grep -c "$T")" = 3 ] && [ "$(adm --op show --mode target | grep -c "Initiator: $INITIATOR")" = 3 ] &&
		dd if=/dev/urandom of="$SD" bs=64k count=4 oflag=direct && cmp -n 262144 "$SD" "$SD2" && cmp -n 262144 "$SD" "$SD3" && logout $T
}

# ---- online ---------------------------------------------------------------------------------------------

lu_set() { adm --lld iscsi --op update --mode logicalunit --tid 1 --lun 1 --params "$1"; }

# attention TEXT: TEST UNIT READY is answered once by this unit attention, then the unit is ready.
attention() {
	sg_turs -v "$SD" >/run/turs 2>&1
	[ $? -eq 6 ] && grep -qi "$1" /run/turs || { cat /run/turs; return 1; }
	sg_turs -v "$SD"
}

rescan() { iscsiadm -m session -R >/dev/null; }

grow() {
	md5sum /mnt/wire/before >/run/sum || return 1
	truncate -s 160m /store/lun && lu_set refresh=1 || return 1
	[ "$(blockdev --getsize64 "$SD")" = $((64 << 20)) ] || { echo "the guest knew before it was told"; return 1; }
	sg_turs "$SD" # or the file system's own next command
	dmesg | grep 'Capacity data has changed' && rescan || return 1
	until_true 10 eval '[ "$(blockdev --getsize64 $SD)" = $((160 << 20)) ]' || { blockdev --getsize64 "$SD"; return 1; }
	resize2fs "$SD" && [ "$(df --output=size -k /mnt/wire | tail -n 1)" -gt 131072 ] &&
		fio_verify grown /mnt/wire/grown 4m && dd if=/dev/urandom of=/mnt/wire/fill bs=1M count=90 oflag=direct || return 1
	echo 3 >/proc/sys/vm/drop_caches
	md5sum -c /run/sum
}

# Nobody asks; the next command of the load itself meets the unit attention.
grow_under_load() {
	dmesg -C
	fio_verify load /mnt/wire/load 6m --rate=2m >/run/fio.grow 2>&1 &
	local fio=$! rc
	sleep 1
	truncate -s 200m /store/lun && lu_set refresh=1
	rc=$?
	wait $fio || rc=1
	cat /run/fio.grow
	[ $rc -eq 0 ] && rescan && until_true 10 eval '[ "$(blockdev --getsize64 $SD)" = $((200 << 20)) ]' &&
		dmesg | grep -q 'Capacity data has changed'
}

readonly_online() {
	lu_set readonly=1 && attention 'mode parameters changed' || return 1
	dd if=/dev/zero of="$SD" bs=4k count=1 oflag=direct && { echo "a write passed"; return 1; }
	dd if="$SD" of=/dev/null bs=4k count=1 iflag=direct || { echo "no read"; return 1; }
	rescan
	until_true 10 grep -q 1 "/sys/block/${SD#/dev/}/ro" || { echo "not seen as read-only"; return 1; }
	lu_set readonly=0 && attention 'mode parameters changed' && rescan || return 1
	until_true 10 grep -q 0 "/sys/block/${SD#/dev/}/ro" && dd if=/dev/zero of="$SD" bs=4k count=1 oflag=direct
}

offline_online() {
	lu_set online=0 || return 1
	dd if="$SD" of=/dev/null bs=4k count=1 iflag=direct && { echo "a read passed"; return 1; }
	sg_turs -v "$SD" 2>&1 | grep -i 'not ready' || return 1
	lu_set online=1 && attention 'not ready to ready change, medium may have changed' || return 1
	dd if="$SD" of=/dev/null bs=4k count=1 iflag=direct
}

come_and_go() {
	lun_new 1 2 ram 16m && attention 'reported luns data has changed' && rescan && wait_sd SD2 $T 2 || return 1
	dd if="$SD2" of=/dev/null bs=1M iflag=direct || return 1
	echo 1 >"/sys/block/${SD2#/dev/}/device/delete"
	adm --lld iscsi --op delete --mode logicalunit --tid 1 --lun 2 && attention 'reported luns data has changed' && rescan &&
		! sd_of $T 2
}

need 'backing store' stores
need 'tgtd starts' tgtd_start $P $P6
need 'target and LUN' configure
need 'initiator' iscsid_up
need 'accounts for CHAP both ways' accounts
step 'login without CHAP is refused' no_chap_refused
for alg in $CHAP_ALGS; do
	step "CHAP both ways by $alg" chap_accepted $alg
	step "CHAP by $alg, wrong secret of the initiator: refused" chap_refused $NOT_AUTHORIZED $alg initiatorsecret13 targetsecret12
	step "CHAP by $alg, wrong secret of the target: the initiator refuses" chap_refused $NOT_TRUSTED $alg initiatorsecret12 targetsecret13
done
step 'of all four the strongest is taken' preferred
need 'accounts for discovery' discovery_accounts
step 'discovery without CHAP is refused' discovery_refused
for alg in SHA3-256 MD5; do
	step "discovery by CHAP both ways by $alg" discovery_accepted $alg
done
step 'discovery, wrong secret of the initiator: refused' discovery_refused MD5 initiatorsecret13 targetsecret12
step 'discovery, wrong secret of the target: the initiator refuses' discovery_refused SHA256 initiatorsecret12 targetsecret13
need 'no authentication any more' no_accounts

# Each combination, and with each another way of asking for data.
step 'no digest; unsolicited data' digests None None 0 0 node.session.iscsi.InitialR2T=No node.session.iscsi.ImmediateData=No
step 'header digest; every byte by R2T' digests CRC32C None 1 0 node.session.iscsi.InitialR2T=Yes node.session.iscsi.ImmediateData=No
step 'data digest; immediate data' digests None CRC32C 0 1 node.session.iscsi.InitialR2T=Yes node.session.iscsi.ImmediateData=Yes \
	node.session.iscsi.MaxOutstandingR2T=4 node.session.iscsi.MaxBurstLength=65536
step 'both digests; all ways' digests CRC32C CRC32C 1 1 node.session.iscsi.InitialR2T=No node.session.iscsi.ImmediateData=Yes
step 'digests left to us: the first that it names' digests CRC32C,None None,CRC32C 1 0

step 'by IPv6' over_ipv6
step 'three sessions of one initiator' three_sessions
need 'login' eval "forget && login $T $P"
need 'disk' wait_sd SD $T 1
need 'mkfs.ext4 and mount' make_fs ext4 "$SD" /mnt/wire
need 'a file' dd if=/dev/urandom of=/mnt/wire/before bs=1M count=8 oflag=direct
step 'the LUN grows online, the file system after it' grow
step 'it grows under load' grow_under_load
step 'umount' umount /mnt/wire
step 'fsck' check_fs ext4 "$SD"
step 'no kernel error so far' kernel_clean 'detected conn error|Capacity data has changed'
step 'read-only online and back' readonly_online
step 'offline and online' offline_online
step 'a LUN comes and goes' come_and_go
step 'logout' logout $T
cp $ISCSID_LOG /out/iscsid.log
step 'tgtd stops on SIGTERM' tgtd_stop
