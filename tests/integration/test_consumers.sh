#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# U1 to U4: those who drive tgt's programs, their own code unchanged, against a live daemon: the
# resource agents of Debian and of ClusterLabs, OpenStack Cinder's driver, Longhorn's helper, Debian's
# unit for tgt, the files of DebOps' role. CONSUMERS=DIR is where they lie (tests/consumers-fetch DIR
# gets them); who is not there is skipped. What they call is also in test_tgtadm_consumers.sh, written
# from their command lines, which runs anywhere.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
consumers=${CONSUMERS:-/nonexistent}
conf=$dir/targets.conf
readers=
trap 'kill -9 $readers 2>/dev/null; daemon_kill; rm -rf "$dir"' EXIT
skip() { echo "ok $1 # SKIP $2"; }
truncate -s 64M "$dir"/disk{1,2,3}
# What they find: programs by name, with our socket; and a configuration of our own.
mkdir "$dir/tools"
ln -s "$bin/tgtadm" "$dir/tools/tgtadm"
printf '#!/bin/sh\nexec "%s/tgt-admin" -c "%s" "$@"\n' "$bin" "$conf" >"$dir/tools/tgt-admin"
chmod +x "$dir/tools/tgt-admin"
export PATH=$dir/tools:$PATH
code() { [ "$rc" = "$1" ]; }
# Somebody logged in to this target, LUN 1; the number of the target
log_in() {
	python3 -B tests/integration/reader.py "$port" "$1" >/dev/null 2>&1 &
	readers="$readers $!"
	for _ in $(seq 600); do
		adm --op show --mode conn --tid "$2"
		[ -n "$out" ] && return 0
		sleep 0.05
	done
	return 1
}
daemon_start ours

# ---- resource agents: iSCSITarget and iSCSILogicalUnit ---------------------------------------------------
# agent NAME ACTION VARIABLE=VALUE...: with the functions in $functions
agent() {
	local name=$1 action=$2
	shift 2
	out=$(env OCF_ROOT="$ocf" OCF_FUNCTIONS_DIR="$functions" OCF_RESOURCE_INSTANCE="$name-1" \
		OCF_RESOURCE_TYPE="$name" OCF_RESOURCE_PROVIDER=heartbeat __OCF_ACTION="$action" HA_debug=0 \
		HA_RSCTMP="$dir/rsc" HA_VARRUN="$dir/rsc" HA_logfacility=none HA_LOGD=no \
		OCF_RESKEY_implementation=tgt OCF_RESKEY_CRM_meta_timeout=60000 "$@" \
		timeout 120 bash "$agents/$name" "$action" 2>&1)
	rc=$?
}
agents_run() { # WHOSE
	local -a target lu
	target=(OCF_RESKEY_iqn=iqn.2009-02.com.example:pcmk OCF_RESKEY_tid=3
		OCF_RESKEY_allowed_initiators=ALL
		OCF_RESKEY_incoming_username=pcmk OCF_RESKEY_incoming_password=secret-of-pcmk
		"OCF_RESKEY_additional_parameters=MaxBurstLength=131072 HeaderDigest=None,CRC32C")
	lu=(OCF_RESKEY_target_iqn=iqn.2009-02.com.example:pcmk OCF_RESKEY_lun=1
		OCF_RESKEY_path="$dir/disk1" OCF_RESKEY_vendor_id=LINBIT OCF_RESKEY_tgt_bstype=aio
		"OCF_RESKEY_additional_parameters=mode_page=8:0:18:0x10:0:0xff:0xff:0:0:0xff:0xff:0xff:0xff:0x80:0x14:0:0:0:0:0:0")
	mkdir -p "$dir/rsc"
	agent iSCSITarget monitor "${target[@]}"
	is "$1: the target is not there" code 7
	agent iSCSITarget start "${target[@]}"
	is "$1: it starts" code 0
	agent iSCSITarget start "${target[@]}"
	is "$1: ... and again" code 0
	agent iSCSITarget monitor "${target[@]}"
	is "$1: it is there" code 0
	agent iSCSILogicalUnit monitor "${lu[@]}"
	is "$1: the unit is not" code 7
	agent iSCSILogicalUnit start "${lu[@]}"
	is "$1: it starts" code 0
	agent iSCSILogicalUnit monitor "${lu[@]}"
	is "$1: it is there" code 0
	adm --op show --mode target
	is "$1: ... with its store" has_line "            Backing store path: $dir/disk1"
	is "$1: ... and open to all" has_line "        ALL"
	adm --mode account --op unbind --tid 3 --user pcmk
	is "$1: somebody logs in" log_in iqn.2009-02.com.example:pcmk 3
	adm --mode account --op bind --tid 3 --user pcmk
	agent iSCSILogicalUnit stop "${lu[@]}"
	is "$1: the unit stops under a session" code 0
	agent iSCSILogicalUnit monitor "${lu[@]}"
	is "$1: ... and is gone" code 7
	agent iSCSITarget stop "${target[@]}"
	is "$1: the target stops, and its session" code 0
	agent iSCSITarget monitor "${target[@]}"
	is "$1: ... and is gone" code 7
	agent iSCSITarget stop "${target[@]}"
	is "$1: stopped again" code 0
	adm --mode account --op show
	is "$1: no account is left" not has pcmk
	for reader in $readers; do
		kill -9 "$reader" 2>/dev/null
		wait "$reader" 2>/dev/null
	done
	readers=
}
ocf=$consumers/debian/usr/lib/ocf
[ -d "$ocf" ] || ocf=/usr/lib/ocf
functions=$ocf/lib/heartbeat agents=$ocf/resource.d/heartbeat
if [ -f "$agents/iSCSITarget" ]; then
	agents_run "Debian's resource agents"
