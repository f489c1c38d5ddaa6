#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A mistake in targets.conf names file, line, word and what would have been right, whoever finds it: the parser, the
# check of the whole, or the daemon; what is left out is said; and MaxQueueCmd bounds what a session may ask at a time.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
daemon_start ours
truncate -s 16M "$dir/disk"
conf=$dir/t.conf
admin() {
	out=$("$bin/tgt-admin" -c "$conf" "$@" 2>&1)
	rc=$?
}
# CODE LINE-NUMBER TEXT LINE...: the line is the LINE-NUMBERth of the file
wrong() {
	local code=$1 number=$2 says=$3
	shift 3
	printf '%s\n' "$@" >"$conf"
	admin -e
	is "$says" test "$rc" = "$code"
	is "... where it is" has "tgt-admin: $conf:$number: "
	is "... and what it is" has "$says"
	adm --op show --mode target
	is "... and nothing is changed" test -z "$out"
}
in_target() { wrong "$1" 3 "$2" '<target iqn.x:a>' "	backing-store $dir/disk" "	$3" '</target>'; }
in_store() { wrong "$1" 3 "$2" '<target iqn.x:a>' "	<backing-store $dir/disk>" "		$3" '	</backing-store>' '</target>'; }

wrong 1 1 "unknown option 'defualt-driver' outside of targets: did you mean 'default-driver'?" 'defualt-driver iscsi'
wrong 1 2 "unknown option 'lun' outside of targets: it belongs in a <target>, or in a block of a store" '# a file' 'lun 1'
wrong 1 1 "default-driver is iscsi or iser, not 'tcp'" 'default-driver tcp'
wrong 1 1 "iSNS is On or Off, not 'Maybe'" 'iSNS Maybe'
wrong 1 1 "control-port is 0 to 32767, not 'abc'" 'control-port abc'
wrong 1 1 "unknown block <taget>: did you mean <target>?" '<taget iqn.x:a>' '</taget>'
wrong 1 3 "the file ends inside of <target iqn.x:a> of line 2: </target> is missing" '' '<target iqn.x:a>' "	backing-store $dir/disk"
in_target 1 "unknown option 'initiator-adress' in a target: did you mean 'initiator-address'?" 'initiator-adress ALL'
in_target 1 "unknown option 'iSNS' in a target: it belongs outside of targets" 'iSNS On'
in_target 1 "target iqn.x:a: driver is iscsi or iser, not 'tcp'" 'driver tcp'
in_target 1 "bs-type is rdwr, aio, ram, null, nbd or rbd, not 'rdrw'" 'bs-type rdrw'
in_target 1 "a user needs a name and a password: 'joe' has no second word" 'incominguser joe'
in_target 22 "MaxConnections cannot be 'many': it is 1 to 65535" 'MaxConnections many'
in_target 22 "HeaderDigest cannot be 'CRC16': it is None, CRC32C, or both with a comma between them" 'HeaderDigest CRC16'
in_target 22 "MaxQueueCmd cannot be '129': it is 1 to 128" 'MaxQueueCmd 129'
in_store 1 "unknown option 'incominguser' in a store: it belongs in a <target>" 'incominguser joe secretsecret'
in_store 1 "unknown option 'write_cache' in a store: did you mean 'write-cache'?" 'write_cache off'
in_store 22 "no logical unit parameter is called 'MaxXmitDataSegmentLength'" 'params MaxXmitDataSegmentLength=8192'
in_target 22 "MaxXmitDataSegmentLength cannot be '5': it is 512 to 16777215" 'MaxXmitDataSegmentLength 5'
in_store 22 "no logical unit parameter is called 'bogus'" 'params bogus=1'
wrong 22 2 "bsopts are cache=none" '<target iqn.x:a>' "	<backing-store $dir/disk>" '		bsopts cache=maybe' '	</backing-store>' '</target>'

# A store that is not there is left out, as ever, but not in silence.
printf '%s\n' '<target iqn.x:a>' "	backing-store $dir/disk" "	backing-store $dir/missing" '	MaxQueueCmd 4' '</target>' >"$conf"
admin -e
is "a store that is not there is left out" test "$rc" = 0
is "... which is said with its place" has_line "tgt-admin: $conf:3: Skipping device: $dir/missing"
is "... and why" has "$dir/missing does not exist - please check the configuration file"
adm --op show --mode target
is "... and the other is there" has "Backing store path: $dir/disk"

adm --op show --mode target --tid 1
is "MaxQueueCmd is shown" has_line MaxQueueCmd=4
adm --op show --mode system --name config
is "... and in the configuration that is written out" has "MaxQueueCmd 4"
# The windows that a session is shown: in its login's answers and after it
out=$(python3 - "$port" <<'END'
import struct, sys
sys.path.insert(0, 'tests/support')
sys.dont_write_bytecode = True
from iscsi_peer import Peer

class P(Peer):
    def recv(self):
        head, data = super().recv()
        exp, most = struct.unpack('>II', head[28:36])
        print(most - exp + 1)
        return head, data

Peer.address, Peer.target = ('127.0.0.1', int(sys.argv[1])), 'iqn.x:a'
p = P()
p.login_step(0, 1, p.names() + ['AuthMethod=None'])
p.login_step(1, 3, [])
p.out(p.command(b'', 0x80))
p.wait_status(p.itt - 1)
END
)
is "a session's window is of that size, from its login on" test "$out" = $'4\n4\n4'
adm --op update --mode target --tid 1 --name MaxQueueCmd --value 0
is "a session without commands is refused" refused "invalid request"
adm --op update --mode target --tid 1 --name MaxQueueCmd --value ""
adm --op show --mode target --tid 1
is "without a value it is the default again" has_line MaxQueueCmd=128
finish
