# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# Completion for bash. tgtadm and tgt-admin: options, modes, operations, parameters and their
# values; and what the daemon has, the one that -C names: targets, LUNs, accounts, initiators,
# sessions, portals. tgtd: its options and their keys. Others: the options that their --help names.
# Installed under each program's name, by which bash-completion loads it. Needs bash alone.

# What is typed, up to the cursor: words w[], of which cur is the last, with --option=value in two.
# Readline cuts words at : and =, which stand in names here; so the line itself is looked at.
_tgtd_words() {
	local word line="${COMP_WORDS[*]}"
	local -a typed
	[ -n "${COMP_LINE-}" ] && line=${COMP_LINE:0:COMP_POINT}
	read -ra typed <<<"$line"
	case $line in *[[:space:]]) typed+=("") ;; esac
	w=()
	for word in "${typed[@]}"; do
		case $word in
		--*=*) w+=("${word%%=*}" "${word#*=}") ;;
		*) w+=("$word") ;;
		esac
	done
	cur=${w[-1]} prev=
	[ ${#w[@]} -gt 1 ] && prev=${w[-2]}
}

# The value that one of these options has: "" without.
_tgtd_said() {
	local i option
	for ((i = 1; i < ${#w[@]} - 1; i++)); do
		for option; do
			[ "${w[i]}" = "$option" ] && echo "${w[i + 1]}" && return
			# -C7
			[[ $option == -? && ${w[i]} == "$option"?* ]] && echo "${w[i]:2}" && return
		done
	done
}

# Offers those of these words that begin as @cur. What readline takes for words of their own in
# front of it is not repeated. (compgen -W would run a command that stands in a name; and a name
# that a shell takes for more than a word is not offered.)
_tgtd_offer() {
	local word head=
	case $cur in *[:=]*) head=${cur%"${cur##*[:=]}"} ;; esac
	COMPREPLY=()
	for word; do
		[[ $word == "$cur"* && $word != *[!]A-Za-z0-9._:/@%+,=[-]* ]] &&
			COMPREPLY+=("${word#"$head"}")
	done
	# a value follows
	[[ ${COMPREPLY[0]-} == *= ]] && compopt -o nospace 2>/dev/null
	return 0
}

_tgtd_files() {
	compopt -o filenames 2>/dev/null
	mapfile -t COMPREPLY < <(compgen -f -- "$cur")
}

# name=value[,name=value...]: the names given, and the values that _tgtd_values knows.
_tgtd_pairs() {
	local before='' last=$cur word
	local -a list
	case $cur in *,*) before=${cur%,*}, last=${cur##*,} ;; esac
	case $last in
	*=*)
		for word in $(_tgtd_values "${last%%=*}"); do list+=("$before${last%%=*}=$word"); done
		;;
	*)
		for word in $1; do list+=("$before$word="); done
		;;
	esac
	_tgtd_offer "${list[@]}"
}

# Asks the daemon at hand. tgtadm is looked for where the program is that is being typed.
_tgtd_ask() {
	local tool=tgtadm port
	case ${w[0]} in */*) tool=${w[0]%/*}/tgtadm ;; esac
	port=$(_tgtd_said -C --control-port)
	timeout 5 "$tool" ${port:+-C "$port"} "$@" 2>/dev/null
}
_tgtd_targets() { _tgtd_ask --mode target --op show; }
_tgtd_tids() { _tgtd_targets | sed -n 's/^Target \([0-9]*\): .*/\1/p'; }
_tgtd_names() { _tgtd_targets | sed -n 's/^Target [0-9]*: //p'; }
# Lines of one target: with @1 for what stands before its value
_tgtd_of_target() {
	_tgtd_targets | sed -n "/^Target $1: /,/^Target /p" | sed -n "s/^ *$2//p"
}
_tgtd_block() { # of a target: what is listed below a line
	_tgtd_targets | awk -v tid="$1" -v head="    $2:" '
		/^Target / { mine = index($0, "Target " tid ":") == 1; in_it = 0 }
		/^    [^ ]/ { in_it = mine && $0 == head; next }
		in_it { sub(/^ */, ""); sub(/ .*/, ""); print }'
}
_tgtd_accounts() { _tgtd_ask --mode account --op show | sed -n 's/^    \([^ ].*\)/\1/p'; }
_tgtd_portals() { _tgtd_ask --mode portal --op show | sed -n 's/^Portal: //p'; }
_tgtd_sessions() { _tgtd_ask --mode conn --op show --tid "$1" | sed -n 's/^Session: //p'; }
_tgtd_connections() {
	_tgtd_ask --mode conn --op show --tid "$1" | sed -n "/^Session: $2\$/,/^Session/p" |
		sed -n 's/^ *Connection: //p'
}

_tgtd_limits='iops_limit read_iops_limit write_iops_limit iops_burst bandwidth_limit
	read_bandwidth_limit write_bandwidth_limit bandwidth_burst'
_tgtd_lu_params="$_tgtd_limits "'scsi_id naa scsi_sn vendor_id product_id product_rev sense_format removable
	readonly online swp write_cache path mode_page thin_provisioning lbppbe la_lba
	optimal_xfer_gran optimal_xfer_len rotation_rate sanitize_rate atomic_unit threads resize
	refresh owner mirror'
_tgtd_target_keys='HeaderDigest DataDigest InitialR2T ImmediateData DataPDUInOrder
	DataSequenceInOrder MaxRecvDataSegmentLength FirstBurstLength MaxBurstLength
	MaxOutstandingR2T MaxConnections ErrorRecoveryLevel DefaultTime2Wait DefaultTime2Retain
	RedirectAddress RedirectPort RedirectReason MaxQueueCmd nop_interval nop_count
	data_out_timeout state default-mask allow_target_reset allow_explicit_alua alua_state
	alua_groups alua_preferred alua_transition_time portals'
_tgtd_settings='State debug iSNS iSNSServerIP iSNSServerPort iSNSAccessControl weak_secrets
	default-mask latency_initiators restart'

# The values of a parameter, a key, a setting: where they are words
_tgtd_values() {
	case $1 in
	sense_format | removable | readonly | online | swp | thin_provisioning) echo 0 1 ;;
	resize | refresh) echo 1 ;;
	write_cache) echo on off mirror through ;;
	debug | latency_initiators) echo on off ;;
	HeaderDigest | DataDigest) echo None CRC32C CRC32C,None None,CRC32C ;;
	InitialR2T | ImmediateData | DataPDUInOrder | DataSequenceInOrder | allow_target_reset | \
		allow_explicit_alua) echo Yes No ;;
	RedirectReason) echo Temporary Permanent ;;
	state | State) echo ready offline ;;
	iSNS | iSNSAccessControl) echo On Off ;;
	default-mask) echo all none ;;
	restart) echo now if-new keeper ;;
	weak_secrets) echo warn refuse ;;
	alua_state) echo active-optimized active-non-optimized standby unavailable transitioning ;;
	affinity) echo auto forward send inline off ;;
	portal) _tgtd_portals ;;
	readahead) echo off ;;
	nop | immediate) echo on off ;;
	completion) echo adaptive event poll ;;
	gather) echo auto gather multi pack ;;
	cache) echo write-back write-through none ;;
	share) echo yes no ;;
	esac
}

