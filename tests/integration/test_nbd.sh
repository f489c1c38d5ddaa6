#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Stores of bstype nbd, of servers that we did not write (qemu-nbd, nbdkit): data, FUA and flush,
# extents, sizes, read-only exports, TLS; a server that is killed, stopped, or forgets; refusals.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
for p in qemu-nbd nbdkit qemu-io; do
	command -v $p >/dev/null || { echo "ok nbd # SKIP no $p"; exit 0; }
done
iqn=iqn.2026-11.org.tgtd.test:nbd
servers=
trap 'kill -CONT $servers 2>/dev/null; kill -9 $servers 2>/dev/null; daemon_kill; rm -rf "$dir"' EXIT
await() { for _ in $(seq 200); do [ -S "$1" ] && return; sleep 0.05; done; }
qemu() { # NAME: serves $dir/NAME.qcow2 at $dir/NAME
	rm -f "$dir/$1"
	qemu-nbd -f qcow2 -k "$dir/$1" -x disk -e 4 --persistent --discard=unmap "$dir/$1.qcow2" \
		>"$dir/$1.log" 2>&1 &
	server=$!
	servers="$servers $server"
	await "$dir/$1"
}
kit() { # NAME ARGS...: nbdkit in the foreground
	local name=$1
	shift
	rm -f "$dir/$name"
	nbdkit -f -U "$dir/$name" "$@" >"$dir/$name.log" 2>&1 &
	server=$!
	servers="$servers $server"
	await "$dir/$name"
}
at() { echo "nbd+unix:///${2-}?socket=$dir/$1"; }
lu() { # LUN URI [OPTIONS...]
	local lun=$1 uri=$2
	shift 2
	adm --op new --mode logicalunit --tid 1 --lun "$lun" --bstype nbd -b "$uri" "$@"
}
peer() { out=$(python3 tests/integration/nbd.py "$port" $iqn "$@" 2>&1); rc=$?; }
prints() { said 0 "$1"; }
so_far() { [ -s "$dir/enough.n" ] && cat "$dir/enough.n" || echo 0; }
further() { # N: until the reader has done that many more
	local from
	from=$(so_far)
	for _ in $(seq 600); do
		[ "$(so_far)" -ge $((from + $1)) ] && return
		sleep 0.05
	done
}
log_has() { out=$(cat "$dir/log"); has "$1"; }

daemon_start ours
adm --op show --mode system
has nbd || { echo "ok nbd # SKIP built without libnbd"; exit 0; }
adm --op new --mode target --tid 1 -T $iqn
adm --op bind --mode target --tid 1 -I ALL
adm --op new --mode logicalunit --tid 1 --lun 9 --bstype ram -b 64m

echo "# what is refused"
lu 1 /dev/null
is "a path that is no URI" refused "invalid request"
lu 1 nbd://127.0.0.1:1/disk
is "a server that is not there" refused "invalid request"
is "... with a reason" log_has "Connection refused"
lu 1 nbd+vsock://2:10809/disk
is "a transport that is not for it" refused "invalid request"

echo "# a qcow2 of qemu-nbd"
qemu-img create -q -f qcow2 "$dir/a.qcow2" 64M
qemu a
lu 1 "$(at a nothing)"
is "an export that is not there" refused "invalid request"
lu 1 "$(at a disk)"
is "a unit" done_silently
lu 2 "$(at a disk)"
is "the same export is not served twice" refused "invalid request"
is "... and who has it is said" log_has "target 1, LUN 1 has it open for writing"
adm --op show --mode target
is "its type and size are shown" has "Backing store type: nbd"
adm --op update --mode logicalunit --tid 1 --lun 1 --params thin_provisioning=1
peer write 1 first
is "blocks are written, then synced" prints 0
peer check 1 first
is "... and read back" prints same
adm --op new --mode logicalunit --tid 1 --lun 2 --bstype nbd -b "$(at a disk)" --bsopts share=yes
is "... unless the second says that it shares" done_silently
adm --op delete --mode logicalunit --tid 1 --lun 2
peer extents 1
first=$out
has_hole() { awk '$2 == 1 {hole = 1} $2 == 0 {data = 1} END {exit !(hole && data)}' <<<"$first"; }
is "its extents are known: some mapped, some not" has_hole
peer unmap 1
is "a range is unmapped" prints 0
adm --op delete --mode logicalunit --tid 1 --lun 1
is "the unit goes" done_silently
out=$(python3 - "$dir/a.raw" <<'PYTHON'
import random, sys
r = random.Random('first')
with open(sys.argv[1], 'wb') as f:
    f.truncate(64 << 20)
    for lba in r.sample(range(0, 64 << 10, 8), 256):
        data = r.randbytes(4096)
        if lba >= 2048:
            f.seek(lba * 512)
            f.write(data)
PYTHON
)
kill "$server"
wait "$server" 2>/dev/null
out=$(qemu-img compare -f raw "$dir/a.raw" -F qcow2 "$dir/a.qcow2" 2>&1)
is "what the image has is what was written" has "identical"

