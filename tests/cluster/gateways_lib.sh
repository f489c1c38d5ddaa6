# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# Sourced after ceph_lib.sh: gateways a, b and c of a group, one file for all of them.
#
#   gateways_test NAME   the frame of a test: $iqn, $rounds; where there is no Ceph it ends here.
#                        test_end is the test's, and ends what it has started
#   group_start      Ceph, an image of $image_size, the gateways; $iqn is the target. A test may have
#                    set $addr, $gport, and $within: a command before each gateway's
#   gw_start gw_stop gw_kill GATEWAY     (gw_kill: keeper and worker)
#   gadm GATEWAY ...                     its tgtadm: $out, $rc
#   field GATEWAY NAME                   of the unit, as that gateway knows it
#   await SECONDS COMMAND...             until it is true
#   tells NAME CONDITION...              as is; where it fails, what each gateway knows, and has said
#   gw_freeze GATEWAY, gw_wake           SIGSTOP of both, and SIGCONT
#   load_start GATEWAY                   paths.py by all paths, and one that reads by that one alone
#   further N                            until it has written so much more
#   load_stop                            true: nothing was lost, nothing stale was read
#   image_has_it                         what the writer had acknowledged is in RADOS, not only shown
#   hold LETTERS                         initiators of these names are registered (the first is the
#                                        writer's), and another one reserves the unit: who is not
#                                        registered may read. holds: all gateways say what they said
#   figure NAME MS, figures NAME TEXT    collected, and printed: p50, p99, longest
#   bar NAME GENEROUS STRICT TEXT        the longest is judged; by STRICT if TGT_STRICT=1
#   day_ms, said_ms WORDS                now; when a log said so last. since FROM: of now
#   queued_start OWNER, queued_says, queued_stop     commands that wait in its sessions: queued.py
#   stopped_and_fenced, woken, goes_on   what becomes of them, see there

declare -A gpid addr tag
addr=([a]=127.0.0.1 [b]=127.0.0.2 [c]=127.0.0.3)
tag=([a]=11 [b]=12 [c]=13)
declare -A gport within
gateways_test() {
	local missing
	missing=$(ceph_missing)
	[ -z "$missing" ] || {
		echo "ok $1 # SKIP no $missing (tools/install-deps --cluster)"
		finish
	}
	kind=ours
	rounds=${ROUNDS:-3}
	[ "${RBD-}" != short ] || rounds=1
	iqn=iqn.2026-11.org.tgtd.test:group
	trap 'test_end; gateways_kill; ceph_kill; rm -rf "$dir"' EXIT
}
gateways_kill() {
	local g
	for g in "${!gpid[@]}"; do gw_kill "$g"; done
}

