# SPDX-License-Identifier: GPL-2.0-or-later
#
# The worker is replaced under a stock initiator (issue 17), amid verified writes to ext4 over three
# sessions: plain TCP, TCP with both digests, iSER.
#   planned   RESTARTS times by tgtadm
#   kills     KILLS times after SIGKILL
# Nobody sees an error, file systems are clean, all that was written is read back. Then
#   losses    keeper and worker are killed LOSSES times: what was not yet in the store is gone. The
#             initiator sees that (SYNC fails, ext4 stops). After refresh=1 the unit can be used.
# TGT_KEEP: which connections go on after a kill (tgtd --keep-connections).
# ISER=0: over TCP alone. (A session over iSER takes most of a minute to log in again where all is
# emulated, so 50 of each are a matter of hours with it.)
# TGT_SESSIONS_KEPT=1: a planned restart that sessions over TCP notice is a failure. So is a kill
#             that they notice where TGT_KEEP=all.

P=$RDMA_IP:3260
N=iqn.2026-11.net.tgtd
SESSIONS='plain digests iser'
RESTARTS=${RESTARTS:-3}
KILLS=${KILLS:-3}
LOSSES=${LOSSES:-1}
KEPT=${TGT_SESSIONS_KEPT:-0}
RATE=${RATE:-400k} # bytes a second that a load asks for
SEED=${SEED:-$RANDOM}
RANDOM=$SEED
declare -A SD SID

start() { tgtd_start $P -- --state-dir /run/state ${TGT_KEEP:+"--keep-connections=$TGT_KEEP"}; }

configure() {
	local tid=0
	adm --op update --mode sys --name State -v offline || return 1
	for S in $SESSIONS; do
		tid=$((tid + 1))
		target_new $tid $N:$S && lun_new $tid 1 aio /dev/ram$((tid - 1)) || return 1
	done
	[ $tid -eq 1 ] || lun_new 2 2 aio /dev/ram3 || return 1
	adm --op update --mode sys --name State -v ready
}

log_in() { # NAME
	local s transport=tcp change=
	case $1 in
	digests)
		change='node.conn[0].iscsi.HeaderDigest=CRC32C node.conn[0].iscsi.DataDigest=CRC32C'
		;;
	iser) transport=iser ;;
	esac
	# shellcheck disable=SC2086
	node_new $N:$1 $P $transport $change && login $N:$1 $P $transport &&
		wait_sd "SD[$1]" $N:$1 1 || return 1
	for s in /sys/class/iscsi_session/session*; do
		[ "$(cat "$s/targetname")" != $N:$1 ] || SID[$1]=${s##*/session}
	done
}

each() { # COMMAND...: for every session, its name in $S
	for S in $SESSIONS; do
		"$@" || { echo "session $S"; return 1; }
	done
}

make_one() { make_fs ext4 "${SD[$S]}" "/mnt/$S"; }
mount_one() { mount -t ext4 "${SD[$S]}" "/mnt/$S"; }
clean_one() { umount "/mnt/$S" && blockdev --flushbufs "${SD[$S]}" && check_fs ext4 "${SD[$S]}"; }

# ---- load ----------------------------------------------------------------------------------------

