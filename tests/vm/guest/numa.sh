# SPDX-License-Identifier: GPL-2.0-or-later
#
# Four nodes: every page of the cache's memory and every thread is where it belongs, an LU's blocks are
# spread evenly, large reads of what is cached are served on its node and small ones where they arrive.

P=127.0.0.1:3260
IQN=iqn.2026-11.net.tgtd:numa
MIB=$((1 << 20))

# LUN 1 fits into the cache with room to spare; 2 to 5 are there for where their threads are.
configure() {
	local node
	target_new 1 $IQN && lun_new 1 1 aio /dev/ram0 || return 1
	for node in 0 1 2 3; do
		lun_new 1 $((node + 2)) ram 4m --bsopts node=$node || return 1
	done
	adm --op show --mode cache && adm --op show --mode cache | grep -qx ' *Nodes: 4'
}

# By the kernel's account of the mapping (numa_maps): nothing of node n's arena on another node, and all there.
arenas_by_numa_maps() {
	local node pages rc=0
	for node in 0 1 2 3; do
		pages=($(node_pages "memfd:cache-$node\\b"))
		echo "arena $node: pages on nodes 0 to 3: ${pages[*]}"
		[ "${pages[node]}" -ge $((24 * MIB / 4096)) ] && [ "${pages[node]}" = $((pages[0] + pages[1] + pages[2] + pages[3])) ] ||
			rc=1
	done
	return $rc
}

# By move_pages(2), which tells the node of each page asked for.
arenas_by_move_pages() {
	python3 - "$(tgtd_worker)" <<-'END'
		import collections, ctypes, re, sys
		libc, pid, bad, arenas = ctypes.CDLL(None, use_errno=True), int(sys.argv[1]), 0, {}
		for line in open(f'/proc/{pid}/maps'):
		    m = re.match(r'(\w+)-(\w+) .*/memfd:cache-(\d)\b', line)
		    if not m:
		        continue
		    start, end, node = int(m[1], 16), int(m[2], 16), int(m[3])
		    n = (end - start) // 4096
		    pages = (ctypes.c_void_p * n)(*range(start, end, 4096))
		    status = (ctypes.c_int * n)()
		    if libc.syscall(279, pid, ctypes.c_ulong(n), pages, None, status, 0) != 0:
		        sys.exit(f'move_pages: errno {ctypes.get_errno()}')
		    # headers, which go into a core, and data, which does not, are mappings of their own
		    arenas.setdefault(node, collections.Counter()).update(status)
		for node, found in arenas.items():
		    print(f'arena {node}: {sum(found.values())} pages,', dict(found))
		    bad += sum(v for k, v in found.items() if k >= 0 and k != node)     # elsewhere
		    bad += found[node] * 4096 < 24 << 20                                # too few
		print(f'{len(arenas)} arenas, {bad} faults')
		sys.exit(len(arenas) != 4 or bad != 0)
	END
}

# All of the arenas has been looked at; small ones are when the cache is made, others a little later.
looked_at() {
	local tries
	for tries in $(seq 600); do
		adm --op show --mode cache >/run/cache || return 1
		grep -q 'is being prepared\|is being measured' /run/cache || return 0
		sleep 0.5
	done
	cat /run/cache
	return 1
}

# By what the cache itself found: data, headers and maps, and beside them locks, buckets, companions of the
# headers, replacement and ghosts.
said_by_the_cache() {
	local node what
	looked_at && cat /run/cache || return 1
	for node in 0 1 2 3; do
		for what in data index; do
			grep -qE "^ *Node $node: $what: ([1-9][0-9]*) of \\1 pages on the node," /run/cache || return 1
		done
	done
}

# Every page of private memory that is bound to a node, by the kernel's account (numa_maps).
bound_memory() {
	awk '/ prefer(=|:|ing:)?[^ ]*/ && / anon=/ {
			want = $2; gsub(/[^0-9]/, "", want)
			for (i = 3; i <= NF; i++)
				if ($i ~ /^N[0-9]+=/) {
					split(substr($i, 2), n, "=")
					pages[want == n[1] ? "there" : "elsewhere"] += n[2]
				}
		}
		END {
			printf "%d pages on the node that they are bound to, %d elsewhere\n", pages["there"], pages["elsewhere"]
			exit !(pages["there"] > 100 && !pages["elsewhere"])
		}' "/proc/$(tgtd_worker)/numa_maps"
}