gadm() { # GATEWAY ARGS...
	local g=$1
	shift
	TGT_IPC_SOCKET=$dir/$g/socket adm "$@"
}
gw_admin() { # GATEWAY ARGS...
	local g=$1
	shift
	out=$(TGT_IPC_SOCKET=$dir/$g/socket "$bin/tgt-admin" -C 0 -c "$(gw_conf "$g")" "$@" 2>&1)
	rc=$?
	return $rc
}
gw_conf() { # GATEWAY: its file; that of all, unless it has one
	[ -e "$dir/targets.$1" ] && echo "$dir/targets.$1" || echo "$dir/targets.conf"
}
gw_begin() { # GATEWAY: the process
	local g=$1
	mkdir -p "$dir/$g/state"
	rm -f "$dir/$g"/socket.*
	TGT_IPC_SOCKET=$dir/$g/socket ${within[$g]-} "$bin/tgtd" -f -C 0 --state-dir "$dir/$g/state" \
		--cache size=8m \
		--group "file=$(gw_conf "$g"),self=$g" \
		--iscsi "portal=${addr[$g]}:${gport[$g]},nop_interval=0,nop_count=0" \
		>>"$dir/$g/log" 2>&1 &
	gpid[$g]=$!
}
gw_answers() { # GATEWAY; 2: it never will
	gadm "$1" --mode system --op show
	[ "$rc" = 0 ] && return
	kill -0 "${gpid[$1]}" 2>/dev/null || gone=yes
	return 1
}
gw_start() { # GATEWAY
	local g=$1 gone
	for _ in 1 2 3 4 5; do
		gone=
		gw_begin "$g"
		await 60 gw_answers_or_gone "$g"
		[ -n "$gone" ] || break
		# Somebody has taken the port; a gateway that comes back must have the old one.
		wait "${gpid[$g]}"
		[ -n "${keep_port-}" ] || gport[$g]=$(pick_port "${addr[$g]}")
		sleep 0.5
	done
	[ "$rc" = 0 ] && gw_admin "$g" -e
}
gw_answers_or_gone() { gw_answers "$1" || [ -n "$gone" ]; }
gw_kill() { # keeper and worker at once
	local child
	[ -n "${gpid[$1]-}" ] || return
	kill -STOP "${gpid[$1]}" 2>/dev/null
	child=$(worker_of "${gpid[$1]}")
	kill -9 "$child" "${gpid[$1]}" 2>/dev/null
	wait "${gpid[$1]}" 2>/dev/null
	await_end "$child"
	unset "gpid[$1]"
}
gw_stop() {
	local status=0
	kill -TERM "${gpid[$1]}"
	wait "${gpid[$1]}" || status=$?
	unset "gpid[$1]"
	return $status
}
# Keeper and worker stand still. (Threads go on until the first one has been told, when it gets a
# processor.)
stands_still() { # PID...
	local p
	for p; do
		! grep -hq '^State:[[:space:]]*[^TtZX[:space:]]' "/proc/$p/task"/*/status 2>/dev/null || return 1
	done
}
gw_freeze() { # GATEWAY: $frozen
	frozen="$(worker_of "${gpid[$1]}") ${gpid[$1]}"
	kill -STOP $frozen
	await 60 stands_still $frozen
}
gw_wake() { kill -CONT $frozen; }
field() { # GATEWAY NAME: of the unit, as that gateway knows it
	gadm "$1" --mode cluster --op show
	sed -n "/Unit:/,\$s/^ *$2: \([^,]*\).*/\1/p" <<<"$out"
}
owner_at() { field "$1" Owner; }
tells() { # NAME CONDITION...
	local g before=$failures
	is "$@"
	[ $failures != "$before" ] || return 0
	for g in a b c; do
		[ -z "${gpid[$g]-}" ] || gadm "$g" --mode cluster --op show
		{ printf 'knows:\n%s\nhas said:\n' "${gpid[$g]+$out}" && tail -n 60 "$dir/$g/log"; } |
			sed "s/^/#   $g /"
	done
}
await() { # SECONDS COMMAND...
	local until=$((SECONDS + $1))
	shift
	while ! "$@"; do
		[ $SECONDS -lt $until ] || return 1
		sleep 0.05
	done
}
worker_changed() { # GATEWAY FROM
	local now
	now=$(worker_of "${gpid[$1]}")
	[ "$now" != "$2" ] && [ "$now" != "${gpid[$1]}" ] && gw_answers "$1"
}
# A keeper gives up when four workers in a row die within 10 s of serving.
has_served() { [ "$(ps -o etimes= -p "$(worker_of "${gpid[$1]}")")" -gt 11 ]; }
agrees() { # GATEWAY: it knows who serves, or does itself
	some_serves a b c && [ "$(owner_at "$1")" = "$owner" ]
}
carried() { grep -c ' sessions with .* connections go on,' "$dir/$1/log"; }
serves() { [ "$(field "$1" Here)" = active ]; }
stands_by() { [ "$(field "$1" Here)" = standby ]; }
others() { for g in a b c; do [ "$g" = "$1" ] || [ -z "${gpid[$g]-}" ] || echo "$g"; done; }
third() { for g in a b c; do [ $g = "$1" ] || [ $g = "$2" ] || echo $g; done; }
some_serves() { # among GATEWAYS: $owner
	for owner in "$@"; do serves "$owner" && return 0; done
	return 1
}
path_of() { echo "${addr[$1]}:${gport[$1]}"; }