echo "# without the cache, by a server without FUA"
truncate -s 64M "$dir/b.img"
eval_b=(eval get_size="stat -c %s $dir/b.img" can_write='exit 0' can_flush='exit 0'
	can_fua='echo none'
	flush="echo >>$dir/flushes; ! rm $dir/flush-fails 2>/dev/null || { echo EIO failed >&2; exit 1; }"
	pread="dd iflag=skip_bytes,count_bytes if=$dir/b.img skip=\$4 count=\$3 status=none"
	pwrite="dd oflag=seek_bytes conv=notrunc of=$dir/b.img seek=\$4 status=none")
kit b "${eval_b[@]}"
lu 1 "$(at b)" --bsopts cache=none
peer write 1 second
is "blocks are written" prints 0
peer fua 1
is "... with FUA, too" prints 0
is "... by flushes" test "$(wc -l <"$dir/flushes")" -ge 2
peer check 1 second
is "... and read back" prints same
"$bin/tgtadm" --op watch --mode system --name store >"$dir/events" 2>&1 &
watcher=$!
events_have() {
	for _ in $(seq 200); do
		out=$(cat "$dir/events")
		has "$1" && return
		sleep 0.1
	done
	return 1
}
is "somebody watches stores" events_have watching
touch "$dir/flush-fails"
peer sync 1
is "a flush that fails once is told" prints 2
is "... also to who watches" events_have "store what=doubtful text=nbd+unix:"
peer sync 1
is "... and every SYNC after it: the server says it once" prints 2
adm --op update --mode logicalunit --tid 1 --lun 1 --params refresh=1
peer sync 1
is "... until somebody has looked" prints 0
is "... which is told, too" events_have "store what=trusted text=nbd+unix:"
kill $watcher
wait $watcher 2>/dev/null
peer unsynced 1 second
kill -9 "$server"
wait "$server" 2>/dev/null
kit b "${eval_b[@]}"
peer fua 1
is "a server that was away: a write with FUA tells of its own data" prints 0
peer sync 1
is "... the SYNC that what was before it may be lost" prints 2
adm --op delete --mode logicalunit --tid 1 --lun 1

echo "# a slow server"
kit g --filter=delay memory size=64M delay-read=10ms
lu 1 "$(at g)" --bsopts cache=none
peer write 1 slow
peer check 1 slow
is "it is served" prints same
adm --op latency --mode logicalunit --tid 1 --lun 1
# tgt lun class figure count mean p50 ...: most reads take the store that long
is "... and its time is the store's" awk '
	$3 == "read" && $4 == "store" { store = $7 }
	$3 == "read" && $4 == "total" { total = $7 }
	END { exit !(store >= 9400 && store > total / 2) }' <<<"$out"
adm --op delete --mode logicalunit --tid 1 --lun 1

echo "# read-only, other sizes"
truncate -s 16M "$dir/c.img"
kit c -r file "$dir/c.img"
lu 1 "$(at c)"
adm --op show --mode target
is "an export that can only be read is a read-only unit" has "Readonly: Yes"
adm --op delete --mode logicalunit --tid 1 --lun 1
kit d file "$dir/c.img"
lu 1 "$(at d)"
truncate -s 24M "$dir/c.img"
adm --op update --mode logicalunit --tid 1 --lun 1 --params refresh=1
adm --op update --mode logicalunit --tid 1 --lun 1 --params refresh=1
peer capacity 1
is "what has grown is seen by refresh=1" prints 25165824
adm --op delete --mode logicalunit --tid 1 --lun 1

