#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Commands to a store that never answers are aborted: task by task, and by a reset of the unit. Both
# are answered before long, and nothing is held afterwards.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.example:a
command -v cc >/dev/null || { echo "ok hanging_abort # SKIP no compiler"; exit 0; }
cc -shared -fPIC -O1 -o "$dir/sick.so" tests/preload/sick_stores.c -ldl
export SICK=$dir/sick SICK_WAKES=1 ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
truncate -s 64M "$dir/hung-1" "$dir/fine"

# (What stands in for a dead disk makes calls that event threads may not make.)
LD_PRELOAD=$dir/sick.so daemon_start ours --seccomp off --cache size=64m
adm -m target -o new -t 1 -T "$iqn"
adm -m lu -o new -t 1 -l 1 -b "$dir/hung-1"
adm -m lu -o new -t 1 -l 2 -b "$dir/fine"
adm -m target -o bind -t 1 -I ALL

timeout 300 python3 -B - "$port" "$iqn" "$SICK" <<'PY' || failures=$((failures + 1))
import os, struct, sys, time
sys.path.insert(0, 'tests/support')
from iscsi_peer import Peer, is_

Peer.address, Peer.target = ('127.0.0.1', int(sys.argv[1])), sys.argv[2]
SICK = sys.argv[3]
ABORT_TASK, LU_RESET = 1, 5
p = Peer(timeout=60).login().ready()
other = Peer(timeout=60)
other.name += '-other'
other.login().ready()
while other.run(b'\0', lun=2)[0] != 'good':
    pass


def fua(p, lba, blocks):
    return p.command(struct.pack('>BBIxHx', 0x2a, 8, lba, blocks), 0xa1, blocks * 512, b'\x11' * blocks * 512)


def zero(p, lba, blocks):  # WRITE SAME(16), NDOB
    return p.command(struct.pack('>BBQI', 0x93, 1, lba, blocks), 0x80)


def begin(p, commands):
    """Sends them; (ITT, CmdSN) of each."""
    tasks = []
    for c in commands:
        p.out(c)
        tasks.append((struct.unpack('>I', c[16:20])[0], struct.unpack('>I', c[24:28])[0]))
    time.sleep(0.3)
    return tasks


def waiting(p, at):
    """Some of each kind, in MiB @at."""
    lba = at * 2048
    data = b'\x22' * 4096
    yield p.read(lba, 8)
    yield p.read(lba, 16)           # for what that one loads, too
    yield p.write(lba + 64, 8, data)
    yield fua(p, lba + 128, 8)
    yield fua(p, lba + 128, 8)
    yield p.command(b'\x35', 0x80)  # SYNCHRONIZE CACHE
    yield p.command(b'\x35', 0x80)
    for k in range(40):
        yield p.read(lba + 256 + k * 16, 8)


def abort_each(what, tasks):
    answers, since = [], time.monotonic()
    for itt, sn in tasks:
        answers.append(p.manage(ABORT_TASK, itt=itt, sn=sn))
    is_(what, set(answers) <= {0, 1} and 0 in answers, answers)
    is_('... within ten seconds', time.monotonic() - since < 10, time.monotonic() - since)


def is_usable(what):
    other.out(other.write(0, 8, b'\x33' * 4096, lun=2))
    is_('another unit is written and read: ' + what, other.wait_status(other.itt - 1)[1] == 0 and
        other.run(struct.pack('>BxIxHx', 0x28, 4096, 8), 4096, lun=2)[0] == 'good')


open(SICK, 'w').close()
for at in range(1, 4):
    abort_each('each task of a store that hangs is aborted', begin(p, waiting(p, at)))
is_usable('aborted tasks')
begin(p, waiting(p, 5))
since = time.monotonic()
is_('the unit is reset', p.manage(LU_RESET) == 0)
is_('... within ten seconds', time.monotonic() - since < 10, time.monotonic() - since)
is_usable('a reset unit')
p.ready()  # it has been told of the reset

# One that the store is at work with: it is aborted, too, and its range is the store's until that is
# done. Who waits for the range is aborted.
[kept] = begin(p, [zero(p, 20 * 2048, 2048)])
lba = 20 * 2048
abort_each('one that the store is at work with is aborted', [kept])
abort_each('who waits for a range is aborted', begin(p, [
    p.read(lba, 8), p.read(lba + 100, 64), p.write(lba + 8, 8, b'\x44' * 4096), fua(p, lba + 16, 8),
    zero(p, lba + 64, 64), p.command(struct.pack('>BBQI', 0x93, 1, lba - 8, 16), 0x80)]))
is_usable('one that owns its range')
# So are a session's tasks when it ends, with one that the store is at work with.
since = time.monotonic()
last = Peer(timeout=60)
last.name += '-last'
last.login().ready()
begin(last, [zero(last, 24 * 2048, 2048), zero(last, 24 * 2048 + 64, 2048)])
last.logout()
is_('a session with one ends within ten seconds', time.monotonic() - since < 10, time.monotonic() - since)
os.unlink(SICK)


def reads(lba, blocks):
    p.out(p.read(lba, blocks))
    whole, status = p.wait_status(p.itt - 1)
    return None if status else whole


whole = reads(lba, 256)
is_('nothing of what was aborted is there', whole == bytes(256 * 512), whole and [(k, whole[k * 512]) for k in range(256) if any(whole[k * 512:k * 512 + 512])])
for at in range(1, 6):
    whole = reads(at * 2048, 1024)
    is_('what was loaded and written for nobody is there',
        whole is not None and set(whole[64 * 512:72 * 512]) <= {0, 0x22} and set(whole[128 * 512:136 * 512]) <= {0, 0x11})
p.out(p.command(b'\x35', 0x80))
is_('the unit is synchronized', p.wait_status(p.itt - 1)[1] == 0)
is_usable('the end')
sys.exit(is_.failures)
PY
is "no report" no_report
is "it ends with 0" daemon_stop
finish
