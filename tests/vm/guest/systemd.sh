# SPDX-License-Identifier: GPL-2.0-or-later
#
# tgtd.service under systemd itself, which is process 1 of a PID namespace here (the initiator is
# outside of it): who is the main process, what a worker's death is to systemd (nothing), what the
# keeper's is, reload with and without a new program, stop with data that is not in the store yet.

P=127.0.0.1:3260
TGT_PORT=0 # as the unit has it
T=iqn.2026-11.net.tgtd:unit
SYSTEMD=
BOOT=/run/systemd-boot # its messages

inside() { nsenter -t "$SYSTEMD" -p -m -- "$@"; }
sctl() { timeout 300 env SYSTEMD_PAGER=cat nsenter -t "$SYSTEMD" -p -m -- systemctl "$@"; }
prop() { sctl show -P "$1" tgtd; }

# Only what the unit needs: none of what this machine's systemd would start.
units() {
	local unit lib=/lib/systemd/system
	rm -rf /etc/systemd/system/*.wants /etc/systemd/system/tgt.service
	for unit in $lib/{sysinit,basic,sockets,timers,local-fs,multi-user}.target.wants/* \
		$lib/{systemd-remount-fs,systemd-udevd,systemd-networkd,dbus,tmp}.*; do
		case ${unit##*/} in
		systemd-journald*) ;;
		*) ln -sfn /dev/null "/etc/systemd/system/${unit##*/}" ;;
		esac
	done
	: >/etc/fstab
	rm -f /usr/sbin/tgtd /usr/sbin/tgtadm /usr/sbin/tgt-admin
	cp "$TGT_BIN"/{tgtd,tgtadm,tgt-admin} /usr/sbin/ &&
		cp "$REPO/conf/tgtd.service" /etc/systemd/system/ || return 1
	mkdir -p /etc/tgt /etc/default
	echo "TGTD_OPTIONS=\"$TGTD_OPTIONS\"" >/etc/default/tgtd
	printf '<target %s>\n\tbacking-store /dev/ram0\n</target>\n' $T >/etc/tgt/targets.conf
}

systemd_up() {
	mountpoint -q /sys/fs/cgroup || mount -t cgroup2 cgroup2 /sys/fs/cgroup || return 1
	mkdir -p /run/systemd /run/log/journal
	env -i PATH="$PATH" container=vm \
		unshare --pid --fork --mount --mount-proc --propagation private \
		/lib/systemd/systemd --system --unit=basic.target --log-target=console \
		--show-status=no >$BOOT 2>&1 &
	until_true 180 eval 'SYSTEMD=$(pgrep -x systemd) && [ -S /run/systemd/private ]' ||
		{ cat $BOOT; return 1; }
	until_true 180 eval 'sctl is-system-running | grep -qE "^(running|degraded)$"' ||
		{ sctl list-jobs; cat $BOOT; return 1; }
}

said() {
	sctl status --no-pager -l -n 30 tgtd
	inside journalctl --no-pager -u tgtd -n 40
	return 1
}
started() { sctl start tgtd && active || said; }
active() { [ "$(prop ActiveState)/$(prop SubState)" = active/running ]; }

# The pids of keeper and worker, in their namespace.
inner() { adm --op show --mode system 2>/dev/null | sed -n "s/^ *$1: //p"; }

main_is_keeper() {
	local main worker spared
	main=$(prop MainPID) worker=$(inner Worker)
	spared="$(inside cat "/proc/$main/oom_score_adj" "/proc/$worker/oom_score_adj" | xargs)"
	echo "MainPID $main, keeper $(inner Keeper), worker $worker"
	echo "worker.pid: $(cat /var/lib/tgt/worker.pid)"
	echo "oom_score_adj of both: $spared"
	[ "$main" = "$(inner Keeper)" ] && [ "$(cat /var/lib/tgt/worker.pid)" = "$worker" ] &&
		[ "$worker" != "$main" ] && [ "$spared" = '-1000 -900' ]
}

snapshot() { MAIN=$(prop MainPID) WORKER=$(inner Worker) RESTARTS=$(prop NRestarts); }
replaced() { # within three minutes another worker serves
	local now # eval'd in until_true
	until_true 180 eval 'now=$(inner Worker) && [ -n "$now" ] && [ "$now" != "$WORKER" ]' ||
		said
}
same_unit() { # nothing that systemd would call an end
	active && [ "$(prop MainPID)" = "$MAIN" ] && [ "$(prop NRestarts)" = "$RESTARTS" ] || said
}

load_begins() {
	fio_verify load "$SD" 3m --rate=400k --fsync=16 >/run/load 2>&1 &
	LOAD=$!
	until_true 20 eval '[ "$(awk "{print \$7}" /sys/block/${SD#/dev/}/stat)" -gt 64 ]'
}
load_ends() { wait $LOAD || { cat /run/load; return 1; }; }

