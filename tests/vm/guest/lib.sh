# SPDX-License-Identifier: GPL-2.0-or-later
#
# Guest side of the VM tests: what scenarios are written with. Sourced before guest/SCENARIO.sh, by
# bash, as root, in a machine that has nothing but `lo` up. Nothing done here survives the power-off,
# so helpers never clean up after a failure. Files to keep go to /out.

set -u
RDMA_IP=192.168.77.1            # address of the dummy interface under soft-RoCE
TGT_PORT=${TGT_PORT:-7}         # control port of the tgtd under test
TGT_SUBJECT=ours
[ "$TGT_BIN" != /usr/sbin ] || TGT_SUBJECT=debian
INITIATOR=iqn.2026-11.net.tgtd:vm

# ---- steps -----------------------------------------------------------------------------------------

LAST_STEP=0 # status of the last step

now() { cut -d' ' -f1 /proc/uptime; }

# step NAME COMMAND...: one TAP line from the command's status. What the command prints goes to
# /out/steps.log, and below a failure. A function runs in this shell, so it may set variables.
step() {
	local name="$SCENARIO: $1" t0 rc out=/run/step.$BASHPID
	shift
	t0=$(now)
	echo "== $name" >>/out/steps.log
	"$@" >$out 2>&1
	rc=$?
	cat $out >>/out/steps.log
	if [ $rc -eq 0 ]; then
		echo "ok $name # $(echo "$t0 $(now)" | awk '{printf "%.1f", $2 - $1}') s"
	else
		echo "not ok $name"
		tail -n 25 $out | sed 's/^/#    /'
	fi
	LAST_STEP=$rc
	return $rc
}

# need NAME COMMAND...: a step without which the rest makes no sense.
need() {
	step "$@" && return
	echo "# giving up; last of the kernel's log:"
	dmesg | tail -n 15 | sed 's/^/#    /'
	exit 0 # the step has failed already
}

skip() { echo "ok $SCENARIO: $1 # SKIP $2"; }

# until_true SECONDS COMMAND...: polls.
until_true() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.1
	done
}

listening() { ss -Hltn "sport = :$1" | grep -q .; }

# kernel_clean [REGEX]: nothing alarming in the kernel's log since the last call, lines matching REGEX
# (messages that the scenario provokes) left out.
kernel_clean() {
	local bad allowed=${1:-^$}
	dmesg >>/out/kernel.log
	bad=$({
		dmesg --level=emerg,alert,crit,err
		dmesg | grep -E 'Call Trace|WARNING:|BUG:|blocked for more than|I/O error|Buffer I/O|(EXT4|XFS)[^ ]* .*(error|corrupt|shut)|general protection|segfault|detected buffer|hung'
	} | sort -u | grep -vE "$allowed")
	dmesg -C
	[ -z "$bad" ] || { echo "$bad"; return 1; }
}

# ---- machine -----------------------------------------------------------------------------------------

modules() {
	local m
	for m; do
		modprobe "$m" || return 1
	done
}

# brd_up COUNT KIB: /dev/ram0.., memory disks with O_DIRECT (which tmpfs has not).
brd_up() { modprobe brd rd_nr="$1" rd_size="$2" && [ -b /dev/ram0 ]; }

# The interface that soft-RoCE lies on, with its own addresses: $RDMA_IP and, as a second path,
# 192.168.78.1.
net_up() {
	[ -e /sys/class/net/eth9 ] && return
	modules dummy || return 1
	ip link add eth9 type dummy && ip addr add $RDMA_IP/24 dev eth9 && ip addr add 192.168.78.1/24 dev eth9 &&
		ip link set eth9 mtu 4200 up
}

# Soft-RoCE device rxe0 and the user-space verbs. Without the CRC modules rxe fails to initialise.
rdma_up() {
	net_up && modules crc32_generic crc32c_generic crct10dif_generic rdma_rxe ib_uverbs rdma_cm rdma_ucm || return 1
	[ -e /sys/class/infiniband/rxe0 ] || rdma link add rxe0 type rxe netdev eth9 || return 1
	until_true 5 grep -q ACTIVE /sys/class/infiniband/rxe0/ports/1/state && [ -e /dev/infiniband/rdma_cm ]
}

