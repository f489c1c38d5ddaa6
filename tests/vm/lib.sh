# SPDX-License-Identifier: GPL-2.0-or-later
#
# Host side of the VM tests: gets a stock Debian kernel, boots it under QEMU with this machine's own
# file system as a read-only root, runs one guest script, and passes its TAP lines on. Sourced by
# tests/vm/test_*.sh, each of which is one boot. See README.md.
#
# Everything made here lies in build/vm (kernel, initramfs: cached) and build/log/vm-NAME* (results).
#
# Knobs from the environment: TGT_BIN (folder of the tgtd and tgtadm to test), VM_LIMIT (seconds for
# the whole boot), VM_BOOT_LIMIT (for its first word), VM_NODE_MB (memory of each of the four nodes),
# VM_ACCEL (tcg; kvm where it works), VM_KERNEL_DEB (a linux-image package file, for machines without
# a package mirror), VM_DEVICES (more of QEMU's arguments).

set -u
VM_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
VM_REPO=$(cd "$VM_DIR/../.." && pwd)
VM_CACHE=$VM_REPO/build/vm
VM_LIMIT=${VM_LIMIT:-700}
VM_BOOT_LIMIT=${VM_BOOT_LIMIT:-60}
VM_QEMU=
VM_NODE_MB=${VM_NODE_MB:-1024}
VM_ACCEL=${VM_ACCEL:-tcg}
TGT_BIN=${TGT_BIN:-$VM_REPO/build/bin}
if [ ! -x "$TGT_BIN/tgtd" ] || [ ! -x "$TGT_BIN/tgtadm" ]; then
	echo "not ok ${0##*/}: no tgtd and tgtadm in $TGT_BIN (make all)"
	exit 1
fi

# Modules without which there is no root file system; the guest loads all others by itself.
VM_BOOT_MODULES="virtio_pci 9pnet_virtio 9p overlay"

vm_skip() {
	echo "ok $VM_NAME # SKIP $*"
	exit 0
}

# Leaves a linux-image-*.deb in $VM_CACHE: VM_KERNEL_DEB, one downloaded before, or the one that
# linux-image-amd64 stands for today. Downloaded only; nothing is installed on this machine.
vm_fetch_kernel() {
	local package try
	if [ -n "${VM_KERNEL_DEB:-}" ]; then
		cp "$VM_KERNEL_DEB" "$VM_CACHE/"
		return
	fi
	ls "$VM_CACHE"/linux-image-*.deb >/dev/null 2>&1 && return
	for try in 1 2; do
		package=$(apt-cache depends linux-image-amd64 2>/dev/null | awk '/Depends: linux-image-[0-9]/ {print $2; exit}')
		if [ -n "$package" ] && (cd "$VM_CACHE" && apt-get download -q "$package" >apt.log 2>&1); then
			return 0
		fi
		rm -f "$VM_CACHE"/linux-image-*.deb
		[ $try = 2 ] || apt-get update -q >"$VM_CACHE/apt-update.log" 2>&1 # a fresh machine has no lists
	done
	return 1
}

