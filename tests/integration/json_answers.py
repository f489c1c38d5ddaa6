#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What test_json.sh asks: every show and stat as text and as JSON, compared."""
import json, os, re, subprocess, sys, threading, time
sys.path.insert(0, 'tests/support')
sys.dont_write_bytecode = True
from iscsi_peer import Peer

tgtadm, tgt_admin, port, folder = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4].encode()
NAME, SECRET = 'iqn.2026-11.org.tgtd.test:json', 'a-secret-of-26-characters'
wrong = 0


def is_so(name, good, said=''):
    global wrong
    wrong += not good
    print(('ok ' if good else 'not ok ') + name)
    if not good:
        print('# ' + repr(said)[:600])


def run(*args):
    return subprocess.run([tgtadm, *args], capture_output=True)


def adm(words, *more):
    mode, op, *rest = words.split()
    return run('--mode', mode, '--op', op, *rest, *more)


def no_twice(pairs):
    assert len(dict(pairs)) == len(pairs), 'a name twice in %r' % pairs
    return dict(pairs)


def no_constant(word):
    raise ValueError(word)


def ask(words, *more):
    r = adm(words, '--json', *more)
    assert r.returncode == 0 and not r.stderr, (words, r)
    return json.loads(r.stdout.decode('utf-8'), object_pairs_hook=no_twice, parse_constant=no_constant)


def text(words):
    r = adm(words)
    assert r.returncode == 0, (words, r)
    return r.stdout.decode('utf-8', 'surrogateescape')


def must(words, *more):
    r = adm(words, *more)
    assert r.returncode == 0, (words, r)


# ---- something to show
store = folder + b'/st\xffore\xc3\xa9"\\'
with open(store, 'wb') as f:
    f.truncate(1 << 23)
for tid in (1, 2, 7):
    must('target new --tid %d -T %s.%d' % (tid, NAME, tid))
    must('target bind --tid %d -I ALL' % tid)
    for lun in (1, 3):
        must('logicalunit new --tid %d --lun %d --bstype ram --backing-store 16m' % (tid, lun))
must('logicalunit new --tid 1 --lun 9', '--backing-store', store)
must('logicalunit update --tid 1 --lun 3 --params vendor_id=ACME,readonly=1')
must('target update --tid 1 --name MaxBurstLength --value 524288')
must('logicalunit update --tid 1 --lun 1 --params iops_limit=700000,bandwidth_burst=8M,bandwidth_limit=4G')
limited = b'iqn.2026-11.x:<b>"\\\xff\xc3\xa9='.replace(b'"', b"'")
must('target update --tid 1 --params iops_limit=5,write_bandwidth_limit=1M', '--initiator-name', limited)
must('target update --tid 1 --params iops_limit=6', '--initiator-name', limited + b'2')
must('account new --user bob --password ' + SECRET)
must('account new --user eve --password ' + SECRET)
must('account bind --user eve --tid 2 --outgoing')
must('account bind --user bob --tid 7 --initiator-name iqn.a.b:c')
must('target bind --tid 7 -Q iqn.a.b:c --expose 1,3')
must('target update --tid 7 -Q iqn.a.b:c --params iops_limit=500,bandwidth_limit=1M')
must('target update --tid 1 --params iops_limit=1', '-Q', b'iqn.a:\xff')
must('logicalunit update --tid 7 --lun 1 --params read_iops_limit=70,bandwidth_burst=2K')
with open(folder.decode() + '/password', 'w') as f:
    f.write(SECRET + '\n')
os.chmod(f.name, 0o600)
must('account new --user kim --password-file ' + f.name)
must('account bind --user kim')
Peer.address, Peer.target = ('127.0.0.1', port), NAME + '.1'
peer = Peer()
answer = peer.login_step(1, 3, peer.names() + ['InitiatorAlias=bad \u00fcml\u00e4ut'])
assert answer[None] == (0, True), answer
peer.ready()
for i in range(5):
    peer.out(peer.read(i, 8))
    assert peer.wait_status(peer.itt - 1)[1] == 0
