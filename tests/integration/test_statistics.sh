#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What tgtadm shows of the traffic of a connection, a session and a LUN is what passed over the wire: counted there,
# PDU by PDU, by the initiator. Commands on the fast path and others, digests, two connections.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.tgtd.test:statistics
daemon_start ours --cache size=16m
adm --op new --mode target --tid 1 -T $iqn
adm --op bind --mode target --tid 1 -I ALL
adm --op new --mode logicalunit --tid 1 --lun 1 --bstype ram --backing-store 16m
python3 - "$port" $iqn "$(tool tgtadm)" <<'PY' || failures=$((failures + 1))
import struct, subprocess, sys
sys.path.insert(0, 'tests/support')
sys.dont_write_bytecode = True
from iscsi_peer import NONE, Peer, pdu

port, target, tgtadm = int(sys.argv[1]), sys.argv[2], sys.argv[3]
Peer.address, Peer.target = ('127.0.0.1', port), target
CONN = 'rxdata_octets txdata_octets dataout_pdus datain_pdus cmd_pdus rsp_pdus'.split()
LU = 'rd_subm rd_subm_cmds rd_done rd_done_cmds wr_subm wr_subm_cmds wr_done wr_done_cmds errs'.split()
wrong = 0


def is_so(name, got, want):
    global wrong
    wrong += got != want
    print('ok ' + name if got == want else 'not ok %s: %s, expected %s' % (name, got, want))


def adm(*args):
    return subprocess.run([tgtadm, *args], capture_output=True, text=True, check=True).stdout.splitlines()


class Counting(Peer):
    """Keeps its own account of the full feature phase."""

    def account(self):
        self.seen = dict.fromkeys(CONN, 0)
        return self

    def out(self, p):
        n = int.from_bytes(p[5:8], 'big')
        if hasattr(self, 'seen'):
            self.seen['rxdata_octets'] += n
            self.seen['dataout_pdus'] += p[0] & 0x3f == 5
            self.seen['cmd_pdus'] += p[0] & 0x3f == 1
        super().out(p)

    def recv(self):
        head, data = super().recv()
        if hasattr(self, 'seen'):
            self.seen['txdata_octets'] += len(data)
            self.seen['datain_pdus'] += head[0] == 0x25
            self.seen['rsp_pdus'] += head[0] == 0x21
        return head, data

    def connection(self, sid, cid):
        lines = adm('--op', 'stat', '--mode', 'conn', '--tid', '1', '--sid', str(sid), '--cid', str(cid))
        assert lines[0].split() == ['sid', 'cid'] + CONN, lines
        figures = list(map(int, lines[1].split()))
        assert figures[:2] == [sid, cid] and len(lines) == 2, lines
        return dict(zip(CONN, figures[2:]))


def lun(sid):
    for line in adm('--op', 'stat', '--mode', 'logicalunit', '--tid', '1', '--lun', '1'):
        figures = line.split()
        if figures[2] == str(sid):
            return dict(zip(LU, map(int, figures[3:])))
    raise AssertionError('no line for session %u' % sid)


def put(p, lba, blocks):
    """A write: 4096 bytes with the command, what is asked for in pieces of 8192."""
    data = bytes(blocks * 512)
    p.out(p.write(lba, blocks, data[:4096]))
    while True:
        head, _ = p.recv()
        if head[0] == 0x21:
            return head[3]
        assert head[0] == 0x31, head
        at, n = struct.unpack('>II', head[40:48])
        for sn, o in enumerate(range(0, n, 8192)):
            k = min(8192, n - o)
            p.out(p.data_out(p.itt - 1, struct.unpack('>I', head[20:24])[0], data[at + o:at + o + k], sn=sn, offset=at + o,
                             final=o + k == n))


def get(p, lba, blocks):
    p.out(p.read(lba, blocks))
    return p.wait_status(p.itt - 1)[1]


def session(what, *keys):
    p = Counting()
    isid = struct.pack('>BHBH', 0x80, 0x57a7, 0, Peer.count)
    answer = p.login_step(1, 3, p.names() + ['MaxConnections=2', 'ImmediateData=Yes', 'InitialR2T=Yes', 'FirstBurstLength=4096',
                                             'MaxRecvDataSegmentLength=16384', *keys], isid=isid)
    assert answer[None] == (0, True), answer
    sid = p.tsih
    p.account()
    is_so(what + ': nothing yet', p.connection(sid, 0), p.seen)
    p.ready()
    before = lun(sid)
    for i in range(10):
        assert get(p, i * 8, 8) == 0 and put(p, i * 8, 8) == 0
    for i in range(3):
        assert get(p, 0, 64) == 0 and put(p, 0, 64) == 0
    assert get(p, 1 << 30, 1) == 2, 'out of range'
    p.out(pdu(0x40, 0x80, 0, 0x50494e47, struct.pack('>III', NONE, p.cmdsn, p.statsn), bytes(100)))
    assert p.recv()[1] == bytes(100)
    assert p.seen['datain_pdus'] == 10 + 3 * 2 and p.seen['dataout_pdus'] == 3 * 4, p.seen
    is_so(what + ': the connection', p.connection(sid, 0), p.seen)
    n = 10 * 4096 + 3 * 32768
    after = lun(sid)
    is_so(what + ': the LUN', {k: after[k] - before[k] for k in LU},
          dict(rd_subm=n, rd_subm_cmds=13, rd_done=n, rd_done_cmds=13, wr_subm=n, wr_subm_cmds=13, wr_done=n, wr_done_cmds=13, errs=1))
    lines = adm('--op', 'stat', '--mode', 'session', '--tid', '1', '--sid', str(sid))
    is_so(what + ': the session shows both', [lines[2].split()[2:], lines[-1].split()],
          [[str(sid)] + [str(after[k]) for k in LU], [str(sid), '0'] + [str(p.seen[k]) for k in CONN]])
    keys_shown = set(adm('--op', 'show', '--mode', 'session', '--tid', '1', '--sid', str(sid)))
    is_so(what + ': the keys in force', {k for k in ('MaxConnections=2', 'InitialR2T=Yes', 'FirstBurstLength=4096',
                                                     'DataDigest=' + ('CRC32C' if keys else 'None'))} - keys_shown, set())
    # A second connection has figures of its own, and the first keeps its.
    q = Counting()
    q.name, q.cmdsn = p.name, p.cmdsn
    answer = q.login_step(1, 3, q.names() + list(keys), tsih=sid, isid=isid, cid=1)
    assert answer[None] == (0, True), answer
    q.account()
    assert get(q, 0, 8) == 0
    is_so(what + ': two connections', [p.connection(sid, 0), q.connection(sid, 1)], [p.seen, q.seen])
    q.close()
    p.close()


session('plain')
session('digests', 'HeaderDigest=CRC32C', 'DataDigest=CRC32C')
sys.exit(wrong > 0)
PY
finish
