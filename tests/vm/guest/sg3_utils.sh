# SPDX-License-Identifier: GPL-2.0-or-later
#
# sg3-utils, tool by tool, against our disks: what a tool decodes must be what we mean, without a word of
# complaint, what a command changes must be seen on the medium, and what we do not offer must be refused
# with the right sense and do no harm. (tests/integration/test_mt_sg3_utils.sh runs this, too, without a VM.)

RUN=${RUN:-/run}
P=127.0.0.1:3260
T=iqn.2026-11.net.tgtd:sg
# How the tools end (sg_lib.h).
NOT_READY=2 ILLEGAL=5 ATTENTION=6 INVALID_OPCODE=9 MISCOMPARE=14 OUT_OF_RANGE=22 CONDITION_MET=${CONDITION_MET:-25}
# What they print when an answer is not as the standards say.
COMPLAINT='malformed|too short|badly formed|\?\?|truncat|unknown|unexpected|not decoded|only hex|exceeds|insane|corrupt|strange|bad (page|length|resp)'

luns() { # a thin disk, one of 4 KiB blocks, one to copy to
	adm --op update --mode sys --name State -v offline && target_new 1 $T &&
		adm --lld iscsi --op update --mode target --tid 1 --name allow_target_reset --value Yes &&
		adm --lld iscsi --op update --mode target --tid 1 --name allow_explicit_alua --value Yes &&
		lun_new 1 1 ram 32m,block=4k && lun_new 1 2 ram 32m --blocksize 4096 &&
		lun_new 1 3 ram 32m && adm --lld iscsi --op update --mode logicalunit --tid 1 --lun 1 --params thin_provisioning=1 &&
		adm --lld iscsi --op update --mode logicalunit --tid 1 --lun 2 --params thin_provisioning=1 &&
		adm --op update --mode sys --name State -v ready
}