echo "# a server that is killed, and comes back"
qemu-img create -q -f qcow2 "$dir/e.qcow2" 64M
for how in "" "--bsopts cache=none"; do
	qemu e
	# shellcheck disable=SC2086
	lu 1 "$(at e disk)" $how
	rm -f "$dir/enough"*
	python3 tests/integration/nbd.py "$port" $iqn through 1 "seed$how" "$dir/enough" >"$dir/through" 2>&1 &
	reader=$!
	for _ in 1 2 3; do
		further 30
		kill "$server"
		wait "$server" 2>/dev/null
		sleep 0.3
		qemu e
	done
	further 10
	: >"$dir/enough"
	wait $reader
	rc=$?
	out=$(cat "$dir/through")
	is "three times under load ${how:-(cached)}: nothing wrong is read" test "$rc" = 0
	peer sync 1
	if [ -n "$how" ]; then
		is "... it may have lost what it had not synced: SYNC fails" prints 2
		adm --op update --mode logicalunit --tid 1 --lun 1 --params refresh=1
		peer sync 1
		is "... until somebody has looked" prints 0
	fi
	adm --op delete --mode logicalunit --tid 1 --lun 1
	kill "$server"
	wait "$server" 2>/dev/null
done
log_has "connected again"
is "the log tells of it" log_has "connected again"

echo "# a server that answers no more"
kit f memory size=64M
lu 1 "$(at f)"
peer write 1 third
"$bin/tgtadm" --op watch --mode system --name store >"$dir/events" 2>&1 &
watcher=$!
is "somebody watches stores again" events_have watching
kill -STOP "$server"
python3 tests/integration/nbd.py "$port" $iqn through 1 fourth "$dir/enough" >"$dir/through" 2>&1 &
reader=$!
sleep 0.3
began=$(date +%s%N)
peer write 9 fifth
is "other units are served" prints 0
adm --op show --mode target
is "... and the administrator" test "$rc" = 0
lu 3 "$(at f)"
is "a second unit of it is refused after a time" refused "invalid request"
out=$((($(date +%s%N) - began) / 1000000))
is "... within 30 s" test "$out" -lt 30000
is "that it hangs is told to who watches" events_have "store what=hanging text=nbd+unix:"
kill -CONT "$server"
wait $reader
rc=$?
out=$(cat "$dir/through")
is "when it goes on, so does what waited for it" test "$rc" = 0
is "... which is told, too" events_have "store what=answering text=nbd+unix:"
kill $watcher
wait $watcher 2>/dev/null
kill -9 "$server"
adm --op delete --mode logicalunit --tid 1 --lun 1
is "a unit whose server is gone can be deleted" test "$rc" = 0

echo "# servers that misbehave"
bad() { # HOW
	python3 tests/integration/bad_nbd.py "$dir/bad-$1" "$1" >"$dir/bad.log" 2>&1 &
	server=$!
	servers="$servers $server"
	await "$dir/bad-$1"
}
for how in empty blocks huge; do
	bad $how
	lu 1 "$(at bad-$how)"
	is "$how: refused" refused "invalid request"
done
bad odd
lu 1 "$(at bad-odd)"
peer capacity 1
is "odd: what fills no block stays unused" prints 512
adm --op delete --mode logicalunit --tid 1 --lun 1
for how in garbage stranger short errors; do
	bad $how
	lu 1 "$(at bad-$how)" --bsopts cache=none
	peer sync 1
	peer write 1 nine
	peer check 1 nine
	is "$how: a unit has errors" test "$rc" != 0
	peer write 9 fifth
	is "... others are served" prints 0
	adm --op delete --mode logicalunit --tid 1 --lun 1
	is "... and it can be deleted" done_silently
done

listens() { : <"/dev/tcp/127.0.0.1/$tcp"; } 2>/dev/null
tcp_server() { # COMMAND..., in which PORT is the port: $tcp
	for _ in 1 2 3 4 5; do # somebody may have taken the port
		tcp=$(pick_port)
		"${@//PORT/$tcp}" >"$dir/tcp.log" 2>&1 &
		server=$!
		servers="$servers $server"
		for _ in $(seq 200); do
			listens || ! kill -0 $server 2>/dev/null && break
			sleep 0.05
		done
		kill -0 $server 2>/dev/null && break
	done
}