writer= reader=
load_kill() {
	local p
	for p in $writer $reader $queued $nexuses; do kill -9 "$p" 2>/dev/null; done
}
load_start() { # PINNED
	rm -f "$dir/enough" "$dir/shared.n" # the writer counts anew
	${letter:+env NEXUS="$letter"} python3 -B tests/cluster/paths.py $iqn "$dir/shared" "$dir/enough" write \
		"$(path_of a)" "$(path_of b)" "$(path_of c)" >"$dir/writer" 2>&1 &
	writer=$!
	python3 -B tests/cluster/paths.py $iqn "$dir/shared" "$dir/enough" read \
		"$(path_of "$1")" >"$dir/reader" 2>&1 &
	reader=$!
	further 30
}
written() {
	local n
	read -r n _ 2>/dev/null <"$dir/shared.n"
	echo "${n:-0}"
}
further() { # N writes more
	local from
	from=$(written)
	await 120 test_further $((from + $1))
}
test_further() { [ "$(written)" -ge "$1" ] || ! kill -0 $writer 2>/dev/null; }
load_stop() {
	: >"$dir/enough"
	wait $writer
	local w=$?
	wait $reader
	local r=$?
	out=$(cat "$dir/writer" "$dir/reader")
	writer= reader=
	echo "# $(cat "$dir/writer")"
	echo "# pinned: $(cat "$dir/reader")"
	return $((w + r))
}