# Verbs, connection manager and the own address work: a few pings through rdma_cm.
rdma_ping() {
	local server rc
	rping -s -a $RDMA_IP -p 7174 -C 5 &
	server=$!
	sleep 0.5
	timeout 20 rping -c -a $RDMA_IP -p 7174 -C 5 -v
	rc=$?
	wait $server || rc=1
	return $rc
}

# ---- initiator ---------------------------------------------------------------------------------------

# iscsid_up [KEY=VALUE...]: kernel initiator ready, with the values in iscsid.conf.
iscsid_up() {
	local kv key
	modules scsi_transport_iscsi iscsi_tcp sd_mod crc32c_generic || return 1
	rm -rf /etc/iscsi/nodes /etc/iscsi/send_targets /var/lib/iscsi/nodes /var/lib/iscsi/send_targets
	echo "InitiatorName=$INITIATOR" >/etc/iscsi/initiatorname.iscsi
	# A lost connection must not turn into I/O errors for two minutes. The other limits are wide because
	# the machine is slow, on a busy host very slow, and narrow ones would break what is fine.
	for kv in node.session.timeo.replacement_timeout=120 'node.conn[0].timeo.noop_out_interval=10' \
		'node.conn[0].timeo.noop_out_timeout=60' 'node.conn[0].timeo.login_timeout=60' "$@"; do
		key=${kv%%=*}
		key=${key//[/\\[}
		sed -i "/^ *${key//./\\.} *=/d" /etc/iscsi/iscsid.conf
		echo "${kv%%=*} = ${kv#*=}" >>/etc/iscsi/iscsid.conf
	done
	iscsid -f -d "${ISCSID_DEBUG:-4}" >"${ISCSID_LOG:-/out/iscsid.log}" 2>&1 &
	local pid=$!
	# Without sessions iscsiadm ends with 21 when the daemon answers.
	until_true 120 eval 'iscsiadm -m session >/dev/null 2>&1; [ $? -eq 21 ]' && kill -0 $pid
}

# discover PORTAL [-I iser] IQN...: SendTargets shows exactly these names at the portal.
discover() {
	local portal=$1 got want iface=
	shift
	[ "$1" != -I ] || { iface="-I $2"; shift 2; }
	# shellcheck disable=SC2086
	got=$(timeout 30 iscsiadm -m discovery -t st -p "$portal" $iface) || return 1
	echo "$got"
	got=$(echo "$got" | awk -v p="$portal" 'index($1, p ",") == 1 {print $2}' | sort)
	want=$(printf '%s\n' "$@" | sort)
	[ "$got" = "$want" ]
}

# iface_of NAME: what open-iscsi calls it. NAME is tcp, iser, or one made by second_initiator.
iface_of() { [ "${1:-tcp}" = tcp ] && echo default || echo "$1"; }

# second_initiator NAME IQN: an interface under which logins come from another initiator name.
second_initiator() {
	iscsiadm -m iface -o new -I "$1" && iscsiadm -m iface -o update -I "$1" -n iface.initiatorname -v "$2"
}

# node_new IQN PORTAL [IFACE] [KEY=VALUE...]: a node record, changed as told. login makes a plain one.
node_new() {
	local iqn=$1 portal=$2 iface kv change=()
	iface=$(iface_of "${3:-tcp}")
	shift $(($# < 3 ? $# : 3))
	[ "$iface" != iser ] || modules ib_iser || return 1
	# With the portal group the record has a directory; without, records of two interfaces overwrite each other.
	iscsiadm -m node -o new -T "$iqn" -p "$portal,1" -I "$iface" || return 1
	for kv; do
		change+=(-n "${kv%%=*}" -v "${kv#*=}")
	done
	[ $# -eq 0 ] || iscsiadm -m node -T "$iqn" -p "$portal" -I "$iface" -o update "${change[@]}"
}

# node_chap USER PASSWORD [USER_IN PASSWORD_IN]: the KEY=VALUE arguments for node_new, one a line.
node_chap() {
	printf 'node.session.auth.%s\n' authmethod=CHAP "username=$1" "password=$2" \
		${3:+"username_in=$3" "password_in=$4"}
}

# login IQN PORTAL [IFACE]: by the record there is (from discover or node_new), or a new plain one.
login() {
	local iface
	iface=$(iface_of "${3:-tcp}")
	ls /etc/iscsi/nodes/"$1"/"${2%:*},${2##*:},"*/"$iface" >/dev/null 2>&1 || node_new "$1" "$2" "${3:-tcp}" || return 1
	timeout 60 iscsiadm -m node -T "$1" -p "$2" -I "$iface" --login
}

# logout IQN [PORTAL [IFACE]]: of all sessions with the target, or with this portal or interface; of
# those to the target as a whole the disks are gone afterwards.
logout() {
	timeout 60 iscsiadm -m node -T "$1" ${2:+-p "$2"} ${3:+-I "$(iface_of "$3")"} --logout || return 1
	[ -n "${2:-}" ] || ! grep -qsx "$1" /sys/class/iscsi_session/*/targetname
}

# sd_of IQN LUN [SKIP|IFACE]: prints /dev/sdX of the LUN; with a number n, of the n-th further session;
# with a name, of the session on that interface.
sd_of() {
	local s d skip=${3:-0} iface=
	case $skip in
	[0-9]*) ;;
	*) iface=$(iface_of "$skip") skip=0 ;;
	esac
	for s in $(printf '%s\n' /sys/class/iscsi_session/session* | sort -V); do
		[ "$(cat "$s/targetname" 2>/dev/null)" = "$1" ] || continue
		[ -z "$iface" ] || [ "$(cat "$s/ifacename")" = "$iface" ] || continue
		for d in "$s"/device/target*/*:*:*:"$2"/block/sd*; do
			[ -e "$d" ] || continue
			[ "$skip" -gt 0 ] && { skip=$((skip - 1)); continue; }
			[ -b "/dev/${d##*/}" ] && echo "/dev/${d##*/}" && return 0
		done
	done
	return 1
}

# wait_sd VAR IQN LUN [SKIP|IFACE]: the disk's name into the variable, when it is there.
wait_sd() {
	local var=$1
	shift
	until_true 120 sd_of "$@" && printf -v "$var" %s "$(sd_of "$@")" && blockdev --getsize64 "${!var}"
}

# wait_sg VAR IQN LUN: the same for the pass-through device, which a LUN without a medium has, too.
wait_sg() {
	local found iqn=$2 lun=$3 # eval'd in until_true, whose arguments are others
	modules sg && until_true 20 eval 'found=$(sg_of "$iqn" "$lun")' && printf -v "$1" %s "$found"
}

sg_of() { # IQN LUN
	local s d
	for s in /sys/class/iscsi_session/session*; do
		[ "$(cat "$s/targetname" 2>/dev/null)" = "$1" ] || continue
		for d in "$s"/device/target*/*:*:*:"$2"/scsi_generic/sg*; do
			[ -c "/dev/${d##*/}" ] && echo "/dev/${d##*/}" && return 0
		done
	done
	return 1
}

# multipath_up [CONF]: device mapper multipath over all paths of the disks that are there: udevd
# (multipathd asks it), then multipathd. Paths are tried every second. I/O waits for 60 s when none is
# left; for ten minutes with a file of one's own, whatever it says, as the machine may be slow.
multipath_up() {
	modules dm_multipath scsi_dh_alua || return 1
	mkdir -p /run/udev /etc/multipath/conf.d
	if [ $# = 1 ]; then
		cp "$1" /etc/multipath.conf
		printf '%s {\n\t%s\n\t%s\n}\n' defaults 'polling_interval 1' 'max_polling_interval 1' \
			overrides 'no_path_retry 600' '' >/etc/multipath/conf.d/slow.conf
	else
		multipath_conf
	fi
	/lib/systemd/systemd-udevd --daemon && udevadm trigger --subsystem-match=block && udevadm settle -t 30 || return 1
	multipathd -d >/out/multipathd.log 2>&1 &
	until_true 120 eval 'multipathd show daemon | grep -qE "idle|running"'
}

multipath_conf() {
	cat >/etc/multipath.conf <<-'END'
		defaults {
			user_friendly_names no
			find_multipaths no
			polling_interval 1
			max_polling_interval 1
			no_path_retry 60
			fast_io_fail_tmo 5
			path_grouping_policy failover
			failback immediate
			verbosity 2
		}
		blacklist {
			devnode "^(ram|loop|dm-|zram)"
		}
	END
}

# No map left; needed before the sessions below it log out.
multipath_down() {
	multipathd shutdown
	until_true 10 eval '! pidof multipathd >/dev/null'
	multipath -F
	[ -z "$(dmsetup ls --target multipath 2>/dev/null | grep -v "No devices")" ]
}

# multipath_of VAR SD PATHS: /dev/dm-N into the variable, once it has that many usable paths.
multipath_of() {
	local dm
	until_true 30 multipath_has "$2" "$3" || { multipathd show paths; return 1; }
	dm=$(echo /sys/block/"${2#/dev/}"/holders/dm-*)
	printf -v "$1" %s "/dev/${dm##*/}"
	[ -b "${!1}" ]
}

multipath_has() { # SD PATHS
	local dm
	dm=$(echo /sys/block/"${1#/dev/}"/holders/dm-*)
	[ -e "$dm" ] && [ "$(multipathd show paths raw format '%m %t %T' | grep -c "^$(cat "$dm/dm/name") active ready")" = "$2" ]
}

# ---- file systems and load -------------------------------------------------------------------------

make_fs() { # TYPE DEVICE DIR
	case $1 in
	ext4) modules ext4 && mkfs.ext4 -q -F -E nodiscard "$2" ;;
	xfs) modules xfs && mkfs.xfs -q -f -K "$2" ;;
	esac && mkdir -p "$3" && mount -t "$1" "$2" "$3"
}

check_fs() { # TYPE DEVICE: unmounted, found without a fault
	case $1 in
	ext4) e2fsck -f -n "$2" ;;
	xfs) xfs_repair -n "$2" ;;
	esac
}

TREE=/usr/include/x86_64-linux-gnu/bits

# copy_tree DIR: a tree of small files through the page cache, read back from the disk.
copy_tree() {
	cp -r $TREE "$1/tree" && sync -f "$1" && echo 3 >/proc/sys/vm/drop_caches && same_tree "$1"
}

same_tree() { diff -r $TREE "$1/tree"; }

# Left to itself, fio first compares the cycle counters of all CPUs, one thread spinning on each in lockstep: on
# emulated CPUs that have to share real ones this takes 5 to 40 s.
fio() { command fio --clocksource=clock_gettime "$@"; }

# fio_verify NAME FILE SIZE [FIO OPTIONS]: writes the file once in a random order of mixed sizes with
# O_DIRECT, then reads all of it and compares checksums.
fio_verify() {
	local name=$1 file=$2 size=$3
	shift 3
	fio --name="$name" --filename="$file" --size="$size" --rw=randwrite --direct=1 --ioengine=libaio --iodepth=8 \
		--bssplit=512/10:4k/40:32k/20:128k/20:1m/10 --verify=crc32c --verify_fatal=1 --do_verify=1 \
		--end_fsync=1 --fallocate=none --aux-path=/run "$@"
}

# ---- libiscsi's conformance tool -----------------------------------------------------------------------

# conformance URL TESTS [OPTIONS]: iscsi-test-cu ran at least one test and none failed. TESTS may be
# FAMILY, FAMILY.SUITE or FAMILY.SUITE.TEST. Over iser://, Debian's libiscsi 1.19 has faults of its own:
# it closes no connection (libiscsi_iser_fix.c helps); it crashes with more than 256 commands in flight
# (the tests called Async, left out), whatever the target does; it moves at most 256 KiB by one command, and
# pretends to have sent what is larger (ExtendedCopy.Simple, left out too); a login in more than one step
# (CHAP) fails in it; and its WRITE commands declare immediate data that they do not carry (a target that
# refuses this, as LIO of this kernel does, fails every test that writes). It also takes the expected length
# for the length that came, and knows no residual (the tests of Inquiry and ModeSense6 below; they fail in the
# same way against LIO). The suite GetLBAStatus crashes it at its end, against LIO too. And it crashes when it
# sends a task management request: the three resets of Reserve6 (see README.md).
CU_LEAVE_OUT=:*.Async:ExtendedCopy.Simple:Inquiry.AllocLength:Inquiry.BlockLimits:ModeSense6.Residuals:Reserve6.TargetColdReset:Reserve6.TargetWarmReset:Reserve6.LUNReset:
conformance() {
	local url=$1 tests=$2 rc env=
	shift 2
	case $url in
	iser:*) env="CU_LEAVE_OUT=$CU_LEAVE_OUT MALLOC_PERTURB_=255 LD_PRELOAD=$VM_CACHE/libiscsi_iser_fix.so" ;;
	esac
	[ -z "$env" ] || [ -e "$VM_CACHE/libiscsi_iser_fix.so" ] || { echo "no libiscsi_iser_fix.so"; return 1; }
	: "${CU_OUT:=/run/cu}"
	timeout "${CU_LIMIT:-120}" env $env iscsi-test-cu "$@" -t "$tests" "$url" >"$CU_OUT" 2>&1
	rc=$?
	cat "$CU_OUT"
	# CUnit's summary: tests, total, ran, passed, failed, inactive
	[ $rc -eq 0 ] && awk '$1 == "tests" && NF >= 5 {ran = $3; failed = $5} END {exit !(ran > 0 && failed == 0)}' "$CU_OUT"
}

