#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A file server that has gone: its file is asked for its size (resize=1, refresh=1), or closed (its unit is deleted). Who asked
# is told, or waits; the administrator of others, who logs in, and who is on another store do not.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
. tests/integration/worker_lib.sh
iqn=iqn.2026-11.org.tgtd.test:fs
fs=
end() {
	rm -f "$dir"/hangs.*
	daemon_kill
	umount "$dir/fs" 2>/dev/null
	[ -n "$fs" ] && wait "$fs" 2>/dev/null
	rm -rf "$dir"
}
trap end EXIT

mkdir "$dir/fs"
python3 -B tests/support/hanging_fs.py "$dir/fs" 16 "$dir/hangs" >"$dir/fs.out" 2>&1 &
fs=$!
for _ in $(seq 100); do
	grep -q mounted "$dir/fs.out" && break
	kill -0 $fs 2>/dev/null || break
	sleep 0.05
done
if ! grep -q mounted "$dir/fs.out"; then
	fs=
	echo "ok hanging_fs # SKIP no FUSE here"
	finish
fi

# within MS COMMAND...: it succeeds, and took no longer
within() {
	local ms=$1 began took
	shift
	began=$(date +%s%N)
	"$@" || return 1
	took=$((($(date +%s%N) - began) / 1000000))
	echo "# $took ms"
	[ $took -lt "$ms" ]
}
quietly() { adm "$@"; [ "$rc" = 0 ]; }
refuses_size() { adm --mode logicalunit --op update --tid 1 --lun 1 --params "$1=1"; [ "$rc" = 22 ]; }

truncate -s 16M "$dir/disk"
two_units() {
	local disk n=0
	for disk in fs/disk disk; do
		n=$((n + 1))
		adm --mode target --op new --tid $n --targetname $iqn-$n
		adm --mode target --op bind --tid $n -I ALL
		adm --mode logicalunit --op new --tid $n --lun 1 -b "$dir/$disk"
		is "a unit on $disk" done_silently
	done
}

daemon_start ours
two_units
is "its size is looked at" quietly --mode logicalunit --op update --tid 1 --lun 1 --params resize=1
touch "$dir/hangs.size"
for key in resize refresh; do
	refuses_size $key &
	asker=$!
	sleep 0.1
	is "$key=1 of a store that does not answer: another unit is changed" within 2000 \
		quietly --mode logicalunit --op update --tid 2 --lun 1 --params $key=1
	is "... and all are shown" within 2000 quietly --mode target --op show
	is "... and who logs in writes" within 4000 peer write "$port" $iqn-2 64 1
	is "who asked is refused" wait $asker
done
is "its unit can be read" peer read "$port" $iqn-1 64
rm "$dir/hangs.size"
looked() { adm --mode logicalunit --op update --tid 1 --lun 1 --params resize=1; [ "$rc" = 0 ]; }
for _ in $(seq 50); do
	looked && break
	sleep 0.1
done
is "when it answers again, its size is looked at" done_silently
is "it ends with 0" daemon_stop
is "no report" no_report
is "nobody was replaced" not restarted

# ---- closed
# closes OPTIONS...: the unit of the store that hangs is deleted
closes() {
	rm -rf "$dir/state"
	daemon_start ours "$@"
	two_units
	adm --mode target --op new --tid 3 --targetname $iqn-3
	adm --mode target --op bind --tid 3 -I ALL
	touch "$dir/hangs.close"
	adm --mode logicalunit --op delete --tid 1 --lun 1 &
	asker=$!
	sleep 0.2
	is "deleted while its file does not let itself be closed ($*): another unit is made" within 2000 \
		quietly --mode logicalunit --op new --tid 3 --lun 1 -b "$dir/disk3"
	is "... and it is written to" within 4000 peer write "$port" $iqn-3 64 3
	is "... and deleted" within 2000 quietly --mode logicalunit --op delete --tid 3 --lun 1
}
truncate -s 16M "$dir/disk3"
closes
is "... and the keeper does not wait" not grep -q 'the keeper does not' "$dir/log"
rm "$dir/hangs.close"
is "when it answers again, it is deleted" wait $asker
is "it ends with 0" daemon_stop
closes --no-keeper
rm "$dir/hangs.close"
is "when it answers again, it is deleted" wait $asker
is "it ends with 0" daemon_stop

# ---- closed by a worker that dies, and by nobody else
rm -rf "$dir/state"
daemon_start ours
two_units
is "its unit is written to" within 4000 peer write "$port" $iqn-1 64 1
touch "$dir/hangs.close"
worker=$(cat "$dir/state/worker.pid")
kill -9 "$worker"
serves_another() {
	for _ in $(seq 100); do
		peer read "$port" $iqn-2 64 && [ "$(cat "$dir/state/worker.pid")" != "$worker" ] && return
		sleep 0.05
	done
	return 1
}
is "a worker dies while a file does not let itself be closed: another one serves" within 8000 serves_another
rm "$dir/hangs.close"
first_is_back() {
	for _ in $(seq 100); do
		peer read "$port" $iqn-1 64 && return
		sleep 0.1
	done
	return 1
}
is "when it answers again, so does its unit" first_is_back
is "it ends with 0" daemon_stop

# ---- and the keeper, which has copies: it is replaced, and ends
rm -rf "$dir/state"
daemon_start ours
two_units
touch "$dir/hangs.close"
is "a file does not let itself be closed: the keeper is to be replaced" \
	quietly --mode system --op update --name restart --value keeper
is "... and is" log_says 'keeper: this program has taken over' 8
is "... its worker serves" within 4000 peer write "$port" $iqn-2 64 5
was=$port
stuck=$(cat "$dir/state/worker.pid")
kill -TERM "$pid"
keeper_over() {
	for _ in $(seq 200); do
		is_there "$pid" || return 0
		sleep 0.1
	done
	return 1
}
is "... it is to end, and does" keeper_over
is "... with 1, since its worker could not" not wait "$pid"
rm -rf "$dir/state"
daemon_start ours
is "... another daemon listens where that did" test "$port" = "$was"
rm "$dir/hangs.close"
is "when it answers again, the worker has gone" ended "$stuck"
is "the other one ends with 0" daemon_stop
is "no report" no_report

# ---- our parent has left open all numbers that a worker would begin with
for fd in 3 4 5 6 7 8 9; do eval "exec $fd</dev/null"; done
for _ in $(seq 80); do exec {fd}</dev/null; done
rm -rf "$dir/state"
daemon_start ours
two_units
touch "$dir/hangs.close"
worker=$(cat "$dir/state/worker.pid")
kill -9 "$worker"
is "many files are open: a worker dies, and another one serves" within 8000 serves_another
rm "$dir/hangs.close"
is "it ends with 0" daemon_stop
is "no report" no_report
finish