# Private memory that is bound to no node, where there is much of it in one place: what the cache has of each
# partition would be such if somebody forgot to bind it. Left out are stacks (behind a guard page), heaps of threads
# (at a multiple of 64 MiB), and the program's own.
unbound_memory() {
	python3 - "$(tgtd_worker)" <<-'END'
		import re, sys
		pid, left_out, guard_end, most, everything = sys.argv[1], set(), None, 128, 0
		program = None
		for line in open(f'/proc/{pid}/maps'):
		    start, end, access, name = re.match(r'(\w+)-(\w+) (\S+) \S+ \S+ \S+ *(.*)', line).groups()
		    if program is None:
		        program = name
		    if start == guard_end or int(start, 16) % (64 << 20) == 0 or name:
		        left_out.add(int(start, 16))
		    elif program:
		        left_out.add(int(start, 16)) # behind its data
		    program = name if name == program else ''
		    guard_end = end if access.startswith('---') else None
		for line in open(f'/proc/{pid}/numa_maps'):
		    at, policy, *rest = line.split()
		    anon = sum(int(f[5:]) for f in rest if f.startswith('anon='))
		    if policy != 'default' or any(f.startswith('file=') for f in rest) or int(at, 16) in left_out or anon < 16:
		        continue
		    print(f'{anon} pages at {at}')
		    everything += anon
		print(f'{everything} pages are bound to no node, where there are many in one place; {most} may be')
		sys.exit(everything > most)
	END
}

# Worker n and the thread of each LU that asked for node n run on its CPU alone, and LUN 1's on some one.
threads() {
	tgtd_threads | tee /run/threads
	local node
	for node in 0 1 2 3; do
		grep -qx "node-$node $node" /run/threads && grep -qx "lu-1:$((node + 2)) $node" /run/threads || return 1
	done
	grep -qxE 'lu-1:1 [0-3]' /run/threads
}

load() {
	timeout 200 "$TGT_BIN/tgt-load" --portal $P --target $IQN --lun 1 --depth 4 --wait block --quiet "$@"
}

figure() { # COLUMN [NODE]
	awk -v f="$1" -v n="${2:-all}" 'NR == 1 {for (i = 1; i <= NF; i++) c[$i] = i; next} $1 == n {print $c[f]}' /run/stat
}

# Leaves hits, misses, local_bytes, remote_bytes, forwards: what came since the last call.
figures() {
	local v now old
	adm --op stat --mode cache >/run/stat && cat /run/stat || return 1
	for v in hits misses local_bytes remote_bytes forwards; do
		now=$(figure $v)
		old=old_$v
		printf -v $v %s $((now - ${!old:-0}))
		printf -v $old %s "$now"
	done
	echo "$hits hits, $misses misses, bytes: $local_bytes local, $remote_bytes remote; $forwards forwards"
}

read_all() {
	load --pattern sequential --bs 256k --count 256 && adm --op stat --mode cache --tid 1 --lun 1 >/run/residency &&
		cat /run/residency && grep -qx "Cached: $((64 * MIB))" /run/residency
}

# Each node within 2 % of a quarter, by the LU's residency and by the nodes' own counts of blocks.
even() {
	figures || return 1
	{
		sed -n 's/^Node [0-3]: //p' /run/residency
		echo
		for node in 0 1 2 3; do echo $((($(figure clean $node) + $(figure dirty $node)) * 4096)); done
	} | awk -v want=$((16 * MIB)) '
		NF {n++; off = ($1 - want) / want * 100; printf "%.2f %% from even\n", off; if (off < -2 || off > 2) bad = 1}
		END {exit !(n == 8 && !bad)}'
}

# A number of random reads, all hits, each byte counted.
reads() { # COUNT SIZE
	figures >/dev/null && load --bs "$2" --count "$1" && figures && [ "$misses" = 0 ] &&
		[ $((local_bytes + remote_bytes)) = $(($1 * ${2%k} * 1024)) ]
}

percent_local() { echo $((local_bytes * 100 / (local_bytes + remote_bytes))); }

