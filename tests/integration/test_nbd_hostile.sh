#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What a server of bstype nbd may do to us by what it says (bad_nbd.py), and what it must not: talk without end, before it
# serves or later; end each connection; answer without data, or twice. And a server that is started again, before the worker is
# killed: what was acknowledged is not lost.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
. tests/integration/worker_lib.sh
iqn=iqn.2026-11.org.tgtd.test:nbd-hostile
servers=
trap 'kill -9 $servers 2>/dev/null; daemon_kill; rm -rf "$dir"' EXIT
at() { echo "nbd+unix:///?socket=$dir/$1"; }
lu() { # LUN URI [OPTIONS...]
	local lun=$1 uri=$2
	shift 2
	adm --op new --mode logicalunit --tid 1 --lun "$lun" --bstype nbd -b "$uri" "$@"
}
gone() { adm --op delete --mode logicalunit --tid 1 --lun "$1"; }
peer() { out=$(timeout 150 python3 -B tests/integration/nbd.py "$port" $iqn "$@" 2>&1); rc=$?; }
prints() { said 0 "$1"; }
serves() { # SOCKET COMMAND...: in the background
	local socket=$1
	shift
	"$@" >"$dir/server.log" 2>&1 &
	server=$!
	servers="$servers $server"
	for _ in $(seq 200); do
		[ -S "$dir/$socket" ] && return
		sleep 0.05
	done
}
bad() { serves "bad-$1" python3 -B tests/integration/bad_nbd.py "$dir/bad-$1" "$1"; }
ends() {
	kill -9 "$server"
	wait "$server"
} 2>/dev/null
kit() { serves "$1" nbdkit -f -U "$dir/$1" "${@:2}"; }
memory() { awk '/^VmRSS/ {print $2}' "/proc/$worker/status"; }
lines() { grep -c "$1" "$dir/log"; }

daemon_start ours
adm --op show --mode system
has nbd || { echo "ok nbd_hostile # SKIP built without libnbd"; exit 0; }
adm --op new --mode target --tid 1 -T $iqn
adm --op bind --mode target --tid 1 -I ALL

echo "# it names contexts without end"
bad talks
before=$(memory)
began=$(date +%s%N)
lu 1 "$(at bad-talks)"
is "refused" refused "invalid request"
out=$((($(date +%s%N) - began) / 1000000))
is "... before ten seconds are over" test "$out" -lt 9000
out=$(($(memory) - before))
is "... and before it has cost 32 MiB" test "$out" -lt 32768
is "... with a reason" logged "the server talks, and does not serve"
ends

echo "# it answers without data, or twice"
bad nothing
lu 1 "$(at bad-nothing)" --bsopts cache=none
peer sense 1 read
is "a READ of which nothing has come is none" prints 3/11/00
gone 1
ends
bad twice
lu 1 "$(at bad-twice)" --bsopts cache=none
peer bytes 1 0 8
is "a structured reply is read" prints 0
peer extents 1
data_first() { [ "$(head -1 <<<"$out" | cut -d' ' -f2)" = 0 ]; }
is "what has data, and then has none: there is data" data_first
gone 1
ends

echo "# it ends every connection"
bad closes
lu 1 "$(at bad-closes)" --bsopts cache=none
ends
rm "$dir/bad-closes"
serves bad-closes python3 -B tests/integration/bad_nbd.py "$dir/bad-closes" always
log_says "connected again" 20
is "it is connected to again" logged "connected again"
before=$(lines bad-closes)
sleep 4
out=$(($(lines bad-closes) - before))
is "... and not a thousand times a second" test "$out" -lt 12
gone 1
is "the unit goes" done_silently
ends

echo "# its answers do not end"
bad chunks
lu 1 "$(at bad-chunks)" --bsopts cache=none
began=$(date +%s%N)
peer sense 1 read
is "a READ fails" test "$rc $out" != "0 good"
out=$((($(date +%s%N) - began) / 1000000))
is "... though the server has not stopped for 30 s three times" test "$out" -lt 60000
is "... with a reason" logged "the server talks, and answers nothing"
gone 1
is "the unit goes" done_silently
ends

command -v nbdkit >/dev/null || { echo "ok a server that is started again # SKIP no nbdkit"; finish; }
echo "# a server is started again, then the worker is killed"
truncate -s 64M "$dir/disk"
kit 'a b' file "$dir/disk"
kit 'a c' memory 16M
lu 1 "$(at a%20b)"
peer unsynced 1 first
is "blocks are written" prints 0
lu 2 "$(at a%20c)"
is "another socket is another store, whatever its path is coded like" done_silently
gone 2
kill $servers 2>/dev/null
mv "$dir/a b" "$dir/old" # its inode stays taken
kit 'a b' file "$dir/disk"
peer unsynced 1 second
is "more are written, by a new socket" prints 0
kill -9 "$worker"
is "another worker serves" another
peer check 1 second
is "what was acknowledged is read" prints same
peer sync 1
is "... and synced" prints 0
gone 1
lu 1 "$(at a%20b)" --bsopts cache=none
peer check 1 second
is "... the server has it" prints same
gone 1
is "it ends with 0" daemon_stop
finish 40