_tgtadm() {
	local cur prev mode op tid lun
	local -a w
	COMPREPLY=()
	_tgtd_words
	mode=$(_tgtd_said -m --mode) op=$(_tgtd_said -o --op)
	tid=$(_tgtd_said -t --tid) lun=$(_tgtd_said -l --lun)
	case $mode in
	sys) mode=system ;;
	tgt) mode=target ;;
	lu) mode=logicalunit ;;
	pt) mode=portal ;;
	sess) mode=session ;;
	connection) mode=conn ;;
	esac
	# shellcheck disable=SC2046,SC2086 # words, all of them
	case $prev in
	-m | --mode) _tgtd_offer system target logicalunit account portal session conn lld cache \
		cluster ;;
	-o | --op)
		case $mode in
		system) _tgtd_offer show stat latency update delete watch ;;
		target) _tgtd_offer new delete show stat latency update bind unbind ;;
		logicalunit) _tgtd_offer new update delete stat latency slow explain ;;
		account) _tgtd_offer new update delete bind unbind show ;;
		portal) _tgtd_offer new delete show ;;
		session) _tgtd_offer show stat ;;
		conn) _tgtd_offer show stat delete ;;
		lld) _tgtd_offer start stop show ;;
		cache) _tgtd_offer show stat update ;;
		cluster) _tgtd_offer show ;;
		*) _tgtd_offer new delete show stat latency slow explain update bind unbind start stop ;;
		esac
		;;
	-t | --tid) _tgtd_offer $(_tgtd_tids) ;;
	-l | --lun)
		# a new one is none of these
		[ "$op" = new ] || _tgtd_offer $(_tgtd_of_target "$tid" 'LUN: ' | grep -vx 0)
		;;
	-s | --sid) _tgtd_offer $(_tgtd_sessions "$tid") ;;
	-c | --cid) _tgtd_offer $(_tgtd_connections "$tid" "$(_tgtd_said -s --sid)") ;;
	-n | --name)
		case $mode:$op in
		system:show) _tgtd_offer config counters stores failed-logins work threads nodes ;;
		system:stat) _tgtd_offer all machine admin_ loop_ store_ blk_ cache_ iscsi_ tcp_ iser_ ;;
		system:update) _tgtd_offer $_tgtd_settings ;;
		system:watch) _tgtd_offer login logout login_failed change access store message restart ;;
		target:update) _tgtd_offer $_tgtd_target_keys ;;
		cache:update) _tgtd_offer affinity threshold size ;;
		esac
		;;
	-v | --value) _tgtd_offer $(_tgtd_values "$(_tgtd_said -n --name)") ;;
	-P | --params)
		case $mode in
		portal) _tgtd_pairs portal ;;
		target) _tgtd_pairs "$_tgtd_limits" ;;
		cache) _tgtd_pairs 'affinity threshold size' ;;
		*)
			case $cur in
			*path=*)
				cur=${cur##*=}
				_tgtd_files
				;;
			*) _tgtd_pairs "$_tgtd_lu_params" ;;
			esac
			;;
		esac
		;;
	-S | --bsopts) _tgtd_pairs 'cache share node conf id cluster group' ;;
	-b | --backing-store | --password-file) _tgtd_files ;;
	-u | --user) _tgtd_offer $(_tgtd_accounts) ;;
	-Q | --initiator-name)
		[ "$op:$mode" = bind:target ] ||
			_tgtd_offer $(_tgtd_block "$tid" 'ACL information' | grep -E '^(iqn|eui|naa)\.')
		;;
	-I | --initiator-address)
		if [ "$op" = unbind ]; then
			_tgtd_offer $(_tgtd_block "$tid" 'ACL information')
		else
			_tgtd_offer ALL
		fi
		;;
	--portal) _tgtd_offer $(_tgtd_portals | sed 's/,.*//') ;;
	-X | --expose) _tgtd_offer all $(_tgtd_of_target "$tid" 'LUN: ' | grep -vx 0) ;;
	-L | --lld) _tgtd_offer iscsi iser ;;
	-E | --bstype) _tgtd_offer aio rdwr ram null nbd rbd ;;
	-f | --bsoflags) _tgtd_offer sync direct sync:direct ;;
	-y | --blocksize) _tgtd_offer 512 4096 ;;
	-Y | --device-type) _tgtd_offer disk ;;
	-C | --control-port) _tgtd_offer $(_tgtd_daemons) ;;
	-[TpHB] | --targetname | --password | --host | --bus) ;;
	*)
		_tgtd_offer --mode --op --tid --sid --cid --lun --name --value --backing-store \
			--bstype --bsopts --bsoflags --blocksize --targetname --initiator-address \
			--initiator-name --portal --expose --user --password --password-file \
			--outgoing --params --device-type --force --lld --control-port --json --debug \
			--help --version
		;;
	esac
	: "$lun"
}