large_are_local() {
	local node
	adm --op update --mode cache --name affinity --value forward || return 1
	reads 200 256k && echo "$(percent_local) % local" && [ "$(percent_local)" -ge 95 ] && [ "$forwards" -gt 0 ] || return 1
	for node in 0 1 2 3; do
		[ "$(figure local_bytes $node)" -gt 0 ] || { echo "node $node served nothing"; return 1; }
	done
}

small_stay() {
	adm --op update --mode cache --name affinity --value auto && reads 2000 4k && [ "$forwards" = 0 ]
}

large_writes_go() {
	figures >/dev/null && load --read 0 --bs 256k --count 100 && figures && [ "$forwards" -gt 100 ]
}

copied() { # leaves near and far: bytes of large reads that were copied since the last call
	local v now old
	adm --op show --mode cache >/run/cache || return 1
	for v in near far; do
		now=$(sed -n "s/^ *Sent $v: \([0-9]*\) .*/\1/p" /run/cache)
		old=old_$v
		printf -v $v %s $((now - ${!old:-0}))
		printf -v old_$v %s "$now"
	done
	echo "$near bytes copied near, $far far"
}

# A worker of the payload's node copies it to the socket; it is looked up where the connection is.
workers_send() {
	adm --op update --mode cache --name affinity --value send && copied >/dev/null && reads 200 256k &&
		copied && [ "$forwards" = 0 ] && [ $((near + far)) -ge $((200 * 256 * 1024)) ] &&
		[ $((near * 100)) -ge $((95 * (near + far))) ] && reads 500 4k && copied && [ $((near + far)) = 0 ]
}

# The measure itself: without forwarding, what is local is so by chance.
inline_is_not() {
	adm --op update --mode cache --name affinity --value inline && reads 200 256k && echo "$(percent_local) % local" &&
		[ "$(percent_local)" -lt 50 ] && [ "$forwards" = 0 ]
}

# What auto measured here. Emulated memory is equally far from everywhere: any difference is noise of the
# host, and the threshold that comes of it may be anything. Then one is set; the mode stays auto.
decision() {
	looked_at && cat /run/cache && grep -qx ' *Affinity: auto' /run/cache && grep '^ *Choice: ' /run/cache || return 1
	local threshold
	threshold=$(sed -n 's/^ *Threshold: \([0-9]*\).*/\1/p' /run/cache)
	DECIDED="auto forwards from ${threshold:-(never)} bytes on: $(sed -n 's/^ *\(Hop\|Local memory\|Remote memory\): /\1 /p' /run/cache | paste -sd,)"
	[ -n "$threshold" ] && [ "$threshold" -gt 4096 ] && [ "$threshold" -le $((256 << 10)) ] || {
		DECIDED="$DECIDED; 128 KiB set instead"
		adm --op update --mode cache --name threshold --value 128k || return 1
		adm --op show --mode cache | grep -qx ' *Affinity: auto'
	}
}

need 'backing store' brd_up 1 65536
need 'tgtd starts' tgtd_start $P
need 'target and LUNs' configure
step 'pages of each arena on its node (numa_maps)' arenas_by_numa_maps
step 'pages of each arena on its node (move_pages)' arenas_by_move_pages
step 'data and index of each node on it, as the cache says' said_by_the_cache
step 'private memory on the nodes that it is bound to (numa_maps)' bound_memory
step 'no large private memory that is bound to none (numa_maps)' unbound_memory
step 'threads of nodes and LUs on their nodes' threads
need 'all of the LU read into the cache' read_all
step 'its blocks spread evenly, within 2 %' even
need 'auto has decided' decision
echo "# $DECIDED"
step '256 KiB reads: 95 % and more served on the node of the data' large_are_local
step '4 KiB reads: none forwarded' small_stay
step '256 KiB writes: their blocks are taken, and swapped in, on their nodes' large_writes_go
step 'affinity=send: 95 % and more copied to the socket by threads of its node, nothing of 4 KiB' workers_send
step 'affinity=inline: forwards nothing, and it shows' inline_is_not
step 'pages still where they were' arenas_by_move_pages
step 'no kernel error' kernel_clean
step 'tgtd stops on SIGTERM' tgtd_stop