sid = str(peer.tsih)

# ---- every verb that shows, both ways
VERBS = ['system show', 'system show --name config', 'system show --name counters', 'system show --name stores',
         'system show --name failed-logins', 'system show --name work', 'system show --name threads',
         'system show --name nodes', 'system stat', 'system stat --name all', 'system stat --name cache_',
         'target show', 'target show --tid 1', 'target stat --tid 1', 'logicalunit stat --tid 1 --lun 1',
         'account show', 'portal show', 'session show', 'session show --tid 1', 'session show --tid 1 --sid ' + sid,
         'session stat --tid 1', 'session stat --tid 1 --sid ' + sid, 'conn show --tid 1', 'conn stat --tid 1',
         'conn stat --tid 1 --sid %s --cid 0' % sid, 'lld show', 'cache show', 'cache stat',
         'cache stat --tid 1 --lun 9', 'system latency', 'target latency --tid 1', 'logicalunit latency --tid 1 --lun 1',
         'logicalunit slow --tid 1 --lun 1', 'logicalunit explain --tid 1 --lun 1', 'system stat --name machine']
said = {}
for verb in VERBS:
    try:
        said[verb] = ask(verb)
        good = isinstance(said[verb], dict) and said[verb]
    except (AssertionError, ValueError) as e:
        good, said[verb] = False, str(e)
    is_so(verb + ': an object', good, said[verb])
    if 'machine' not in verb:
        is_so(verb + ': still a text', not text(verb).startswith('{'))
everything = json.dumps(said)
is_so('no secret in any of it', SECRET not in everything and everything.count('password') > 0)

# a verb that this test does not know: help says what there is
helped = subprocess.run([tgtadm, '--help'], capture_output=True, text=True).stdout
ELSEWHERE = {'cluster show'}  # only a gateway answers it: tests/cluster/test_gateways.sh
for mode, ops in re.findall(r'--mode (\w+) --op ([\w|]+)', helped):
    for op in set(ops.split('|')) & {'show', 'stat', 'latency', 'slow', 'explain'}:
        if '%s %s' % (mode, op) in ELSEWHERE:
            continue
        is_so('%s %s is asked here' % (mode, op), any(v.startswith(mode + ' ' + op) for v in VERBS))

# what --name may show is asked here, too
names = re.search(r'system --op show.*?\[--name ([a-z|-]+)\]', helped, re.S).group(1).split('|')
is_so('all that system shows by name', all('system show --name ' + n in VERBS for n in names), names)

# ---- figures are those of the texts
head, *lines = [line.split() for line in text('system show --name threads').splitlines()]
rows = ask('system show --name threads')['threads']
is_so('threads: the same, whole rows', [line[0] for line in lines] == [r['name'] for r in rows] and
      all(len(line) == len(head) for line in lines), (head, lines))
main, lu1 = [[r for r in rows if r['name'] == n][0] for n in ('tgtd', 'lu-1:1')]
is_so('threads: of units, with their figures', main['cpu_ns'] > 0 and main['iterations'] > 0 and
      lu1['fd_events'] > 0 and lu1['busy_ns'] > 0 and lu1['tid'] != main['tid'], lu1)
is_so('threads: seconds are seconds', float(lines[0][head.index('cpu_s')]) <= rows[0]['cpu_ns'] / 1e9, lines[0])
head, *lines = [line.split() for line in text('system show --name nodes').splitlines()]
rows = ask('system show --name nodes')['nodes']
is_so('nodes: the same, whole rows', [int(line[0]) for line in lines] == [r['node'] for r in rows] and
      all(len(line) == len(head) for line in lines), (head, lines))
is_so('nodes: memory, processors, threads, the cache', all(
    r['memory_total'] > r['memory_free'] > 0 and r['cpus'] and r['threads'] for r in rows) and
    sum(r['cache_bytes'] for r in rows) == 16 << 20, rows)
is_so('nodes: as in the text', [[int(line[head.index(c)]) for c in ('mem_total', 'cache')] for line in lines] ==
      [[r['memory_total'], r['cache_bytes']] for r in rows], lines)
