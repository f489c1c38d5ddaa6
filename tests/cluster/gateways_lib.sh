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
#   load_start GATEWAY                   paths.py by all paths, and one that reads by that one alone
#   further N                            until it has written so much more
#   load_stop                            true: nothing was lost, nothing stale was read

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
field() { # GATEWAY NAME: of the unit, as that gateway knows it
	gadm "$1" --mode cluster --op show
	sed -n "/Unit:/,\$s/^ *$2: \([^,]*\).*/\1/p" <<<"$out"
}
owner_at() { field "$1" Owner; }
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
agrees() { # GATEWAY: it knows who serves, or does itself
	some_serves a b c && [ "$(owner_at "$1")" = "$owner" ]
}
carried() { grep -c ' sessions with .* connections go on,' "$dir/$1/log"; }
serves() { [ "$(field "$1" Here)" = active ]; }
stands_by() { [ "$(field "$1" Here)" = standby ]; }
others() { for g in a b c; do [ "$g" = "$1" ] || [ -z "${gpid[$g]-}" ] || echo "$g"; done; }
some_serves() { # among GATEWAYS: $owner
	for owner in "$@"; do serves "$owner" && return 0; done
	return 1
}
path_of() { echo "${addr[$1]}:${gport[$1]}"; }

writer= reader=
load_kill() {
	local p
	for p in $writer $reader; do kill -9 "$p" 2>/dev/null; done
}
load_start() { # PINNED
	rm -f "$dir/enough" "$dir/shared.n" # the writer counts anew
	python3 -B tests/cluster/paths.py $iqn "$dir/shared" "$dir/enough" write \
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

# A test may have others, and own_files=yes.
gateway_line() { echo "gateway $2 ${tag[$2]}"; } # GATEWAY X: of X in the file of GATEWAY
group_lines() { :; }                             # GATEWAY: more of the group
group_file() { # GATEWAY
	local g
	echo "<cluster g>"
	for g in a b c; do echo "	$(gateway_line "$1" $g)"; done
	echo "	ceph-conf $ceph/ceph.conf"
	group_lines "$1"
	cat <<END
</cluster>
<target $iqn>
	<backing-store rbd/u>
		bs-type rbd
		bsopts group=g
	</backing-store>
</target>
END
}
group_start() {
	local g
	ceph_start || { echo "not ok a Ceph of one machine"; tail -5 "$ceph"/out/*.out; exit 1; }
	echo "# Ceph is in $ceph"
	rbd create u --size "${image_size:-16M}" --image-feature layering,exclusive-lock
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