# ---- target under test ---------------------------------------------------------------------------

adm() { "${TGTADM:-$TGT_BIN/tgtadm}" -C "$TGT_PORT" "$@"; }

# What ours gets beside tgt's own options: a cache smaller than most LUs, prepared in short time, and
# patience with a slow initiator.
TGTD_OPTIONS=
[ $TGT_SUBJECT = debian ] || TGTD_OPTIONS="--cache ${TGT_TEST_CACHE:-size=96m} --iscsi login_timeout=60"

# tgtd_start PORTAL... [-- TGTD OPTIONS]: pid in TGTD_PID, output appended to /out/tgtd.log.
tgtd_start() {
	local portals=
	while [ $# -gt 0 ] && [ "$1" != -- ]; do
		portals="$portals,portal=$1"
		shift
	done
	[ $# -eq 0 ] || shift
	"$TGT_BIN/tgtd" -f -C "$TGT_PORT" --iscsi "${portals#,}" $TGTD_OPTIONS "$@" >>/out/tgtd.log 2>&1 &
	TGTD_PID=$!
	until_true 180 adm --op show --mode system
}

# The process that serves: the child of the one that was started; without a keeper, that one.
tgtd_worker() {
	local child
	child=$(grep -ls "^PPid:[[:space:]]*$TGTD_PID\$" /proc/[0-9]*/status | head -1)
	child=${child#/proc/}
	child=${child%/status}
	echo "${child:-$TGTD_PID}"
}

# The pid of the worker that serves, as tgtd says; nothing while none does.
tgtd_serving() { adm --op show --mode system 2>/dev/null | sed -n 's/^ *Worker: //p'; }

# another_serves PID: within three minutes another worker than that one.
another_serves() {
	local now # eval'd in until_true
	until_true 180 eval 'now=$(tgtd_serving) && [ -n "$now" ] && [ "$now" != '"$1 ]"
}

# As when the machine fails: none of its processes can do anything any more.
tgtd_kill() {
	local worker
	kill -STOP $TGTD_PID
	worker=$(tgtd_worker)
	kill -KILL "$worker" $TGTD_PID
	wait $TGTD_PID
	# (Its first thread may have ended before others, who have its files still.)
	until_true 10 eval 'grep -Pzq "State:\s*[ZX](.|\n)*Threads:\s*[01]\n" /proc/$worker/status || [ ! -e /proc/$worker ]' \
		2>/dev/null
}

# SIGTERM, and tgtd must be gone within 30 s (TGTD_STOP_S) with status 0. (On a very busy host it needed
# 7 s of the guest's clock, which may be twice too fast there. Debian's tgtd takes no notice of SIGTERM;
# it is only a stand-in here.)
tgtd_stop() {
	kill -TERM $TGTD_PID
	[ $TGT_SUBJECT = ours ] || kill -KILL $TGTD_PID
	until_true "${TGTD_STOP_S:-30}" eval '! kill -0 $TGTD_PID' 2>/dev/null || { echo "still there after SIGTERM"; return 1; }
	wait $TGTD_PID
	[ $? -eq 0 ] || [ $TGT_SUBJECT = debian ]
}

# tgtd_threads: name and allowed CPUs of each thread of tgtd, one a line. (CPU n is node n.)
tgtd_threads() {
	local t
	for t in /proc/$(tgtd_worker)/task/*; do
		printf '%s %s\n' "$(cat "$t/comm")" "$(awk '/^Cpus_allowed_list/ {print $2}' "$t/status")"
	done
}

# node_pages REGEX: how many resident pages of tgtd's mappings that match (a line of numa_maps) lie on
# nodes 0 to 3.
node_pages() {
	grep -E "$1" /proc/$(tgtd_worker)/numa_maps | awk '{
		size = 4
		for (i = 1; i <= NF; i++)
			if (split($i, kv, "=") == 2 && kv[1] == "kernelpagesize_kB")
				size = kv[2]
		for (i = 1; i <= NF; i++)
			if (split($i, kv, "=") == 2 && kv[1] ~ /^N[0-3]$/)
				pages[substr(kv[1], 2)] += kv[2] * size / 4
	} END {print pages[0] + 0, pages[1] + 0, pages[2] + 0, pages[3] + 0}'
}

target_new() { # TID IQN
	adm --lld iscsi --op new --mode target --tid "$1" -T "$2" && adm --lld iscsi --op bind --mode target --tid "$1" -I ALL
}

# lun_new TID LUN BSTYPE STORE [OPTIONS]: tgt's own command line. For type `ram` STORE is a size.
lun_new() {
	local tid=$1 lun=$2 type=$3 store=$4
	shift 4
	if [ "$type" = ram ] && [ $TGT_SUBJECT = debian ]; then # the stand-in has no such store
		truncate -s "$store" /run/ram.$tid.$lun && type=rdwr store=/run/ram.$tid.$lun
	fi
	adm --lld iscsi --op new --mode logicalunit --tid "$tid" --lun "$lun" --bstype "$type" --backing-store "$store" "$@"
}

# ---- the kernel's own target, as a peer to compare with ----------------------------------------------

lio_up() {
	mkdir -p /etc/target /var/target
	modules configfs && { mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config; } &&
		modules target_core_mod target_core_iblock target_core_file iscsi_target_mod
}

# lio_target IQN DEVICE PORTAL [iser]: a LIO target, open to all, with the block device as LUN 0. Call
# it again with the same name and device and another portal to add that portal.
lio_target() {
	local core=/sys/kernel/config/target/core/iblock_0/${1##*:} tpg=/sys/kernel/config/target/iscsi/$1/tpgt_1
	lio_up || return 1
	if [ ! -e "$core" ]; then
		mkdir -p "$core" && echo "udev_path=$2" >"$core/control" &&
			echo "$(echo "$1" | md5sum | cut -c1-32)" >"$core/wwn/vpd_unit_serial" && echo 1 >"$core/enable" || return 1
	fi
	if [ ! -e "$tpg" ]; then
		mkdir -p "$tpg/lun/lun_0" && ln -s "$core" "$tpg/lun/lun_0/store" &&
			echo 0 >"$tpg/attrib/authentication" && echo 1 >"$tpg/attrib/generate_node_acls" &&
			echo 0 >"$tpg/attrib/demo_mode_write_protect" && echo 1 >"$tpg/enable" || return 1
	fi
	mkdir "$tpg/np/$3" || return 1
	[ "${4:-tcp}" = tcp ] || { modules ib_isert && echo 1 >"$tpg/np/$3/iser"; }
}
