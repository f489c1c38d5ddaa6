#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The end of the daemon on a machine whose processors are all busy: it must not wait for threads that
# prepare memory at the lowest priority, of the cache and of ram stores. On the state before, what
# was just under way took such a thread seconds: "shutdown did not finish in time", exit code 1.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
burners=
trap 'kill -9 $burners 2>/dev/null; daemon_kill; rm -rf "$dir"' EXIT
room=$(awk '/^MemAvailable/ { print int($2 / 1024) }' /proc/meminfo)
if [ "$room" -lt 3072 ]; then
	echo "ok it ends on a busy machine # SKIP it needs 3 GiB of free memory, there are $room MiB"
	exit 0
fi
case $bin in
*/asan/* | */tsan/*)
	echo "ok it ends on a busy machine # SKIP a sanitizer's daemon takes longer for everything"
	exit 0
	;;
esac
# The daemon has 4.5 s for its end. On a machine that others keep busy, too, that may be too short for
# what it does itself, and says nothing of threads that it waits for.
load=$(cut -d. -f1 /proc/loadavg)
if [ "$load" -ge $((3 * $(nproc))) ]; then
	echo "ok it ends on a busy machine # SKIP others keep this one busy: load $load"
	exit 0
fi
for _ in $(seq $((4 * $(nproc)))); do
	(while :; do :; done) &
	burners="$burners $!"
done
for round in 1 2 3; do
	daemon_start ours --cache size=1g
	adm --op new --mode target --tid 1 -T iqn.x:busy
	adm --op bind --mode target --tid 1 -I ALL
	adm --op new --mode logicalunit --tid 1 --lun 1 --bstype ram --backing-store 512m
	# so much of it comes into use that huge pages are made of it
	timeout 200 "$bin/tgt-load" --portal "127.0.0.1:$port" --target iqn.x:busy --bs 256k --read 0 \
		--pattern sequential --range 256m --count 1024 --wait block --quiet || echo "# not written"
	is "round $round: it ends with 0 while the machine is busy" daemon_stop
	is "... in time" not grep -q "did not finish in time" "$dir/log"
done
{ kill -9 $burners; wait $burners; } 2>/dev/null
burners=
no_report || { echo "not ok nothing was reported"; failures=$((failures + 1)); }
finish 40