echo "# TCP"
tcp_server nbdkit -f -i 127.0.0.1 -p PORT -e disk memory size=64M
for how in "" "--bsopts cache=none"; do
	# shellcheck disable=SC2086
	lu 1 "nbd://127.0.0.1:$tcp/disk" $how
	is "nbd:// is served ${how:-(cached)}" done_silently
	adm --op update --mode logicalunit --tid 1 --lun 1 --params thin_provisioning=1
	peer scatter 1
	is "... 256 ranges are unmapped at once, and nothing else" prints right
	adm --op show --mode target
	is "... by its name" has "Backing store path: nbd://127.0.0.1:$tcp/disk"
	peer write 1 "tcp$how"
	is "... blocks are written, then synced" prints 0
	adm --op delete --mode logicalunit --tid 1 --lun 1
	lu 1 "nbd://127.0.0.1:$tcp/disk"
	peer check 1 "tcp$how"
	is "... the server has them" prints same
	adm --op delete --mode logicalunit --tid 1 --lun 1
done

echo "# TLS"
if command -v psktool >/dev/null && nbdkit --dump-config | grep -q tls=yes; then
	psktool -u tgtd -p "$dir/psk" >/dev/null 2>&1
	kit g --tls=require --tls-psk="$dir/psk" memory size=64M
	lu 1 "nbds+unix://tgtd@/?socket=$dir/g&tls-psk-file=$dir/psk"
	is "a server that wants TLS" done_silently
	peer write 1 sixth
	peer check 1 sixth
	is "... serves by it" prints same
	lu 2 "$(at g)"
	is "... and nobody without" refused "invalid request"
	adm --op delete --mode logicalunit --tid 1 --lun 1
else
	echo "ok a server that wants TLS # SKIP no psktool"
fi

