# SPDX-License-Identifier: GPL-2.0-or-later
"""A small iSCSI initiator for tests, written on nothing but sockets, so that each byte is the test's choice
(RFC 7143, section 11: PDU formats). Set Peer.address and Peer.target before the first one is made.
"""
import hashlib, os, socket, struct, sys

NONE = 0xffffffff
# RFC 7143, 12.1.3, and what IANA has added: CHAP_A
CHAP = {5: hashlib.md5, 6: hashlib.sha1, 7: hashlib.sha256, 8: hashlib.sha3_256}

CRC = []
for i in range(256):
    for _ in range(8):
        i = i >> 1 ^ (0x82f63b78 if i & 1 else 0)
    CRC.append(i)


def crc32c(data):
    c = 0xffffffff
    for b in data:
        c = c >> 8 ^ CRC[(c ^ b) & 0xff]
    return struct.pack('<I', c ^ 0xffffffff)


def pdu(opcode, flags=0x80, lun=0, itt=NONE, rest=b'', data=b'', ahs=b'', length=None, ahs_words=None):
    """A basic header segment; rest is what follows the ITT. Lengths may lie."""
    n = len(data) if length is None else length
    words = len(ahs) // 4 if ahs_words is None else ahs_words
    head = bytes([opcode, flags, 0, 0, words]) + n.to_bytes(3, 'big') + struct.pack('>HxxxxxxI', lun, itt)
    return head + rest.ljust(28, b'\0') + ahs + data + bytes(-len(data) % 4)


def is_(name, ok, *more):
    """A TAP line; is_.failures counts."""
    print('ok ' + name if ok else 'not ok ' + name)
    if not ok:
        is_.failures += 1
        print('#  ', *more)
    sys.stdout.flush()


is_.failures = 0


class Gone(Exception):
    pass


