#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# One target with one disk, from one command line. See tgt-setup-lun(8).

name=$(basename "$0")

usage() {
	cat <<END
usage:
	$name -n tgt_name -d dev [-b bs_name] [-B block_size] [-t transport] [-C control_port] [initiator_IP...]
defaults:
	backing store: rdwr
	transport: iscsi
	initiator: ALL
examples:
	$name -n tgt-1 -d /dev/sdb1 192.168.1.2
	$name -n tgt-2 -d 1g -b ram
	$name -n iqn.2001-04.com.example:disk -d /srv/disk.img 192.168.1.2 192.168.1.3
END
	exit 1
}

die() {
	echo "Error: $*" >&2
	exit 1
}

dev= target= bstype= blocksize= lld=iscsi port=
[ $# -gt 0 ] || usage
while getopts d:n:b:B:t:C:h opt; do
	case $opt in
	d) dev=$OPTARG ;;
	n) target=$OPTARG ;;
	b) bstype=$OPTARG ;;
	B) blocksize=$OPTARG ;;
	t) lld=$OPTARG ;;
	C) port=$OPTARG ;;
	*) usage ;;
	esac
done
shift $((OPTIND - 1))

adm() { tgtadm ${port:+-C "$port"} --lld "$lld" "$@"; }

[ -n "$target" ] || die "target name is mandatory"
[ -n "$dev" ] || die "a device is mandatory"
case $bstype in
ram | null) ;; # a size
*) [ -b "$dev" ] || [ -f "$dev" ] || [ -c "$dev" ] || die "$dev is not a device" ;;
esac
case $target in
iqn.* | eui.* | naa.*) ;;
*) target=iqn.2001-04.com.$(hostname -s)-$target ;;
esac

shown=$(adm --op show --mode target) || exit 1
[ -z "$port" ] || echo "Control port: $port"
echo "Using transport: $lld"

tid=$(echo "$shown" | sed -n "s/^Target \([0-9]*\): $target\$/\1/p")
new=
if [ -n "$tid" ]; then
	echo "Error: target named $target already exists" >&2
	printf 'Add a new lun to the existing target? (yes/NO): '
	read -r answer || answer=
	[ "$answer" = yes ] || exit 1
else
	tid=1
	while echo "$shown" | grep -q "^Target $tid: "; do tid=$((tid + 1)); done
	echo "Creating new target (name=$target, tid=$tid)"
	adm --op new --mode target --tid $tid -T "$target" ||
		die "failed to create target (name=$target, tid=$tid)"
	new=yes
fi

# Takes back what was made, so that a failure leaves things as they were.
lun=
undo() {
	[ -n "$new" ] || [ -z "$lun" ] || adm --op delete --mode logicalunit --tid "$tid" --lun "$lun"
	if [ -n "$new" ]; then
		echo "Deleting new target, tid=$tid"
		adm --op delete --mode target --tid "$tid" || echo "Error: failed to delete target, tid=$tid" >&2
	fi
	exit 1
}

# This target's part of what is shown.
part() { adm --op show --mode target | sed -n "/^Target $tid: /,/^Target /p" | sed '2,${/^Target /d}'; }

free=1
while part | grep -q "^        LUN: $free\$"; do free=$((free + 1)); done
echo "Adding a logical unit ($dev) to target, tid=$tid"
[ -z "$bstype" ] || echo "Setting backing store type: $bstype"
adm --op new --mode logicalunit --tid "$tid" --lun $free -b "$dev" ${bstype:+-E "$bstype"} \
	${blocksize:+--blocksize "$blocksize"} || {
	echo "Error: failed to add a logical unit ($dev) to target, tid=$tid" >&2
	undo
}
lun=$free

acl=$(part | sed '1,/ACL information:/d; s/^ *//')
if [ $# -gt 0 ]; then
	echo "Accepting connections from $*"
else
	echo "Accepting connections from all initiators"
	set -- ALL
fi
for initiator; do
	echo "$acl" | grep -qxF "$initiator" && continue
	adm --op bind --mode target --tid "$tid" -I "$initiator" || {
		echo "Error: could not assign initiator $initiator to the target" >&2
		undo
	}
done