# The numbers of daemons whose sockets there are
_tgtd_daemons() {
	local socket
	for socket in "${TGT_IPC_SOCKET:-/var/run/tgtd/socket}".*; do
		[[ $socket =~ \.([0-9]+)$ ]] && echo "${BASH_REMATCH[1]}"
	done
}

_tgt_admin() {
	local cur prev
	local -a w
	COMPREPLY=()
	_tgtd_words
	# shellcheck disable=SC2046 # words
	case $prev in
	-c | --conf) _tgtd_files ;;
	--delete | --offline | --ready | --update)
		_tgtd_offer ALL help $(_tgtd_tids | sed 's/^/tid=/') $(_tgtd_names)
		;;
	-C | --control-port) _tgtd_offer $(_tgtd_daemons) ;;
	*)
		_tgtd_offer --execute --delete --offline --ready --update --show --control-port \
			--conf --ignore-errors --force --pretend --dump --json --verbose --help
		;;
	esac
}

_tgtd() {
	local cur prev
	local -a w
	COMPREPLY=()
	_tgtd_words
	case $prev in
	--cache)
		case $cur in
		o*) _tgtd_offer off ;;
		*)
			_tgtd_pairs 'size block group partitions nodes readahead affinity threshold
				workers'
			;;
		esac
		;;
	--group) _tgtd_pairs 'name gateways self pool conf id cluster
		secret-file memory transport file' ;;
	--iscsi)
		_tgtd_pairs 'portal tag nop_interval nop_count data_out_timeout max_connections
			login_timeout'
		;;
	--iser)
		case $cur in
		o*) _tgtd_offer off ;;
		*)
			_tgtd_pairs 'port nop pool_sz_mb buf_sz_kb cq_vector immediate unsolicited_kb
				completion gather path'
			;;
		esac
		;;
	--after-loss) _tgtd_offer doubt accept ;;
	--keep-connections) _tgtd_offer quiet all none ;;
	--seccomp) _tgtd_offer on off ;;
	-d | --debug) _tgtd_offer 0 1 2 3 4 ;;
	--user) mapfile -t COMPREPLY < <(compgen -u -- "$cur") ;;
	--admin-ro-group) mapfile -t COMPREPLY < <(compgen -g -- "$cur") ;;
	-p | --pid-file | --state-dir | --sysfs-root) _tgtd_files ;;
	-C | --control-port | -t | --nr_iothreads | --numa-nodes | --spin | --stop-timeout) ;;
	*) _tgtd_help ;;
	esac
}

