# SPDX-License-Identifier: GPL-2.0-or-later
"""An initiator whose sessions stay open while the owner is stopped, or cut off from Ceph:

    queued.py IQN OWNER ELSEWHERE...      each ADDRESS:PORT

It has 96 blocks of 4 KiB, from block 1024 on: 32 that are written without an end, 32 writes, 32
reads. Each line of stdin is done, and answered by one:

    stream     the blocks are written; what is read is cached by the owner. 32 writes are at work from
               now on, in a session of their own, until no more answers come
    still      ... no more; all of them have been answered
    queue      32 writes and 32 reads go to the owner, in another session; nobody waits for answers
    elsewhere  blocks are written anew, by whoever of ELSEWHERE serves, but for half of those that
               have writes under way: these are read, and say what has landed
    reads      32 reads more, in the same session
    answers [refused]   ... to all of it: how many of which. An error: the session has ended, a read is
               older than what was acknowledged when it was answered, or a write is GOOD that was
               queued; or anything is GOOD
    usable     the same session reads all blocks, writes them, and reads them again
    same FILE  whether an image (rbd export) has what was acknowledged, and nothing else

With $NEXUS, two letters: initiators of these names (nexuses.py), one for each session.
"""
import os, struct, sys, threading, time

sys.dont_write_bytecode = True
sys.path.insert(0, 'tests/cluster')
from initiator import NEXUS, Paths, Peer, addresses_of, login_of  # noqa: E402

N, FIRST = 32, 1024
STREAM, WRITES, READS = (range(FIRST + N * i, FIRST + N * (i + 1)) for i in range(3))
Peer.target = sys.argv[1]
owner, elsewhere = addresses_of(sys.argv[2:3])[0], addresses_of(sys.argv[3:])
acked, taken, newer_at = {}, {}, float('inf')
serial = 0


def stamped(block, gen):
    return struct.pack('<QQ', gen, block) * 256


def fresh():
    global serial
    serial += 1
    return serial


class Session:
    """Commands under way, and what became of each. A thread of its own receives."""

    def __init__(self, letter):
        self.peer = login_of(Peer(timeout=600, address=owner), letter)
        self.under_way, self.done, self.ended = {}, [], None
        self.lock = threading.Condition()
        for _ in range(3):  # unit attentions
            if self.peer.run(bytes(6))[0] == 'good':
                break
        threading.Thread(target=self.receives, daemon=True).start()

    def sends(self, kind, block, gen):
        with self.lock:
            self.under_way[self.peer.itt] = [kind, block, gen, b'']
            self.peer.out(self.peer.write(8 * block, 8, stamped(block, gen)) if kind == 'write' else
                          self.peer.read(8 * block, 8))

    def receives(self):
        try:
            while True:
                head, data = self.peer.recv()
                itt = struct.unpack('>I', head[16:20])[0]
                with self.lock:
                    if itt not in self.under_way:
                        continue
                    if head[0] == 0x25:
                        self.under_way[itt][3] += data
                        if not head[1] & 1:
                            continue
                    kind, block, gen, got = self.under_way.pop(itt)
                    said = '%x/%02x/%02x' % (data[4] & 15, data[14], data[15]) \
                        if head[0] == 0x21 and head[3] == 2 else \
                        'status %u' % head[3] if head[3] else 'good'
                    self.done.append((kind, block, gen, said, got, time.monotonic()))
                    self.lock.notify_all()
        except Exception as e:
            with self.lock:
                self.ended = repr(e)
                self.lock.notify_all()

    def idle(self, seconds, most=0):
        with self.lock:
            assert self.lock.wait_for(lambda: self.ended or len(self.under_way) <= most, seconds), \
                '%u commands are not answered' % len(self.under_way)
            assert not self.ended, 'a session has ended: %s' % self.ended

    def all_good(self, kind, gens):
        """One of @kind for each block: again, as long as it hears of other things or of standby."""
        left, until = dict(gens), time.monotonic() + 120
        while left:
            assert time.monotonic() < until, 'the owner does not serve: %s' % self.done[-1:]
            self.done = []
            for block, gen in left.items():
                self.sends(kind, block, gen)
            self.idle(120)
            for _, block, gen, said, got, _ in self.done:
                if said == 'good':
                    assert kind == 'write' or got == stamped(block, gen), ('STALE', block, gen, got[:16].hex())
                    del left[block]
                    acked[block] = gen
                else:
                    assert said[0] == '6' or said == '2/04/0a', said
            time.sleep(0.01)