targets = said['target show']['targets']
is_so('targets and LUNs', [(t['tid'], [l['lun'] for l in t['luns']]) for t in targets] ==
      [(1, [0, 1, 3, 9]), (2, [0, 1, 3]), (7, [0, 1, 3])], targets)
lu = targets[0]['luns'][3]
is_so('a path that is not UTF-8', lu['backing_store_path'].encode() ==
      store.replace(b'\xff', '\ufffd'.encode()), lu['backing_store_path'])
is_so('its size', lu['size'] == 1 << 23 and lu['block_size'] == 512)
is_so('limits', (targets[2]['luns'][1]['limits'], lu['limits']) ==
      ({'read_iops_limit': 70, 'bandwidth_burst': 2048}, {}), targets[2]['luns'])
is_so('a property', targets[0]['luns'][2]['readonly'] is True and lu['readonly'] is False)
limits = {'iops_limit': 700000, 'bandwidth_limit': 4 << 30, 'bandwidth_burst': 8 << 20}
is_so('limits of a LU', targets[0]['luns'][1]['limits'] == limits and lu['limits'] == {}, targets[0]['luns'])
name = limited.decode('utf-8', 'replace')
is_so('limits of initiators, whatever they are called', targets[0]['initiator_limits'] ==
      [{'name': name, 'iops_limit': 5, 'write_bandwidth_limit': 1 << 20}, {'name': name + '2', 'iops_limit': 6},
       {'name': 'iqn.a:\ufffd', 'iops_limit': 1}] and targets[1]['initiator_limits'] == [], targets[0]['initiator_limits'])
is_so('an initiator', [s['initiator'] for s in targets[0]['sessions']] == [peer.name] and
      targets[0]['sessions'][0]['connections'][0]['address'] == '127.0.0.1', targets[0]['sessions'])
is_so('ties and masks', targets[2]['accounts'][0]['initiators'] == ['iqn.a.b:c'] and
      targets[2]['initiator_names'] == [{'name': 'iqn.a.b:c', 'luns': '1,3'}], targets[2])
keys = dict(l.split('=', 1) for l in text('target show --tid 1').encode('utf-8', 'surrogateescape').decode('utf-8', 'replace').splitlines())
is_so('keys of a target', {k: str(v) for k, v in said['target show --tid 1']['keys'].items()} == keys)
keys = dict(l.split('=', 1) for l in text('session show --tid 1 --sid ' + sid).splitlines())
is_so('keys of a session', {k: str(v) for k, v in said['session show --tid 1 --sid ' + sid]['keys'].items()} == keys)
lines = [list(map(int, l.split())) for l in text('target stat --tid 1').splitlines()[1:]]
rows = [[r[k] for k in ('tid', 'lun', 'sid', 'rd_subm_bytes', 'rd_subm_cmds', 'rd_done_bytes', 'rd_done_cmds', 'wr_subm_bytes',
                        'wr_subm_cmds', 'wr_done_bytes', 'wr_done_cmds', 'errs')] for r in said['target stat --tid 1']['statistics']]
is_so('statistics', rows == lines and any(r[4] for r in rows), (rows, lines))
line = list(map(int, text('conn stat --tid 1').splitlines()[1].split()))
row = said['conn stat --tid 1']['connections'][0]
is_so('a connection', [row[k] for k in ('sid', 'cid', 'rxdata_octets', 'txdata_octets', 'dataout_pdus', 'datain_pdus',
                                        'cmd_pdus', 'rsp_pdus')] == line, (row, line))
is_so('one session only', {r['sid'] for r in said['session stat --tid 1 --sid ' + sid]['statistics']} == {int(sid)})
names = [l.split()[0] for l in text('system show --name counters').splitlines()]
is_so('all counters', [c['name'] for c in said['system show --name counters']['counters']] == names and
      list(said['system stat --name all']['counters']) == names)
