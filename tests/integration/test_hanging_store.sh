#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A store that never answers (a dead server's file): the others go on, and the daemon can be ended.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.example:h
command -v cc >/dev/null || { echo "ok hanging_store # SKIP no compiler"; exit 0; }
truncate -s 16M "$dir/hung" "$dir/fine" "$dir/fine2"

# As long as there is a file $HANG, what is asked of a file called "hung" never comes back.
cc -shared -fPIC -O1 -D_GNU_SOURCE -o "$dir/hang.so" -x c - -ldl <<'END'
#include <dlfcn.h>
#include <libaio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int hangs(int fd)
{
	char link[64], path[4096];
	ssize_t n;

	if (access(getenv("HANG"), F_OK))
		return 0;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n < 0)
		return 0;
	path[n] = 0;
	return n > 5 && !strcmp(path + n - 5, "/hung");
}

int io_submit(io_context_t ctx, long nr, struct iocb **ios)
{
	static int (*real)(io_context_t, long, struct iocb **);

	if (!real)
		real = (int (*)(io_context_t, long, struct iocb **))dlsym(RTLD_NEXT, "io_submit");
	if (hangs(ios[0]->aio_fildes))
		return 1;
	for (long i = 1; i < nr; i++)
		if (hangs(ios[i]->aio_fildes))
			return real(ctx, i, ios);
	return real(ctx, nr, ios);
}

int fallocate(int fd, int mode, off_t at, off_t len)
{
	static int (*real)(int, int, off_t, off_t);

	if (!real)
		real = (int (*)(int, int, off_t, off_t))dlsym(RTLD_NEXT, "fallocate");
	while (hangs(fd))
		usleep(10000);
	return real(fd, mode, at, len);
}
END
# As long as there is a file $HANG.lock or $HANG.sync: these calls of whoever opens it.
cat >"$dir/hang-open.c" <<'END'
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int hangs(int fd, const char *what)
{
	char name[4096], link[64], path[4096];
	ssize_t n;

	snprintf(name, sizeof(name), "%s.%s", getenv("HANG"), what);
	if (access(name, F_OK))
		return 0;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n < 0)
		return 0;
	path[n] = 0;
	return n > 5 && !strcmp(path + n - 5, "/hung");
}

int fdatasync(int fd)
{
	while (hangs(fd, "sync"))
		usleep(10000);
	return (int)syscall(SYS_fdatasync, fd);
}

static int control(int fd, int cmd, void *arg)
{
	while (cmd == F_OFD_SETLK && hangs(fd, "lock"))
		usleep(10000);
	return (int)syscall(SYS_fcntl, fd, cmd, arg);
}

int fcntl(int fd, int cmd, ...)
{
	va_list args;

	va_start(args, cmd);
	void *arg = va_arg(args, void *);
	va_end(args);
	return control(fd, cmd, arg);
}

int fcntl64(int fd, int cmd, ...)
{
	va_list args;

	va_start(args, cmd);
	void *arg = va_arg(args, void *);
	va_end(args);
	return control(fd, cmd, arg);
}
END
cc -shared -fPIC -O1 -D_GNU_SOURCE -U_FILE_OFFSET_BITS -o "$dir/hang-open.so" "$dir/hang-open.c"
export HANG=$dir/hang
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}

start() {
	rm -f "$HANG"
	# (What stands in for a dead server makes calls that event threads may not make.)
	LD_PRELOAD=$dir/hang.so daemon_start ours --seccomp off "$@"
	adm -m target -o new -t 1 -T "$iqn"
	adm -m lu -o new -t 1 -l 1 -b "$dir/hung"
	adm -m lu -o new -t 1 -l 2 -b "$dir/fine"
	adm -m target -o bind -t 1 -I ALL
}
# ask LUN KIB|zero|sync [SECONDS]: writes so much; clears a range; synchronizes. With 0 when that is GOOD.
cat >"$dir/peer.py" <<'END'
import os, struct, sys
sys.path.insert(0, 'tests/support')
from iscsi_peer import Peer
Peer.address, Peer.target = ('127.0.0.1', int(sys.argv[1])), sys.argv[2]
peer = Peer()
peer.name += '-%u' % os.getpid()
peer.login()
lun, what = int(sys.argv[3]), sys.argv[4]


def ask(p):
    peer.out(p)
    return peer.wait_status(peer.itt - 1)[1]


while ask(peer.command(b'', 0x80, lun=lun)):
    pass
if what == 'zero':  # WRITE SAME(16), NDOB
    bad = ask(peer.command(struct.pack('>BBQI', 0x93, 1, 16384, 64), 0x80, lun=lun))
elif what == 'read':
    bad = ask(peer.read(16384, 8, lun=lun))
elif what == 'sync':
    bad = ask(peer.command(b'\x35', 0x80, lun=lun))
