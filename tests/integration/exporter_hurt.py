# SPDX-License-Identifier: GPL-2.0-or-later
"""What test_exporter_hurt.sh does: exporter_hurt.py BIN FOLDER. The daemon of the test says once how
the machine is; daemons that are none say that, or something else, behind a socket of their own."""
import atexit, http.client, json, os, re, signal, socket, struct, subprocess, sys, threading, time
sys.path.insert(0, 'tests/support')
sys.dont_write_bytecode = True
from ports import free_port

bin, folder = sys.argv[1], sys.argv[2]
wrong = 0
PATIENCE = 20  # for what has 5 s


def is_so(name, good, said=''):
    global wrong
    wrong += not good
    print(('ok ' if good else 'not ok ') + name, flush=True)
    if not good:
        print('# ' + repr(said)[:600])


def tgtadm(*args):
    r = subprocess.run([bin + '/tgtadm', '--mode', 'system', *args], capture_output=True, timeout=60)
    assert r.returncode == 0, r
    return r.stdout


class Exporter:
    def __init__(self, socket_path):
        self.port = free_port()
        self.p = subprocess.Popen([bin + '/tgt-exporter', '--listen', '127.0.0.1:%d' % self.port],
                                  stderr=subprocess.DEVNULL, env=dict(os.environ, TGT_IPC_SOCKET=socket_path))
        atexit.register(self.p.kill)
        for _ in range(300):
            try:
                return socket.create_connection(('127.0.0.1', self.port)).close()
            except OSError:
                time.sleep(0.05)
        raise AssertionError('it does not listen')

    def get(self, path):
        """Status and body, or the error as text."""
        c = http.client.HTTPConnection('127.0.0.1', self.port, timeout=PATIENCE)
        try:
            c.request('GET', path)
            r = c.getresponse()
            return r.status, r.read().decode()
        except (OSError, http.client.HTTPException) as e:
            return 0, repr(e)
        finally:
            c.close()

    def end(self):
        self.p.send_signal(signal.SIGTERM)
        return self.p.wait(PATIENCE)


def answer(text):
    return b'TGTr' + struct.pack('<III', 0, len(text), 0) + text


def trickle(c, machine):
    c.sendall(answer(machine)[:16])
    for byte in machine:
        time.sleep(0.3)
        c.sendall(bytes([byte]))


