#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A store's lock, its identity and what it has to tell outlive the worker (issue 17): nobody else gets the lock while one worker
# takes the place of another; what was opened is served, whatever lies at its path by then; a worker without a right to open it
# has it again; and a loss that the kernel has told the one that died is told by the next.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
. tests/integration/worker_lib.sh
iqn=iqn.2026-11.org.tgtd:kept
preload=$(preloaded told_once)
configure() {
	adm --mode target --op new --tid 1 --targetname $iqn
	adm --mode target --op bind --tid 1 -I ALL
	adm --mode logicalunit --op new --tid 1 --lun 1 -b "$1"
}
# Tries to lock FILE until there is a file END; prints how often it got it.
locker() {
	python3 -B - "$@" <<'PYTHON'
import fcntl, os, struct, sys, time
name, end = sys.argv[1:3]
fd, got, tries = os.open(name, os.O_RDWR), 0, 0
while not os.path.exists(end) or not tries:
    tries += 1
    if tries == 2:
        open(end + '.began', 'w').close()
    try:
        # F_OFD_SETLK, as another program that knows what it does
        fcntl.fcntl(fd, 37, struct.pack('hhqqi4x', fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        got += 1
        fcntl.fcntl(fd, 37, struct.pack('hhqqi4x', fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0))
    except BlockingIOError:
        pass
    time.sleep(0.0005)
print(got)
PYTHON
}
gets_lock() {
	for _ in $(seq 200); do
		[ "$(locker "$1" "$dir")" = 1 ] && return 0
		sleep 0.05
	done
	return 1
}

truncate -s 16m "$dir/disk" "$dir/other"
daemon_start ours --cache size=4m
configure "$dir/disk"
peer write "$port" $iqn 64 7
is "a write" test "$?" = 0
has_open() { # so many descriptors of the store has the worker, within 10 s
	for _ in $(seq 100); do
		out="$(find "/proc/$worker/fd" -lname "$dir/disk" | wc -l) descriptors"
		[ "$out" = "$1 descriptors" ] && return 0
		sleep 0.1
	done
	return 1
}
is "a unit has three descriptors" has_open 3

# ---- the lock
locker "$dir/disk" "$dir/end" >"$dir/got" 2>&1 &
locks=$!
while [ ! -e "$dir/end.began" ] && kill -0 $locks 2>/dev/null; do sleep 0.02; done
kill -9 "$worker"
is "another worker serves after a kill" another
is "... it has as many" has_open 3
adm --mode sys --op update --name restart --value now
[ "$rc" = 0 ] || adm --op update --mode sys --name restart
is "... and after a planned restart" another
is "... as many, too" has_open 3
touch "$dir/end"
wait $locks
is "nobody else has had the lock at any moment" test "$(cat "$dir/got")" = 0
peer read "$port" $iqn 64
is "what was written is read" test "$out" = 7

# ---- the name is another file's by now
mv "$dir/disk" "$dir/moved"
mv "$dir/other" "$dir/disk"
kill -9 "$worker"
is "another worker serves when the store has got another name" another
peer read "$port" $iqn 64
is "... what was opened" test "$out" = 7
peer write "$port" $iqn 72 8
is "... and takes writes" test "$?" = 0
is "... its lock is held" test "$(locker "$dir/moved" "$dir")" = 0
is "... and not that of the other file" test "$(locker "$dir/disk" "$dir")" = 1
ln "$dir/moved" "$dir/link"
adm --mode logicalunit --op delete --tid 1 --lun 1
is "the unit is deleted" test "$rc" = 0
is "... and then others get the lock" gets_lock "$dir/moved"
adm --mode logicalunit --op new --tid 1 --lun 1 -b "$dir/link"
is "it is opened by another link" test "$rc" = 0
peer read "$port" $iqn 72
is "... and has what was written" test "$out" = 8
is "... and the lock" test "$(locker "$dir/moved" "$dir")" = 0
is "it ends with 0" daemon_stop
is "and nobody has the lock any more" gets_lock "$dir/moved"
rm -rf "$dir/end" "$dir/state"

# ---- what a store tells once
case $bin in
*san/bin) echo "ok a loss that is told once # SKIP sanitizers want to be the first library" ;;
*)
	export TOLD_ONCE=$dir/told
	LD_PRELOAD=$preload daemon_start ours --seccomp off --cache size=4m
	configure "$dir/moved"
	touch "$TOLD_ONCE"
	peer write "$port" $iqn 64 9
	peer sync "$port" $iqn
	is "a worker's own SYNC" test "$?" = 0
	kill -9 "$worker"
	is "another worker serves" another
	peer sync "$port" $iqn
	is "its first SYNC tells what the one that died may have been told" test "$?" = 2
	is "... as the log does" grep -q 'has lost something that the worker that died' "$dir/log"
	peer sync "$port" $iqn
	is "... once" test "$?" = 0
	unset TOLD_ONCE
	is "it ends with 0" daemon_stop
	rm -rf "$dir/state"
	;;
esac

# ---- a worker that may not open it
if [ "$(id -u)" != 0 ] || ! id nobody >/dev/null 2>&1; then
	echo "ok a worker without a right to its store # SKIP only root has any to give up"
	finish
fi
chmod 755 "$dir"
mkdir -m 700 "$dir/closed"
mv "$dir/moved" "$dir/closed/disk"
chmod 600 "$dir/closed/disk"
daemon_start ours --user nobody --cache size=4m
configure "$dir/closed/disk"
peer write "$port" $iqn 64 10
is "a write to a store that an administrator has opened" test "$?" = 0
kill -9 "$worker"
is "another worker serves" another
adm --mode target --op show
is "... the unit is ready" has_line "            Backing store path: $dir/closed/disk"
peer read "$port" $iqn 64
is "... and has what was written" test "$out" = 10
peer write "$port" $iqn 64 11
is "... and takes writes" test "$?" = 0
is "it ends with 0" daemon_stop
is "and the store has them" test "$(dd if="$dir/closed/disk" bs=512 skip=64 count=1 status=none | od -An -tu1 -N1 | tr -d ' ')" = 11
finish
