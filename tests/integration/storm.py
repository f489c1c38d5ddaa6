#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Aborts, resets, lost connections and reinstated sessions under load.

    storm.py PORT TARGET SECONDS SEED

The target has LUNs 1, 2 and 3, of 16 MiB or more in blocks of 512 bytes. Eight initiators, half of them with three
connections a session, keep reads and writes in flight and cause trouble: ABORT TASK, ABORT TASK SET, CLEAR TASK
SET, LOGICAL UNIT RESET, warm and cold target reset, I_T nexus reset, connections that are closed, reset,
reinstated or logged out with commands in flight, sessions that are reinstated. Each judges what it gets:

  - nothing comes for a task after its response, or after the response to the task management function that
    ended it (RFC 7143, 4.2.3.3 and 11.6.1; on other connections of the session: after a ping has come back there);
  - a write that was aborted, or lost with its session, never lands after a later write of the same blocks was
    answered; a read returns the blocks that it asked for;
  - every task management function is answered, and every task ends: at the end none is left that the target
    still knows of.

Prints TAP lines.
"""
import multiprocessing, os, random, select, struct, sys, time, traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
sys.dont_write_bytecode = True
from iscsi_peer import NONE, Gone, Peer, pdu

PORT, TARGET, SECONDS, SEED = int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
Peer.address, Peer.target = ('127.0.0.1', PORT), TARGET
INITIATORS, DEPTH, SLOTS, SLOT_BLOCKS = 8, 16, 12, 64
ABORT_TASK, ABORT_TASK_SET, CLEAR_TASK_SET, LUN_RESET, WARM_RESET, COLD_RESET, QUERY_TASK, NEXUS_RESET = 1, 2, 4, 5, 6, 7, 9, 11
PATIENCE = 60


def u32(b, at):
    return struct.unpack('>I', b[at:at + 4])[0]


class Wrong(Exception):
    pass


class Slot:
    """Some blocks that only this initiator writes, one write at a time. Each block names its slot, itself and the
    write that it is of."""

    def __init__(self, lun, lba, mark):
        self.lun, self.lba, self.mark = lun, lba, mark
        self.issued = 0   # number of the last write that was sent
        self.floor = 0    # the last that was answered GOOD: nothing older may be seen again
        self.writing = False

    def block(self, k, number):
        return struct.pack('>QQQ', self.mark, self.lba + k, number).ljust(512, b'.')

    def check(self, data, first, floor):
        for k in range(len(data) // 512):
            mark, lba, number = struct.unpack('>QQQ', data[k * 512:k * 512 + 24])
            if (mark, lba, number) == (0, 0, 0) and not floor:
                continue
            if (mark, lba) != (self.mark, self.lba + first + k):
                raise Wrong('block %u of LUN %u holds that of %#x:%u' % (self.lba + first + k, self.lun, mark, lba))
            if not floor <= number <= self.issued:
                raise Wrong('block %u of LUN %u: write %u, where %u was answered and %u sent' %
                            (lba, self.lun, number, floor, self.issued))


class Task:
    def __init__(self, slot, conn, write, first, blocks):
        self.slot, self.conn, self.write, self.first, self.blocks = slot, conn, write, first, blocks
        self.floor, self.number, self.data, self.since = slot.floor, 0, bytearray(blocks * 512), time.monotonic()
        self.cmdsn, self.deaf = 0, False
        self.dead = None  # why nothing may come for it any more


class Initiator:
    def __init__(self, index):
        self.index = index
        self.rnd = random.Random(SEED * 100 + index)
        self.name = 'iqn.2026-11.org.tgtd.test:storm-%u' % index
        self.isid = struct.pack('>BHBH', 0x80, 0x5707, 0, index)
        self.slots = [Slot(1 + s % 3, (index * SLOTS + s) * SLOT_BLOCKS, 0x5707 << 32 | index << 16 | s) for s in range(SLOTS)]
        self.wanted = 3 if index % 2 else 1
        self.itt = 1
        self.conns, self.tasks, self.tmf, self.barriers = [], {}, None, {}
        self.buried = {}  # what ended the tasks that had no response
        self.count = dict(good=0, ended=0, aborted=0, gone=0, tmf=0, sessions=0, trouble=0)

    # ---- the session -----------------------------------------------------------------------------------

    def connect(self, cid, tsih):
        p = Peer(timeout=PATIENCE)
        try:
            p.name, p.cid, p.rx = self.name, cid, b''
            p.cmdsn = self.cmdsn if tsih else 1
            keys = p.names() + (['MaxConnections=4', 'MaxOutstandingR2T=4', 'DataPDUInOrder=Yes', 'InitialR2T=Yes',
                                 'ImmediateData=%s' % ('Yes' if self.index % 4 < 2 else 'No'), 'FirstBurstLength=4096',
                                 'MaxRecvDataSegmentLength=16384'] if not tsih else [])
            answer = p.login_step(1, 3, keys, tsih=tsih, isid=self.isid, cid=cid)
            if answer[None] != (0, True):
                raise Gone('login refused: %s' % (answer[None],))
        except BaseException:
            p.close()
            raise
        return p

    def void(self, tasks, why):
        """They ended with their connection: nothing is to come, nothing is known of the writes."""
        for itt in tasks:
            t = self.tasks.pop(itt)
            t.slot.writing &= not t.write
            self.count['gone'] += 1

    def login(self):
        """A new session; the target ends what is left of the old one before it answers."""
        self.void(list(self.tasks), 'session')
        old, self.conns, self.tmf, self.barriers = self.conns, [], None, {}
        end = time.monotonic() + PATIENCE
        while True:
            try:
                self.conns = [self.connect(0, 0)]
                self.cmdsn = self.exp = self.conns[0].cmdsn
                self.tsih = self.conns[0].tsih
                for cid in range(1, self.wanted):
                    self.conns.append(self.connect(cid, self.tsih))
                break
            except Gone:
                for p in self.conns:
                    p.close()
                self.conns = []
                if time.monotonic() > end:
                    raise Wrong('cannot log in again')
                time.sleep(0.02)
        for p in old:
            p.close()
        self.count['sessions'] += 1

    # ---- what is sent ----------------------------------------------------------------------------------

    def next_itt(self):
        self.itt += 1
        return self.itt

    def send(self, p, build):
        """build(p) with the session's CmdSN in the connection."""
        p.cmdsn = self.cmdsn
        p.out(build(p))
        self.cmdsn = p.cmdsn

    def start_one(self):
        slot, p = self.rnd.choice(self.slots), self.rnd.choice(self.conns)
        write = not slot.writing and self.rnd.random() < 0.5
        itt = self.next_itt()
        if write:
            t = Task(slot, p, True, 0, SLOT_BLOCKS)  # whole, so that there is one number to be seen
            slot.issued += 1
            slot.writing = True
            t.number = slot.issued
            t.data = b''.join(slot.block(k, t.number) for k in range(SLOT_BLOCKS))
            now = t.data[:4096] if self.index % 4 < 2 else b''
            build = lambda p: p.write(slot.lba, SLOT_BLOCKS, now, itt=itt, lun=slot.lun)
        else:
            first = self.rnd.randrange(SLOT_BLOCKS)
            blocks = self.rnd.randrange(1, SLOT_BLOCKS - first + 1)
            t = Task(slot, p, False, first, blocks)
            build = lambda p: p.read(slot.lba + first, blocks, itt=itt, lun=slot.lun)
        t.cmdsn = self.cmdsn
        self.tasks[itt] = t
        self.send(p, build)

    def manage(self, function, lun=0, ref=NONE):
        p = self.tasks[ref].conn if ref in self.tasks else self.rnd.choice(self.conns)
        itt = self.next_itt()
        ref_sn = self.tasks[ref].cmdsn if ref in self.tasks else 0
        self.tmf = dict(itt=itt, function=function, lun=lun, ref=ref, conn=p, since=time.monotonic(), before=list(self.tasks))
        immediate = self.rnd.random() < 0.5

        def build(p):
            sn = p.cmdsn
            if not immediate:
                p.cmdsn += 1
            return pdu(0x42 if immediate else 2, 0x80 | function, lun, itt, struct.pack('>IIII', ref, sn, p.statsn, ref_sn))
        self.send(p, build)

    # ---- what comes ------------------------------------------------------------------------------------

    def end_task(self, itt, why):
        """By task management: what still may come on another connection comes before a ping's answer."""
        t = self.tasks.get(itt)
        if not t or t.dead:
            return
        self.count['aborted'] += 1
        t.dead = why

    def bury(self, itts):
        for itt in itts:
            t = self.tasks.pop(itt, None)
            if t:
                self.buried[itt] = '%s, %s, CmdSN %#x' % (t.dead, 'write' if t.write else 'read', t.cmdsn)
            if t and t.write:
                t.slot.writing = False

    def managed(self, p, response):
        m, self.tmf = self.tmf, None
        function, ref = m['function'], m['ref']
        self.count['tmf'] += 1
        if function == QUERY_TASK:
            if response == 7:  # there it is
                if ref in self.tasks and time.monotonic() - self.tasks[ref].since > PATIENCE:
                    raise Wrong('a task that does not end')
                return
            hit = [ref]  # ended by somebody else's reset, without a word
        elif response == 0:
            hit = {ABORT_TASK: lambda: [ref],
                   ABORT_TASK_SET: lambda: [i for i in m['before'] if i in self.tasks and self.tasks[i].slot.lun == m['lun']],
                   CLEAR_TASK_SET: lambda: [i for i in m['before'] if i in self.tasks and self.tasks[i].slot.lun == m['lun']],
                   LUN_RESET: lambda: [i for i in m['before'] if i in self.tasks and self.tasks[i].slot.lun == m['lun']],
                   WARM_RESET: lambda: m['before'], COLD_RESET: lambda: m['before'], NEXUS_RESET: lambda: m['before']}[function]()
        elif function == ABORT_TASK and response == 1:
            hit = [ref]  # its response is on its way, before this one; or a reset of somebody else has ended it
            if ref in self.tasks and self.wanted == 1:
                self.tasks[ref].dead = 'no such task'
        else:
            raise Wrong('task management function %u: response %u' % (function, response))
        now = [i for i in hit if i in self.tasks and self.tasks[i].conn is p]
        later = [i for i in hit if i in self.tasks and self.tasks[i].conn is not p]
        for i in now:
            self.end_task(i, 'function %u' % function)
        self.bury(now)
        for q in self.conns:
            mine = [i for i in later if self.tasks[i].conn is q]
            if mine:
                ping = self.next_itt()
                self.barriers[ping] = mine
                self.send(q, lambda q: q.nop(ping))

    def received(self, p, head, data):
        op, itt, exp = head[0] & 0x3f, u32(head, 16), u32(head, 28)
        self.exp = max(self.exp, exp)
        if op == 0x20:
            if itt == NONE:
                if u32(head, 20) != NONE:
                    p.out(pdu(0x40, 0x80, 0, NONE, struct.pack('>III', u32(head, 20), self.cmdsn, p.statsn)))
            elif itt in self.barriers:
                hit = [i for i in self.barriers.pop(itt) if i in self.tasks]
                for i in hit:
                    self.end_task(i, 'behind a ping')
                self.bury(hit)
            return
        if op == 0x22:
            if not self.tmf or self.tmf['itt'] != itt:
                raise Wrong('task management response for nothing')
            self.managed(p, head[2])
            return
        if op == 0x32:
            raise Gone('asynchronous message, event %u' % head[36])
        if op == 0x3f:
            if head[2] == 6:  # too many immediate requests: sent again another time
                self.tmf = None
                return
            raise Wrong('reject, reason %u, of %s' % (head[2], data[:48].hex()))
        if op not in (0x21, 0x25, 0x31):
            raise Wrong('opcode %#x' % op)
        t = self.tasks.get(itt)
        if not t:
            raise Wrong('%s (%s) for task %#x, which is no more: %s' % (
                {0x21: 'a response', 0x25: 'data', 0x31: 'an R2T'}[op], head.hex(), itt, self.buried.get(itt)))
        if t.conn is not p:
            raise Wrong('not on the connection of its command')
        status = None
        if op == 0x31:
            if not t.write:
                raise Wrong('R2T for a read')
            at, n = u32(head, 40), u32(head, 44)
            if not t.deaf:
                for sn, o in enumerate(range(0, n, 16384)):
                    k = min(16384, n - o)
                    p.out(p.data_out(itt, u32(head, 20), bytes(t.data[at + o:at + o + k]), sn=sn, offset=at + o, final=o + k == n))
        elif op == 0x25:
            at = u32(head, 40)
            if t.write or at + len(data) > len(t.data):
                raise Wrong('data beyond what was asked for')
            t.data[at:at + len(data)] = data
            if head[1] & 1:
                status = head[3]
        else:
            status = head[3]
        if status is None:
            return
        del self.tasks[itt]
        if t.write:
            t.slot.writing = False
        if status == 0:
            self.count['good'] += 1
            if t.write:
                t.slot.floor = max(t.slot.floor, t.number)
            else:
                t.slot.check(t.data, t.first, t.floor)
        elif status in (2, 8, 0x28, 0x40):  # unit attention; busy; task set full; task aborted
            self.count['ended'] += 1
        else:
            raise Wrong('status %#x' % status)

    def pump(self, timeout):
        ready, _, _ = select.select([p.sock for p in self.conns], [], [], timeout)
        for p in [p for p in self.conns if p.sock in ready]:
            head, data = p.recv()
            self.received(p, head, data)
        if self.tmf and time.monotonic() - self.tmf['since'] > PATIENCE:
            raise Wrong('task management function %u is not answered' % self.tmf['function'])
        return bool(ready)

    # ---- trouble ---------------------------------------------------------------------------------------

    def trouble(self):
        what = self.rnd.randrange(100)
        self.count['trouble'] += 1
        lun = self.rnd.choice((1, 2, 3))
        if what < 50:
            if not self.tmf and self.tasks:
                ref = self.rnd.choice(list(self.tasks))
                self.tasks[ref].deaf = self.rnd.random() < 0.3
                self.manage(ABORT_TASK, self.tasks[ref].slot.lun, ref)
        elif what < 76:
            if not self.tmf:
                self.manage(self.rnd.choice((ABORT_TASK_SET, ABORT_TASK_SET, CLEAR_TASK_SET, LUN_RESET, LUN_RESET, WARM_RESET)), lun)
        elif what < 78:
            if not self.tmf and self.index < 2:
                self.manage(COLD_RESET if self.index else NEXUS_RESET)
        elif what < 86:  # the whole session, without a word or in the middle of a PDU
            if self.rnd.random() < 0.5:
                self.conns[0].sock.send(self.conns[0].write(0, 8, bytes(4096))[:self.rnd.randrange(1, 4000)])
            for p in self.conns:
                p.close(reset=self.rnd.random() < 0.5)
            self.login()
        elif what < 92:  # reinstated, the old one still being there
            self.login()
        elif what < 96 and self.wanted > 1:  # one connection is reinstated; its tasks end
            cid = self.rnd.randrange(self.wanted)
            old = self.conns[cid]
            if self.tmf and (self.tmf['conn'] is old or self.tmf['function'] != ABORT_TASK) or self.barriers:
                return
            # What was sent has to have been taken in order, or its CmdSN might be missing for good.
            while self.exp != self.cmdsn:
                ping = self.next_itt()
                self.barriers[ping] = []
                self.send(old, lambda p: p.nop(ping))
                while ping in self.barriers:
                    self.pump(0.1)
            self.conns[cid] = self.connect(cid, self.tsih)
            old.close()
            self.void([i for i, t in self.tasks.items() if t.conn is old], 'connection')
        else:  # logged out with everything in flight
            p = self.conns[0]
            self.send(p, lambda p: pdu(0x46, 0x80, 0, self.next_itt(), struct.pack('>HxxII', 0, p.cmdsn, p.statsn)))
            end = time.monotonic() + PATIENCE
            while time.monotonic() < end:
                head, data = p.recv()
                if head[0] == 0x26:
                    break
            self.login()

    def window(self):
        return len(self.tasks) < DEPTH

    def run(self, seconds):
        self.login()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                for _ in range(4):
                    if self.window():
                        self.start_one()
                if self.rnd.random() < 0.06:
                    self.trouble()
                self.ask_after_old(1)
                while self.pump(0):
                    pass
                self.pump(0.005)
            except Gone:
                for p in self.conns:
                    p.close()
                self.login()
        # the end: everything is answered, or the target knows it no more
        end = time.monotonic() + PATIENCE
        while self.tasks or self.tmf or self.barriers:
            if time.monotonic() > end:
                raise Wrong('%u tasks that do not end' % len(self.tasks))
            try:
                self.ask_after_old(0.3)
                self.pump(0.02)
            except Gone:
                for p in self.conns:
                    p.close()
                self.login()
        for slot in self.slots:
            while True:
                try:
                    self.verify(slot)
                    break
                except Gone:  # another one's cold reset, which may come late on a busy machine
                    if time.monotonic() > end:
                        raise
                    for p in self.conns:
                        p.close()
                    self.login()
        for p in self.conns[1:]:
            p.close()
        self.conns[0].cmdsn = self.cmdsn
        self.conns[0].logout()
        return self.count

    def ask_after_old(self, age):
        """Resets of others end tasks without a word."""
        old = [i for i, t in self.tasks.items() if time.monotonic() - t.since > age]
        if old and not self.tmf and not self.barriers:
            ref = min(old)
            self.manage(QUERY_TASK, self.tasks[ref].slot.lun, ref)

    def verify(self, slot):
        for _ in range(20):
            p, itt = self.conns[0], self.next_itt()
            self.send(p, lambda p: p.read(slot.lba, SLOT_BLOCKS, itt=itt, lun=slot.lun))
            data, status = p.wait_status(itt)
            if status == 0:
                slot.check(data, 0, slot.floor)
                return
        raise Wrong('a LUN that is not ready')


def one(index, answers):
    i = Initiator(index)
    try:
        answers.put((index, i.run(SECONDS), None))
    except BaseException as e:
        lines = [f.lineno for f in traceback.extract_tb(e.__traceback__) if f.filename == __file__]
        answers.put((index, i.count, '%s: %s (lines %s)' % (type(e).__name__, e, ' '.join(map(str, lines)))))


answers = multiprocessing.Queue()
peers = [multiprocessing.Process(target=one, args=(i, answers)) for i in range(INITIATORS)]
for p in peers:
    p.start()
total, errors = {}, []
for _ in peers:
    index, count, error = answers.get()
    for k, v in count.items():
        total[k] = total.get(k, 0) + v
    if error:
        errors.append('initiator %u: %s' % (index, error))
for p in peers:
    p.join()
print('# ' + ', '.join('%s %u' % kv for kv in total.items()))
for e in errors:
    print('# ' + e)
print('ok' if not errors else 'not ok', 'each initiator saw what it should, and nothing late')
enough = total['good'] > 200 and total['aborted'] > 20 and total['tmf'] > 20 and total['sessions'] > INITIATORS
print('ok' if enough else 'not ok', 'there was a storm')
sys.exit(bool(errors) or not enough)
