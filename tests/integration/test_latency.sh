#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# U9: how long commands take, as tgtadm says it. Each command counts once, parts add up to totals,
# figures outlive sessions, what a slow store takes is said to be the store's, and a unit attention
# is no error.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.tgtd.test:latency
truncate -s 64m "$dir/slow"
daemon_start_slow --cache size=32m
adm --op new --mode target --tid 1 -T $iqn
adm --op bind --mode target --tid 1 -I ALL
adm --op new --mode logicalunit --tid 1 --lun 1 --bstype ram --backing-store 16m
adm --op new --mode logicalunit --tid 1 --lun 2 --backing-store "$dir/slow"
is "a LUN on a store that can be slow" test "$rc" = 0
adm --op show --mode cache
is "on one node the hop's cost is not measured" has_line "    Hop: not measured"
python3 -B - "$port" $iqn "$(tool tgtadm)" "$SLOW_MS" <<'PY' || failures=$((failures + 1))
import subprocess, sys
sys.path.insert(0, 'tests/support')
from iscsi_peer import Peer

Peer.address, Peer.target = ('127.0.0.1', int(sys.argv[1])), sys.argv[2]
tgtadm, slow_ms = sys.argv[3:5]
wrong = 0


def is_so(name, fine, told=''):
    global wrong
    wrong += not fine
    print('ok ' + name if fine else 'not ok %s: %s' % (name, told))


def adm(*args):
    done = subprocess.run([tgtadm, *args], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def lu(op, lun):
    return adm('--mode', 'logicalunit', '--op', op, '--tid', '1', '--lun', str(lun))


def latency(lun):
    """{(class, figure): [count, mean, p50, p90, p99, p99.9, max]}, and what was waited for."""
    figures, waits = {}, {}
    lines = lu('latency', lun)
    assert lines[0].split()[:5] == ['tgt', 'lun', 'class', 'figure', 'count'], lines
    for line in lines[1:]:
        f = line.split()
        assert f[:2] == ['1', str(lun)], line
        if f[3].startswith('wait:'):
            waits[f[2], f[3][5:]] = float(f[4])
        else:
            figures[f[2], f[3]] = [int(f[4])] + [float(x) for x in f[5:]]
    return figures, waits


def parts_add_up(what, figures, waits):
    for c in ('read', 'write', 'sync', 'unmap', 'other'):
        if (c, 'total') not in figures:
            continue
        total = figures[c, 'total']
        # Each figure's mean is of all commands of the class, cut to a tenth of a microsecond.
        parts = sum(f[1] for (k, n), f in figures.items() if k == c and n != 'total')
        is_so('%s: the parts of %ss add up' % (what, c), abs(parts - total[1]) <= 0.5,
              (parts, total))
        is_so('%s: each part counts all %ss' % (what, c),
              all(f[0] == total[0] for (k, n), f in figures.items() if k == c), figures)
        is_so('%s: percentiles of %ss rise' % (what, c),
              all(f[2:] == sorted(f[2:]) for (k, n), f in figures.items() if k == c), figures)
        waited = sum(v for (k, w), v in waits.items() if k == c)
        said = figures.get((c, 'waiting'), [0, 0])
        is_so('%s: what %ss waited for adds up' % (what, c),
              abs(waited - said[0] * said[1]) <= 0.6 * total[0] + 1, (waited, said))


def errors(lun):
    return [int(line.split()[-1]) for line in lu('stat', lun)[1:]]


def do(p, itt_lines):
    for cdb in itt_lines:
        p.out(cdb)
        assert p.wait_status(p.itt - 1)[1] == 0


def sync(p):
    return p.command(bytes([0x35]) + bytes(9), 0x80)


p = Peer().login()
p.out(p.command(bytes(6), 0x80))  # TEST UNIT READY: the unit attention of a new session
is_so('a unit attention', p.wait_status(p.itt - 1)[1] == 2)
is_so('... is no error', errors(1) == [0], errors(1))
p.ready()
data = bytes(4096)
for i in range(100):
    do(p, [p.write(i * 8, 8, data)])
    do(p, [p.read(i * 8, 8)])
for i in range(40):  # many at once: one batch
    p.out(p.read(i * 8, 8))
for i in range(40):
    assert p.recv()[0][0] == 0x25
do(p, [sync(p)])
p.out(p.read(1 << 30, 8))
assert p.wait_status(p.itt - 1)[1] == 2
f, w = latency(1)
is_so('reads count once, failed ones too', f['read', 'total'][0] == 141, f)
is_so('writes count once', f['write', 'total'][0] == 100, f)
is_so('syncs count', f['sync', 'total'][0] == 1, f)
is_so('one error', errors(1) == [1], errors(1))
parts_add_up('ram', f, w)
is_so('a ram store is no part of it', ('read', 'store') not in f, f)
p.logout()
p.close()
g, _ = latency(1)
is_so('figures outlive the session',
      g['read', 'total'][0] == 141 and g['write', 'total'][0] == 100, g)
is_so('the sessions are gone', errors(1) == [], errors(1))

q = Peer().login().ready()


def on2(cdb):
    q.out(cdb)
    return q.wait_status(q.itt - 1)[1]


while on2(q.command(bytes(6), 0x80, lun=2)):
    pass
with open(slow_ms, 'w') as out:
    out.write('30\n')
for i in range(20):
    assert on2(q.command(bytes([0x28, 0, 0, 0, i, 0, 0, 0, 8, 0]), 0xc0, 4096, lun=2)) == 0
f, w = latency(2)
is_so('a store that takes 30 ms',
      29000 <= f['read', 'store'][2] and f['read', 'store'][1] > 0.8 * f['read', 'total'][1], f)
parts_add_up('store', f, w)
slow = lu('slow', 2)
is_so('the slowest are told, and where their time went',
      len(slow) == 16 and all(' us: read 28h lba ' in s and ' store ' in s for s in slow), slow)
took = [float(s.split()[1]) for s in slow]
is_so('... the slowest first', took == sorted(took, reverse=True) and took[-1] >= 29000, took)
everything = adm('--mode', 'system', '--op', 'latency')
target = adm('--mode', 'target', '--op', 'latency', '--tid', '1')
is_so('all of a target, and of all',
      everything == target and any(x.split()[:3] == ['1', '2', 'read'] for x in target), target)

adm('--mode', 'system', '--op', 'update', '--name', 'latency_initiators', '--value', 'on')
with open(slow_ms, 'w') as out:
    out.write('0\n')
q.out(q.read(0, 8))
assert q.wait_status(q.itt - 1)[1] == 0
mine = [x.split() for x in lu('latency', 1) if ' sid:' in x]
is_so('by session, when asked for',
      len(mine) == 1 and mine[0][2] == 'read' and mine[0][4] == '1', mine)
adm('--mode', 'system', '--op', 'update', '--name', 'latency_initiators', '--value', 'off')
is_so('... and not otherwise', not [x for x in lu('latency', 1) if 'sid:' in x])
q.close()
sys.exit(wrong > 0)
PY
adm --op latency --mode logicalunit --tid 1 --lun 7
is "no such LUN" test "$rc" != 0
adm --op latency --mode target --tid 7
is "no such target" test "$rc" != 0
is "no report of a checker" no_report
is "it ends with 0" daemon_stop
finish