# The options that a program's own help names; other words may be files.
_tgtd_help() {
	local options
	case $cur in
	-*)
		options=$(timeout 5 "${w[0]}" --help 2>&1 |
			grep -oE -e '(^|[^[:alnum:]-])--?[a-zA-Z][a-zA-Z0-9_-]*' |
			sed 's/^[^-]*//' | sort -u)
		# shellcheck disable=SC2086 # words
		_tgtd_offer $options
		;;
	*) _tgtd_files ;;
	esac
}

_tgtimg() {
	local cur prev
	local -a w
	COMPREPLY=()
	_tgtd_words
	case $prev in
	--op) _tgtd_offer new show ;;
	--device-type | --type) _tgtd_offer disk ;;
	--file | --arena) _tgtd_files ;;
	--size) ;;
	*) _tgtd_help ;;
	esac
}

_tgt_setup_lun() {
	local cur prev
	local -a w
	COMPREPLY=()
	_tgtd_words
	# shellcheck disable=SC2046 # words
	case $prev in
	-d) _tgtd_files ;;
	-b) _tgtd_offer rdwr aio ram null nbd rbd ;;
	-B) _tgtd_offer 512 4096 ;;
	-t) _tgtd_offer iscsi iser ;;
	-C) _tgtd_offer $(_tgtd_daemons) ;;
	-n) ;;
	*) _tgtd_help ;;
	esac
}

_tgtd_other() {
	local cur prev
	local -a w
	COMPREPLY=()
	_tgtd_words
	_tgtd_help
}

_tgt_exporter() {
	local cur prev
	local -a w
	COMPREPLY=()
	_tgtd_words
	# shellcheck disable=SC2046 # words
	case $prev in
	-l | --listen) _tgtd_offer 127.0.0.1:9260 '[::1]:9260' :9260 ;;
	-C | --control-port) _tgtd_offer $(_tgtd_daemons) ;;
	*) _tgtd_offer --listen --control-port --initiators --help --version ;;
	esac
}

_tgt_top() {
	local cur prev
	local -a w
	COMPREPLY=()
	_tgtd_words
	# shellcheck disable=SC2046 # words
	case $prev in
	-v | --view) _tgtd_offer lus initiators threads nodes ;;
	-s | --sort)
		case $(_tgtd_said -v --view) in
		initiators)
			_tgtd_offer initiator address tid commands receive_bytes transmit_bytes \
				thread
			;;
		threads)
			_tgtd_offer thread node cpu busy iterations sleeps wakeups messages events \
				starved
			;;
		nodes)
			_tgtd_offer node size_bytes resident_bytes dirty_bytes hit_ratio \
				local_ratio fill_bytes flush_bytes evictions waiting
			;;
		*)
			_tgtd_offer lu iops read_bytes write_bytes read_ns write_ns read_p50_ns \
				read_p99_ns write_p50_ns write_p99_ns busy dirty_bytes errors \
				state target path
			;;
		esac
		;;
	-d | --delay | -f | --filter) ;;
	-C | --control-port) _tgtd_offer $(_tgtd_daemons) ;;
	*)
		_tgtd_offer --delay --view --sort --reverse --filter --once --json --control-port \
			--help --version
		;;
	esac
}

complete -F _tgtadm tgtadm
complete -F _tgt_exporter tgt-exporter
complete -F _tgt_top tgt-top
complete -F _tgt_admin tgt-admin
complete -F _tgtd tgtd
complete -F _tgtimg tgtimg
complete -F _tgt_setup_lun tgt-setup-lun
complete -F _tgtd_other tgt-probe tgt-load tgt-bareloop tgt-bench tgt-bench-cache tgt-bench-report \
	tgt-cachebench tgt-cachesim
