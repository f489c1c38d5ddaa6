#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Another's eyes on the wire: every kind of iSCSI traffic (wire_traffic.py, a load in all shapes of data with
# digests, what of libiscsi's suite moves little, each tool of sg3-utils, an iSNS server that asks and is asked, an
# administrator who closes connections, the daemon's end) is captured whole, and Wireshark's dissector has to
# understand each byte of it: no malformed packet, no expert error, no TCP payload that is neither iSCSI nor iSNS,
# nothing dropped by the capture. What the dissector itself gets wrong is in wire_judge.py.
#
#   TGT_WIRE_KEEP=FILE   keep the capture there
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.tgtd.test:wire
capture=
server=
trap 'kill $capture $server 2>/dev/null; daemon_kill; rm -rf "$dir"' EXIT
tool=$PWD/build/bin/tgt-load
[ -x "$tool" ] || tool=$bin/tgt-load

daemon_start ours
for tid in 1 2 3; do
	adm --op new --mode target --tid $tid -T $iqn$tid
	adm --op bind --mode target --tid $tid -I ALL
	adm --op new --mode logicalunit --tid $tid --lun 1 --bstype ram --backing-store 16m
done
adm --op update --mode logicalunit --tid 1 --lun 1 --params thin_provisioning=1
adm --op update --mode target --tid 1 --name MaxBurstLength --value 16776192
adm --op update --mode target --tid 1 --name MaxRecvDataSegmentLength --value 1048576
for user in joe:secretsecret jim:terceseecret; do
	adm --op new --mode account --user ${user%:*} --password ${user#*:}
done
adm --op bind --mode account --tid 2 --user joe
adm --op bind --mode account --tid 2 --user jim --outgoing
adm --op update --mode target --tid 1 --name allow_target_reset --value Yes
adm --op update --mode target --tid 1 --name allow_explicit_alua --value Yes
adm --op update --mode target --tid 3 --name nop_interval --value 1
adm --op update --mode target --tid 3 --name nop_count --value 3
# so many that SendTargets takes several answers
for tid in $(seq 11 40); do
	adm --op new --mode target --tid $tid -T $iqn.one-of-many-with-a-name-that-is-long.$tid
	adm --op bind --mode target --tid $tid -I ALL
done

# An iSNS server knows of all of them; where it may ask us things is known before the capture begins.
echo good >"$dir/mode"
touch "$dir/isns.log"
python3 tests/integration/isns_server.py "$dir/isns.port" "$dir/isns.log" "$dir/mode" &
server=$!
for _ in $(seq 100); do [ -s "$dir/isns.port" ] && break; sleep 0.1; done
isns_port=$(cat "$dir/isns.port")
isns() { # NAME VALUE
	adm --op update --mode system --name "$1" --value "$2"
}
isns_said() { # PATTERN
	for _ in $(seq 100); do
		cat "$dir/isns.log" "$dir/isns.log.more" 2>/dev/null | grep -qE "$1" && return
		sleep 0.1
	done
	out=$(tail -3 "$dir/isns.log" "$dir/isns.log.more")
	return 1
}
isns iSNSServerIP 127.0.0.1
isns iSNSServerPort "$isns_port"
isns iSNS On
is "registered with an iSNS server" isns_said "^REG .* 23=[0-9]"
entity=$(sed -nE 's/^REG .* 1=([^ ]*) 2=.*/\1/p' "$dir/isns.log" | tail -1)
ask_port=$(sed -nE 's/^REG .* 23=([0-9]*).*/\1/p' "$dir/isns.log" | tail -1)
scsi_port=$(pick_port) # of the daemon that sg3-utils speak to

pcap=${TGT_WIRE_KEEP:-$dir/wire.pcapng}
why=
if ! command -v tshark >/dev/null || ! command -v dumpcap >/dev/null; then
	why="tshark is not installed"
else
	# 256 MiB for what the disk does not take at once
	dumpcap -q -i lo -f "tcp port $port or tcp port $scsi_port or tcp port $isns_port or tcp port $ask_port" -B 256 -s 0 -w "$pcap" 2>"$dir/capture.log" &
	capture=$!
	for _ in $(seq 50); do [ -s "$pcap" ] && break; kill -0 $capture 2>/dev/null || break; sleep 0.1; done
	if ! [ -s "$pcap" ]; then
		why="no capture on lo: $(grep -v '^Running as' "$dir/capture.log" | head -1)"
		capture=
	fi
fi

python3 tests/integration/wire_traffic.py "$port" ${iqn}1 ${iqn}2 ${iqn}3 || failures=$((failures + 1))

load() { # name, options...
	local name=$1
	shift
	out=$(timeout 60 "$tool" --portal "127.0.0.1:$port" --target ${iqn}1 --lun 1 --warmup 0 --wait block --quiet --verify --range 8m \
		--read 50 --count 200 --time 10 "$@" 2>&1)
	rc=$?
	is "load: $name" test $rc = 0
}
load "small" --connections 2 --depth 16 --bs 512:20,4k:80
load "large, solicited" --connections 1 --depth 4 --bs 256k --count 12 --immediate-data No --initial-r2t Yes
load "both digests" --connections 2 --depth 8 --bs 4k:80,64k:20 --count 80 --header-digest CRC32C --data-digest CRC32C
load "unsolicited" --connections 1 --depth 8 --bs 32k --count 60 --initial-r2t No --header-digest CRC32C

if command -v iscsi-test-cu >/dev/null; then
	for test in Inquiry ModeSense6 ReadCapacity10 ReadCapacity16 ReportSupportedOpcodes TestUnitReady Mandatory NoMedia \
		ReadDefectData10 ReadDefectData12 PrinReadKeys PrinServiceactionRange PrinReportCapabilities ProutRegister \
		ProutReserve ProutClear ProutPreempt StartStopUnit ExtendedCopy.Simple ReceiveCopyResults \
		Prefetch16 iSCSIResiduals iSCSICmdSn iSCSIDataSn iSCSINop iSCSITMF; do
		timeout 60 iscsi-test-cu --dataloss -t "ALL.$test" "iscsi://127.0.0.1:$port/${iqn}1/1" >"$dir/cu.log" 2>&1
		rc=$?
		out=$(tail -20 "$dir/cu.log")
		is "libiscsi's $test" test $rc = 0
	done
fi

# Each tool of sg3-utils, on a daemon of its own.
TGT_TEST_PORT=$scsi_port TGT_BIN=$bin timeout 250 tests/integration/test_mt_sg3_utils.sh >"$dir/sg.log" 2>&1
rc=$?
out=$(grep -vE '^ok' "$dir/sg.log" | tail -20)
is "sg3-utils: $(grep -c '^ok' "$dir/sg.log") steps" test $rc = 0

# The iSNS server asks whether we live, and says that something has changed; then targets come and go, and all go.
isns_ask() { out=$(timeout 30 python3 tests/integration/isns_server.py ask "$ask_port" "$@" 2>&1); }
isns_ask esi "$entity" 127.0.0.1 "$port"
is "an ESI is answered" test "$out" = "0 as asked"
isns_ask esi someone.else 127.0.0.1 "$port"
is "... and refused" test "$out" = "9 as asked"
isns_ask scn "${iqn}2" iqn.2026-11.org.tgtd.test:somebody
is "an SCN is answered" test "$out" = "0 as asked"
is "... and the server asked what it knows" isns_said "^QRY "
isns_ask unknown
is "what is not known is answered so" test "$out" = "15 as asked"
adm --op new --mode target --tid 50 -T "${iqn}50"
is "a new target is registered" isns_said "^REG .*${iqn}50"
adm --op delete --mode target --tid 50
without_50() {
	for _ in $(seq 100); do
		tail -1 "$dir/isns.log" | grep -qv "${iqn}50" && return
		sleep 0.1
	done
	return 1
}
is "... and gone from the next registration" without_50
isns iSNS Off
is "all is taken back" isns_said "^DEREG .*$entity"

# An administrator closes a connection, then the daemon ends: each is told.
told() { # event
	python3 - "$port" ${iqn}1 "$1" "$dir/ready" <<'PY'
import struct, sys
sys.path.insert(0, 'tests/support')
sys.dont_write_bytecode = True
from iscsi_peer import Gone, Peer
Peer.address, Peer.target = ('127.0.0.1', int(sys.argv[1])), sys.argv[2]
p = Peer()
assert p.login_step(1, 3, p.names() + ['DefaultTime2Wait=3'])[None] == (0, True)
assert p.answers()
open(sys.argv[4], 'w').close()
events = []
while len(events) < len(sys.argv[3].split()):
    head, _ = p.recv()
    assert head[0] == 0x32, head[0]
    events.append('%u:%u:%u:%u' % ((head[36],) + struct.unpack('>HHH', head[38:44])))
assert p.closed_by_target()
print(*events)
sys.exit(events != sys.argv[3].split())
PY
}
await() { for _ in $(seq 100); do [ -e "$dir/ready" ] && return; sleep 0.1; done; }
rm -f "$dir/ready"
told "2:0:3:0" >"$dir/told" 2>&1 &
peer=$!
await
adm --op show --mode conn --tid 1
read -r sid cid < <(printf '%s\n' "$out" | awk '/^Session:/ { sid = $2 } /Connection:/ { print sid, $2 }')
adm --op delete --mode conn --tid 1 --sid "$sid" --cid "$cid"
is "conn delete is accepted" test "$rc" = 0
wait $peer
rc=$?
out=$(cat "$dir/told")
is "a connection that is closed is told: event 2, Time2Wait 3" test $rc = 0
rm -f "$dir/ready"
told "3:0:3:0" >"$dir/told" 2>&1 &
peer=$!
await
adm --op delete --mode target --tid 1 --force
is "a target is deleted by force" test "$rc" = 0
wait $peer
rc=$?
out=$(cat "$dir/told")
is "its sessions are told: event 3" test $rc = 0
adm --op new --mode target --tid 1 -T ${iqn}1
adm --op bind --mode target --tid 1 -I ALL
rm -f "$dir/ready"
told "1:0:0:1 3:0:3:0" >"$dir/told" 2>&1 &
peer=$!
await
is "the daemon ends with 0" daemon_stop
wait $peer
rc=$?
out=$(cat "$dir/told")
is "its end is told: event 1, then 3" test $rc = 0

if [ -n "$why" ]; then
	echo "ok what was on the wire # SKIP $why"
	exit $((failures > 0))
fi
sleep 0.5
kill -INT $capture
wait $capture
capture=
out=$(cat "$dir/capture.log")
read -r captured dropped < <(sed -n 's,^Packets received/dropped on interface .*: \([0-9]*\)/\([0-9]*\) .*,\1 \2,p' "$dir/capture.log")
echo "# ${captured:-?} packets, $(stat -c %s "$pcap") bytes, ${dropped:-?} dropped"
is "the capture is whole" test "${dropped:-1}" = 0 -a "${captured:-0}" -gt 1000

# The dissector's filter of "bogus PDUs" throws away what RFC 7143 and 7144 allow, and takes no data segment
# above 256 KiB, unless told. And an initiator's port may be one that it knows something else by.
dissect() {
	tshark -2 -n -r "$pcap" -o "iscsi.target_ports:$port,$scsi_port" -d "tcp.port==$isns_port,isns" -d "tcp.port==$ask_port,isns" -o iscsi.bogus_pdu_filter:FALSE \
		-o iscsi.bogus_pdu_max_data_len:16777216 -o tcp.reassemble_out_of_order:TRUE -o tcp.try_heuristic_first:TRUE "$@" 2>"$dir/tshark.log"
}
dissect -T fields -E separator='|' -E occurrence=a -e frame.number -e tcp.srcport -e iscsi.opcode -e iscsi.login.C \
	-e _ws.malformed -e _ws.expert.severity -e _ws.expert.message -e tcp.len -e tcp.reassembled_in \
	-e tcp.analysis.retransmission -e tcp.analysis.out_of_order -e iscsi.datasegmentlength -e scsi_sbc.opcode \
	-e tcp.payload -e isns.functionid -e tcp.dstport >"$dir/fields"
python3 tests/integration/wire_judge.py "$port,$scsi_port" "$isns_port,$ask_port" "$dir/fields" || failures=$((failures + 1))
finish 60