# By a look that asks no gateway's cache. (One that writes back: after a SYNC.)
image_export() { # [IMAGE]
	rm -f "$dir/export"
	out=$(rbd export --no-progress "rbd/${1:-u}" "$dir/export" 2>&1)
}
image_has_it() { # [SHARED IMAGE]
	image_export "${2-}" && out=$(python3 -B - "${1:-$dir/shared}" "$dir/export" <<'END' 2>&1
import struct, sys
shared, image = (open(name, 'rb').read() for name in sys.argv[1:])
for block in range(len(shared) // 16):
    begun, gen = struct.unpack('<QQ', shared[16 * block:16 * block + 16])
    want = struct.pack('<QQ', gen, block) * 256 if gen else bytes(4096)
    got = image[4096 * block:4096 * block + 4096]
    assert got == want, 'block %u: generation %d, not %d' % (block, struct.unpack('<Q', got[:8])[0], gen)
END
	)
}

# Initiators by nexuses.py: a line, and its answer in $is.
nexuses= letter=
nexuses_start() {
	mkfifo "$dir/to" "$dir/from"
	python3 -B tests/cluster/nexuses.py $iqn a="$(path_of a)" b="$(path_of b)" c="$(path_of c)" \
		<"$dir/to" >"$dir/from" 2>"$dir/nexuses.log" &
	nexuses=$!
	exec 4>"$dir/to" 3<"$dir/from"
}
ask() { # LINE...: $is
	is=none
	echo "$@" >&4
	read -r -t 200 is <&3
}
ask_out() { # LINE...: as ask; attentions are heard first, and a session that has ended is made anew
	for _ in 1 2 3 4 5; do
		ask "$@"
		[ "$is" != gone ] || sleep 0.5
		[ "${is#06/}" != "$is" ] || [ "$is" = gone ] || break
	done
}
held_at() { # GATEWAY: $is
	local keys
	ask_out keys "h$1"
	keys=$is
	ask_out full "h$1"
	is="$keys; $is"
}
hold() { # LETTERS
	local g l
	letter=${1:0:1}
	nexuses_start
	for g in a b c; do
		for l in $(sed 's/./& /g' <<<"$1"); do
			ask_out out "$l$g" ignore 0 0 5e
			is "$l registers by $g" test "$is" = good
			ask close "$l$g" # the session is another program's from now on
		done
		ask_out out "h$g" ignore 0 0 1a
		is "h registers by $g" test "$is" = good
	done
	ask_out out ha reserve 5 1a 0
	is "h reserves the unit" test "$is" = good
	held_at a
	held=$is
	echo "# held: $held"
}
holds() {
	local g
	for g in "${!gpid[@]}"; do
		await 60 agrees "$g"
		held_at "$g"
		out="$g says: $is"
		[ "$is" = "$held" ] || return 1
	done
	ask_out write "y$owner"
	out="y at $owner: $is"
	[ "$is" = "status 18" ]
}

# Milliseconds of the day: now; when a gateway's log last said WORDS.
day_ms() { date +'%H %M %S %3N' | awk '{ print (($1 * 60 + $2) * 60 + $3) * 1000 + $4 }'; }
said_ms() { # WORDS
	grep -h "$1" "$dir"/[abc]/log | sed -n 's/^\(..\):\(..\):\(..\)\.\(...\) .*/\1 \2 \3 \4/p' |
		awk -v now="$(day_ms)" '{ t = (($1 * 60 + $2) * 60 + $3) * 1000 + $4
			ago = (now - t + 86400000) % 86400000
			if (NR == 1 || ago < least) { least = ago; last = t } } END { print last + 0 }'
}
since() { echo $((($2 - $1 + 86400000) % 86400000)); } # FROM TO
figure() { echo "$2" >>"$dir/figures.$1"; }
figures() { # NAME TEXT
	sort -n "$dir/figures.$1" 2>/dev/null | awk -v t="$2" '{ v[NR] = $1 }
		END { if (NR) printf "# %s: %u times, p50 %u ms, p99 %u, longest %u\n", t, NR,
			v[int((NR + 1) / 2)], v[int(NR * 0.99 + 0.99)], v[NR] }'
}
stalls() { figure "$1" "$(sed -n 's/.*longest stall \([0-9]*\) ms.*/\1/p' "$dir/writer")"; }
bar() { # NAME GENEROUS STRICT TEXT
	local most=$2 longest
	[ "${TGT_STRICT-}" != 1 ] || most=$3
	figures "$1" "$4"
	longest=$(sort -n "$dir/figures.$1" | tail -1)
	out="longest: ${longest:-none}, at most $most"
	is "$4: at most $most ms" test -n "$longest" -a "${longest:-0}" -le "$most"
}
# Of a takeover: how long until it was noticed, and from there until the unit was served.
figure_takeover() { # NAME BEGAN
	local deposed served
	deposed=$(said_ms ' is deposed')
	served=$(said_ms 'owned here, epoch')
	figure "detect.$1" "$(since "$2" "$deposed")"
	figure "serve.$1" "$(since "$deposed" "$served")"
}

# Commands that wait in living sessions of the owner while that is stopped, or cut off: queued.py.
queued=
queued_says() { # LINE...: $out
	out=none
	echo "$@" >&6
	read -r -t 300 out <&5
	[ "${out%% *}" = good ]
}
queued_start() { # OWNER
	rm -f "$dir/q.to" "$dir/q.from"
	mkfifo "$dir/q.to" "$dir/q.from"
	NEXUS=${letter:+qr} python3 -B tests/cluster/queued.py $iqn "$(path_of "$1")" \
		$(for g in $(others "$1"); do path_of "$g"; done) <"$dir/q.to" >"$dir/q.from" \
		2>"$dir/queued.log" &
	queued=$!
	exec 6>"$dir/q.to" 5<"$dir/q.from"
	queued_says stream
}
queued_stop() {
	[ -n "$queued" ] || return 0
	exec 6>&- 5<&-
	kill -9 "$queued" 2>/dev/null
	wait "$queued" 2>/dev/null
	queued=
}

