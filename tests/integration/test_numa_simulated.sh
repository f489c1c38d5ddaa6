#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The cache on four NUMA nodes, simulated: an LU's blocks spread evenly over the nodes; large reads that
# hit are served by a thread of their data's node, small ones where they arrive; a request's bytes are
# counted once. On four real nodes, with memory that has a place: tests/vm/test_numa.sh.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.tgtd.test:numa
mib=$((1 << 20))

load() { # OPTIONS...: from a single connection, a given number of reads
	timeout 60 "$bin/tgt-load" --portal "127.0.0.1:$port" --target $iqn --lun 1 --depth 4 --wait block --quiet "$@"
}

# A column of what `stat` said last, of a node or of all.
figure() { # COLUMN [NODE]
	printf '%s\n' "$out" |
		awk -v f="$1" -v n="${2:-all}" 'NR == 1 {for (i = 1; i <= NF; i++) c[$i] = i; next} $1 == n {print $c[f]}'
}

figures() { # leaves hits, misses, local, remote, forwards: what came since the last call
	local h m l r f
	adm --op stat --mode cache
	h=$(figure hits) m=$(figure misses) l=$(figure local_bytes) r=$(figure remote_bytes) f=$(figure forwards)
	hits=$((h - ${h0:-0})) misses=$((m - ${m0:-0})) local_=$((l - ${l0:-0})) remote=$((r - ${r0:-0}))
	forwards=$((f - ${f0:-0}))
	h0=$h m0=$m l0=$l r0=$r f0=$f
	echo "# $hits hits, $misses misses, $local_ bytes local, $remote remote, $forwards forwards"
}

reads() { # COUNT SIZE [OPTIONS...]: random reads of the LU, all of them hits, and what was counted
	local bytes=$(($1 * ${2%k} * 1024))
	figures >/dev/null
	load --bs "$2" --count "$1" "${@:3}" && figures && [ $misses = 0 ] && [ $((local_ + remote)) = $bytes ]
}

even() { # "Node N: BYTES", four of them, all the same
	printf '%s\n' "$out" | awk '/^Cached: / {all = $2} /^Node [0-3]: / {n++; v[n] = $3; sum += $3}
		END {for (i in v) if (v[i] != sum / 4) bad = 1
			exit !(n == 4 && sum > 0 && sum == all && !bad)}'
}

# Groups of 512 KiB go over the nodes in turns. What was read, and read ahead, ends somewhere in one, and a read
# before it may still be under way.
nearly_even() {
	printf '%s\n' "$out" | awk '/^Node [0-3]: / {n++; if (n == 1 || $3 < min) min = $3; if ($3 > max) max = $3}
		END {exit !(n == 4 && min > 0 && max - min <= 1048576)}'
}

cached() { [ "$(printf '%s\n' "$out" | awk '/^Cached: / {print $2}')" = "$1" ]; }

share_is() { # LOW HIGH: percent of the bytes that a thread of their node served
	[ $((local_ * 100)) -ge $(($1 * (local_ + remote))) ] && [ $((local_ * 100)) -le $(($2 * (local_ + remote))) ]
}

by_chance() { share_is 15 35 && [ $forwards = 0 ]; }

truncate -s 64m "$dir/disk"
# Room for all that is read and written below, and for what writes replace meanwhile: nothing is
# evicted.
daemon_start ours --numa-nodes 4 --cache size=160m,workers=2
adm --op new --mode target --tid 1 -T $iqn
adm --op bind --mode target --tid 1 -I ALL
adm --op new --mode logicalunit --tid 1 --lun 1 --bstype aio --backing-store "$dir/disk"
is "an LU in a daemon with four nodes" test "$rc" = 0
adm --op show --mode cache
is "the cache has four nodes" has_line "    Nodes: 4"
is "it decides by itself" has_line "    Affinity: auto"
is "and says what it has chosen, and why" has_line \
	"    Choice: forward: 64 KiB and more: nodes are simulated, there is nothing to measure"