else
	skip "Debian's resource agents" "CONSUMERS/debian is not there, nor is resource-agents installed"
fi
if [ -f "$consumers/resource-agents/heartbeat/iSCSITarget.in" ]; then
	# what their ./configure would fill in
	functions=$dir/ocf agents=$dir/ocf ocf=$dir/ocf-root
	mkdir -p "$functions" "$ocf"
	for file in "$consumers"/resource-agents/heartbeat/{iSCSI*,ocf-*}; do
		[ -f "$file" ] && sed -e "s#@BASH_SHELL@#/bin/bash#; s#@[A-Za-z_]*@#$dir/ocf-root#g" "$file" \
			>"$functions/$(basename "$file" .in)"
	done
	agents_run "ClusterLabs' resource agents"
else
	skip "ClusterLabs' resource agents" "CONSUMERS/resource-agents is not there"
fi

# ---- OpenStack Cinder ------------------------------------------------------------------------------------
cinder=${CINDER:-$consumers/cinder}
if [ -f "$cinder/cinder/volume/targets/tgt.py" ]; then
	mkdir "$dir/volumes"
	echo "include $dir/volumes/*" >"$conf"
	out=$(python3 -B tests/integration/cinder_driver.py "$cinder" "$dir/volumes" "$dir/disk2" 2>&1)
	rc=$?
	is "Cinder's driver: create, export, extend, remove" code 0
else
	skip "Cinder's driver" "CONSUMERS/cinder is not there"
fi

# ---- Longhorn --------------------------------------------------------------------------------------------
helper=$consumers/go-iscsi-helper
if [ ! -f "$helper/iscsi/target.go" ]; then
	skip "Longhorn's go-iscsi-helper" "CONSUMERS/go-iscsi-helper is not there"
elif ! command -v go >/dev/null; then
	skip "Longhorn's go-iscsi-helper" "go is not installed"
else
	mkdir -p "$dir/longhorn"
	cat >"$helper/tgtd_test_main_test.go" <<'END_OF_GO'
package main

import (
	"os"
	"testing"

	"github.com/longhorn/go-iscsi-helper/iscsi"
)

