# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# Sourced after ceph_lib.sh: gateways a, b and c of a group, one file for all of them.
#
#   group_start      Ceph, an image, the gateways; $iqn is the target
#   gw_start gw_stop gw_kill GATEWAY     (gw_kill: keeper and worker)
#   gadm GATEWAY ...                     its tgtadm: $out, $rc
#   field GATEWAY NAME                   of the unit, as that gateway knows it
#   await SECONDS COMMAND...             until it is true

declare -A gpid addr tag
addr=([a]=127.0.0.1 [b]=127.0.0.2 [c]=127.0.0.3)
tag=([a]=11 [b]=12 [c]=13)
declare -A gport
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
	out=$(TGT_IPC_SOCKET=$dir/$g/socket "$bin/tgt-admin" -C 0 -c "$dir/targets.conf" "$@" 2>&1)
	rc=$?
	return $rc
}
gw_begin() { # GATEWAY: the process
	local g=$1
	mkdir -p "$dir/$g/state"
	rm -f "$dir/$g"/socket.*
	TGT_IPC_SOCKET=$dir/$g/socket "$bin/tgtd" -f -C 0 --state-dir "$dir/$g/state" \
		--cache size=8m \
		--group "file=$dir/targets.conf,self=$g" \
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

group_start() {
	local g
	ceph_start || { echo "not ok a Ceph of one machine"; tail -5 "$ceph"/out/*.out; exit 1; }
	echo "# Ceph is in $ceph"
	rbd create u --size 16M --image-feature layering,exclusive-lock
	# One file for all of them.
	cat >"$dir/targets.conf" <<END
<cluster g>
	gateway a 11
	gateway b 12
	gateway c 13
	ceph-conf $ceph/ceph.conf
</cluster>
<target $iqn>
	<backing-store rbd/u>
		bs-type rbd
		bsopts group=g
	</backing-store>
</target>
END
	for g in a b c; do
		gport[$g]=$(pick_port "${addr[$g]}")
		gw_start "$g"
		is "gateway $g begins" test "$rc" = 0
		[ $failures = 0 ] || { tail -25 "$dir/$g/log"; exit 1; }
	done
	keep_port=yes
}