# sg_xcopy opens its disks by these.
block_links() {
	local dev
	mkdir -p /dev/block
	for dev in "$D" "$D4" "$D3"; do
		ln -sf "$dev" "/dev/block/$(cat "/sys/block/${dev#/dev/}/dev")" || return 1
	done
}

# ends STATUS COMMAND...: it ends so, and does not complain. What it says stays in $RUN/says.
ends() {
	local want=$1 rc
	shift
	"$@" >$RUN/says 2>&1 </dev/null
	rc=$?
	echo "\$ $*"
	cat $RUN/says
	[ $rc -eq "$want" ] || { echo "ended with $rc, expected $want"; return 1; }
	! grep -iE "$COMPLAINT" $RUN/says | grep -v 'mapped (or unknown)'
}

says() { # REGEX...: each is found in what was said
	local r
	for r; do
		grep -qE -- "$r" $RUN/says || { echo "not said: $r"; return 1; }
	done
}

fill() { # BYTE BLOCKS [SIZE]: prints that many blocks of it
	head -c $(($2 * ${3:-512})) /dev/zero | tr '\0' "\\$(printf %o "$1")"
}

# holds DEVICE LBA BLOCKS BYTE [SIZE]: what is on the medium there.
holds() {
	fill "$4" "$3" "${5:-512}" >$RUN/want
	rm -f $RUN/got
	sg_dd if="$1" of=$RUN/got bs="${5:-512}" skip="$2" count="$3" blk_sgio=1 >$RUN/dd 2>&1 && cmp $RUN/got $RUN/want || { cat $RUN/dd; return 1; }
}

put() { # DEVICE LBA BLOCKS BYTE
	fill "$4" "$3" >$RUN/put
	sg_dd if=$RUN/put of="$1" bs=512 seek="$2" count="$3" blk_sgio=1 >$RUN/dd 2>&1 || { cat $RUN/dd; return 1; }
}

# ---- what it is ---------------------------------------------------------------------------------------

inquiry() {
	ends 0 sg_inq --descriptors "$D" && says 'PDT=0 .*version=0x06' 'HiSUP=1  Resp_data_format=2' 'TPGS=3  3PC=1' 'CmdQue=1' \
		'SAM-5' 'iSCSI' 'SPC-4' 'SBC-4' || return 1
	ends 0 sg_inq --descriptors "$C" && says 'PDT=12' 'storage array controller' || return 1
	ends 0 sg_inq --export --page=0x83 "$D" && says 'SCSI_IDENT_LUN_NAA' 'SCSI_IDENT_PORT_RELATIVE=1' || return 1
	ends $ILLEGAL sg_vpd --force --page=0xc3 "$D"
}

vpd_pages() {
	local dev page
	for dev in "$D" "$D4" "$C"; do
		ends 0 sg_vpd --page=sv "$dev" || return 1
		for page in $(sed -n 's/^ *\(0x[0-9a-f]*\) .*/\1/p' $RUN/says); do
			ends 0 sg_vpd --long --page="$page" "$dev" || return 1
		done
		ends 0 sg_vpd --all --long "$dev" || return 1
	done
	# as sg_vpd finds them by asking for all, there are no others
	ends 0 sg_vpd --examine --quiet "$D" && [ "$(grep -c 'VPD page' $RUN/says)" -le 11 ] &&
		ends 0 sg_vpd --page=bl "$D" && says 'Maximum compare and write length: 255' 'Maximum unmap LBA count: -1' 'WSNZ\): 1' &&
		ends 0 sg_vpd --page=lbpv "$D" && says 'LBPU\): 1' 'LBPRZ\): 1' 'thin provisioned' &&
		ends 0 sg_vpd --page=sp "$D" && says "$T,t,0x0001" && ends 0 sg_vpd --page=tpc "$D" && says 'Extended copy' 'Populate token'
}

capacity_and_luns() {
	ends 0 sg_readcap "$D" && says 'Last LBA=65535 ' 'block length=512 bytes' &&
		ends 0 sg_readcap --long "$D" && says 'Last LBA=65535 ' 'lbpme=1, lbprz=1' 'prot_en=0' &&
		ends 0 sg_readcap --long "$D4" && says 'Last LBA=8191 ' 'block length=4096 bytes' || return 1
	ends 0 sg_luns --decode "$D" && says '4 lun entries' 'lun=0' 'lun=3' &&
		ends 0 sg_luns --select=1 "$D" && says 'c101000000000000' && ends 0 sg_luns --select=2 "$D" &&
		says '5 lun entries'
}

modes() {
	local pc page
	for pc in 0 1 2 3; do
		ends 0 sg_modes --all --control=$pc "$D" && says 'Caching' 'Control' 'Informational exceptions' 'Read-Write error recovery' &&
			ends 0 sg_modes --six --all --control=$pc "$D" && says 'Caching' && ends 0 sg_modes -a -a --control=$pc "$D" &&
			ends 0 sg_modes --six --dbd -a -a --control=$pc "$D" || return 1
	done
	ends 0 sg_modes --llbaa --page=8 "$D" && ends $ILLEGAL sg_modes --examine "$D" &&
		[ "$(sed 1,/Discovered/d $RUN/says | wc -l)" = 4 ] || return 1
	sg_turs "$C" # power on
	ends 0 sg_modes --all "$C" || return 1
	for page in 0x02 0x3e 0x19; do
		ends $ILLEGAL sg_modes --page=$page "$D" || return 1
	done
}

wce() { sg_modes --page=8 -R "$D" | sed -n 3p; }

mode_select() { # the write cache off and on, which the other LUs do not notice
	[ "$(wce)" = 14 ] && ends 0 sg_wr_mode --page=8 --contents=8,12,10 --mask=0,0,4 "$D" && [ "$(wce)" = 10 ] &&
		put "$D" 0 8 0x11 && holds "$D" 0 8 0x11 && ends 0 sg_wr_mode --six --page=8 --contents=8,12,14 --mask=0,0,4 "$D" &&
		[ "$(wce)" = 14 ] && ends $ILLEGAL sg_wr_mode --page=8 --contents=8,12,ff --mask=0,0,ff "$D" && [ "$(wce)" = 14 ]
}

logs() {
	ends 0 sg_logs --list "$D" && ends 0 sg_logs --list --list "$D" && ends 0 sg_logs --all "$D" && ends 0 sg_logs --all --all "$D" &&
		ends 0 sg_logs --page=lbp "$D" && says 'Available LBA mapping' 'Used LBA mapping' &&
		ends 0 sg_logs --page=gsp "$D" && says 'number of read commands = [1-9]' 'number of write commands = [1-9]' &&
		ends 0 sg_logs --page=ie "$D" && ends 0 sg_logs --temperature "$D" || return 1
	ends $ILLEGAL sg_logs --page=0x15 "$D" && ends $ILLEGAL sg_logs --page=gsp --control=3 --sp "$D" && ends $INVALID_OPCODE sg_logs --reset "$D"
}

opcodes() {
	ends 0 sg_opcodes --mask "$D" && says 'Write same\(16\)' 'Compare and write' 'Write atomic\(16\)' 'Persistent reserve out, register and move' || return 1
	local n
	n=$(grep -cE '^ *[0-9a-f]{2} ' $RUN/says)
	ends 0 sg_opcodes --rctd --unsorted "$D" && [ "$n" -ge 70 ] && ends 0 sg_opcodes --rctd --mask --compact "$D" && ends 0 sg_opcodes "$C" || return 1
	ends 0 sg_opcodes --opcode=0x93 --rctd "$D" && says 'Command is supported' && ends 0 sg_opcodes --opcode=0x9e,0x12 "$D" &&
		says 'Command is supported' && ends 0 sg_opcodes --opcode=0x04 "$D" && says 'Command is supported' &&
		ends 0 sg_opcodes --opcode=0x07 "$D" && says 'Command is NOT supported' && ends 0 sg_opcodes --opcode=0x5f,0x08 "$D" &&
		says 'Command is NOT supported' || return 1
	ends 0 sg_opcodes --tmf "$D" && says 'Abort task' 'Logical unit reset' && ends 0 sg_opcodes --tmf --repd "$D"
}

port_groups() {
	ends 0 sg_rtpg --decode "$D" && says 'target port group id : 0x1' 'active/optimized' 'S_SUP : 1, AN_SUP : 1, AO_SUP : 1' && ends 0 sg_rtpg --decode --extended "$D" || return 1
	ends 0 sg_stpg --tp=1 --state=s "$D" && ends 0 sg_rtpg --decode "$D" && says 'standby' && ends $NOT_READY sg_turs "$D" &&
		ends 0 sg_inq "$D" && ends 0 sg_stpg --tp=1 --state=an "$D" && ends 0 sg_turs "$D" && ends 0 sg_rtpg --decode "$D" &&
		says 'active/non optimized' || return 1
	ends 0 sg_stpg --tp=7 --state=ao "$D" && says 'Illegal request' && ends 0 sg_stpg --tp=1 --state=14 "$D" && says 'Illegal request' && ends 0 sg_stpg --tp=1 --state=ao "$D" && ends 0 sg_turs "$D"
}

timestamp() {
	local ms now
	ends 0 sg_timestamp --origin "$D" || return 1
	ends 0 sg_timestamp --milliseconds=1700000000000 "$D" && ends 0 sg_timestamp --seconds=1800000000 "$D" &&
		ms=$(sg_timestamp --srep "$D") && [ "$ms" -ge 1800000000 ] && [ "$ms" -lt 1800000060 ] && ends 0 sg_timestamp -o -o "$D"
}

# ---- what it does ---------------------------------------------------------------------------------------

# 0 mapped, 1 deallocated; what is anchored and zero may be told as either (LBPRZ = 1).
lba_status() { # DEVICE LBA
	sg_get_lba_status -bb --lba="$2" "$1"
}

unmapping() {
	put "$D" 4096 64 0x22 && [ "$(lba_status "$D" 4096)" = 0 ] && ends 0 sg_unmap --force --lba=4096 --num=32 "$D" &&
		[ "$(lba_status "$D" 4096)" = 1 ] && [ "$(lba_status "$D" 4128)" = 0 ] && holds "$D" 4096 32 0 && holds "$D" 4128 32 0x22 &&
		ends 0 sg_unmap --force --lba=4128,4144 --num=8,16 "$D" && holds "$D" 4128 8 0 && holds "$D" 4136 8 0x22 || return 1
	ends 0 sg_get_lba_status --lba=4096 --maxlen=4096 "$D" && says 'LBA: 0x0*1000  blocks: *40  deallocated' 'LBA: 0x0*1028  blocks: *8  mapped' &&
		ends $OUT_OF_RANGE sg_unmap --force --lba=65530 --num=10 "$D" && ends $OUT_OF_RANGE sg_get_lba_status --lba=65536 "$D" &&
		ends $INVALID_OPCODE sg_unmap --force --lba=0 --num=8 "$D3" && ends 0 sg_unmap --force --anchor --lba=8192 --num=64 "$D" && holds "$D" 8192 64 0
}

write_same() {
	fill 0x33 1 >$RUN/block
	ends 0 sg_write_same --10 --in=$RUN/block --lba=100 --num=50 "$D" && holds "$D" 100 50 0x33 &&
		ends 0 sg_write_same --16 --ff --xferlen=512 --lba=120 --num=10 "$D" && holds "$D" 120 10 0xff && holds "$D" 130 20 0x33 &&
		ends 0 sg_write_same --16 --ndob --lba=100 --num=8 "$D" && holds "$D" 100 8 0 &&
		put "$D" 2048 64 0x44 && ends 0 sg_write_same --unmap --lba=2048 --num=64 "$D" && holds "$D" 2048 64 0 && [ "$(lba_status "$D" 2048)" = 1 ] &&
		ends 0 sg_write_same --16 --unmap --anchor --lba=2048 --num=64 "$D" && holds "$D" 2048 64 0 || return 1
	fill 0x34 1 4096 >$RUN/block
	ends 0 sg_write_same --16 --in=$RUN/block --lba=5 --num=3 "$D4" && holds "$D4" 5 3 0x34 4096 || return 1
	# WSNZ, beyond the end, protection information, 32-byte CDB
	ends $ILLEGAL sg_write_same --16 --lba=0 --num=0 --xferlen=512 "$D" && ends $OUT_OF_RANGE sg_write_same --16 --lba=65535 --num=2 --xferlen=512 "$D" &&
		ends $ILLEGAL sg_write_same --16 --wrprotect=1 --lba=0 --num=1 --xferlen=512 "$D" && ends $INVALID_OPCODE sg_write_same --32 --lba=0 --num=1 --xferlen=512 "$D"
}

compare_and_write() {
	put "$D" 300 4 0x55 && fill 0x55 4 >$RUN/old && fill 0x66 4 >$RUN/new &&
		ends 0 sg_compare_and_write --in=$RUN/old --inw=$RUN/new --lba=300 --num=4 "$D" && holds "$D" 300 4 0x66 &&
		ends $MISCOMPARE sg_compare_and_write --in=$RUN/old --inw=$RUN/new --lba=300 --num=4 "$D" && says 'byte offset 0|offset=0|[Mm]iscompare' &&
		holds "$D" 300 4 0x66 && ends $OUT_OF_RANGE sg_compare_and_write --in=$RUN/old --inw=$RUN/new --lba=65534 --num=4 "$D"
}

verifying() {
	put "$D" 400 8 0x77 && fill 0x77 8 >$RUN/eight && fill 0x77 1 >$RUN/one && fill 0x78 8 >$RUN/wrong &&
		ends 0 sg_verify --lba=400 --count=8 "$D" && ends 0 sg_verify --16 --lba=0 --count=65536 --bpc=65536 "$D" &&
		ends 0 sg_verify --lba=400 --count=8 --ndo=4096 --in=$RUN/eight "$D" &&
		ends 0 sg_verify --16 --lba=400 --count=8 --ebytchk=3 --ndo=512 --in=$RUN/one "$D" &&
		ends $MISCOMPARE sg_verify --lba=400 --count=8 --ndo=4096 --in=$RUN/wrong "$D" &&
		ends $OUT_OF_RANGE sg_verify --lba=65535 --count=2 "$D" || return 1
	ends 0 sg_write_verify --in=$RUN/wrong --lba=500 --num=8 "$D" && holds "$D" 500 8 0x78 &&
		ends 0 sg_write_verify --16 --bytchk=1 --in=$RUN/eight --lba=500 --num=8 "$D" && holds "$D" 500 8 0x77
}

write_x() {
	fill 0x0f 8 >$RUN/a && fill 0xf0 8 >$RUN/b
	ends 0 sg_write_x --normal --fua --in=$RUN/a --lba=600 --num=8 "$D" && holds "$D" 600 8 0x0f &&
		ends 0 sg_write_x --or --in=$RUN/b --lba=600 --num=8 "$D" && holds "$D" 600 8 0xff &&
		ends 0 sg_write_x --atomic=0 --in=$RUN/a --lba=600 --num=8 "$D" && holds "$D" 600 8 0x0f &&
		ends 0 sg_write_x --same=1 --lba=600 --num=4 "$D" && holds "$D" 600 4 0 &&
		ends 0 sg_write_x --same=0 --in=$RUN/b --lba=600 --num=4 "$D" && holds "$D" 600 4 0xf0 || return 1
	# an atomic boundary, scattered writes, streams: not offered
	ends $ILLEGAL sg_write_x --atomic=4 --in=$RUN/a --lba=600 --num=8 "$D" && ends $INVALID_OPCODE sg_write_x --32 --normal --in=$RUN/a --lba=600 --num=8 "$D" &&
		ends $INVALID_OPCODE sg_write_x --stream=1 --in=$RUN/a --lba=600 --num=8 "$D" && holds "$D" 600 4 0xf0
}

copying() {
	put "$D" 10000 256 0x5a && ends 0 sg_xcopy if="$D" of="$D" bs=512 skip=10000 seek=20000 count=256 && holds "$D" 20000 256 0x5a &&
		ends 0 sg_xcopy if="$D" of="$D3" bs=512 skip=10000 seek=7 count=256 && holds "$D3" 7 256 0x5a && ends 0 sg_xcopy --on_dst if="$D" of="$D3" bs=512 \
		skip=9999 seek=1000 count=300 bpt=64 && holds "$D3" 1001 256 0x5a && holds "$D3" 1257 43 0 || return 1
	ends 0 sg_copy_results --params "$D" && says 'Maximum target descriptor count|Maximum CSCD' && ends 0 sg_copy_results --params --list_id=0 "$C" ||
		ends $INVALID_OPCODE sg_copy_results --params "$C"
}

caching() {
	ends 0 sg_sync "$D" && ends 0 sg_sync --16 "$D" && ends 0 sg_sync --immed "$D" && ends 0 sg_sync --lba=100 --count=100 "$D" &&
		ends 0 sg_sync --16 --lba=100 --count=100 --immed "$D" && ends $OUT_OF_RANGE sg_sync --lba=65536 --count=1 "$D" &&
		ends $CONDITION_MET sg_seek --10 --pre-fetch --lba=0 --num-blocks=128 "$D" && ends $CONDITION_MET sg_seek --pre-fetch --immed --lba=0 --num-blocks=128 "$D" &&
		ends $OUT_OF_RANGE sg_seek --pre-fetch --lba=65536 --num-blocks=1 "$D"
}

start_stop() {
	# nothing spins: a stop writes back what is in the cache, and the unit stays ready
	ends 0 sg_start --stop "$D" && ends 0 sg_turs "$D" && ends 0 sg_start --start "$D" && ends 0 sg_start --pc=1 "$D" && ends 0 sg_turs "$D" &&
		ends $ILLEGAL sg_start --eject "$D" && ends 0 sg_turs "$D"
}

asking() {
	ends 0 sg_turs --number=50 --time "$D" && ends 0 sg_requests "$D" && ends 0 sg_requests --desc "$D" && ends $ILLEGAL sg_prevent --prevent=1 "$D" &&
		ends 0 sg_prevent --allow "$D" && ends 0 sg_senddiag --test "$D" && ends 0 scsi_mandat "$D" && ends 0 scsi_ready "$D" && ends 0 scsi_readcap "$D"
}

# Started at once, asked about, and nothing else is let in meanwhile.
sanitizing() {
	local n
	put "$D3" 0 64 0x99
	ends 0 sg_sanitize --overwrite --zero --quick --early "$D3" || return 1
	until_true 30 eval 'sg_turs "$D3" >$RUN/turs 2>&1' || { cat $RUN/turs; return 1; }
	holds "$D3" 0 64 0 || return 1
	fill 0xc3 1 >$RUN/pattern
	ends 0 sg_sanitize --overwrite --pattern=$RUN/pattern --ipl=512 --quick --wait "$D3" && holds "$D3" 0 64 0xc3 && holds "$D3" 65472 64 0xc3 || return 1
	put "$D" 0 64 0x99 && ends 0 sg_sanitize --block --quick --wait "$D" && holds "$D" 0 64 0 && [ "$(lba_status "$D" 0)" = 1 ] || return 1
	ends $ILLEGAL sg_sanitize --crypto --quick --wait "$D" && ends $ILLEGAL sg_sanitize --block --quick --wait "$D3"
}

# Zeroes on a unit that is not thin.
formatting() {
	put "$D3" 0 64 0x99
	ends 0 sg_format --format --quick --early "$D3" || return 1
	until_true 30 eval 'sg_turs "$D3" >$RUN/turs 2>&1' || { cat $RUN/turs; return 1; }
	holds "$D3" 0 64 0
}

resets() {
	ends 0 sg_reset --no-esc --device "$D" && sg_turs -v "$D" >$RUN/says 2>&1
	says 'Bus device reset|Power on|reset occurred' && ends 0 sg_turs "$D" && ends 0 sg_reset --no-esc --target "$D" || return 1
	sg_turs -v "$D" >$RUN/says 2>&1
	sg_turs -v "$D4" >$RUN/says 2>&1
	says 'reset occurred' && ends 0 sg_turs "$D" && ends 0 sg_turs "$D4"
}

# refused STATUS COMMAND...: what disks of ours do not have, each with its sense; the LU goes on.
refused() {
	local line n=0
	while read -r line; do
		[ -n "$line" ] || continue
		# shellcheck disable=SC2086
		set -- $line
		ends "$@" "$D" || return 1
		n=$((n + 1))
	done <<-END
		$INVALID_OPCODE sg_read_buffer
		$INVALID_OPCODE sg_read_long --lba=0
		$INVALID_OPCODE sg_reassign --address=1
		$INVALID_OPCODE sg_ses --page=0
		$ILLEGAL sg_senddiag --list
		$INVALID_OPCODE sg_read_attr
		$INVALID_OPCODE sg_read_block_limits
		$INVALID_OPCODE sg_rep_zones
		$INVALID_OPCODE sg_rmsn
		$INVALID_OPCODE sg_write_buffer --mode=data --length=4
		$ILLEGAL sg_ident
		$ILLEGAL sg_referrals
		$ILLEGAL sg_bg_ctl
		$ILLEGAL sg_get_elem_status
		$ILLEGAL sg_stream_ctl --get
		$ILLEGAL sg_rep_pip
	END
	[ $n -eq 16 ] && ends 0 sg_turs "$D"
}

need 'tgtd starts' tgtd_start $P -- --state-dir /run/state
need 'target and LUNs' luns
need 'initiator' iscsid_up
need 'pass-through' modules sg
need 'login' login $T $P
need 'disks' eval "wait_sd D $T 1 && wait_sd D4 $T 2 && wait_sd D3 $T 3"
step 'names by number, as udev makes them' block_links
need 'controller' wait_sg C $T 0
step 'sg_inq' inquiry
step 'sg_vpd, all pages' vpd_pages
step 'sg_readcap, sg_luns' capacity_and_luns
step 'sg_modes' modes
step 'sg_wr_mode' mode_select
step 'sg_opcodes' opcodes
step 'sg_rtpg, sg_stpg' port_groups
step 'sg_timestamp' timestamp
step 'sg_unmap, sg_get_lba_status' unmapping
step 'sg_write_same' write_same
step 'sg_compare_and_write' compare_and_write
step 'sg_verify, sg_write_verify' verifying
step 'sg_write_x' write_x
step 'sg_xcopy, sg_copy_results' copying
step 'sg_sync, sg_seek' caching
step 'sg_logs' logs
step 'sg_start' start_stop
step 'sg_turs, sg_requests, sg_prevent, sg_senddiag, scsi_mandat' asking
step 'sg_sanitize' sanitizing
step 'sg_format' formatting
step 'sg_reset' resets
step 'what is not offered' refused
step 'logout' logout $T
step 'tgtd stops on SIGTERM' tgtd_stop