else:
    bad = 0
    for k in range(int(what) // 4):
        bad |= ask(peer.write(k * 8, 8, os.urandom(4096), lun=lun))
sys.exit(bad)
END
ask() { timeout "${3:-20}" python3 -B "$dir/peer.py" "$port" "$iqn" "$1" "$2"; }
# The exit status of a daemon that was told to end, within $1 seconds; 99: it goes on.
ends_within() {
	for _ in $(seq $(($1 * 10))); do
		kill -0 "$pid" 2>/dev/null || break
		sleep 0.1
	done
	kill -0 "$pid" 2>/dev/null && return 99
	wait "$pid"
	status=$?
	pid=
	return $status
}

start --stop-timeout 3
is "both can be written to" ask 1 4
is "and cleared" ask 1 zero
touch "$HANG"
is "write-back takes what a store that hangs does not" ask 1 64
for _ in 1 2 3 4 5 6; do
	ask 1 zero 0.5
done
is "another unit: cleared" ask 2 zero
is "another unit: written" ask 2 16
is "another unit: synchronized" ask 2 sync
(adm -m lu -o delete -t 1 -l 1 --force) &
sleep 0.5
adm -m target -o new -t 2 -T "$iqn.2"
is "another target: made" done_silently
adm -m lu -o new -t 2 -l 1 -b "$dir/fine2"
is "another target: its store opened" done_silently
kill -TERM "$pid"
ends_within 40
is "it ends when the store has taken nothing for so long, with 1" test $? = 1
is "and says what of which store is lost" grep -q "/hung: [0-9]* KiB were not written back: LOST" "$dir/log"
is "and only that" not grep -q "/fine.*LOST" "$dir/log"

start --stop-timeout 0
adm -m cache -o stat -t 1 -l 1
is "the next one knows of the loss (C11)" has "In doubt: an earlier tgtd ended"
adm -m cache -o stat -t 1 -l 2
is "and that the other store has lost nothing" not has "In doubt"
touch "$HANG"
is "written again" ask 1 64
kill -TERM "$pid"
kill -TERM "$pid"
ends_within 7
is "two signals at once are one: it goes on waiting" test $? = 99
kill -TERM "$pid"
ends_within 20
is "a later one ends it at once" test $? = 1
is "and it says what is lost" grep -q "/hung: [0-9]* KiB were not written back: LOST" "$dir/log"

# A store that swallows reads is seen, and said; so is one that takes no writes.
says() { # TEXT: within 20 s
	for _ in $(seq 100); do
		adm -m cache -o stat -t 1 -l 1
		has "$1" && return
		sleep 0.2
	done
	return 1
}
rm -f "$dir"/state/dirty-*
start
"$bin/tgtadm" --mode system --op watch --name store >"$dir/events" 2>&1 &
watcher=$!
event() { # within 30 s
	for _ in $(seq 300); do
		out=$(cat "$dir/events")
		has "$1" && return
		sleep 0.1
	done
	return 1
}
is "somebody watches" event watching
adm -m cache -o stat -t 1 -l 1
is "a store that answers is not spoken of" not has "Reads:"
adm -m target -o show
is "... nor by show" not has "Hangs:"
touch "$HANG"
ask 1 read 20 &
reader=$!
is "a store that answers no reads is seen" says "Reads: the store has not answered any"
is "another unit: read beside it" ask 2 read
is "who watches is told of it, by its name" event "store what=hanging text=$dir/hung: a request has not been answered for "
adm -m target -o show
is "show says it" has "Hangs: a request has not been answered for "
is "of one unit" test "$(printf '%s\n' "$out" | grep -c Hangs:)" = 1
adm --json -m target -o show
is "as JSON" python3 -c 'import json, sys
luns = json.loads(sys.argv[1])["targets"][0]["luns"]
sys.exit([l["hanging_ns"] > 5e9 for l in luns] != [False, True, False])' "$out"
adm -m system -o stat --name store_hanging
is "it is counted" has "store_hanging 1"
is "the log says it" grep -q "error: .*$dir/hung: the store hangs" "$dir/log"
is "and of nothing else" not grep -q "store what=.*/fine" "$dir/events"
wait $reader
is "write-back takes what it can" ask 1 16
is "a store that takes no writes is seen" says "Write-back: the store has not taken any"
rm "$HANG"
daemon_kill

# A store that hangs while it is opened keeps no other from being opened, and closed.
others_go_on() { # WHAT
	touch "$HANG.$1"
	LD_PRELOAD=$dir/hang-open.so daemon_start ours --seccomp off
	adm -m target -o new -t 1 -T "$iqn"
	adm -m target -o new -t 2 -T "$iqn.2"
	(adm -m lu -o new -t 1 -l 1 -b "$dir/hung") &
	local opening=$!
	sleep 0.5
	out=$(timeout 20 "$bin/tgtadm" -m lu -o new -t 2 -l 1 -b "$dir/fine2" 2>&1) &&
		out=$(timeout 20 "$bin/tgtadm" -m lu -o delete -t 2 -l 1 2>&1)
	rc=$?
	is "a store hangs at $1 while it is opened: others are opened and closed" done_silently
	is "and it does hang" kill -0 $opening
	rm "$HANG.$1"
	wait $opening
	is "it ends with 0" daemon_stop
}
others_go_on lock
# As left by one that had given all to its store, and ended by force.
rm -f "$dir"/state/dirty-*
start
ask 1 4
cp -a "$(grep -l "/hung$" "$dir"/state/dirty-*)" "$dir/kept"
name=$(basename "$(grep -l "/hung$" "$dir"/state/dirty-*)")
daemon_kill
rm -f "$dir"/state/dirty-*
python3 - "$dir/kept" "$dir/state/$name" <<'END'
import re, sys
text = open(sys.argv[1]).read()
text = re.sub('state dirty', 'state written', text[:text.index('sum ')])
total = 0xcbf29ce484222325
for c in text.encode():
    total = (total ^ c) * 0x100000001b3 % 2 ** 64
open(sys.argv[2], 'w').write(text + 'sum %016x\n' % total)
END
others_go_on sync
is "no report" no_report
finish