# load NAME: a file is written, synced, read back and compared until /run/load-end is there. Its
# blocks have a seed of the round, so that one of a round before is not taken for one of this.
PHASE=0
load() {
	local round=0
	while [ ! -e /run/load-end ] || [ $round -eq 0 ]; do
		round=$((round + 1))
		fio_verify "$1" "/mnt/$1/load" 2m --rate="$RATE" --fsync=100 \
			--bssplit=512/10:4k/50:32k/40 \
			--randseed=$((SEED * 100000 + PHASE * 10000 + ${#1} * 1000 + round)) ||
			{ echo "round $round"; return 1; }
	done
	echo "$round rounds"
}

load_begins() {
	rm -f /run/load-end
	LOADS=()
	PHASE=$((PHASE + 1))
	for S in $SESSIONS; do
		load "$S" >"/run/load.$S" 2>&1 &
		LOADS+=($!)
	done
	take_sectors
	until_true 120 moved
}

load_ends() { # Each job ended well, and each of them did work.
	local i=0 bad=0
	touch /run/load-end
	for S in $SESSIONS; do
		wait "${LOADS[$i]}" || { cat "/run/load.$S"; bad=1; }
		echo "$S: $(tail -n 1 "/run/load.$S")"
		i=$((i + 1))
	done
	return $bad
}

sectors() { awk '{print $3 + $7}' "/sys/block/${SD[$1]#/dev/}/stat"; }
take_sectors() { for S in $SESSIONS; do at[$S]=$(sectors "$S"); done; }
moved() { # Every disk has moved something since take_sectors.
	for S in $SESSIONS; do
		[ "$(sectors "$S")" -ge $((at[$S] + 32)) ] || return 1
	done
}
declare -A at

# ---- a worker after the other --------------------------------------------------------------------

# What iscsid and the kernel say of a session since the last note_logs.
note_logs() {
	LOGGED=$(wc -l </out/iscsid.log)
	dmesg >>/out/kernel-restarts.log
	dmesg -C
}
logins_of() { # NAME
	tail -n +$((LOGGED + 1)) /out/iscsid.log |
		grep -c "onnection${SID[$1]}:.*operational after recovery"
}
conn_errors_of() { dmesg | grep -c "connection${SID[$1]}:.*detected conn error"; }

# replaced COMMAND...: another worker serves after it, and each session goes on. The time that this
# took goes to /run/gaps.
replaced() {
	local worker began
	worker=$(tgtd_serving)
	began=$(now)
	"$@" "$worker" && another_serves "$worker" || return 1
	take_sectors
	until_true 180 moved || {
		echo "no I/O after worker $worker:"
		grep . /sys/class/iscsi_session/*/state
		return 1
	}
	echo "$began $(now)" | awk '{printf "%.1f\n", $2 - $1}' >>/run/gaps
}

# Which of the initiator's phases it meets is chance.
nap() { sleep "$((RANDOM % 2)).$((RANDOM % 10))"; }

by_tgtadm() { adm --op update --mode system --name restart; }
by_kill() { stamped_write && kill -KILL "$1"; }

# 256 KiB that nobody syncs, acknowledged just before the kill. (A journal would sync them.)
stamped_write() {
	stamp_at=$((RANDOM % 64))
	yes "$RANDOM $stamp_at" | head -c 262144 >/run/stamp
	dd if=/run/stamp of="$RAW" bs=64k seek=$((stamp_at * 4)) oflag=direct conv=notrunc \
		status=none
}
stamped_is_there() {
	dd if="$RAW" bs=64k skip=$((stamp_at * 4)) count=4 iflag=direct status=none |
		cmp - /run/stamp
}

# How much the workers have found that no store had yet: of at least half of the kills all that was
# written last. (What had been written back has proved less.)
found_dirty() { # KILLS
	local kib
	kib=$(sed '1,/^kills begin/d' /out/tgtd.log |
		sed -n 's/.*is taken over: .* stores, \([0-9]*\) KiB.*/\1/p' | sort -n)
	# shellcheck disable=SC2086
	echo "# $SCENARIO: KiB of acknowledged writes found by the next worker: "$kib >&9
	[ "$(echo "$kib" | awk '$1 >= 256' | wc -l)" -ge $((($1 + 1) / 2)) ]
}

# Of three, one lives so long that the keeper does not take it for a crash loop. Where none may be
# noticed, each one does: two deaths in a row already end all sessions.
may_die_again() { [ $(($1 % 3)) -ne 1 ] && ! kill_is_hidden || sleep 11; }
kill_is_hidden() { [ "$KEPT" = 1 ] && [ "${TGT_KEEP:-}" = all ]; }

# Without an error of the block layer or a file system, whatever else may be said of connections.
no_io_error() {
	! dmesg | grep -E 'I/O error|Buffer I/O|(EXT4|JBD2)[^ ]* .*(error|abort|Remounting)' &&
		! dmesg | grep -E 'Call Trace|BUG:|hung|blocked for more'
}

say_gaps() { # WHAT COUNT
	local text
	text=$(sort -n /run/gaps | awk '{t[NR] = $1}
		END {printf "median %s s, longest %s s", t[int((NR + 1) / 2)], t[NR]}')
	echo "# $SCENARIO: $2 $1: until every session moved data again: $text"
	for S in $SESSIONS; do
		echo "# $SCENARIO: $2 $1: $S: $(conn_errors_of "$S") lost connections (kernel)," \
			"$(logins_of "$S") logins (iscsid)"
	done
}

several() { # COUNT COMMAND
	local i
	note_logs
	rm -f /run/gaps
	echo "${2#by_}s begin" >>/out/tgtd.log
	for i in $(seq "$1"); do
		nap
		[ "$2" != by_kill ] || may_die_again "$i"
		replaced "$2" || { echo "number $i of $1"; return 1; }
		[ "$2" != by_kill ] || stamped_is_there ||
			{ echo "number $i of $1: lost"; return 1; }
	done
}

not_noticed() { # (iSER sessions are told to log in again at once.)
	for S in plain digests; do
		[ "$(logins_of $S)" = 0 ] && [ "$(conn_errors_of $S)" = 0 ] ||
			{ echo "session $S"; return 1; }
	done
}

phase() { # WHAT COUNT COMMAND
	local count=$2
	[ "$count" -gt 0 ] || return 0
	need "$1: load begins" load_begins
	step "$1: $count times, and every session goes on" several "$count" "$3"
	say_gaps "$1" "$count"
	[ "$3" = by_tgtadm ] ||
		step "$1: the next worker found what no store had" found_dirty "$count"
	if [ "$3" = by_tgtadm ] && [ "$KEPT" = 1 ] || [ "$3" = by_kill ] && kill_is_hidden; then
		step "$1: no session over TCP has noticed" not_noticed
	fi
	step "$1: no error in the kernel's log" no_io_error
	step "$1: all that was written is there" load_ends
	step "$1: files from before" same_tree /mnt/plain
	need "$1: file systems are clean" each clean_one
	need "$1: mounted again" each mount_one
}

# ---- keeper and worker ---------------------------------------------------------------------------

# Blocks that are synced, one after the other: how many is in /run/synced. Ends when a sync fails.
# Another file is written after each sync, so that there is something to lose.
cat >/run/writer.py <<'END'
import mmap, os, sys
path, log = sys.argv[1], open(sys.argv[2], 'w')
synced = os.open(path + '/synced', os.O_RDWR | os.O_CREAT | os.O_TRUNC)
other = os.open(path + '/other', os.O_RDWR | os.O_DIRECT | os.O_CREAT)
page = mmap.mmap(-1, 4096)
os.pwrite(other, page, 0)
n = 0
while n < 2000:
    try:
        os.pwrite(synced, b'%016d' % n * 256, n * 4096)
        os.fsync(synced)
        page[:16] = b'%016d' % n
        os.pwrite(other, page, 0)
    except OSError as e:
        print('after %d blocks: %s' % (n, e))
        sys.exit(3)
    n += 1
    print(n, file=log, flush=True)
END
cat >/run/reader.py <<'END'
import os, sys
n = int(open(sys.argv[2]).read().split()[-1])
f = open(sys.argv[1] + '/synced', 'rb')
bad = [i for i in range(n) if f.read(4096) != b'%016d' % i * 256]
print('%d blocks were synced; lost: %s' % (n, bad[:10]))
sys.exit(bool(bad))
END

synced() { tail -n 1 /run/synced 2>/dev/null || echo 0; }

killed_dirty() {
	rm -f /run/synced
	python3 /run/writer.py /mnt/plain /run/synced >/run/writer 2>&1 &
	WRITER=$!
	until_true 120 eval '[ "$(synced)" -ge 20 ] 2>/dev/null' || { cat /run/writer; return 1; }
	tgtd_kill
	ls /run/state/dirty-*
}

# A sync did fail, and nothing after it was said to be stable.
writer_saw() {
	local rc
	wait $WRITER
	rc=$?
	cat /run/writer
	[ $rc -eq 3 ] && grep -q 'Input/output error\|Read-only file system' /run/writer
}

sync_fails() { # Medium error, 0x0c00: write error
	sg_sync -v "${SD[plain]}" >/run/sg_sync 2>&1 && { echo "SYNC is GOOD"; return 1; }
	cat /run/sg_sync
	grep -qi 'medium error' /run/sg_sync && grep -qi 'write error' /run/sg_sync
}

fs_stopped() {
	! touch /mnt/plain/after &&
		dmesg | grep -E 'EXT4-fs .*(abort|Remounting filesystem read-only|error)'
}

in_doubt() {
	adm --op show --mode target >/run/show
	grep -q 'In doubt:' /run/show || { cat /run/show; return 1; }
}

used_again() {
	umount /mnt/plain &&
		adm --mode logicalunit --op update --tid 1 --lun 1 --params refresh=1 || return 1
	! in_doubt && sg_sync "${SD[plain]}" || { echo "still in doubt"; return 1; }
	blockdev --flushbufs "${SD[plain]}"
	e2fsck -f -p "${SD[plain]}"
	[ $? -le 1 ] && check_fs ext4 "${SD[plain]}" && mount -t ext4 "${SD[plain]}" /mnt/plain
}

synced_are_there() { python3 /run/reader.py /mnt/plain /run/synced && same_tree /mnt/plain; }

losses() {
	local i
	for i in $(seq "$LOSSES"); do
		need "loss $i: keeper and worker are killed with data in the cache" killed_dirty
		need "loss $i: tgtd starts" start
		need "loss $i: the same targets" configure
		step "loss $i: who writes is told by a failing sync" writer_saw
		step "loss $i: SYNC fails" sync_fails
		step "loss $i: tgtadm shows the doubt" in_doubt
		step "loss $i: ext4 stops" fs_stopped
		need "loss $i: refresh=1, and e2fsck mends it" used_again
		step "loss $i: what was synced is there" synced_are_there
		step "loss $i: written and read back" fio_verify again /mnt/plain/load 1m
	done
}

# ---- all of it -----------------------------------------------------------------------------------

exec 9>&1 # a step's figures
need 'memory disks' brd_up 4 81920
wanted=$SESSIONS
[ "${ISER:-1}" = 1 ] || wanted='plain digests'
if [ "$wanted" != "$SESSIONS" ]; then
	SESSIONS=$wanted
	net_up
elif ! rdma_up; then
	echo "# $SCENARIO: no soft-RoCE here: without iSER"
	SESSIONS='plain digests'
	net_up
fi
need 'tgtd starts' start
adm --op show --mode system | grep -q 'iser: ready' || SESSIONS='plain digests'
need 'targets and LUNs' configure
need 'initiator' iscsid_up
for S in $SESSIONS; do
	need "login: $S" log_in "$S"
done
need 'a disk without a file system' wait_sd RAW $N:digests 2
step 'all kinds of sessions' [ "$SESSIONS" = "$wanted" ]
need 'file systems' each make_one
step 'a tree of files' copy_tree /mnt/plain
echo "# $SCENARIO: SEED=$SEED"
phase 'planned restarts' "$RESTARTS" by_tgtadm
phase 'kills of the worker' "$KILLS" by_kill
for S in $SESSIONS; do
	[ "$S" = plain ] || step "$S: umount and logout" eval 'umount /mnt/$S && logout $N:$S'
done
SESSIONS=plain
losses
step 'umount' umount /mnt/plain
step 'file system is clean' check_fs ext4 "${SD[plain]}"
step 'logout' logout $N:plain
step 'tgtd stops on SIGTERM' tgtd_stop