streams = session = None
stop = False


def streaming():
    """A block is written again as soon as it is done."""
    gens = {}
    while not stop:
        for block in STREAM:
            with streams.lock:
                busy = any(c[1] == block for c in streams.under_way.values())
            if busy or stop:
                continue
            gens[block] = fresh()
            streams.sends('write', block, gens[block])
        with streams.lock:
            streams.lock.wait(1)


def stream():
    global streams, session
    Peer.count = os.getpid() & 0x3fff
    session, streams = Session(NEXUS[:1]), Session(NEXUS[1:])
    session.all_good('write', {b: fresh() for r in (STREAM, WRITES, READS) for b in r})
    for _ in range(2):
        session.all_good('read', {b: acked[b] for b in READS})
    threading.Thread(target=streaming, daemon=True).start()
    with streams.lock:
        assert streams.lock.wait_for(lambda: len(streams.done) >= N, 60), 'nothing is written'
    return 'good'


def still():
    global stop
    stop = True
    streams.idle(60)
    acked.update({block: gen for _, block, gen, said, _, _ in streams.done if said == 'good'})
    return 'good'


def queue():
    global stop
    stop = True
    session.done = []
    for block in WRITES:
        session.sends('write', block, fresh())
    for block in READS:
        session.sends('read', block, acked[block])
    with streams.lock:
        return 'good %u' % len(streams.under_way)


def written_elsewhere():
    global newer_at
    newer_at = time.monotonic()
    paths = Paths(elsewhere)
    for r in (STREAM, WRITES, READS):
        for block in r:
            if r is not READS and not block % 2:
                got = paths.transfer(lambda p: p.read(8 * block, 8))
                gen = struct.unpack('<Q', got[:8])[0]
                assert got == stamped(block, gen), 'block %u is torn' % block
                taken[block] = acked[block] = gen
                continue
            gen = fresh()
            paths.transfer(lambda p: p.write(8 * block, 8, stamped(block, gen)))
            acked[block] = gen
    return 'good'


def reads():
    for block in READS:
        session.sends('read', block, acked[block])
    return 'good'


def answers(which=''):
    session.idle(120)
    streams.idle(120)
    seen = {}
    for kind, block, gen, said, got, at in session.done:
        seen[kind + ' ' + said] = seen.get(kind + ' ' + said, 0) + 1
        if said != 'good':
            assert said[:4] == '2/04' or said[0] == '6', said
        elif kind == 'write':
            raise AssertionError('a write that was queued is GOOD: block %u, generation %u, %.3f s after %s' %
                                 (block, gen, at - newer_at, taken.get(block, 'it was written elsewhere')))
        elif which:
            raise AssertionError('a read is GOOD: block %u' % block)
        else:
            assert got == stamped(block, acked[block]) or at < newer_at, ('STALE', block, got[:16].hex())
    for _, block, gen, said, _, at in streams.done:
        assert said != 'good' or gen <= taken.get(block, gen), ('LOST', block, gen, taken[block])
        if at >= newer_at:  # GOOD: it had landed before the other gateway took the unit
            seen['stream ' + said] = seen.get('stream ' + said, 0) + 1
    return 'good ' + ', '.join('%s: %u' % w for w in sorted(seen.items()))


def usable():
    session.all_good('read', dict(acked))
    session.all_good('write', {b: fresh() for b in acked})
    session.all_good('read', dict(acked))
    return 'good'


def same(name):
    with open(name, 'rb') as f:
        for block, gen in acked.items():
            f.seek(4096 * block)
            got = f.read(4096)
            assert got == stamped(block, gen), 'block %u: generation %d, not %d' % (
                block, struct.unpack('<Q', got[:8])[0], gen)
    return 'good'


verbs = {'stream': stream, 'still': still, 'queue': queue, 'elsewhere': written_elsewhere, 'reads': reads,
         'answers': answers, 'usable': usable, 'same': same}
for line in sys.stdin:
    words = line.split()
    try:
        print(verbs[words[0]](*words[1:]), flush=True)
    except Exception as e:
        print('%s: %s' % (words[0], ' '.join(repr(e).split())), flush=True)
