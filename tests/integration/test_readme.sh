#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A newcomer's path, as README.md says it: from the package to a LUN, a figure and a configuration that
# stays, in under five commands. Each but the first (tests/package runs that) is run as it stands there.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
mapfile -t commands < <(sed -n '/^## From a package to the first figure/,/^## G/s/^    //p' README.md)
out=${#commands[@]}
is "README.md has under five commands from the package to a figure" \
	test "${#commands[@]}" -gt 2 -a "${#commands[@]}" -lt 5
is "... the first installs it" test "${commands[0]%%tgtd_*}" = "apt-get install ./"
truncate -s 64M "$dir/disk"
export PATH=$bin:$PATH
daemon_start ours
for command in "${commands[@]:1}"; do
	command=${command%%  \#*}
	command=${command//\/dev\/vg0\/disk1/$dir/disk}
	out=$(bash -c "${command//\/etc\/tgt/$dir}" 2>&1)
	rc=$?
	is "$command" test $rc = 0
done
is "... the target is in the file" grep -q "^<target iqn.*-disk1>" "$dir/targets.conf"
is "the daemon ends" daemon_stop
daemon_start ours
out=$(tgt-admin -e -c "$dir/targets.conf" 2>&1)
is "... which the next daemon takes" test $? = 0
adm --op show --mode target
is "... with the disk" has "Backing store path: $dir/disk"
finish