class Peer:
    """One connection. What it should not do is done through send() and pdu()."""

    count = 0
    address = target = None

    def __init__(self, rcvbuf=0, timeout=20, address=None, source=None):
        Peer.count += 1
        self.name = 'iqn.2026-11.org.tgtd.test:bad-%u' % Peer.count
        self.sock = socket.socket()
        if rcvbuf:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        self.sock.settimeout(timeout)
        if source:
            self.sock.bind((source, 0))
        self.sock.connect(address or Peer.address)
        self.cmdsn, self.statsn, self.itt = 1, 0, 1
        self.header_digest = self.data_digest = False

    def send(self, data):
        try:
            self.sock.sendall(data)
        except OSError as e:
            raise Gone(e)

    def get(self, n):
        got = b''
        while len(got) < n:
            try:
                more = self.sock.recv(n - len(got))
            except socket.timeout:
                raise AssertionError('no answer in time')
            except OSError as e:
                raise Gone(e)
            if not more:
                raise Gone('closed')
            got += more
        return got

    def recv(self):
        """The next PDU: header, data."""
        head = self.get(48)
        if self.header_digest:
            assert self.get(4) == crc32c(head), 'header digest'
        n = int.from_bytes(head[5:8], 'big')
        data = self.get(n + -n % 4)
        if n and self.data_digest:
            assert self.get(4) == crc32c(data), 'data digest'
        data = data[:n]
        if head[0] in (0x20, 0x21, 0x22, 0x23, 0x24, 0x26, 0x3f) or head[0] == 0x25 and head[1] & 1:
            self.statsn = struct.unpack('>I', head[24:28])[0] + 1
        return head, data

    def close(self, reset=False):
        if reset:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
        self.sock.close()

    def closed_by_target(self):
        """True once the target has ended it; what it still says is thrown away."""
        try:
            while True:
                self.recv()
        except Gone:
            return True
        except AssertionError:
            return False

    def login_pdu(self, keys, flags=0x87, tsih=0, isid=None, data=None, cid=0):
        text = data if data is not None else ''.join(k + '\0' for k in keys).encode()
        p = bytearray(pdu(0x43, flags, 0, 0, struct.pack('>HxxII', cid, self.cmdsn, self.statsn), text))
        p[8:16] = (isid or struct.pack('>BHBH', 0x80, 0x1234, 0, self.count & 0xffff)) + struct.pack('>H', tsih)
        return bytes(p)

    def login(self, *keys, session='Normal', isid=None, name=None):
        keys = ['InitiatorName=' + (name or self.name), 'SessionType=' + session] + \
            (['TargetName=' + Peer.target] if session == 'Normal' else []) + list(keys)
        self.send(self.login_pdu(keys, isid=isid))
        head, data = self.recv()
        if head[0] != 0x23 or head[36]:
            raise Gone('login: opcode %#x, status %#x %#x' % (head[0], head[36], head[37]))
        assert head[1] & 0x83 == 0x83, 'login takes one exchange'
        self.header_digest = b'HeaderDigest=CRC32C' in data
        self.data_digest = b'DataDigest=CRC32C' in data
        return self

    def login_step(self, stage, to, keys, chunk=8192, **ids):
        """One exchange of a login by steps: keys are cut into requests of @chunk bytes with the C bit, an
        answer with the C bit is asked for to its end. @to: the next stage, or None. Returns the keys answered,
        with what the last header says under None: (status, stage transition made)."""
        text = b''.join(k.encode() + b'\0' for k in keys)
        transit = 0 if to is None else 0x80 | to
        whole = b''
        while True:
            piece, text = text[:chunk], text[chunk:]
            self.send(self.login_pdu([], flags=(0x40 if text else transit) | stage << 2, data=piece, **ids))
            head, data = self.recv()
            assert head[0] == 0x23, 'login: opcode %#x' % head[0]
            status = head[36] << 8 | head[37]
            whole += data
            self.tsih = struct.unpack('>H', head[14:16])[0]
            if status or not (text or head[1] & 0x40):
                break
        answer = dict(k.split('=', 1) for k in whole.decode().split('\0') if k)
        answer[None] = status, bool(head[1] & 0x80)
        if to == 3 and answer[None] == (0, True):
            self.header_digest = answer.get('HeaderDigest') == 'CRC32C'
            self.data_digest = answer.get('DataDigest') == 'CRC32C'
        return answer

    def names(self, session='Normal', target=None):
        return ['InitiatorName=' + self.name, 'SessionType=' + session] + \
            (['TargetName=' + (target or Peer.target)] if session == 'Normal' else [])

    def chap(self, number, user, secret, back=None, names=None, **ids):
        """The security stage of a login; @back: name and secret that the target shall show. The login's
        status."""
        answer = self.login_step(0, None, (names or self.names()) + ['AuthMethod=CHAP,None'], **ids)
        if answer[None][0]:
            return answer[None][0]
        assert answer[None] == (0, False) and answer['AuthMethod'] == 'CHAP', answer
        answer = self.login_step(0, None, ['CHAP_A=%u' % number], **ids)
        if answer[None][0]:
            return answer[None][0]
        assert answer['CHAP_A'] == '%u' % number, answer

        def response(ident, key, challenge):
            return '0x' + CHAP[number](bytes([int(ident)]) + key.encode() + bytes.fromhex(challenge[2:])).hexdigest()

        keys = ['CHAP_N=' + user, 'CHAP_R=' + response(answer['CHAP_I'], secret, answer['CHAP_C'])]
        mine = '0x' + os.urandom(16).hex()
        if back:
            keys += ['CHAP_I=77', 'CHAP_C=' + mine]
        answer = self.login_step(0, 1, keys, **ids)
        if back and not answer[None][0]:
            assert answer['CHAP_N'] == back[0] and answer['CHAP_R'] == response(77, back[1], mine), answer
        return answer[None][0]

    def out(self, p):
        """Send a PDU without AHS, with the digests agreed on."""
        if self.header_digest:
            p = p[:48] + crc32c(p[:48]) + p[48:]
        if self.data_digest and len(p) > 52:
            p += crc32c(p[52 if self.header_digest else 48:])
        self.send(p)

    def command(self, cdb, flags, edtl=0, data=b'', itt=None, cmdsn=None, lun=1, **lies):
        """Build a SCSI command; CmdSN and ITT advance unless given."""
        if itt is None:
            itt = self.itt
            self.itt += 1
        if cmdsn is None:
            cmdsn = self.cmdsn
            self.cmdsn += 1
        return pdu(0x01, flags, lun, itt, struct.pack('>III', edtl, cmdsn, self.statsn) + cdb.ljust(16, b'\0'), data, **lies)

    def read(self, lba, blocks, **more):
        return self.command(struct.pack('>BxIxHx', 0x28, lba, blocks), 0xc1, blocks * 512, **more)

    def write(self, lba, blocks, data=b'', final=True, **more):
        return self.command(struct.pack('>BxIxHx', 0x2a, lba, blocks), (0x80 if final else 0) | 0x21, blocks * 512, data, **more)

    def nop(self, itt, immediate=True):
        cmdsn = self.cmdsn
        if not immediate:
            self.cmdsn += 1
        return pdu(0x40 if immediate else 0, 0x80, 0, itt, struct.pack('>III', NONE, cmdsn, self.statsn))

    def data_out(self, itt, ttt, data, sn=0, offset=0, final=True, **lies):
        return pdu(0x05, 0x80 if final else 0, 1, itt, struct.pack('>IIIIII', ttt, 0, self.statsn, 0, sn, offset), data, **lies)

    def logout(self):
        self.out(pdu(0x46, 0x80, 0, 0x7777, struct.pack('>HxxII', 0, self.cmdsn, self.statsn)))
        while self.recv()[0][0] != 0x26:
            pass
        self.close()

    def wait_status(self, itt):
        """Data and SCSI status of one command."""
        whole = b''
        while True:
            head, data = self.recv()
            if struct.unpack('>I', head[16:20])[0] != itt:
                continue
            if head[0] == 0x25:
                whole += data
                if head[1] & 1:
                    return whole, head[3]
            elif head[0] == 0x21:
                return whole, head[3]
            elif head[0] == 0x3f:
                raise Gone('rejected')

    def ready(self):
        """Wait out the unit attentions of LUN 1."""
        for _ in range(3):
            self.out(self.command(b'', 0x80))
            if self.wait_status(self.itt - 1)[1] == 0:
                return self
        raise AssertionError('LUN 1 is not ready')

    def answers(self):
        """The connection is there and in step: a ping comes back."""
        self.out(self.nop(0x4e4f50))
        while True:
            head, _ = self.recv()
            if head[0] == 0x20 and head[16:20] == b'\0NOP':
                return True

    def run(self, cdb, edtl=0, out=None, attr=1, lun=1, field=None):
        """One command: its status, sense or refusal as text, and its Data-In. @field: all eight bytes
        of the LUN."""
        flags = 0x80 | attr | (0x20 if out is not None else 0x40 if edtl else 0)
        c = self.command(bytes(cdb), flags, len(out) if out is not None else edtl, out or b'', lun=lun)
        self.out(c[:8] + field + c[16:] if field else c)
        whole, itt = b'', self.itt - 1
        while True:
            head, data = self.recv()
            if head[0] == 0x3f:
                return 'rejected', whole
            if struct.unpack('>I', head[16:20])[0] != itt:
                continue
            whole += data if head[0] == 0x25 else b''
            if head[0] == 0x21 and head[3] == 2:
                s = data[2:]
                return '%02x/%02x/%02x' % (s[2] & 15, s[12], s[13]), whole
            if head[0] == 0x21 or head[0] == 0x25 and head[1] & 1:
                return 'status %02x' % head[3] if head[3] else 'good', whole

    def manage(self, function, lun=1, itt=NONE, sn=0):
        """A task management function's response."""
        self.out(pdu(0x42, 0x80 | function, lun, 0x7a7a7a, struct.pack('>IIII', itt, self.cmdsn, self.statsn, sn)))
        while True:
            head, _ = self.recv()
            if head[0] == 0x22:
                return head[2]