choices=$(printf '%s\n' "$out" | grep -c '^    Threshold[^:]*: 65536 bytes$')
is "for hits, misses and both halves of writes" test "$choices" = 4
told_where() { # when it has been prepared
	for _ in $(seq 300); do
		adm --op show --mode cache
		n=$(printf '%s\n' "$out" | grep -cE '^    Node [0-3]: (data|index): [0-9]+ pages, ')
		[ "$n" = 8 ] && return
		sleep 0.1
	done
	return 1
}
is "and where each node's memory is, as far as nodes that are none tell" told_where
is "with two workers a node" has_line "    Workers: 2 per node"
workers=$(cat /proc/"$worker"/task/*/comm | grep -cE '^node-[0-3](\.1)?$')
is "which are there" test "$workers" = 8

load --pattern sequential --range 16m --bs 256k --count 64
adm --op stat --mode cache --tid 1 --lun 1
is "a part of the LU read: no node has more than two groups more than another" nearly_even
load --pattern sequential --bs 256k --count 256
adm --op stat --mode cache --tid 1 --lun 1
is "all of the LU read: all is there" cached $((64 * mib))
is "all of the LU read: the same on each node" even

# Where an LU begins is a matter of its store's name. These are four groups each, one a node.
even_lus=0
for lun in 2 3 4 5 6 7 8 9; do
	truncate -s 2m "$dir/disk-$lun"
	adm --op new --mode logicalunit --tid 1 --lun $lun --bstype aio --backing-store "$dir/disk-$lun"
	load --pattern sequential --bs 256k --count 8 --lun $lun
	adm --op stat --mode cache --tid 1 --lun $lun
	cached $((2 * mib)) && even && even_lus=$((even_lus + 1))
done
is "eight LUs of 2 MiB: each a quarter on each node" test $even_lus = 8

reads 400 256k
is "random reads of 256 KiB: all hit, each byte counted once" test $? = 0
is "they are served by threads of their nodes" share_is 95 100
is "each by one hop at most, about a quarter without" test $forwards -gt 200 -a $forwards -lt 400
busy=0
for node in 0 1 2 3; do [ "$(figure local_bytes $node)" -gt 0 ] && busy=$((busy + 1)); done
is "every node serves" test $busy = 4

reads 4000 4k
is "random reads of 4 KiB: all hit, each byte counted once" test $? = 0
is "none is forwarded" test $forwards = 0

figures
load --read 0 --bs 256k --count 400
is "random writes of 256 KiB: no error" test $? = 0
figures
is "their blocks are taken, and swapped in, on their nodes" \
	test $forwards -gt 400 -a $forwards -le 800
reads 400 256k
is "what was written is there" test $? = 0

adm --op update --mode cache --name affinity --value inline
reads 400 256k
is "affinity=inline: all hit" test $? = 0
is "nothing is forwarded, and about a quarter is local by chance" by_chance
adm --op update --mode cache --name affinity --value forward
reads 400 4k
is "affinity=forward: small reads are forwarded, too" test $? = 0 -a $forwards -gt 200
is "and all is local" share_is 100 100

# Each byte is what was written, in every mode; who copied it to the socket is counted by node.
load --fill --bs 256k --count 256 --range 48m
is "the LU filled with what can be recognized" test $? = 0
copied() { # leaves near and far: bytes of large reads since the last call
	adm --op show --mode cache
	n=$(printf '%s\n' "$out" | sed -n 's/^    Sent near: \([0-9]*\) .*/\1/p')
	f=$(printf '%s\n' "$out" | sed -n 's/^    Sent far: \([0-9]*\) .*/\1/p')
	near=$((n - ${n0:-0})) far=$((f - ${f0_:-0})) n0=$n f0_=$f
	echo "# $near bytes copied near, $far far"
}
for mode in inline forward send auto; do
	adm --op update --mode cache --name affinity --value $mode
	for size in 4k 64k 256k 1m; do
		load --verify --bs $size --count 200 --range 48m
		is "affinity=$mode: reads of $size are what was written" test $? = 0
	done
	load --verify --read 50 --bs 64k:1,256k:1 --count 200 --range 48m --connections 4
	is "affinity=$mode: among writes, on four connections, too" test $? = 0
done
adm --op update --mode cache --name affinity --value send
adm --op show --mode cache
is "affinity=send: from 64 KiB on, and looked up where it is" eval \
	'has_line "    Threshold of sending: 65536 bytes" && has_line "    Threshold: never"'
copied
reads 400 256k
is "nothing is forwarded" test $? = 0 -a $forwards = 0
copied
is "95 % and more is copied to the socket on its node" \
	test $((near + far)) -ge $((400 * 256 * 1024)) -a $((near * 100)) -ge $((95 * (near + far)))
reads 1000 4k
copied
is "small reads are sent by the thread of the connection" test $((near + far)) = 0

adm --op update --mode cache --name affinity --value auto
adm --op update --mode cache --name threshold --value 512k
reads 200 256k
is "auto with a higher threshold leaves these reads where they arrive" test $? = 0 -a $forwards = 0
daemon_stop
is "the daemon ends well" test $? = 0
