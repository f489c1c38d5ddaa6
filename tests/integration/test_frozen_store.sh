#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A store on a file system that is frozen (fsfreeze, as for a snapshot): the kernel takes no write to
# it, and whoever asks it to waits in that call. Units on other stores go on, and so does the
# administrator. Afterwards what was written there is there. With a cache and without. And a disk
# that hangs, and has no tags left.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.tgtd.test:frozen
tools=$PWD/build/bin
skip() { echo "ok frozen_store # SKIP $*"; exit 0; }
for program in fsfreeze mkfs.ext4 mount; do
	command -v $program >/dev/null || skip "no $program"
done
mnt=$dir/mnt
mkdir "$mnt"
truncate -s 256M "$dir/image"
mkfs.ext4 -q "$dir/image" 2>/dev/null || skip "no file system can be made here"
loads=()
loop=
leave() {
	mountpoint -q "$mnt" && fsfreeze -u "$mnt" 2>/dev/null
	kill "${loads[@]}" 2>/dev/null
	daemon_kill
	[ -n "$loop" ] && losetup -d "$loop"
	mountpoint -q "$mnt" && { umount "$mnt" || umount -l "$mnt"; }
	rm -rf "$dir"
}
trap leave EXIT
mount -o loop "$dir/image" "$mnt" 2>/dev/null || skip "no file system can be mounted here"

load() { # NAME REPORT OPTIONS...
	local name=$1 report=$2
	shift 2
	"$tools/tgt-load" --portal "127.0.0.1:$port" --target "$iqn-$name" --quiet --warmup 0 \
		--wait block --threads 1 --initiator "$iqn-host-$name" --json "$dir/report-$report" "$@" \
		>"$dir/report-$report.out" 2>&1
}
# The longest wait, in ms, and whether all was right.
within() { # REPORT MS
	python3 - "$dir/report-$1" "$2" <<'END_PY'
import json, sys
try:
    r = json.load(open(sys.argv[1]))
except (OSError, ValueError):
    sys.exit('it has not ended')
longest = max(c['max'] for c in r['latency_us'].values() if c['count']) / 1e3
print('# %u commands, longest %.1f ms' % (sum(c['count'] for c in r['latency_us'].values()), longest))
sys.exit(longest > float(sys.argv[2]))
END_PY
}
in_time() { # SECONDS tgtadm...
	local s=$1
	shift
	out=$(timeout "$s" "$bin/tgtadm" "$@" 2>&1)
}

for how in cached uncached; do
	opts=()
	[ $how = uncached ] && opts=(--bsopts cache=none)
	daemon_start ours --cache size=64m
	tid=0
	for store in mnt/cold mnt/cold2 warm; do
		tid=$((tid + 1))
		truncate -s 32M "$dir/$store"
		name=$(basename $store)
		adm -m target -o new -t $tid -T "$iqn-$name"
		adm -m target -o bind -t $tid -I ALL
		adm -m lu -o new -t $tid -l 1 -b "$dir/$store" "${opts[@]}"
		is "$how: a unit on $name" done_silently
	done
	is "$how: what is to be frozen takes writes" load cold first --read 0 --bs 4k --depth 8 --count 500 --verify
	# (Never another file system than the test's own.)
	mountpoint -q "$mnt" && fsfreeze -f "$mnt" || skip "nothing can be frozen here"
	# Two units of it, so that more than one thread could be caught.
	load cold cold --read 50 --bs 4k:3,256k:1 --depth 16 --connections 4 --count 4000 --verify &
	loads=($!)
	load cold2 cold2 --read 0 --bs 64k --depth 16 --connections 4 --count 800 --verify &
	loads+=($!)
	sleep 2
	load warm "warm-$how" --read 50 --bs 4k:3,256k:1 --depth 8 --connections 4 --time 6 --verify &
	well=$!
	loads+=($well)
	is "$how: the administrator is answered" in_time 10 -m target -o show
	is "$how: ... and told of the cache" in_time 10 -m cache -o show
	for _ in $(seq 300); do
		kill -0 $well 2>/dev/null || break
		sleep 0.1
	done
	is "$how: another unit's commands wait for nothing" within "warm-$how" 5000
	fsfreeze -u "$mnt"
	is "$how: thawed, all is right there" wait "${loads[0]}"
	is "$how: ... and there" wait "${loads[1]}"
	is "$how: nobody was replaced" not restarted
	is "$how: it ends with 0" daemon_stop
done

# A disk that does nothing any more: a loop device whose file is frozen. When it has no tags left,
# the kernel would wait for one. Both units are one target's, so one thread serves the session.
truncate -s 64M "$mnt/disk"
loop=$(losetup -f --show --direct-io=on "$mnt/disk" 2>/dev/null) || loop=
if [ -n "$loop" ]; then
	daemon_start ours --cache size=64m
	adm -m target -o new -t 1 -T "$iqn-both"
	adm -m target -o bind -t 1 -I ALL
	adm -m lu -o new -t 1 -l 1 -b "$loop"
	is "disk: a unit on it" done_silently
	adm -m lu -o new -t 1 -l 2 -b "$dir/warm"
	is "disk: ... and another one" done_silently
	is "disk: it takes writes" load both first --lun 1 --read 0 --bs 64k --depth 8 --count 600
	fsfreeze -f "$mnt"
	# More than it has tags.
	load both cold --lun 1 --read 50 --bs 4k --depth 64 --connections 8 --count 20000 --verify &
	loads=($!)
	sleep 2
	load both warm-disk --lun 2 --read 50 --bs 4k:3,256k:1 --depth 8 --connections 4 --time 4 --verify &
	well=$!
	loads+=($well)
	is "disk: the administrator is answered" in_time 10 -m target -o show
	for _ in $(seq 300); do
		kill -0 $well 2>/dev/null || break
		sleep 0.1
	done
	is "disk: the other unit's commands wait for nothing" within warm-disk 5000
	fsfreeze -u "$mnt"
	is "disk: it does again, and all is right there" wait "${loads[0]}"
	is "disk: nobody was replaced" not restarted
	is "disk: it ends with 0" daemon_stop
fi
is "no report" no_report
finish 30
