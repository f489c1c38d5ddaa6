#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Three gateways beside a Ceph of one machine, and a guest whose kernel has a path to each; see
# guest/gateways.sh. The guest asks by files of /out for what is to happen to a gateway:
#
#   owner             who serves the unit: a, b or c
#   kill|start GATEWAY     keeper and worker at once; it comes back
#   move GATEWAY      the unit
#   intrude GATEWAY   a write by another initiator: what it is told
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
. tests/cluster/ceph_lib.sh
. tests/cluster/gateways_lib.sh
. tests/vm/lib.sh
VM_NAME=gateways
vm= nexuses=
test_end() {
	local p
	for p in $vm $nexuses; do kill "$p" 2>/dev/null; done
}
vm_prepare
[ -x /usr/sbin/mpathpersist ] || vm_skip "no multipath-tools (tools/install-deps)"
qemu-system-x86_64 -netdev help 2>/dev/null | grep -qx user || vm_skip "this QEMU has no user network"
gateways_test "gateways, with a kernel's paths"
# QEMU's user network brings 10.0.2.2 to 127.0.0.1, and to nothing else of this machine.
addr=([a]=127.0.0.1 [b]=127.0.0.1 [c]=127.0.0.1)
image_size=64M
group_start
is "one of them serves the unit" await 60 some_serves a b c
for g in $(others "$owner"); do is "... and $g stands by" await 60 stands_by "$g"; done
coproc NEXUSES { exec python3 -B tests/cluster/nexuses.py $iqn a="$(path_of a)" b="$(path_of b)" \
	c="$(path_of c)" 2>"$dir/nexuses.log"; }
nexuses=$NEXUSES_PID

asked() { # WORDS...: $answer
	answer=yes
	case $1 in
	owner)
		await 60 some_serves ${!gpid[*]} || owner=nobody
		answer=$owner
		;;
	kill) gw_kill "$2" ;;
	start) gw_start "$2" || answer=no ;;
	move)
		gadm "$2" --op update --mode logicalunit --tid 1 --lun 1 --params owner="$2"
		await 60 serves "$2" || answer=no
		;;
	intrude)
		echo "write y$2" >&"${NEXUSES[1]}"
		read -r -t 90 answer <&"${NEXUSES[0]}"
		;;
	*) answer="what is $1?" ;;
	esac
}

VM_DEVICES="-netdev user,id=n -device virtio-net-pci,netdev=n" \
	vm_run gateways IQN=$iqn PORT_a="${gport[a]}" PORT_b="${gport[b]}" PORT_c="${gport[c]}" &
vm=$!
question=build/log/vm-gateways.out/ask
while kill -0 $vm 2>/dev/null; do
	if [ -e $question ]; then
		read -r -a words <$question
		rm -f $question
		asked "${words[@]}"
		echo "# ${words[*]}: $answer"
		echo "$answer" >$question.new
		mv $question.new build/log/vm-gateways.out/answer
	fi
	sleep 0.1
done
wait $vm
is "the guest has seen what it should" test $? = 0
vm=
for g in a b c; do [ -z "${gpid[$g]-}" ] || is "$g ends with 0" gw_stop "$g"; done
cat "$dir"/[abc]/log >"$dir/log"
is "nothing has been reported" no_report
finish 60