stores = [list(map(int, l.split())) for l in text('system show --name stores').splitlines()]
is_so('stores', [[s['tid'], s['lun'], s['size'], s['block_size']] for s in said['system show --name stores']['stores']] == stores)
config = said['system show --name config']
lun3 = [l for l in config['targets'][0]['luns'] if l['lun'] == 3][0]
is_so('the configuration', config['targets'][0]['settings'] == {'MaxBurstLength': '524288'} and
      lun3['settings'] == {'bs-type': 'ram', 'vendor_id': 'ACME', 'readonly': '1'}, config['targets'][0])
is_so('limits of initiators', config['targets'][2]['initiator_limits'] ==
      [{'name': 'iqn.a.b:c', 'limits': 'iops_limit=500,bandwidth_limit=1M'}] and
      {'name': 'iqn.a:\ufffd', 'limits': 'iops_limit=1'} in config['targets'][0]['initiator_limits'], config['targets'])
is_so('where a password is kept', config['discovery_accounts'][0]['password_file'] == folder.decode() + '/password')
is_so('accounts', [a['user'] for a in said['account show']['accounts']] ==
      [l.strip() for l in text('account show').splitlines()[1:] if not l.startswith('        ')])
cache = said['cache show']
is_so('the cache: no resize yet', cache['resize'] == {'state': 'none', 'target': None, 'elapsed_ns': None, 'blocks_waited_for': 0,
      'error': None} and cache['largest_size'] >= cache['size'] > 0, cache)
is_so('the cache: its memory', sorted(cache['memory']) == ['error', 'locked', 'preparing', 'to_be_locked'], cache)
machine = said['system stat --name machine']
for name in ('threads', 'targets', 'lus', 'sessions'):
    table = machine[name]
    is_so('the machine: a table of ' + name, table['rows'] and all(len(r) == len(table['columns']) for r in table['rows']), table)
    machine[name] = [dict(zip(table['columns'], r)) for r in table['rows']]
one = [l for l in machine['lus'] if (l['tid'], l['lun']) == (1, 1)][0]
is_so('the machine: a LU', (one['rd_done_cmds'], one['size'], one['backing_store_type']) == (5, 1 << 24, 'ram'), one)
is_so('the machine: a session', machine['sessions'][0]['initiator'] == peer.name and machine['sessions'][0]['commands'] >= 5)
is_so('the machine: partitions', all(len(n['partition_blocks']) == len(n['partition_dirty']) == len(n['partition_resident'])
                                     and sum(n['partition_blocks']) == n['blocks'] for n in machine['nodes']))

# ---- latency
reads = [r for r in said['logicalunit latency --tid 1 --lun 1']['latency'] if r['class'] == 'read']
total = [r for r in reads if r['figure'] == 'total'][0]
is_so('latency: a histogram', total['count'] == 5 == sum(n for _, _, n in total['buckets']) and
      all(a <= b for a, b, _ in total['buckets']) and total['p50_ns'] <= total['p99_ns'] <= total['max_ns'], total)
is_so('latency: parts', sum(r['sum_ns'] for r in reads if r['figure'] != 'total') == total['sum_ns'] > 0, reads)
is_so('latency: of all and of a target', total in said['system latency']['latency'] and total in said['target latency --tid 1']['latency'])
is_so('latency: what was waited for', all(sum(r['waits_ns'].values()) == r['sum_ns'] for r in reads if r['figure'] == 'waiting') and
      not any('waits_ns' in r for r in reads if r['figure'] != 'waiting'), reads)
packed = one['latency']['read']
bounds = machine['latency_bounds_ns']
is_so('the machine: latency', packed['count'] == 5 and packed['sum_ns'] == total['sum_ns'] and
      [[bounds[int(i)], int(n)] for i, n in (b.split(':') for b in packed['buckets'].split())] == [b[1:] for b in total['buckets']], packed)
slow = said['logicalunit slow --tid 1 --lun 1']['slow']
is_so('slow commands', slow and all(sum(s['parts_ns'].values()) == s['total_ns'] and
                                    sum(s['waits_ns'].values()) == s['parts_ns']['waiting'] for s in slow), slow)

