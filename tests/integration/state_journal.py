#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What administrators and initiators have set comes back after `kill -9` of the process that serves.

    state_journal.py TGTD_BIN DIR SECONDS SEED

Administrators' changes at random go to two daemons: one whose process is killed now and then, also in the middle of a
request, and one that lives on. After each death the first must export, byte for byte, what the second does: with every
request that was answered, with or without the one whose answer was lost. Then what exports do not say: passwords,
reservations, mode pages, media that are gone. Prints a TAP line for each thing that must hold.
"""
import collections, os, random, signal, socket, struct, subprocess, sys, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
sys.dont_write_bytecode = True
from iscsi_peer import Gone, Peer

BIN, DIR, SECONDS, SEED = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
KEEPER = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support', 'keeper.py')
IQN = 'iqn.2026-11.org.tgtd.test:state'
OK, REFUSED, NO_DAEMON, UNKNOWN = 0, 22, 107, 104
failures = 0


def is_(name, condition, detail=''):
    global failures
    failures += not condition
    print('%s %s' % ('ok' if condition else 'not ok', name))
    if not condition:
        print(''.join('#   %s\n' % l for l in str(detail).splitlines()), end='')
    sys.stdout.flush()


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


class Tgtd:
    """A daemon with a directory of its own, in which it has its disks."""

    def __init__(self, name, *options):
        self.dir = os.path.join(DIR, name)
        os.makedirs(self.dir + '/state')
        for i in range(8):
            with open('%s/disk-%d' % (self.dir, i), 'wb') as f:
                f.truncate(4 << 20)
        self.env = dict(os.environ, TGT_IPC_SOCKET=self.dir + '/socket', KEEPER_FORGETS=self.dir + '/forget')
        self.options = options
        for _ in range(5):
            self.port = free_port()
            if self.start():
                return
        raise SystemExit('not ok a daemon does not come up: %s' % open(self.dir + '/log').read()[-2000:])

    def start(self):
        with open(self.dir + '/log', 'ab') as log:
            self.process = subprocess.Popen(
                [sys.executable, KEEPER, BIN + '/tgtd', '-f', '-C', '0', '--state-dir', self.dir + '/state', '--cache', 'size=16m', '--iscsi',
                 'portal=127.0.0.1:%d,nop_interval=0,nop_count=0' % self.port, *self.options], stdout=log, stderr=log, env=self.env)
        return self.wait()

    def wait(self):
        end = time.monotonic() + 60
        while time.monotonic() < end and self.process.poll() is None:
            if self.adm('system', 'show')[0] == OK:
                return True
            time.sleep(0.01)
        return False

    def begin(self, mode, op, *args):
        return subprocess.Popen([BIN + '/tgtadm', '-C', '0', '--mode', mode, '--op', op, *[str(a) for a in args]], env=self.env,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def adm(self, mode, op, *args):
        p = self.begin(mode, op, *args)
        out = p.communicate(timeout=120)[0]
        return p.returncode, out

    def config(self):
        rc, out = self.adm('system', 'show', '--name', 'config')
        assert rc == OK, out
        return out.replace(self.dir, '@').replace(':%d' % self.port, ':@')

    def worker(self):
        with open(self.dir + '/state/worker.pid') as f:
            return int(f.read())

    def after_kill(self, pid):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                if self.worker() != pid and self.adm('system', 'show')[0] == OK:
                    return
            except (OSError, ValueError):
                pass
            time.sleep(0.01)
        raise SystemExit('not ok nobody serves after a kill: %s' % open(self.dir + '/log').read()[-3000:])

    def again(self):
        """Ends the process that serves; another one serves when this returns."""
        pid = self.worker()
        os.kill(pid, signal.SIGKILL)
        self.after_kill(pid)

    def stop(self):
        self.process.terminate()
        return self.process.wait(timeout=60)


class Changes:
    """Requests at random; "@" stands for the directory of the daemon that gets them, "%" for its port."""

    def __init__(self, seed):
        self.r = random.Random(seed)

    def pick(self):
        kinds = [self.target] * 4 + [self.lun_new] * 5 + [self.lun] * 9 + [self.access] * 4 + [self.account] * 5 + \
            [self.key] * 5 + [self.system] * 2 + [self.limit, self.portal, self.controller]
        return self.r.choice(kinds)()

    def tid(self):
        return self.r.randint(1, 4)

    def disk(self):
        return '@/disk-%d' % self.r.randint(0, 7)

    def target(self):
        tid = self.tid()
        return self.r.choice([('target', 'new', '--tid', tid, '-T', IQN + str(tid))] * 3 +
                             [('target', 'delete', '--tid', tid), ('target', 'delete', '--tid', tid, '--force')])

    def lun_new(self):
        r = self.r
        store = r.choice([['-E', 'null', '-b', '1m'], ['-b', self.disk()], ['-E', 'aio', '-b', self.disk()], [],
                          ['-b', '@/nowhere'], ['-E', 'null', '-b', '1m', '--blocksize', '4096']])
        more = r.choice([[], [], ['--bsopts', 'cache=none'], ['--bsopts', 'cache=write-through'], ['--bsoflags', 'sync'],
                         ['--params', 'write_cache=off,vendor_id=X'], ['--params', 'threads=2'], ['--params', 'nonsense=1']])
        return ('logicalunit', 'new', '--tid', self.tid(), '--lun', r.randint(1, 5), *store, *more)

    def lun(self):
        r, where = self.r, ('--tid', self.tid(), '--lun', self.r.randint(1, 5))
        if r.random() < 0.2:
            return ('logicalunit', 'delete', *where)
        return ('logicalunit', 'update', *where, '--params', r.choice([
            'online=0', 'online=1', 'readonly=1', 'readonly=0', 'readonly', 'vendor_id=A', 'vendor_id', 'threads=3', 'threads',
            'path=' + self.disk(), 'write_cache=off', 'write_cache=on', 'write_cache', 'sense_format=1', 'swp=1', 'swp=0',
            'iops_limit=1000', 'iops_limit', 'naa=3000000000000001', 'scsi_id=abc,scsi_sn=def', 'removable=1', 'lbppbe=3',
            'mode_page=8:0:18:0x14:0:0xff:0xff:0:0:0xff:0xff:0xff:0xff:0x80:0x14:0:0:0:0:0:0',
            'mode_page=8:0:18:0x10:0:0xff:0xff:0:0:0xff:0xff:0xff:0xff:0x80:0x14:0:0:0:0:0:0',
            'mode_page=10:0:10:2:0x10:0x08:0:0:0:0:0:2:0', 'mode_page=0x20:0:3:1:2:3', 'product_id=B,readonly=maybe']))

    def access(self):
        r, tid = self.r, self.tid()
        who = r.choice([['-I', 'ALL'], ['-I', '127.0.0.1'], ['-I', '10.0.0.0/8'], ['-Q', 'iqn.p-%d' % r.randint(0, 3)]])
        x = r.random()
        if x < 0.6:
            return ('target', 'bind', '--tid', tid, *who,
                    *(['--expose', r.choice(['1', '1,3-5'])] if who[0] == '-Q' and r.random() < 0.5 else []))
        if x < 0.85:
            return ('target', 'unbind', '--tid', tid, *who)
        return ('target', 'update', '--tid', tid, '-Q', 'iqn.p-%d' % r.randint(0, 3), '--expose', r.choice(['all', '2-4']))

    def account(self):
        r, user = self.r, 'u%d' % self.r.randint(0, 5)
        op = r.choice(['new', 'new', 'update', 'delete', 'bind', 'bind', 'bind', 'unbind'])
        if op in ('new', 'update'):
            return ('account', op, '--user', user, '--password', 'secretsecret%d' % r.randint(0, 9))
        if op == 'delete':
            return ('account', op, '--user', user)
        where = r.choice([[], ['--tid', self.tid()], ['--tid', self.tid()]])
        return ('account', op, '--user', user, *where,
                *r.choice([[], [], ['--outgoing'], ['-Q', 'iqn.p-%d' % r.randint(0, 3)] if where else []]))

    def key(self):
        key, value = self.r.choice([
            ('state', 'offline'), ('state', 'ready'), ('MaxBurstLength', '65536'), ('MaxBurstLength', '1048576'),
            ('FirstBurstLength', '524288'), ('FirstBurstLength', '4096'), ('FirstBurstLength', ''), ('MaxBurstLength', ''),
            ('ErrorRecoveryLevel', '1'), ('nop_interval', '1'), ('nop_interval', ''), ('MaxQueueCmd', '4'), ('MaxQueueCmd', ''),
            ('HeaderDigest', 'CRC32C'), ('ImmediateData', 'No'), ('alua_state', 'standby'), ('alua_groups', '2=3'),
            ('alua_state', '1=standby;2=unavailable'), ('alua_state', ''), ('allow_explicit_alua', 'Yes'), ('OFMarker', 'No'),
            ('RedirectAddress', '10.0.0.1'), ('RedirectAddress', ''), ('portals', '127.0.0.1:3260'), ('portals', ''),
            ('default-mask', 'none'), ('default-mask', 'all'), ('default-mask', '')])
        return ('target', 'update', '--tid', self.tid(), '-n', key, '-v', value)

    def system(self):
        key, value = self.r.choice([
            ('State', 'offline'), ('State', 'ready'), ('iSNSServerIP', '127.0.0.1'), ('iSNSServerPort', '3206'),
            ('iSNSAccessControl', 'On'), ('iSNSAccessControl', 'Off'), ('default-mask', 'none'), ('default-mask', 'all'),
            ('weak_secrets', 'refuse'), ('weak_secrets', 'warn'), ('latency_initiators', 'on')])
        if self.r.random() < 0.3:
            return ('cache', 'update', '-n', 'threshold', '-v', self.r.choice(['65536', '']))
        return ('system', 'update', '-n', key, '-v', value)

    def limit(self):
        return ('target', 'update', '--tid', self.tid(), '-Q', 'iqn.p-%d' % self.r.randint(0, 3), '--params',
                self.r.choice(['iops_limit=100', 'bandwidth_limit=1000000,iops_burst=7', 'iops_limit']))

    def portal(self):
        return ('portal', self.r.choice(['new', 'delete']), '--param', 'portal=127.0.0.%d:%%' % self.r.randint(2, 3))

    def controller(self):
        return ('logicalunit', 'update', '--tid', self.tid(), '--lun', 0, '--params', self.r.choice(['vendor_id=C', 'sense_format=1']))


def property_(seconds, seed):
    mortal, other, changes, seen = Tgtd('mortal'), Tgtd('other'), Changes(seed), collections.Counter()
    r, end, wrong, rounds = random.Random(seed + 1), time.monotonic() + seconds, None, 0

    for d in mortal, other:
        for tid in 1, 2, 3:
            d.adm('target', 'new', '--tid', tid, '-T', IQN + str(tid))
            d.adm('account', 'new', '--user', 'u%d' % tid, '--password', 'secretsecret1')

    def to(d, request):
        return [str(a).replace('@', d.dir).replace('%', str(d.port)) for a in request]

    while not wrong and (time.monotonic() < end or rounds < 4):
        rounds += 1
        batch = []
        for _ in range(r.randint(1, 25)):
            request = changes.pick()
            batch.append(request)
            a, b = mortal.adm(*to(mortal, request)), other.adm(*to(other, request))
            seen['done' if a[0] == OK else 'refused'] += 1
            if a[0] != b[0]:
                wrong = 'seed %d: %s: %s, not %s' % (seed, request, a, b)
                break
        if wrong:
            break
        got, want = mortal.config(), other.config()
        if got != want:
            again = 'the same once more' if (mortal.config(), other.config()) == (got, want) else 'otherwise once more'
            wrong = 'seed %d: two daemons differ (%s):\n%s\nsince the last kill: %s' % (seed, again, diff([want], got), batch)
            break
        request = changes.pick()
        before = other.config()
        pid = mortal.worker()
        if r.random() < 0.3:
            p = None
            os.kill(pid, signal.SIGKILL)
        else:
            # it gets the request while it stands still, and then some time for it
            os.kill(pid, signal.SIGSTOP)
            p = mortal.begin(*to(mortal, request))
            time.sleep(0.05)
            until = time.monotonic() + r.random() * r.choice([0.0002, 0.001, 0.01])
            os.kill(pid, signal.SIGCONT)
            while time.monotonic() < until:
                pass
            os.kill(pid, signal.SIGKILL)
            p.communicate(timeout=60)
        mortal.after_kill(pid)
        rc = p.returncode if p else None
        seen['killed' if rc is None else 'killed in a request: %d' % rc] += 1
        got = mortal.config()
        rc_other = other.adm(*to(other, request))[0] if p else None
        after = other.config()
        allowed = {None: [before], OK: [after], REFUSED: [after], NO_DAEMON: [before], UNKNOWN: [before, after]}.get(rc)
        if allowed is None or got not in allowed:
            wrong = 'seed %d: %s ended with %s (%s at the other one):\n%s' % (seed, request, rc, rc_other, diff(allowed, got))
        elif got != after:
            mortal.adm(*to(mortal, request))
    for k, n in sorted(seen.items()):
        print('# %d %s' % (n, k))
    is_('what was set comes back, with what was under way or without it', not wrong, wrong)
    is_('often enough', sum(n for k, n in seen.items() if k.startswith('killed')) >= 3, seen)
    is_('no report', not reports(mortal), reports(mortal))
    mortal.stop()
    other.stop()


def diff(allowed, got):
    import difflib
    return '\n'.join(difflib.unified_diff((allowed or [''])[0].splitlines(), got.splitlines(), 'was', 'is', lineterm=''))


def reports(d):
    with open(d.dir + '/log', errors='replace') as f:
        return [l for l in f if any(w in l for w in ('Sanitizer', 'runtime error', 'BUG:', 'restoring: '))]


# ---- what initiators have set --------------------------------------------------------------------

class Initiator(Peer):
    def scsi(self, cdb, out=b'', length=0, lun=1):
        """Status, data; sense is (key, asc, ascq), and comes as the status."""
        self.out(self.command(bytes(cdb), 0x81 | (0x20 if out else 0x40 if length else 0), len(out) or length, out, lun=lun))
        while True:
            head, data = self.recv()
            if head[0] == 0x25:
                whole = data
                if head[1] & 1:
                    return head[3], whole
            elif head[0] == 0x21:
                if head[3] == 2:
                    return (data[4] & 15, data[14], data[15]), b''
                return head[3], locals().get('whole', b'')

    def settle(self, lun=1):
        """Past the unit attentions; the last answer to TEST UNIT READY."""
        for _ in range(5):
            status = self.scsi([0] * 6, lun=lun)[0]
            if not isinstance(status, tuple) or status[0] != 6:
                return status
        return status

    def pr_out(self, action, kind=0, key=0, new=0, lun=1, aptpl=0):
        p = struct.pack('>QQ4xB3x', key, new, aptpl)
        return self.scsi([0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0], p, lun=lun)[0]

    def pr_in(self, action, lun=1):
        return self.scsi([0x5e, action, 0, 0, 0, 0, 0, 1, 0, 0], length=256, lun=lun)[1]


def peer(d, name):
    Peer.address, Peer.target = ('127.0.0.1', d.port), IQN + '1'
    p = Initiator(timeout=30)
    p.name = name
    return p.login(isid=b'\x80\x12\x34\x00\x00\x01')


def initiators():
    d = Tgtd('initiators')
    if not os.path.exists(d.dir + '/state/worker.pid'):
        print('ok # SKIP nobody comes after this tgtd')
        d.stop()
        sys.exit(0)
    d.adm('target', 'new', '--tid', 1, '-T', IQN + '1')
    for lun, path in ((1, d.dir + '/disk-1'), (2, d.dir + '/disk-2'), (5, d.dir + '/disk-5')):
        d.adm('logicalunit', 'new', '--tid', 1, '--lun', lun, '-b', path)
    d.adm('logicalunit', 'new', '--tid', 1, '--lun', 3, '-E', 'ram', '-b', '4m')
    d.adm('logicalunit', 'new', '--tid', 1, '--lun', 4, '-b', d.dir + '/disk-4')
    d.adm('logicalunit', 'update', '--tid', 1, '--lun', 5, '--params', 'removable=1')
    d.adm('target', 'bind', '--tid', 1, '-I', 'ALL')
    d.adm('account', 'new', '--user', 'u', '--password', 'secretsecret1')
    d.adm('account', 'update', '--user', 'u', '--password', 'secretsecret2')
    d.adm('logicalunit', 'update', '--tid', 1, '--lun', 0, '--params', 'vendor_id=CTRL')
    a, b = peer(d, 'iqn.a'), peer(d, 'iqn.b')
    for lun in range(1, 6):
        a.settle(lun)
        b.settle(lun)
    is_('two register, one reserves', [a.pr_out(0, new=0xa), b.pr_out(0, new=0xb), a.pr_out(1, 5, 0xa)] == [0, 0, 0])
    is_('another unit, with APTPL', [a.pr_out(0, new=0xc, lun=2, aptpl=1), a.pr_out(1, 3, 0xc, lun=2)] == [0, 0])
    keys, held, full = a.pr_in(0), a.pr_in(1), a.pr_in(3)
    # caching: WCE off; control: SWP and D_SENSE stay, TAS off
    sel = bytes(4) + bytes([8, 18, 0x10, 0, 0xff, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x80]) + bytes(7)
    sense = a.scsi([0x1a, 8, 8, 0, 255, 0], length=255)[1]
    is_('MODE SELECT takes WCE away', a.scsi([0x15, 0x10, 0, 0, len(sel), 0], sel)[0] == 0 and
        sense != a.scsi([0x1a, 8, 8, 0, 255, 0], length=255)[1])
    pages = [a.scsi([0x1a, 8, pc << 6 | 0x3f, 0xff, 255, 0], length=255)[1] for pc in (0, 2, 3)]
    is_('ejected', a.scsi([0x1b, 0, 0, 0, 2, 0], lun=5)[0] == 0 and a.settle(5) == (2, 0x3a, 2))
    a.scsi([0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], b'x' * 512, lun=3)
    d.adm('logicalunit', 'update', '--tid', 1, '--lun', 2, '--params', 'write_cache=off')
    d.adm('logicalunit', 'update', '--tid', 1, '--lun', 2, '--params',
          'mode_page=8:0:18:0x14:0:0xff:0xff:0:0:0xff:0xff:0xff:0xff:0x80:0x14:0:0:0:0:0:0')
    a.settle(2)
    lun2 = a.scsi([0x1a, 8, 0x3f, 0xff, 255, 0], length=255, lun=2)[1]
    shown = d.adm('target', 'show')[1]
    os.rename(d.dir + '/disk-4', d.dir + '/gone')
    with open(d.dir + '/forget', 'w') as f:
        f.write('store open probe')  # who has them goes on with what was opened: test_kept_store.sh
    a.close()
    b.close()
    d.again()
    is_('nothing was refused', not reports(d), reports(d))
    a, b = peer(d, 'iqn.a'), peer(d, 'iqn.b')
    is_('what a power on says', a.scsi([0] * 6)[0] == (6, 0x29, 0) and a.settle() == 0)
    b.settle()
    is_('registrations and the reservation, with their generation', (a.pr_in(0), a.pr_in(1), a.pr_in(3)) == (keys, held, full))
    is_('who is not registered is kept out', peer_writes(d, 'iqn.c') == 0x18)
    a.settle(2)
    b.settle(2)
    is_('with APTPL, too', a.pr_in(0, lun=2)[7:16].endswith(b'\x0c') and b.scsi([0x28] + [0] * 7 + [1, 0], length=512, lun=2)[0] == 0x18)
    is_('mode pages, current and default and saved',
        [a.scsi([0x1a, 8, pc << 6 | 0x3f, 0xff, 255, 0], length=255)[1] for pc in (0, 2, 3)] == pages)
    is_('mode pages as the administrator set them last', a.scsi([0x1a, 8, 0x3f, 0xff, 255, 0], length=255, lun=2)[1] == lun2, lun2.hex())

    is_('what was ejected stays so', a.settle(5) == (2, 0x3a, 2))
    is_('the controller', b'CTRL' in a.scsi([0x12, 0, 0, 0, 96, 0], length=96, lun=0)[1])
    is_('the password', 'u' in d.adm('account', 'show', '--user', 'u', '--password', 'secretsecret2')[1] and
        'u\n' not in d.adm('account', 'show', '--user', 'u', '--password', 'secretsecret1')[1])
    media(d, a, shown)
    a.close()
    b.close()
    d.stop()


def peer_writes(d, name):
    p = peer(d, name)
    p.settle()
    status = p.scsi([0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], bytes(512))[0]
    p.close()
    return status


def media(d, a, shown):
    lost = (2, 4, 3)
    is_('memory is not ready, and no zeros', a.settle(3) == lost and a.scsi([0x28] + [0] * 7 + [1, 0], length=512, lun=3)[0] == lost)
    a.scsi([0x1b, 0, 0, 0, 1, 0], lun=3)
    is_('nor does START UNIT make it so', a.settle(3) == lost)
    is_('until refresh=1', d.adm('logicalunit', 'update', '--tid', 1, '--lun', 3, '--params', 'refresh=1')[0] == OK and
        a.scsi([0] * 6, lun=3)[0] == (6, 0x28, 0) and a.settle(3) == 0)
    is_('a store that is gone: its unit is not ready', a.settle(4) == lost)
    is_('and keeps its number and its name', 'LUN: 4' in d.adm('target', 'show')[1] and d.dir + '/disk-4' in d.adm('target', 'show')[1])
    is_('the log says so', 'target 1 LUN 4 is NOT READY' in open(d.dir + '/log').read())
    refresh = ('logicalunit', 'update', '--tid', 1, '--lun', 4, '--params', 'refresh=1')
    is_('refresh=1 is refused while it is gone', d.adm(*refresh)[0] == REFUSED and a.settle(4) == lost)
    d.again()
    a = peer(d, 'iqn.a')
    is_('the same after another death', a.settle(4) == lost and a.settle(3) == lost)
    os.rename(d.dir + '/gone', d.dir + '/disk-4')
    is_('and taken when it is there', d.adm(*refresh)[0] == OK and a.scsi([0] * 6, lun=4)[0] == (6, 0x28, 0) and a.settle(4) == 0)
    is_('it has its size', struct.unpack('>I', a.scsi([0x25] + [0] * 9, length=8, lun=4)[1][:4])[0] == (4 << 20) // 512 - 1)
    d.adm('logicalunit', 'update', '--tid', 1, '--lun', 3, '--params', 'refresh=1')
    is_('all is as it was', d.adm('target', 'show')[1].split('Account')[0].count('Online: Yes') ==
        shown.split('Account')[0].count('Online: Yes'), shown)
    a.close()


def scale(n):
    """How long @n units take, in 4 targets: n / 4 of each, on null stores, and one restart."""
    d = Tgtd('scale')
    with open(d.dir + '/conf', 'w') as f:
        for t in range(1, 5):
            f.write('<target %s%d>\n' % (IQN, t))
            for lun in range(1, n // 4 + 1):
                f.write('<backing-store 1g>\nbs-type null\nlun %d\nvendor_id V\n</backing-store>\n' % lun)
            f.write('</target>\n')
    p = subprocess.run([BIN + '/tgt-admin', '-C', '0', '-c', d.dir + '/conf', '-e'], env=d.env, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True)
    is_('%d units are made' % n, p.returncode == 0, p.stdout)
    was = d.config()
    d.again()
    is_('%d units are back' % n, d.config() == was)
    with open(d.dir + '/log', errors='replace') as f:
        print(''.join('# ' + l for l in f if 'restored what' in l), end='')
    d.stop()


if __name__ == '__main__':
    initiators()
    property_(SECONDS, SEED)
    scale(int(os.environ.get('TGT_STATE_UNITS', '100')))
    sys.exit(failures > 0)
