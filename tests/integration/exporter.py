#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What test_exporter.sh asks of tgt-exporter: exporter.py BIN PORT PID FOLDER"""
import atexit, http.client, json, os, re, signal, socket, statistics, subprocess, sys, time
sys.path.insert(0, 'tests/support')
sys.path.append('/usr/lib/python3/dist-packages')  # where Debian's packages are, whichever python this is
sys.dont_write_bytecode = True
import browser
from iscsi_peer import Peer
from ports import free_port

bin, port, daemon, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
IQN = 'iqn.2026-11.org.tgtd.test:exporter'
wrong = 0
try:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families
except ImportError:
    text_string_to_metric_families = None


def is_so(name, good, said=''):
    global wrong
    wrong += not good
    print(('ok ' if good else 'not ok ') + name, flush=True)
    if not good:
        print('# ' + repr(said)[:600])


def adm(words, *more):
    mode, op, *rest = words.split()
    r = subprocess.run([bin + '/tgtadm', '--mode', mode, '--op', op, *rest, *more], capture_output=True, text=True)
    assert r.returncode == 0, (words, r)
    return r.stdout


class Exporter:
    def __init__(self, *args, **env):
        self.port = free_port()
        self.log = open(folder + '/exporter.log', 'w')
        self.p = subprocess.Popen([bin + '/tgt-exporter', '--listen', '127.0.0.1:%d' % self.port, *args],
                                  stderr=self.log, env=dict(os.environ, **env))
        atexit.register(self.p.kill)
        for _ in range(300):
            try:
                socket.create_connection(('127.0.0.1', self.port)).close()
                return
            except OSError:
                assert self.p.poll() is None, open(self.log.name).read()
                time.sleep(0.05)
        raise AssertionError('it does not listen')

    def get(self, path, method='GET', body=None, headers={}):
        c = http.client.HTTPConnection('127.0.0.1', self.port, timeout=30)
        c.request(method, path, body, headers)
        r = c.getresponse()
        return r.status, dict(r.getheaders()), r.read()

    def samples(self):
        status, headers, text = self.get('/metrics')
        assert status == 200 and headers['Content-Type'].startswith('application/openmetrics-text; version=1.0.0'), headers
        return parse(text.decode())

    def end(self):
        self.p.send_signal(signal.SIGTERM)
        return self.p.wait(20)