# ---- by session, when asked for; a wait that is known; the cache resized
must('system update --name latency_initiators --value on')
must('logicalunit update --tid 1 --lun 1 --params iops_limit=20,iops_burst=1')
for i in range(3):
    peer.out(peer.read(i, 8))
    assert peer.wait_status(peer.itt - 1)[1] == 0
rows = ask('logicalunit latency --tid 1 --lun 1')['latency']
mine = [(r['class'], r['sid'], r['count']) for r in rows if r['figure'] == 'session']
is_so('latency: by session', mine == [('read', int(sid), 3)], rows)
is_so('latency: of a limit', [r['waits_ns']['limit'] > 5e7 for r in rows if (r['class'], r['figure']) == ('read', 'waiting')] == [True], rows)
must('system update --name latency_initiators --value off')
must('logicalunit update --tid 1 --lun 1 --params iops_limit,iops_burst')
must('cache update --params size=24m')
resize = None
for _ in range(600):
    resize = ask('cache show')
    if resize['resize']['state'] == 'done':
        break
    time.sleep(0.1)
is_so('the cache: resized', resize['resize']['state'] == 'done' and resize['resize']['target'] == 24 << 20 == resize['size'] and
      resize['resize']['elapsed_ns'] >= 0, resize)

# ---- totals outlive the session
peer.close()
while ask('session show')['sessions']:
    pass
after = ask('logicalunit stat --tid 1 --lun 1')
is_so('totals outlive sessions', after['statistics'] == [] and after['totals'][0]['rd_done_cmds'] == 8, after)

# ---- refusals
for words in ('target new --tid 9 -T iqn.x:y', 'logicalunit delete --tid 1 --lun 1', 'system update --name debug --value off'):
    r = adm(words, '--json')
    is_so(words + ': no JSON', r.returncode == 22 and b"'json' is an option of show" in r.stderr, r)
r = adm('target show --tid 99', '--json')
is_so('a target that is not there', r.returncode == 22 and not r.stdout, r)
r = adm('session stat', '--json')
is_so('no session', r.returncode == 22 and r.stderr == adm('session stat').stderr, r)
r = adm('system stat --name machine')
is_so('the machine takes --json', r.returncode == 22 and not r.stdout, r)
r = subprocess.run([tgt_admin, '--show', '--json'], capture_output=True)
is_so('tgt-admin --show --json', json.loads(r.stdout) == ask('target show'), r)
r = subprocess.run([tgt_admin, '--dump', '--json'], capture_output=True)
is_so('tgt-admin --dump --json', json.loads(r.stdout) == ask('system show --name config'), r)
r = subprocess.run([tgt_admin, '--execute', '--json'], capture_output=True)
is_so('tgt-admin --execute --json is refused', r.returncode == 1 and not r.stdout, r)

# ---- while targets and LUNs come and go, every answer is whole
stop = threading.Event()


def churn():
    while not stop.is_set():
        for tid in range(20, 24):
            adm('target new --tid %d -T %s.%d' % (tid, NAME, tid))
            for lun in range(1, 5):
                adm('logicalunit new --tid %d --lun %d --bstype null --backing-store 1m' % (tid, lun))
        for tid in range(20, 24):
            adm('target delete --force --tid %d' % tid)


thread = threading.Thread(target=churn)
thread.start()
bad = []
try:
    for verb in ('target show', 'system stat', 'system show --name config', 'system show --name stores', 'lld show',
                 'system stat --name machine') * 15:
        try:
            d = ask(verb)
            if verb == 'target show' and not {1, 2, 7} <= {t['tid'] for t in d['targets']}:
                bad.append(d)
        except (AssertionError, ValueError) as e:
            bad.append(e)
finally:
    stop.set()
    thread.join()
is_so('whole while everything changes', not bad, bad)
counters = ask('system stat --name admin_')['counters']
is_so('made in turns', counters['admin_json_turns'] > 100, counters)
sys.exit(wrong > 0)