worker_killed() {
	snapshot
	inside kill -KILL "$WORKER" && replaced && same_unit
}

reload_same() {
	snapshot
	printf '<target %s-2>\n\tbacking-store /dev/ram1\n</target>\n' $T >>/etc/tgt/targets.conf
	sctl reload tgtd && [ "$(inner Worker)" = "$WORKER" ] && same_unit || said
	adm --op show --mode target | grep -q "$T-2"
}

reload_new() {
	snapshot
	cp "$TGT_BIN/tgtd" /usr/sbin/tgtd.new && mv /usr/sbin/tgtd.new /usr/sbin/tgtd || return 1
	sctl reload tgtd && replaced && same_unit || said
	inside test "/proc/$(inner Worker)/exe" -ef /usr/sbin/tgtd
}

# One block whose bytes all are N, acknowledged, and in the store not yet.
dirty() { # N
	local try
	printf '%4096s' '' | tr ' ' "$1" >/run/block
	for try in 1 2 3 4 5; do
		dd if=/run/block of="$SD" bs=4k seek=1000 oflag=direct conv=notrunc status=none ||
			return 1
		in_store "$1" || { ls /var/lib/tgt/dirty-* && return 0; }
		sleep 1
	done
	echo "it is written back at once"
	return 1
}
holds() { # DEVICE N
	dd if="$1" of=/run/held bs=4k skip=1000 count=1 iflag=direct status=none &&
		[ "$(tr -cd "$2" </run/held | wc -c)" = 4096 ]
}
in_store() { holds /dev/ram0 "$1"; }
read_back() { holds "$SD" "$1"; }
in_doubt() { adm --op show --mode target | grep -q 'In doubt:'; }

stopped_dirty() {
	dirty a && sctl stop tgtd || said || return 1
	[ "$(prop ActiveState)/$(prop Result)" = inactive/success ] || said || return 1
	in_store a || { echo "not in the store"; return 1; }
	! ls /var/lib/tgt/dirty-* /var/lib/tgt/worker.pid
}

# The other process is told by systemd to end, as all of the unit is: it writes back first.
keeper_killed() {
	snapshot
	dirty b && inside kill -KILL "$MAIN" || return 1
	until_true 240 eval '[ "$(prop MainPID)" != "$MAIN" ] && active' || said || return 1
	[ "$(prop NRestarts)" = $((RESTARTS + 1)) ] && in_store b && ! in_doubt &&
		until_true 180 read_back b
}

# systemd has the cache's memory and the state, too (FDSTORE): they outlive keeper and worker.
all_killed() {
	snapshot
	dirty c && sctl kill -s KILL tgtd || return 1
	until_true 240 eval '[ "$(prop MainPID)" != "$MAIN" ] && active' || said || return 1
	[ "$(prop NRestarts)" = $((RESTARTS + 1)) ] && ! in_doubt ||
		{ adm --op show --mode target; return 1; }
	until_true 180 logged_in && sg_turs "$SD" || sg_turs "$SD" || return 1
	until_true 180 read_back c && sg_sync "$SD" && in_store c
}
logged_in() { ! grep -hv LOGGED_IN /sys/class/iscsi_session/*/state; }

worker_told_to_end() {
	inside kill -TERM "$(inner Worker)"
	until_true 180 eval '[ "$(prop ActiveState)/$(prop Result)" = inactive/success ]' || said
}

[ -x /lib/systemd/systemd ] || { skip 'all of it' 'no systemd here'; exit 0; }
need 'memory disks' brd_up 2 65536
need 'the unit, and the programs where it wants them' units
need 'systemd' systemd_up
need 'systemctl start' started
step 'the main process is the keeper, which the kernel spares' main_is_keeper
need 'initiator' iscsid_up
need 'login' login $T $P
need 'disk' wait_sd SD $T 1
need 'load' load_begins
step 'a worker is killed: the unit stays as it is' worker_killed
step 'systemctl reload: the same worker, what is new in the file' reload_same
step 'systemctl reload with a new program: another worker, the same unit' reload_new
step 'the load saw no error and verified' load_ends
step 'the keeper is killed: the worker writes back, the unit starts again' keeper_killed
step 'systemctl kill -s KILL: it starts again, and nothing is lost' all_killed
step 'systemctl stop with dirty blocks: in the store, no record' stopped_dirty
need 'systemctl start again' started
step 'logged in again' until_true 180 logged_in
step 'SIGTERM to the worker is a stop of the unit' worker_told_to_end
need 'systemctl start once more' started
step 'logout' logout $T
step 'no kernel error but what was provoked' \
	kernel_clean 'detected conn error|I/O error, dev|Buffer I/O'
step 'systemctl stop' eval 'sctl stop tgtd && [ "$(prop Result)" = success ]'
inside journalctl --no-pager -u tgtd >/out/journal.log 2>&1
cp $BOOT /out/systemd.log
kill -KILL "$SYSTEMD"
