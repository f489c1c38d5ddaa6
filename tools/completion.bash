# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# Completion for bash: modes and operations of tgtadm, the numbers of targets that the daemon has, values that are
# words, files; options of tgt-admin. Installed as tgtadm, tgt-admin: bash-completion loads it by the command's name.

_tgtadm() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} mode='' op='' words='' i
	for ((i = 1; i < COMP_CWORD - 1; i++)); do
		case ${COMP_WORDS[i]} in
		-m | --mode) mode=${COMP_WORDS[i + 1]} ;;
		-o | --op) op=${COMP_WORDS[i + 1]} ;;
		esac
	done
	COMPREPLY=()
	case $prev in
	-m | --mode) words='system target logicalunit account portal session conn lld cache' ;;
	-o | --op)
		case $mode in
		sys*) words='show stat update delete' ;;
		target | tgt) words='new delete show stat update bind unbind' ;;
		logicalunit | lu) words='new update delete stat' ;;
		account) words='new update delete bind unbind show' ;;
		portal | pt) words='new delete show' ;;
		session | sess) words='show stat' ;;
		connection | conn) words='show stat delete' ;;
		lld) words='start stop show' ;;
		cache) words='show stat update' ;;
		*) words='new delete show stat update bind unbind start stop' ;;
		esac
		;;
	-t | --tid)
		words=$(tgtadm --op show --mode target 2>/dev/null | sed -n 's/^Target \([0-9]*\): .*/\1/p')
		;;
	-n | --name)
		case $mode:$op in
		sys*:show) words='config counters stores failed-logins' ;;
		sys*:stat) words='all loop_ store_ blk_ cache_ iscsi_ tcp_ iser_' ;;
		sys*:update) words='State debug iSNS iSNSServerIP iSNSServerPort iSNSAccessControl
			weak_secrets default-mask' ;;
		esac
		;;
	-b | --backing-store | --password-file)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	-L | --lld) words='iscsi iser' ;;
	-E | --bstype) words='aio rdwr ram null nbd' ;;
	-f | --bsoflags) words='sync direct sync:direct' ;;
	-Y | --device-type) words='disk' ;;
	-I | --initiator-address) words='ALL' ;;
	-[sclvSyTQupHPBCX] | --sid | --cid | --lun | --value | --bsopts | --blocksize | --targetname | --initiator-name | \
		--user | --password | --host | --params | --bus | --control-port | --expose | --portal) return ;;
	*)
		words='--mode --op --tid --sid --cid --lun --name --value --backing-store --bstype --bsopts --bsoflags
			--blocksize --targetname --initiator-address --initiator-name --portal --expose --user --password
			--password-file --outgoing --params --device-type --force --lld --control-port --debug --help --version'
		;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}

_tgt_admin() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} words=''
	COMPREPLY=()
	case $prev in
	-c | --conf)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	--delete | --offline | --ready | --update) words='ALL help' ;;
	-C | --control-port) return ;;
	*)
		words='--execute --delete --offline --ready --update --show --control-port --conf --ignore-errors
			--force --pretend --dump --verbose --help'
		;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}

complete -F _tgtadm tgtadm
complete -F _tgt_admin tgt-admin