echo "# TLS by certificates"
ca() { # NAME: an authority in $dir/NAME
	mkdir -p "$dir/$1"
	printf 'cn = "authority %s"\nca\ncert_signing_key\ncrl_signing_key\nexpiration_days = 2\n' "$1" >"$dir/ca.in"
	certtool -p --ecc --outfile "$dir/$1/ca-key.pem" &&
		certtool -s --load-privkey "$dir/$1/ca-key.pem" --template "$dir/ca.in" \
			--outfile "$dir/$1/ca-cert.pem"
}
certificate() { # CA DIR server|client LINE [LINE...]: what it says who that is, and until when
	mkdir -p "$dir/$2"
	cp "$dir/$1/ca-cert.pem" "$dir/$2/"
	{
		printf 'cn = "%s"\ntls_www_%s\nsigning_key\n' "$3" "$3"
		printf '%s\n' "${@:4}"
		[ $# -gt 4 ] || echo 'expiration_days = 2'
	} >"$dir/cert.in"
	certtool -p --ecc --outfile "$dir/$2/$3-key.pem" &&
		certtool -c --load-privkey "$dir/$2/$3-key.pem" --template "$dir/cert.in" \
			--load-ca-certificate "$dir/$1/ca-cert.pem" --load-ca-privkey "$dir/$1/ca-key.pem" \
			--outfile "$dir/$2/$3-cert.pem"
}
by() { # FOLDER: what the daemon knows
	lu 1 "nbds://127.0.0.1:$tcp/disk?tls-certificates=$dir/$1"
}
serves_by() { # SEED: the unit is LUN 1, and goes
	peer write 1 "$1"
	peer check 1 "$1"
	prints same
	rc=$?
	adm --op delete --mode logicalunit --tid 1 --lun 1
	return $rc
}
refused_since() { # WORDS: ... with that reason
	out=$(grep "nbds://127.0.0.1:$tcp/.*: cannot be connected to: " "$dir/log" | tail -1)
	has "$1"
}
certified() { # COMMAND...: nbdkit, with certificates
	tcp_server nbdkit -f -i 127.0.0.1 -p PORT -e disk --tls=require "$@" memory size=64M
}
if ! command -v certtool >/dev/null; then
	echo "ok a server with a certificate # SKIP no certtool (gnutls-bin)"
elif ! nbdkit --dump-config | grep -q tls=yes; then
	echo "ok a server with a certificate # SKIP nbdkit without TLS"
else
	{
		ca ours && ca others &&
			certificate ours server server 'ip_address = "127.0.0.1"' &&
			certificate ours elsewhere server 'ip_address = "192.0.2.1"' &&
			certificate ours client client 'dns_name = "tgtd"' &&
			certificate ours expired server 'ip_address = "127.0.0.1"' \
				'activation_date = "2020-01-01"' 'expiration_date = "2021-01-01"' &&
			mkdir "$dir/revoked" "$dir/mixed" && cp "$dir/ours/ca-cert.pem" "$dir/revoked" &&
			printf 'crl_next_update = 30\ncrl_number = 1\n' >"$dir/crl.in" &&
			certtool --generate-crl --template "$dir/crl.in" \
				--load-ca-privkey "$dir/ours/ca-key.pem" \
				--load-ca-certificate "$dir/ours/ca-cert.pem" \
				--load-certificate "$dir/server/server-cert.pem" \
				--outfile "$dir/revoked/ca-crl.pem" &&
			cp "$dir/client/"* "$dir/mixed" &&
			cp "$dir/server/server-key.pem" "$dir/mixed/client-key.pem"
	} >"$dir/certtool.log" 2>&1
	is "certificates are made" test $? = 0
	certified --tls-certificates="$dir/server"
	by ours
	is "a server with a certificate" done_silently
	is "... serves by it" serves_by seventh
	by others
	is "another authority: refused" refused "invalid request"
	is "... with a reason" refused_since "Error in the certificate verification"
	is "... that says what it may be" refused_since "expired, is revoked, for another name, or not of an authority"
	by revoked
	is "one that is revoked (ca-crl.pem): refused" refused "invalid request"
	is "... with a reason" refused_since "expired, is revoked, for another name"
	by mixed
	is "a certificate of ours with another key: refused" refused "invalid request"
	is "... with the whole reason" refused_since "/mixed/client-key.pem: "
	by nothing
	is "no authority: refused" refused "invalid request"
	is "... with a reason" refused_since "$dir/nothing/ca-cert.pem: No such file"
	if [ ! -e /etc/pki/libnbd/ca-cert.pem ]; then
		lu 1 "nbds://127.0.0.1:$tcp/disk"
		is "... nor is the system asked" refused "invalid request"
		is "... with a reason" refused_since "needs tls-certificates="
	fi
	lu 1 "nbd://127.0.0.1:$tcp/disk"
	is "without TLS: refused" refused "invalid request"
	certified --tls-certificates="$dir/elsewhere"
	by ours
	is "a certificate of another address: refused" refused "invalid request"
	is "... with a reason" refused_since "Error in the certificate verification"
	certified --tls-certificates="$dir/expired"
	by ours
	is "a certificate that has expired: refused" refused "invalid request"
	is "... with a reason" refused_since "expired, is revoked, for another name"
	for how in nbdkit qemu-nbd; do
		if [ $how = nbdkit ]; then
			certified --tls-certificates="$dir/server" --tls-verify-peer
		else
			tcp_server qemu-nbd -b 127.0.0.1 -p PORT -x disk -f raw --persistent --tls-creds t \
				--object "tls-creds-x509,id=t,endpoint=server,dir=$dir/server,verify-peer=on" \
				"$dir/b.img"
		fi
		by ours
		is "$how asks for ours: without one it refuses" refused "invalid request"
		is "... with a reason" refused_since "it may want client-cert.pem and client-key.pem"
		by client
		is "... with it there is a unit" done_silently
		is "... which is served" serves_by eighth
	done
fi

echo "# targets.conf"
kit h memory size=16M
cat >"$dir/t.conf" <<END
<target $iqn.conf>
	<backing-store nbd+unix:///?socket=$dir/h>
		bs-type nbd
		lun 3
	</backing-store>
</target>
END
out=$("$bin/tgt-admin" -c "$dir/t.conf" -e 2>&1)
is "a file names a store of a server" done_silently
out=$("$bin/tgt-admin" --dump 2>&1)
is "... a dump, too" has "<backing-store nbd+unix:///?socket=$dir/h>"
out=$("$bin/tgt-admin" -c "$dir/t.conf" --update ALL -v 2>&1)
is "... and nothing is left to do" done_silently
adm --op stat --mode system --name guard_refused
is "no thread has asked for what it may not" has "guard_refused 0"
is "it ends with 0" daemon_stop
finish 40
