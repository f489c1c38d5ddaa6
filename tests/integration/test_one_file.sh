#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# U8: one file says all. Everything that tgtadm sets in a running daemon is in `tgt-admin --dump`, and
# -e of that file makes a new daemon the same, byte for byte. --update adds, changes and removes
# portals, settings of the cache and of the daemon, and accounts; a second run has nothing to do;
# --pretend tells the same.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
conf=$dir/t.conf
for i in 1 2 3 4; do truncate -s 16M "$dir/disk$i"; done
read -r p2 p3 p4 < <(PYTHONPATH=tests/support python3 -B -c 'from ports import free_port
ports = set()
while len(ports) < 3: ports.add(free_port())
print(*ports)')

admin() {
	out=$("$bin/tgt-admin" -c "$conf" "$@" 2>&1)
	rc=$?
}
code() { [ "$rc" = "$1" ]; }
dump() { "$bin/tgt-admin" --dump; }
portals() { "$bin/tgtadm" -o show -m portal | sed 's/^Portal: //' | sort | tr '\n' ' '; }
listens() {
	out=$(portals)
	[ "$out" = "$([ $# = 0 ] || printf '%s\n' "$@" | sort | tr '\n' ' ')" ]
}
cache_line() { "$bin/tgtadm" -o show -m cache | sed -n "s/^ *$1: //p"; }
settled() {
	admin --update ALL -v
	is "... and a second run has nothing to do" said 0 ""
	admin --update ALL -p
	is "... nor has --pretend" said 0 ""
}
set_it() {
	adm "$@"
	is "set: $*" done_silently
}
same() {
	diff "$1" "$2" >"$dir/differs"
	local rc=$?
	out=$(cat "$dir/differs")
	return $rc
}

daemon_start ours
first=127.0.0.1:$port,1
(umask 077 && echo secret-of-a-file >"$dir/secret" && echo secret-of-another >"$dir/secret2")

# ---- nothing is set: nothing is said
dump >"$conf"
is "a daemon where nothing was set has nothing to say" test "$(grep -c . "$conf")" = 1

# ---- everything that tgtadm can set
set_it --mode portal --op new --params "portal=127.0.0.1:$p2,2"
set_it --mode portal --op new --params "portal=127.0.0.1:$p3"
set_it --mode portal --op new --params "portal=127.0.0.1:$p4"
set_it --mode portal --op delete --params "portal=127.0.0.1:$p4"
set_it --mode cache --op update --name affinity --value inline
set_it --mode cache --op update --name threshold --value 64k
size=$(cache_line Size)
size=$((${size% MiB} + 16))m
set_it --mode cache --op update --params size=$size
for pair in weak_secrets=refuse default-mask=none debug=on latency_initiators=on State=offline \
	iSNSServerIP=127.0.0.1 \
	iSNSServerPort=3999 iSNSAccessControl=On iSNS=On; do
	set_it --mode sys --op update --name "${pair%=*}" --value "${pair#*=}"
done
set_it --mode lld --op stop --lld iser
for user in disc odisc loose in1 in2 out1; do
	set_it --mode account --op new --user $user --password-file "$dir/secret"
done
set_it --mode account --op update --user in2 --password-file "$dir/secret2"
set_it --mode account --op bind --user disc
set_it --mode account --op bind --user odisc --outgoing
set_it --mode target --op new --tid 7 -T iqn.2026-11.org.example:all
set_it --mode target --op new --tid 3 -T iqn.2026-11.org.example:plain
set_it --mode target --op new --tid 5 -T iqn.2026-11.org.example:nobody
set_it --mode account --op bind --tid 7 --user in1
set_it --mode account --op bind --tid 7 --user in2 -Q iqn.2026-11.org.example:two
set_it --mode account --op bind --tid 7 --user in2 -Q iqn.2026-11.org.example:three
set_it --mode account --op bind --tid 7 --user out1 --outgoing
set_it --mode target --op bind --tid 7 -I 10.0.0.0/8
set_it --mode target --op bind --tid 7 -I fe80::/10
set_it --mode target --op bind --tid 7 -I '[2001:db8::1]'
set_it --mode target --op bind --tid 7 -I '[2001:db8:1::]/48'
set_it --mode target --op bind --tid 7 -Q iqn.2026-11.org.example:two
set_it --mode target --op bind --tid 7 -Q iqn.2026-11.org.example:three --expose 1,3-5
set_it --mode target --op bind --tid 7 --portal "127.0.0.1:$p2"
set_it --mode target --op bind --tid 7 --portal "127.0.0.1:$port"
set_it --mode target --op bind --tid 3 -I ALL
limits=iops_limit=500,bandwidth_limit=20M,bandwidth_burst=1G
set_it --mode target --op update --tid 7 -Q iqn.2026-11.org.example:three \
	--params ${limits%,*}
set_it --mode target --op update --tid 7 -Q iqn.2026-11.org.example:THREE --params ${limits##*,}
set_it --mode target --op update --tid 7 -Q iqn.2026-11.org.example:four --params read_iops_limit=9
key() { set_it --mode target --op update --tid 7 --name "$1" --value "$2"; }
for pair in MaxRecvDataSegmentLength=16384 HeaderDigest=CRC32C DataDigest=CRC32C,None InitialR2T=No \
	MaxOutstandingR2T=4 ImmediateData=No FirstBurstLength=32768 MaxBurstLength=131072 \
	ErrorRecoveryLevel=1 DefaultTime2Wait=3 DefaultTime2Retain=4 MaxConnections=2 MaxQueueCmd=32 \
	nop_interval=9 nop_count=8 data_out_timeout=7 RedirectAddress=127.0.0.1 RedirectPort=3299 \
	RedirectReason=Permanent allow_target_reset=Yes allow_explicit_alua=Yes default-mask=all \
	"alua_groups=2=2" "alua_state=1=standby;2=active-non-optimized" alua_preferred=2 \
	alua_transition_time=5 state=offline; do
	key "${pair%%=*}" "${pair#*=}"
done
lun() {
	local lun=$1
	shift
	set_it --mode logicalunit --op new --tid 7 --lun "$lun" "$@"
}
param() { set_it --mode logicalunit --op update --tid 7 --lun "$1" --params "$2"; }
lun 1 -b "$dir/disk1" --bsopts cache=write-through --bsoflags direct --blocksize 4096
for pair in scsi_id=ID-of-it naa=6000000000000000000000000000abcd scsi_sn=SN1 vendor_id=VEND \
	product_id=PRODUCT product_rev=0x1 sense_format=1 removable=1 readonly=1 online=0 swp=1 lbppbe=0 \
	la_lba=0 optimal_xfer_gran=16 optimal_xfer_len=2048 thin_provisioning=1 rotation_rate=1 \
	sanitize_rate=100 atomic_unit=0 threads=2 iops_limit=700 bandwidth_burst=1048576 \
	iops_burst=3 read_iops_limit=600 write_iops_limit=500 read_bandwidth_limit=5242880 \
	write_bandwidth_limit=6291456 \
	mode_page=10:0:10:2; do
	param 1 "$pair"
done
lun 2 -b 64m --bstype ram
lun 3 -b 64m --bstype null
lun 4
lun 5
param 5 "path=$dir/disk2"
lun 6 -b "$dir/disk3" --bstype aio
param 6 "path=$dir/disk4"
param 6 write_cache=off
adm --op show --mode system
if has nbd && command -v nbdkit >/dev/null; then
	nbdkit -f -U "$dir/nbd" memory 16M >"$dir/nbd.log" 2>&1 &
	servers=$!
	trap 'kill -9 $servers 2>/dev/null; daemon_kill; rm -rf "$dir"' EXIT
	for _ in $(seq 200); do [ -S "$dir/nbd" ] && break; sleep 0.05; done
	lun 7 -b "nbd+unix:///?socket=$dir/nbd" --bstype nbd
else
	echo "ok a store of nbd # SKIP nbdkit is not installed, or there is no libnbd"
fi

dump >"$dir/one"
dump >"$dir/again"
is "two dumps are the same" same "$dir/one" "$dir/again"
is "no secret is in it" not grep -q "secret-of" "$dir/one"
for line in "portal 127.0.0.1:$p2,2" "portal 127.0.0.1:$p3,1" "cache-affinity inline" \
	"cache-threshold 64k" "cache-size $size" "debug on" "latency_initiators on" "state offline" \
	"stopped-driver iser" "	initiator-limit iqn.2026-11.org.example:three $limits" \
	"account-file loose $dir/secret"; do
	is "it says '$line'" grep -qxF "$line" "$dir/one"
done
[ -z "${servers:-}" ] || is "it says where the other server is" \
	grep -qxF "	<backing-store nbd+unix:///?socket=$dir/nbd>" "$dir/one"
is "it does not say the portal that went" not grep -q ":$p4" "$dir/one"
before=$(portals)
cp "$dir/one" "$conf"
admin -e
is "the file changes nothing where it comes from: -e" code 0
settled
is "the daemon ends" daemon_stop
daemon_start ours
is "a new one has its own portal" listens "$first"
admin -e -p
is "--pretend asks for a whole file" code 0
printf '%s\n' "$out" >"$dir/pretended"
is "... and changes nothing" listens "$first"
admin -e -v
is "-e of the dump" code 0
out=$(printf '%s\n' "$out" | diff - "$dir/pretended")
is "... does what --pretend has told" test -z "$out"
dump >"$dir/two"
is "U8: two exports are the same, byte for byte" same "$dir/one" "$dir/two"
is "... it listens where the first one did" test "$(portals)" = "$before"
is "... and the cache does what it did" test "$(cache_line Affinity)" = inline
out=$(cache_line Resize)$(cache_line Size)
is "... in as much memory, or soon" test "${out#*${size%m} MiB}" != "$out"
settled
admin --update ALL --force
dump >"$dir/two"
is "... --force changes nothing, either" same "$dir/one" "$dir/two"

# ---- capitals make no other name
sed -i -e '/bind-user/s/:three/:Three/' -e '/initiator-limit/s/:three/:Three/' "$conf"
settled
cp "$dir/one" "$conf"

# ---- an account whose password nobody can tell is named, and no more
adm --mode account --op new --user typed --password secret-typed-in
dump >"$dir/two"
is "a password that was typed in is left out" not grep -q secret-typed "$dir/two"
is "... by its name" grep -qxF "account typed" "$dir/two"
cp "$conf" "$dir/good"
cp "$dir/two" "$conf"
admin --update ALL -v
is "... and a file that only names it leaves it alone" said 0 ""
sed -i 's/^account typed$/& secret-typed-in/' "$conf"
admin --update ALL -v
is "... with its password" said 0 ""
cp "$dir/good" "$conf"
adm --mode account --op new --user "two words" --password secret-of-two
dump >"$dir/two"
is "a name with blanks would be read as a name and a password: it is left out" \
	not grep -q "^account two" "$dir/two"
is "... which is said" grep -qx "# left out, .* two words" "$dir/two"
admin --update ALL
is "... an account that the file does not name goes, since it names others" code 0
adm --mode account --op show
is "... and is gone" not has typed
settled

# ---- words come, change and go
line() { sed -i "s#$1#$2#" "$conf"; }
line "^portal 127.0.0.1:$p3,1" "portal 127.0.0.1:$p3,9"
admin --update ALL
is "a portal gets another tag" code 0
is "... it has it" listens "$first" "127.0.0.1:$p2,2" "127.0.0.1:$p3,9"
settled
line "^portal 127.0.0.1:$p3,9" "portal 127.0.0.1:$p4"
admin --update ALL
is "one comes, one goes" code 0
is "... so it is" listens "$first" "127.0.0.1:$p2,2" "127.0.0.1:$p4,1"
settled
line "^portal 127.0.0.1:$p4" "portal 0.0.0.0:$p4"
admin --update ALL
is "all addresses take the place of one, on its port" code 0
is "... so it is" listens "$first" "127.0.0.1:$p2,2" "0.0.0.0:$p4,1"
settled
line "^portal 0.0.0.0:$p4" "portal :$p4"
admin --update ALL
is "all addresses of both families, in a word" code 0
settled
line "^cache-affinity.*" "cache-affinity off"
line "^cache-threshold.*" "cache-threshold 128k"
line "^debug.*" "debug off"
line "^state.*" "state ready"
admin --update ALL
is "settings change" code 0
is "... of the cache" test "$(cache_line Affinity)" = off
adm --mode sys --op show
is "... of the daemon" has_line "    State: ready"
settled
for word in cache-affinity cache-threshold cache-size stopped-driver weak_secrets default-mask \
	latency_initiators; do
	sed -i "/^$word /d" "$conf"
done
admin --update ALL
is "settings go back to how the daemon began" code 0
is "... of the cache" test "$(cache_line Affinity)" = auto
adm --mode lld --op show
is "... a driver" not has stopped
settled
line "^account-file loose .*" "account-file other $dir/secret2"
admin --update ALL
is "an account comes, and one goes" code 0
adm --mode account --op show
is "... the one" has other
is "... and the other" not has loose
settled
sed -i "s#^account-file other .*#account other another-secret-1#" "$conf"
admin --update ALL
is "an account gets another password" code 0
settled
sed -i -e '/incominguser-file in1 /d' "$conf"
admin --update ALL
is "an account of a target goes with its line" code 0
adm --mode account --op show
is "... altogether" not has in1
settled

# ---- what the file does not speak of
sed -i -e '/^portal /d' -e '/^account /d' -e '/^state /d' -e '/^debug /d' "$conf"
adm --mode account --op new --user agents --password secret-of-agent
adm --mode sys --op update --name State --value offline
before=$(portals)
settled
is "a file without portals leaves them alone, as tgt's tools do" test "$(portals)" = "$before"
adm --mode account --op show
is "... and accounts" has agents
adm --mode sys --op show
is "... and the state" has "State: offline"

# ---- what cannot be
wrong() {
	cp "$conf" "$dir/good"
	printf '%s\n' "$3" >>"$conf"
	before=$(dump)
	admin --update ALL
	is "$3" code "$1"
	is "... for that" has "$2"
	really=$rc:$out
	admin --update ALL -p
	is "... --pretend says the same" test "$rc:$out" = "$really"
	is "... and nothing is changed" test "$(dump)" = "$before"
	cp "$dir/good" "$conf"
}
wrong 1 "portal is an address with or without a port" "portal 127.0.0.1:99999"
wrong 1 "the portal at 127.0.0.1:$p2 is given twice" "portal 127.0.0.1:$p2
portal 127.0.0.1:$p2,4"
wrong 1 "portal NONE beside others" "portal NONE
portal 127.0.0.1:$p2"
wrong 22 "Cannot assign requested address" "portal 192.0.2.77:$p2"
wrong 1 "cache-affinity is auto, forward, send, inline or off, not 'maybe'" "cache-affinity maybe"
wrong 1 "cache-threshold is bytes" "cache-threshold much"
wrong 1 "cache-size is bytes" "cache-size 64q"
wrong 22 "$conf:$(($(grep -c '' "$conf") + 1)): more than there is room for" "cache-size 900t"
wrong 1 "state is ready or offline, not 'asleep'" "state asleep"
wrong 1 "debug is on or off, not '2'" "debug 2"
wrong 1 "stopped-driver iscsi: target iqn.2026-11.org.example:all uses it" "stopped-driver iscsi"
wrong 1 "user twice has two passwords" "account twice secret-number-1
incomingdiscoveryuser twice secret-number-2"

# ---- nowhere, and back
echo "portal NONE" >>"$conf"
admin --update ALL
is "portal NONE: the daemon listens nowhere" listens
settled
dump >"$dir/two"
is "... which is dumped" grep -qx "portal NONE" "$dir/two"
sed -i "s/^portal NONE/portal ${first%,*}/" "$conf"
admin --update ALL
is "... and here again" listens "$first"
settled
is "the daemon ends" daemon_stop
is "nothing was reported" no_report

# ---- under a session
daemon_start ours
file() { # PORTALS...
	printf 'portal %s\n' "$@" >"$conf"
	printf '<target iqn.2026-11.org.example:a>\n\tbacking-store %s\n</target>\n' "$dir/disk1" >>"$conf"
}
file "127.0.0.1:$port" "127.0.0.1:$p2"
admin --update ALL
is "a target, and a portal more" code 0
python3 -B tests/integration/reader.py "$p2" iqn.2026-11.org.example:a >/dev/null 2>&1 &
reader=$!
trap 'kill -9 $reader ${servers:-} 2>/dev/null; daemon_kill; rm -rf "$dir"' EXIT
for _ in $(seq 600); do
	adm --mode conn --op show --tid 1
	[ -n "$out" ] && break
	sleep 0.05
done
before=$out
is "somebody logs in there" test -n "$before"
file "127.0.0.1:$port"
admin --update ALL
is "that portal closes" listens "$first"
adm --mode conn --op show --tid 1
is "... and the session stays" test "$out" = "$before"
is "... and reads on" kill -0 $reader
kill -9 $reader
wait $reader 2>/dev/null
is "the daemon ends" daemon_stop

# ---- accounts that are only named, and a daemon that does not have them
daemon_start ours
echo "account typed" >"$conf"
says="tgt-admin: $conf:1: account typed is not there, and is not made: the line has no password"
admin -e
is "-e goes on without an account whose password is not said" said 0 "$says"
admin --update ALL
is "... --update is not done" said 3 "$says"
admin --update ALL -p
is "... nor --pretend" said 3 "# ${says##*:1: }"
printf '<target iqn.2026-11.org.example:a>\n\tincominguser typed secret-of-typed\n</target>\n' >>"$conf"
admin --update ALL
is "... unless another line has it" said 0 ""
settled
is "the daemon ends" daemon_stop

# ---- without a cache
daemon_start ours --cache off
printf 'cache-affinity inline\n' >"$conf"
admin -e
is "settings of a cache that there is not: refused" code 22
is "... for that" has "$conf:1: the daemon runs without a cache"
finish