# Unpacks what a guest can use of the kernel package, and writes the module index.
vm_unpack_kernel() {
	local deb tmp=$VM_CACHE/kernel.tmp
	deb=$(ls -t "$VM_CACHE"/linux-image-*.deb | head -n 1)
	rm -rf "$tmp" "$VM_CACHE/kernel"
	mkdir -p "$tmp"
	dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$tmp" --exclude='*/drivers/gpu' --exclude='*/drivers/media' \
		--exclude='*/sound' --exclude='*/net/wireless' --exclude='*/drivers/net/ethernet' --exclude=./usr ||
		return 1
	VM_VERSION=$(basename "$tmp"/lib/modules/*)
	# Debian's depmod gives some warnings about the modules left out above.
	depmod -b "$tmp" "$VM_VERSION" 2>"$VM_CACHE/depmod.log" || return 1
	mv "$tmp" "$VM_CACHE/kernel"
}

# busybox, the boot modules in the order they need, and guest/initramfs-init as /init.
vm_make_initramfs() {
	local tree=$VM_CACHE/initramfs.tree m file
	rm -rf "$tree"
	mkdir -p "$tree"/{bin,dev,proc,sys,modules,lower,rw,new}
	cp "$(command -v busybox)" "$tree/bin/busybox"
	cp "$VM_DIR/guest/initramfs-init" "$tree/init"
	chmod 755 "$tree/init"
	for m in $VM_BOOT_MODULES; do
		modprobe --show-depends -d "$VM_CACHE/kernel" -S "$VM_VERSION" "$m" 2>/dev/null
	done | awk '$1 == "insmod" && !seen[$2]++ {print $2}' >"$VM_CACHE/boot-modules"
	[ -s "$VM_CACHE/boot-modules" ] || return 1
	while read -r file; do
		cp "$file" "$tree/modules/" || return 1
		basename "$file"
	done <"$VM_CACHE/boot-modules" >"$tree/modules/order"
	(cd "$tree" && find . | cpio -o -H newc --quiet) | gzip -1 >"$VM_CACHE/initramfs.tmp" || return 1
	mv "$VM_CACHE/initramfs.tmp" "$VM_CACHE/initramfs"
	rm -rf "$tree"
}

# Kernel and initramfs ready in $VM_CACHE, or the test is skipped with the reason. Two test programs
# may come here at once; the second waits for the first.
vm_prepare() {
	local tool reason=
	for tool in qemu-system-x86_64 busybox cpio depmod modprobe dpkg-deb iscsiadm fio; do
		command -v $tool >/dev/null || reason="$reason $tool"
	done
	[ -z "$reason" ] || vm_skip "not installed:$reason (tools/install-deps)"
	mkdir -p "$VM_CACHE"
	exec 8>"$VM_CACHE/lock"
	flock 8
	if ! ls "$VM_CACHE"/kernel/lib/modules/*/modules.dep >/dev/null 2>&1; then
		vm_fetch_kernel || vm_skip "no kernel package: linux-image-amd64 could not be downloaded ($VM_CACHE/apt.log)"
		vm_unpack_kernel || vm_skip "kernel package could not be unpacked in $VM_CACHE"
	fi
	VM_VERSION=$(basename "$VM_CACHE"/kernel/lib/modules/*)
	if [ ! -e "$VM_CACHE/initramfs" ] || [ "$VM_DIR/guest/initramfs-init" -nt "$VM_CACHE/initramfs" ] ||
		[ "$VM_DIR/lib.sh" -nt "$VM_CACHE/initramfs" ]; then
		vm_make_initramfs || vm_skip "initramfs could not be built in $VM_CACHE"
	fi
	# Preloaded by the guest's iser_conformance; without a compiler that helper fails and says so.
	if [ "$VM_DIR/libiscsi_iser_fix.c" -nt "$VM_CACHE/libiscsi_iser_fix.so" ]; then
		${CC:-cc} -std=gnu17 -D_GNU_SOURCE -O1 -g -Wall -Wextra -shared -fPIC -o "$VM_CACHE/libiscsi_iser_fix.so" \
			"$VM_DIR/libiscsi_iser_fix.c" -ldl
	fi
	flock -u 8
	exec 8>&-
}

# Four sockets, each a node with its own memory and unequal distances, as a real large machine has.
vm_numa_args() {
	local n to dist=(10 16 22 28) args=
	for n in 0 1 2 3; do
		args+=" -object memory-backend-ram,id=m$n,size=${VM_NODE_MB}M -numa node,nodeid=$n,cpus=$n,memdev=m$n"
	done
	for n in 0 1 2 3; do
		for to in 0 1 2 3; do
			[ $n -ge $to ] || args+=" -numa dist,src=$n,dst=$to,val=${dist[$((to - n))]}"
		done
	done
	echo "$args"
}

# Starts QEMU in the background, its pid in VM_QEMU.
vm_start() { # LOG
	local log=$1
	rm -f "$log.log" "$log.console"
	# ttyS0 is the kernel's, ttyS1 the script's: no kernel message can tear a TAP line.
	# shellcheck disable=SC2046,SC2086
	timeout -k 5 "$VM_LIMIT" qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot \
		-accel "$VM_ACCEL$([ "$VM_ACCEL" != tcg ] || echo ,thread=multi)" -cpu max -smp 4,sockets=4 \
		-m $((4 * VM_NODE_MB)) $(vm_numa_args) \
		-kernel "$VM_CACHE/kernel/boot/vmlinuz-$VM_VERSION" -initrd "$VM_CACHE/initramfs" \
		-append "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable no_timer_check nowatchdog rcupdate.rcu_cpu_stall_suppress=1 random.trust_cpu=on" \
		-chardev "file,id=kernel,path=$log.console" -serial chardev:kernel \
		-chardev "file,id=script,path=$log.log" -serial chardev:script \
		-virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap \
		-virtfs "local,path=$log.out,mount_tag=out,security_model=none,multidevs=remap" \
		${VM_DEVICES:-} \
		>"$log.qemu" 2>&1 </dev/null &
	VM_QEMU=$!
}

# The guest said something, or QEMU has ended, before VM_BOOT_LIMIT.
vm_alive() { # SCRIPT-LOG
	local end=$((SECONDS + VM_BOOT_LIMIT))
	while [ $SECONDS -lt $end ]; do
		[ ! -s "$1" ] && kill -0 $VM_QEMU 2>/dev/null || return 0
		sleep 0.2
	done
	return 1
}

# vm_run NAME [VAR=VALUE...]: boots, runs tests/vm/guest/NAME.sh with the variables set, prints its
# output and exits with 0 if every step was ok. Results: build/log/vm-NAME.log (what the script said),
# build/log/vm-NAME.console (the kernel), build/log/vm-NAME.out/ (files the guest left in /out).
# VM_AS names them otherwise, for a script that runs a scenario of another name.
vm_run() {
	VM_NAME=$1
	shift
	local log=$VM_REPO/build/log/vm-${VM_AS:-$VM_NAME} var rc try start=$SECONDS
	vm_prepare
	mkdir -p "$(dirname "$log")"
	rm -rf "$log.out" "$log.log" "$log.console"
	mkdir "$log.out"
	{
		for var in "REPO=$VM_REPO" "SCENARIO=$VM_NAME" "TGT_BIN=$TGT_BIN" "MODULES=$VM_CACHE/kernel" "VM_CACHE=$VM_CACHE" \
			"GUEST_LIMIT=$((VM_LIMIT - 30))" "$@"; do
			printf 'export %s=%q\n' "${var%%=*}" "${var#*=}"
		done
	} >"$log.out/env"
	trap '[ -z "$VM_QEMU" ] || kill $VM_QEMU 2>/dev/null' EXIT
	trap 'exit 143' TERM INT
	# On a crowded host the emulated CPUs now and then fail to start each other; that is QEMU's affair
	# and shows within seconds, so such a boot is given up early and said.
	for try in 1 2 3; do
		vm_start "$log"
		vm_alive "$log.log" && break
		[ $try = 3 ] || {
			echo "# $VM_NAME: no sign of life from the guest in $VM_BOOT_LIMIT s, starting again"
			kill $VM_QEMU
			wait $VM_QEMU 2>/dev/null
		}
	done
	tail -F -n +1 -s 0.2 --pid=$VM_QEMU "$log.log" 2>/dev/null | tr -d '\r' | vm_print
	wait $VM_QEMU
	rc=$?
	trap - EXIT
	vm_cores "$log.out"
	echo "# $VM_NAME: guest ran for $((SECONDS - start)) s, kernel $VM_VERSION, files in $log.*"
	if ! tr -d '\r' <"$log.log" 2>/dev/null | grep -q '^VM-END$'; then
		echo "not ok $VM_NAME: the guest did not reach its end (QEMU status $rc, limit $VM_LIMIT s)"
		{
			grep -aE 'Kernel panic|BUG:|RIP:' "$log.console"
			tail -n 12 "$log.qemu" "$log.console"
		} 2>/dev/null | tr -d '\r' | sed 's/^/# /'
		exit 1
	fi
	! tr -d '\r' <"$log.log" | grep -q '^not ok '
	exit $?
}

# Where programs crashed, as far as there is a debugger. (Their files are the host's, paths hold.)
vm_cores() { # DIR
	local core
	command -v gdb >/dev/null || return 0
	for core in "$1"/core.*; do
		[ -e "$core" ] || continue
		echo "# $core:"
		gdb -q -batch -ex 'thread apply all bt 12' -c "$core" \
			"$(file -b "$core" | sed -n "s/.*execfn: '\([^']*\)'.*/\1/p")" 2>/dev/null |
			grep -E '^(Thread|#)' | sed 's/^/#    /' | head -n 60
	done
}

# TAP lines as they are, all else as comments.
vm_print() {
	local line
	while IFS= read -r line; do
		case $line in
		'ok '* | 'not ok '* | '#'*) printf '%s\n' "$line" ;;
		VM-END) ;;
		*) printf '# %s\n' "$line" ;;
		esac
	done
}