func must(t *testing.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

func TestTgtd(t *testing.T) {
	name := "iqn.2019-10.io.longhorn:vol"
	tid, err := iscsi.FindNextAvailableTargetID()
	must(t, err)
	must(t, iscsi.CreateTarget(tid, name))
	must(t, iscsi.AddLun(tid, 1, os.Getenv("DISK"), "aio", ""))
	must(t, iscsi.BindInitiator(tid, "ALL"))
	found, err := iscsi.GetTargetTid(name)
	must(t, err)
	if found != tid {
		t.Fatal(found)
	}
	_, err = iscsi.GetTargetConnections(tid)
	must(t, err)
	must(t, iscsi.UnbindInitiator(tid, "ALL"))
	must(t, iscsi.DeleteLun(tid, 1))
	must(t, iscsi.DeleteTarget(tid))
}
END_OF_GO
	mod=mod
	[ -d "$helper/vendor" ] && mod=vendor # what it needs is there: no network
	out=$(cd "$helper" && DISK=$dir/disk3 GOFLAGS=-mod=$mod GOCACHE=$dir/longhorn go test -run TestTgtd . 2>&1)
	rc=$?
	rm "$helper/tgtd_test_main_test.go"
	is "Longhorn's go-iscsi-helper: target, LUN, initiators, and back" code 0
fi

# ---- DebOps: the files that its role makes ----------------------------------------------------------------
templates=$consumers/debops/ansible/roles/tgt/templates/etc/tgt/conf.d
mkdir -p "$dir/conf.d"
echo "include $dir/conf.d/*.conf" >"$conf"
rendered() { # what the templates make of the example below
	cat <<END_OF_FILE
# Ansible managed

<target iqn.2026-11.org.example:debops>
    <backing-store $dir/disk1>
        write-cache off
        vendor_id DebOps
    </backing-store>

    backing-store $dir/disk2

    initiator-address 192.168.1.0/24
    incominguser someuser secretpass12
</target>

END_OF_FILE
}
if [ -f "$templates/target.conf.j2" ] && python3 -c "import jinja2" 2>/dev/null; then
	python3 -B - "$templates" "$dir" >"$dir/conf.d/one.conf" <<'END_OF_PYTHON'
import sys
import jinja2
env = jinja2.Environment(loader=jinja2.FileSystemLoader(sys.argv[1]), trim_blocks=True)
# as Ansible's, which take dictionaries, too
env.filters['unique'] = lambda v: [e for i, e in enumerate(v) if e not in v[:i]]
env.filters['sort'] = lambda v: sorted(v, key=str)
disk = sys.argv[2] + '/disk'
print(env.get_template('target.conf.j2').render(
    ansible_managed='Ansible managed', tgt_iqn_base='iqn.2026-11.org.example',
    item={'name': 'debops', 'options': 'initiator-address 192.168.1.0/24\nincominguser someuser secretpass12',
          'backing_stores': [disk + '2', {'store': disk + '1', 'options': 'write-cache off\nvendor_id DebOps'}]}))
END_OF_PYTHON
	whose="DebOps' template"
else
	rendered >"$dir/conf.d/one.conf"
	whose="DebOps' file, as its template makes it"
fi
printf '# Ansible managed\n\n# Global tgt options\ndefault-driver iscsi\n\n' >"$dir/conf.d/00_tgt_options.conf"
out=$(tgt-admin --update ALL 2>&1)
rc=$?
is "$whose: taken" code 0
adm --op show --mode target
is "... with its target" has "iqn.2026-11.org.example:debops"
is "... and both stores" test "$(printf '%s\n' "$out" | grep -c "Backing store path: $dir/disk")" = 2
tgt-admin --delete ALL -f >/dev/null

# ---- Debian's unit for tgt: each line of it ----------------------------------------------------------------
unit=/lib/systemd/system/tgt.service
is "the daemon ends" daemon_stop
if [ -f $unit ] && grep -q '^ExecStop=.*tgt-admin' $unit; then
	printf '<target iqn.2026-11.org.example:unit>\n\tbacking-store %s\n</target>\n' "$dir/disk1" >"$conf"
	lines() { # KEY: runs all of them; the first that fails ends it
		while read -r line; do
			out=$($line 2>&1)
			rc=$?
			[ $rc = 0 ] || { out="$line: $rc: $out" && return 1; }
		done < <(sed -n "s#^$1=##p" $unit | sed -e "s#/usr/sbin/#$bin/#" -e "s#/etc/tgt/targets.conf#$conf#")
	}
	start=$(sed -n 's#^ExecStart=/usr/sbin/tgtd##p' $unit)
	for _ in 1 2 3 4 5; do # ports that somebody has taken
		rm -f "$dir"/socket.*
		# shellcheck disable=SC2086 # its options
		"$bin/tgtd" $start --state-dir "$dir/state" --cache size=32m \
			--iscsi "portal=127.0.0.1:$port" >"$dir/log" 2>&1 &
		pid=$!
		for _ in $(seq 300); do
			adm --mode sys --op show
			[ "$rc" = 0 ] && break 2
			kill -0 $pid 2>/dev/null || break
			sleep 0.1
		done
		port=$(pick_port)
	done
	is "Debian's unit: ExecStartPost" lines ExecStartPost
	is "... somebody logs in" log_in iqn.2026-11.org.example:unit 1
	printf '<target iqn.2026-11.org.example:more>\n\tbacking-store %s\n</target>\n' "$dir/disk2" >>"$conf"
	is "Debian's unit: ExecReload" lines ExecReload
	adm --op show --mode target
	is "... has the new target" has iqn.2026-11.org.example:more
	is "Debian's unit: ExecStop, under a session" lines ExecStop
	status=0
	wait "$pid" || status=$?
	pid=
	out=$status
	is "... and the daemon has ended" test $status = 0
else
	skip "Debian's unit" "tgt is not installed"
fi
finish