# Of $was, the owner: after queued_start it is stopped, another one serves, it is woken, and serves.
unit() { gadm "$1" --op update --mode logicalunit --tid 1 --lun 1 --params "$2"; }
image_settles() { :; } # a test whose gateways write back has its own
fences() { timeout 60 ceph osd blocklist ls 2>/dev/null | sort; }
fences_of() { # of which the file FENCES knows nothing: $fence, of one line
	fence=$(fences | comm -13 "$dir/fences" - | head -1)
	[ -n "$fence" ]
}
osds_know() { # this map, at least
	local n
	for n in $(seq 0 $((ceph_osds - 1))); do
		[ "$(timeout 60 ceph daemon "$ceph/out/osd.$n.asok" status 2>/dev/null |
			sed -n 's/.*"newest_map": *\([0-9]*\).*/\1/p')" -ge "$1" ] || return 1
	done
}
map_now() { timeout 60 ceph osd dump 2>/dev/null | sed -n 's/^epoch //p'; }
not_fenced() { ! fences | grep -qF "$1"; }
stopped_and_fenced() { # and all is written anew elsewhere
	fences >"$dir/fences"
	sleep "0.$((RANDOM % 5))"
	is "$was is stopped" gw_freeze "$was"
	began=$(day_ms)
	is "32 writes, 32 reads are queued" queued_says queue
	echo "# writes that were at work: ${out#good }"
	is "another one serves" await 60 some_serves $(others "$was")
	figure_takeover stop "$began"
	is "the client of $was is fenced" await 60 fences_of
	is "... for ten years: $fence" test "$(sed "s/.* \([0-9]*\)-.*/\1/" <<<"$fence")" -ge $(($(date +%Y) + 9))
	is "all blocks are written elsewhere" queued_says elsewhere
}
woken() { # NAME
	gw_wake
	is "$was stands by when it is woken ($1)" await 60 stands_by "$was"
	is "32 reads more" queued_says reads
	is "... of cached blocks are refused, as is what was queued" queued_says answers refused
	echo "# ${out#good }"
	image_settles
	image_export
	is "RADOS has what was acknowledged" queued_says same "$dir/export"
}
goes_on() {
	unit "$was" owner="$was"
	is "$was serves when it is told to" await 60 serves "$was"
	is "the session that was there goes on" queued_says usable
	image_settles
	image_export
	is "... RADOS has it" queued_says same "$dir/export"
	is "... reservations are the same" holds
	queued_stop
}

# A test may have others of these, and own_files=yes.
unit_lines() { # of the target
	cat <<-END
		<backing-store rbd/u>
			bs-type rbd
			bsopts group=g
		</backing-store>
	END
}
group_images() { rbd create u --size "${image_size:-16M}" --image-feature layering,exclusive-lock; }
gateway_line() { echo "gateway $2 ${tag[$2]}"; } # GATEWAY X: of X in the file of GATEWAY
group_lines() { :; }                             # GATEWAY: more of the group
group_file() { # GATEWAY
	local g
	echo "<cluster g>"
	for g in a b c; do echo "	$(gateway_line "$1" $g)"; done
	echo "	ceph-conf $ceph/ceph.conf"
	group_lines "$1"
	echo "</cluster>"
	echo "<target $iqn>"
	unit_lines
	echo "</target>"
}
group_start() {
	local g
	ceph_start || { echo "not ok a Ceph of one machine"; tail -5 "$ceph"/out/*.out; exit 1; }
	echo "# Ceph is in $ceph"
	group_images
	if [ -n "${own_files-}" ]; then
		for g in a b c; do group_file $g >"$dir/targets.$g"; done
	else # one for all of them
		group_file a >"$dir/targets.conf"
	fi
	for g in a b c; do
		[ -n "${gport[$g]-}" ] || gport[$g]=$(pick_port "${addr[$g]}")
		gw_start "$g"
		is "gateway $g begins" test "$rc" = 0
		[ $failures = 0 ] || { tail -25 "$dir/$g/log"; exit 1; }
	done
	keep_port=yes
}