def half(c, machine):
    c.sendall(answer(machine)[:len(machine) // 2])


def twins(c, machine):
    m = json.loads(machine)
    row = [r for r in m['threads']['rows'] if r[0] != 'tgtd'][0]
    m['threads']['rows'] += [['other'] + row[1:], row, ['other'] + row[1:], row]
    c.sendall(answer(json.dumps(m).encode()))


HOW = {
    'hangs': lambda c, machine: time.sleep(PATIENCE * 3),
    'trickles': trickle,
    'goes in the middle of an answer': half,
    'goes at once': lambda c, machine: None,
    'says nonsense': lambda c, machine: c.sendall(os.urandom(4096)),
    'announces what never comes': lambda c, machine: (c.sendall(b'TGTr' + struct.pack('<III', 0, 200 << 20, 0)), time.sleep(PATIENCE * 3)),
    'announces too much': lambda c, machine: c.sendall(b'TGTr' + struct.pack('<III', 0, 0xffffffff, 0xffffffff)),
    'says no JSON': lambda c, machine: c.sendall(answer(b'{"version":' + b'[' * 100000)),
    'says JSON that is no machine': lambda c, machine: c.sendall(answer(b'{"version":7,"lus":{"columns":3}}')),
    'says bytes that are no UTF-8': lambda c, machine: c.sendall(answer(machine.replace(b'ready', b'r\xff\xc3y'))),
    'has two threads of one name': twins,
}


class Fake:
    """A daemon that is none. @how None: it takes nobody in."""

    def __init__(self, how, machine):
        self.name = '%s/fake%d' % (folder, id(self))
        self.s = socket.socket(socket.AF_UNIX)
        self.s.bind(self.name + '.0')
        self.s.listen(0 if how is None else 64)
        self.held = []
        if how is None:
            try:
                for _ in range(100):
                    c = socket.socket(socket.AF_UNIX)
                    c.setblocking(False)
                    c.connect(self.name + '.0')
                    self.held.append(c)
            except BlockingIOError:
                return
        threading.Thread(target=self.serve, args=(how, machine), daemon=True).start()

    def serve(self, how, machine):
        while True:
            c, _ = self.s.accept()
            threading.Thread(target=self.one, args=(c, how, machine), daemon=True).start()

    def one(self, c, how, machine):
        try:
            head = c.recv(12, socket.MSG_WAITALL)
            while len(head) == 12:
                c.recv(struct.unpack('<I', head[8:])[0], socket.MSG_WAITALL)
                how(c, machine)
                if how is not twins:
                    break
                head = c.recv(12, socket.MSG_WAITALL)
        except OSError:
            pass
        c.close()


machine = tgtadm('--op', 'stat', '--name', 'machine', '--json')

# ---- daemons that are sick: it says so in time, and serves the page
for name, how in [('takes nobody in', None), *HOW.items()]:
    fake = Fake(how, machine)
    e = Exporter(fake.name)
    if how is twins:
        status, text = e.get('/metrics')
        lines = [l.rsplit(' ', 1)[0] for l in text.splitlines() if not l.startswith('#')]
        twice = {l for l in lines if lines.count(l) > 1} if len(lines) < 20000 else set()
        is_so('a daemon that %s: no series is there twice' % name, status == 200 and not twice and
              len({l for l in lines if l.startswith('tgtd_thread_sleeps_total{thread="other"')}) == 2, (status, twice))
        e.end()
        continue
    status, text = e.get('/metrics')
    is_so('a daemon that %s: it is not up' % name, status == 200 and re.search('^tgtd_up 0$', text, re.M), (status, text))
    is_so('... and the page says so', e.get('/')[0] == 200 and e.get('/machine.json')[0] == 503)
    is_so('... and it ends when it is told to', e.end() == 0)
    if name in ('takes nobody in', 'hangs', 'trickles', 'says nonsense') and os.path.exists(bin + '/tgt-top'):
        try:
            r = subprocess.run([bin + '/tgt-top', '--once'], capture_output=True, timeout=PATIENCE,
                               env=dict(os.environ, TGT_IPC_SOCKET=fake.name))
            is_so('... and so does tgt-top', r.returncode != 0 and r.stderr.startswith(b'tgt-top: '), r)
        except subprocess.TimeoutExpired as e:
            is_so('... and so does tgt-top', False, e)

# ---- many at once, and slow ones
e = Exporter(os.environ['TGT_IPC_SOCKET'])
texts = []
threads = [threading.Thread(target=lambda: texts.append(e.get('/metrics'))) for _ in range(30)]
for t in threads:
    t.start()
for t in threads:
    t.join()
is_so('thirty scrapers at once have all of it', len(texts) == 30 and
      all(s == 200 and 'tgtd_up 1\n' in t and t.endswith('# EOF\n') for s, t in texts), [(s, t[-50:]) for s, t in texts])
slow = []
for _ in range(20):
    c = socket.socket()
    c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    c.connect(('127.0.0.1', e.port))
    c.sendall(b'GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n' * 3)
    slow.append(c)
half_asked = [socket.create_connection(('127.0.0.1', e.port)) for _ in range(5)]
for c in half_asked:
    c.sendall(b'GET /metr')
good = 0
for i in range(20):
    for c in slow:
        c.recv(1)
    status, text = e.get('/metrics')
    good += status == 200 and text.endswith('# EOF\n')
is_so('beside twenty that take it byte by byte others are served', good == 20, good)
status = [l for l in open('/proc/%d/status' % e.p.pid) if l.startswith('VmRSS')][0].split()[1]
is_so('... from little memory', int(status) < 200 << 10 or 'san' in bin, status)
is_so('... and it ends when it is told to', e.end() == 0)
sys.exit(wrong > 0)