def parse(text):
    """{(name, labels): value}; by Prometheus' parser where there is one, and by rules of our own."""
    found, names = {}, set()
    assert text.endswith('# EOF\n') and '# EOF' not in text[:-6], text[-50:]
    for line in text.splitlines()[:-1]:
        if line.startswith('# '):
            word, name = line.split(' ')[1:3]
            assert word in ('TYPE', 'UNIT', 'HELP'), line
            assert word != 'TYPE' or name not in names, 'twice: ' + name
            names.add(name)
            continue
        m = re.fullmatch(r'(tgtd_\w+)(?:\{((?:\w+="(?:[^"\\\n]|\\[\\"n])*",?)*)\})? (\S+)', line)
        assert m, line
        key = m[1], tuple(sorted(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', m[2] or '')))
        assert key not in found, 'twice: ' + line
        found[key] = float(m[3])
    if text_string_to_metric_families:
        theirs = {(s.name, tuple(sorted((k, v.replace('\\', '\\\\').replace('"', '\\"').replace('\n', '\\n'))
                                        for k, v in s.labels.items()))): s.value
                  for f in text_string_to_metric_families(text) for s in f.samples}
        assert theirs == found, set(theirs.items()) ^ set(found.items())
    return found


def value(samples, name, **labels):
    return samples.get((name, tuple(sorted(labels.items()))))


# ---- a few targets with work done
store = folder + '/a"b\\c<img src=x onerror=document.body.dataset.hurt=1>\u00e9'
with open(store, 'w') as f:
    f.truncate(1 << 24)
for tid in (1, 2):
    adm('target new --tid %d -T %s.%d' % (tid, IQN, tid))
    adm('target bind --tid %d -I ALL' % tid)
    adm('logicalunit new --tid %d --lun 1 --bstype ram --backing-store 16m' % tid)
adm('logicalunit new --tid 1 --lun 2', '--backing-store', store)
Peer.address, Peer.target = ('127.0.0.1', port), IQN + '.1'


def login(target):
    Peer.target = target
    p = Peer()
    answer = p.login_step(1, 3, p.names())
    assert answer[None] == (0, True), answer
    p.ready()
    return p


def login_as(name):
    """By a name of any bytes that a login takes."""
    p = Peer()
    p.send(p.login_pdu([], data=b'InitiatorName=' + name + b'\0SessionType=Normal\0TargetName=' + IQN.encode() + b'.2\0'))
    head, _ = p.recv()
    assert head[0] == 0x23 and not head[36], head
    return p


ODD = b'iqn.2026-11.x:<svg/onload="document.body.dataset.hurt=2">\\\xc3\xa9\xff</td><script>document.body.dataset.hurt=3</script>'
SHOWN = ODD.decode('utf-8', 'replace')
peer = login(IQN + '.1')
for i in range(7):
    peer.out(peer.read(i * 8, 8))
    assert peer.wait_status(peer.itt - 1)[1] == 0

if not text_string_to_metric_families:
    print("ok Prometheus' parser # SKIP python3-prometheus-client is not installed")
e = Exporter()
s = e.samples()
is_so('it is up', value(s, 'tgtd_up') == 1)
is_so('reads of a LU', value(s, 'tgtd_lu_reads_total', tid='1', lun='1') == 7 and
      value(s, 'tgtd_lu_read_bytes_total', tid='1', lun='1') == 7 * 4096 and value(s, 'tgtd_lu_reads_total', tid='2', lun='1') == 0)
is_so('what a LU is, with what has to be escaped',
      value(s, 'tgtd_lu_info', tid='1', lun='2', target=IQN + '.1', path=store.replace('\\', '\\\\').replace('"', '\\"'), type='rdwr') == 1,
      [k for k in s if k[0] == 'tgtd_lu_info'])
is_so('sessions of a target', value(s, 'tgtd_target_sessions', tid='1') == 1 and value(s, 'tgtd_target_sessions', tid='2') == 0)
is_so('initiators are asked for', not any(k[0].startswith('tgtd_initiator') for k in s))
names = [l.split()[:3:2] for l in adm('system show --name counters').splitlines()]
missing = [n for n, _ in (l.split(' ', 1) for l in adm('system show --name counters').splitlines())
           if value(s, 'tgtd_' + n + '_total') is None and value(s, 'tgtd_' + n) is None]
is_so('every counter of the daemon', names and not missing, missing)
with open('tools/tgt-exporter/tgt-exporter.grafana.json') as f:
    asked = set(re.findall(r'tgtd_[a-z_]+', f.read())) - {k[0] for k in s}
is_so('the dashboard asks for what there is', not asked, asked)
machine = json.loads(adm('system stat --name machine --json'))
is_so('memory of the node', sum(v for (n, l), v in s.items() if n == 'tgtd_node_memory_bytes') <= machine['cache_bytes'] > 0 and
      sum(v for (n, l), v in s.items() if n == 'tgtd_node_memory_bytes') > machine['cache_bytes'] * .9)
is_so('threads', value(s, 'tgtd_thread_cpu_seconds_total', thread='lu-1:1', node=str(
    [r[1] for r in machine['threads']['rows'] if r[0] == 'lu-1:1'][0])) is not None)
is_so('how busy they are, and how long they were kept waiting', all(
    any(k[0] == 'tgtd_thread_%s_seconds_total' % word and ('thread', 'lu-1:1') in k[1] for k in s) for word in ('busy', 'starved')))
is_so('free memory of the node', 0 < value(s, 'tgtd_node_system_memory_free_bytes', node='0') <
      value(s, 'tgtd_node_system_memory_bytes', node='0'))
is_so('its stores answer', value(s, 'tgtd_lu_store_hanging_seconds', tid='1', lun='2') == 0 and value(s, 'tgtd_store_hanging') == 0)
is_so('workers that were replaced, and since when this one serves', value(s, 'tgtd_worker_restarts_total') == 0 ==
      value(s, 'tgtd_worker_restarts_stalled_total') and time.time() - 3600 < value(s, 'tgtd_worker_start_time_seconds') < time.time() + 2)
if machine.get('latency_bounds_ns'):
    buckets = sorted((float(dict(l)['le']), v) for (n, l), v in s.items() if n == 'tgtd_lu_latency_seconds_bucket' and
                     dict(l)['tid'] == '1' and dict(l)['op'] == 'read')
    is_so('a histogram', len(buckets) > 10 and [v for _, v in buckets] == sorted(v for _, v in buckets) and
          buckets[-1] == (float('inf'), 7) == (float('inf'), value(s, 'tgtd_lu_latency_seconds_count', tid='1', lun='1', op='read')), buckets)
    total = value(s, 'tgtd_lu_latency_seconds_sum', tid='1', lun='1', op='read')
    parts = sum(v for (n, l), v in s.items() if n == 'tgtd_lu_time_seconds_total' and dict(l)['tid'] == '1' and
                dict(l)['lun'] == '1' and dict(l)['op'] == 'read')
    is_so('its parts are its sum', abs(total - parts) < 1e-9 and total > 0, (total, parts))

# ---- HTTP
status, headers, body = e.get('/')
is_so('the page', status == 200 and b'<html' in body and "default-src 'none'" in headers['Content-Security-Policy'], headers)
everything = body + e.get('/page.js')[2] + e.get('/page.css')[2]
is_so('no foreign scripts', not re.search(rb'(src|href|url|import|fetch)\W{1,3}(https?:)?//', everything))
is_so('the machine as JSON', json.loads(e.get('/machine.json')[2])['pid'] == daemon)
is_so('HEAD', e.get('/metrics', 'HEAD')[::2] == (200, b''))
is_so('no other method', e.get('/metrics', 'POST', b'x' * 100000)[0] == 405 and e.get('/', 'DELETE')[0] == 405)
is_so('no other path', e.get('/../etc/passwd')[0] == 404 and e.get('/metrics/')[0] == 404)
is_so('a header that is too long', e.get('/', headers={'X': 'y' * 40000})[0] in (413, 431))
idle = [socket.create_connection(('127.0.0.1', e.port)) for _ in range(40)]
refused = 0
for c in idle:  # of one address some get in, no more
    try:
        c.settimeout(5)
        c.sendall(b'GET / HTTP/1.1\r\nHost: x\r\n\r\n')
        refused += not c.recv(100)
    except OSError:
        refused += 1
for c in idle:
    c.close()
is_so('clients are limited, and the others are served', 0 < refused < 40, refused)
for _ in range(100):
    try:
        if e.get('/metrics')[0] == 200:
            break
    except OSError:
        pass
    time.sleep(0.1)
is_so('it serves on', e.get('/metrics')[0] == 200)

# ---- many looks are one question
before = json.loads(adm('system stat --name admin_ --json'))['counters']['admin_json_turns']
begun = time.monotonic()
for _ in range(100):
    e.get('/machine.json')
asked = json.loads(adm('system stat --name admin_ --json'))['counters']['admin_json_turns'] - before
is_so('many looks are few questions', asked < 10 * (3 + (time.monotonic() - begun) / 0.2), asked)
is_so('it ends when it is told to', e.end() == 0)

e = Exporter('--initiators')
odd = login_as(ODD)
s = e.samples()
is_so('an initiator with an odd name', [dict(l)['initiator'] for (n, l), v in s.items() if n == 'tgtd_initiator_commands_total' and
                                        dict(l)['tid'] == '2'] == [SHOWN.replace('\\', '\\\\').replace('"', '\\"')], s)
odd.close()
is_so('initiators', [v for (n, l), v in s.items() if n == 'tgtd_initiator_commands_total' and dict(l)['initiator'] == peer.name] == [int(adm('conn stat --tid 1').split()[14])], s)
e.end()
e = Exporter(TGT_IPC_SOCKET=folder + '/nobody')
s = e.samples()
is_so('without a daemon it is not up', s == {('tgtd_up', ()): 0}, s)
is_so('and has no figures', e.get('/machine.json')[0] == 503)
e.end()
r = subprocess.run([bin + '/tgt-exporter', '--listen', 'nonsense'], capture_output=True, text=True)
is_so('an address that is none', r.returncode == 1 and 'nonsense' in r.stderr, r)

# ---- the page, as a person sees it
if not browser.find():
    print('ok the page in a browser # SKIP chromium is not installed')
else:
    e = Exporter()
    odd = login_as(ODD)
    work = subprocess.Popen([sys.executable, '-c', '''
import sys, time
sys.path.insert(0, 'tests/support')
sys.dont_write_bytecode = True
from iscsi_peer import Peer
Peer.address, Peer.target = ('127.0.0.1', %d), '%s.1'
p = Peer(); p.name = 'iqn.2026-11.org.tgtd.test:worker'
p.login_step(1, 3, p.names()); p.ready()
end = time.monotonic() + 240
n = 0
while time.monotonic() < end:
    n += 1
    p.out(p.command(bytes([0x28]) + (n * 8 %% 4096).to_bytes(5, 'big') + b'\\0\\0\\x08\\0', 0xc1, 4096, lun=1 + n // 16 %% 2))
    p.wait_status(p.itt - 1)
    if n %% 5 == 0:
        p.out(p.write(n * 8 %% 4096, 8, bytes(4096)))
        p.wait_status(p.itt - 1)
    if n %% 16 == 0:
        time.sleep(0.005)
''' % (port, IQN)])
    atexit.register(work.kill)
    b = browser.Browser(folder + '/chromium')
    atexit.register(b.end)
    b.open('http://127.0.0.1:%d/' % e.port)
    is_so('the page draws', b.wait('Number(document.body.dataset.drawn || 0) >= 6'), b.said)
    page = b.value('document.body.innerText')
    is_so('LUs, initiators and threads are in it',
          all(t in page for t in ('1:1', '2:1', peer.name, 'lu-1:1', 'Node 0', 'IOPS', IQN + '.2')), page)
    is_so('names are text, whatever is in them', SHOWN in page and store in b.value("[...document.querySelectorAll('#lus td')].map(t => t.textContent)") and
          b.value("document.body.dataset.hurt === undefined && !document.querySelector('main img, main script, svg[onload]')"), page)
    odd.close()
    is_so('with rates', b.wait("[...document.querySelectorAll('.total b')].some(b => /^[1-9]/.test(b.textContent)) && "
                               "document.querySelector('#lus td:nth-child(4)').textContent !== '0'"), page)
    drawn = """(id => { const c = document.getElementById(id), d = c.getContext('2d').getImageData(50, 0, c.width - 60, c.height - 20).data;
        let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n; })"""
    is_so('latencies are pictures', b.value(drawn + "('heat-read')") > 50 and b.value(drawn + "('heat-write')") > 20)
    is_so('so are partitions', b.value("document.querySelectorAll('.node canvas').length") == 1)
    b.value("document.getElementById('filter').value = 'EXPORTER.2'; document.getElementById('filter').dispatchEvent(new Event('input'))")
    is_so('a filter', b.value("document.querySelectorAll('#lus tr').length") == 2)
    b.value("document.getElementById('filter').value = ''; document.getElementById('filter').dispatchEvent(new Event('input'))")
    b.value("document.querySelectorAll('#lus th')[0].click()")
    is_so('a sort', b.value("[...document.querySelectorAll('#lus td:first-child')].map(t => t.textContent).join()") == '1:1,1:2,2:1')
    b.value("document.querySelectorAll('#lus th')[3].click()")
    b.wait('Number(document.body.dataset.drawn) >= 12')
    is_so('the table of units fits in', b.value("(s => s.scrollWidth <= s.clientWidth)"
                                                "(document.getElementById('lus').closest('section'))"))
    picture = os.environ.get('TGT_TEST_PICTURES', folder) + '/exporter.png'
    is_so('a picture of it', b.picture(picture) > 20000)
    said = [m for m in b.said if 'favicon' not in json.dumps(m)]
    is_so('without complaints of the browser', not said, said)
    work.kill()
    work.wait()
    e.end()
    is_so('it says when figures end', b.wait("document.getElementById('status').className === 'bad'"))
    atexit.unregister(b.end)
    b.end()

# ---- 1,000 LUs, 1,000 sessions
SLOW = 20 if 'asan' in bin or 'tsan' in bin else 1
adm('system update --name debug --value off')
script = []
for tid in range(100, 200):
    adm('target new --tid %d -T %s.%d' % (tid, IQN, tid))
    adm('target bind --tid %d -I ALL' % tid)
    for lun in range(1, 11):
        adm('logicalunit new --tid %d --lun %d --bstype ram --backing-store 1m' % (tid, lun))
peers = [login('%s.%d' % (IQN, 100 + i % 100)) for i in range(1000)]
for i, p in enumerate(peers):
    for _ in range(3):  # the unit attentions first
        p.out(p.read(0, 8, lun=1 + i // 100))
        if p.wait_status(p.itt - 1)[1] == 0:
            break
e = Exporter('--initiators')
took, cpu, size = [], [], 0


def processor_ns():
    """Of the exporter, and of the daemon's main thread, which answers it."""
    return sum(int(open('/proc/%d/task/%d/schedstat' % (p, p)).read().split()[0]) for p in (e.p.pid, daemon))


for _ in range(15):
    time.sleep(0.25)  # what is a snapshot's age shall not be measured
    worked, begun = processor_ns(), time.monotonic()
    status, _, text = e.get('/metrics')
    took.append(time.monotonic() - begun)
    cpu.append((processor_ns() - worked) / 1e9)
    size = max(size, len(text))
s = parse(text.decode())
print('# 1,000 LUs, 1,000 sessions: %.2f MB, %d samples; best %.1f ms, median %.1f ms; of processors best %.1f ms, median %.1f ms' %
      (size / 1e6, len(s), min(took) * 1e3, statistics.median(took) * 1e3, min(cpu) * 1e3, statistics.median(cpu) * 1e3))
is_so('all LUs', sum(n == 'tgtd_lu_reads_total' for n, _ in s) == 1003)
is_so('all sessions', sum(n == 'tgtd_initiator_commands_total' for n, _ in s) == 1001)
is_so('10 MB at most', size <= 10e6, size)
# Processor time, which is all of a scrape on a machine that has nothing else to do; this one may have, which costs others
# their caches, too. So the best one counts.
is_so('50 ms at most', min(cpu) <= 0.05 * SLOW, (sorted(cpu), sorted(took)))
c = json.loads(adm('system stat --name admin_ --json'))['counters']
print('# turns of the main thread: %(admin_json_turns)d, of more than 1 ms of processor time: %(admin_json_turns_late)d' % c)
is_so('no turn of the main thread takes more than 1 ms', c['admin_json_turns_late'] <= c['admin_json_turns'] * (0.01 if SLOW == 1 else 1), c)
is_so('it ends when it is told to, again', e.end() == 0)
for p in peers:
    p.close()
peer.close()
for tid in [1, 2, *range(100, 200)]:
    adm('target delete --force --tid %d' % tid)
sys.exit(wrong > 0)
