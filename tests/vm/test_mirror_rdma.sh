#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Links of mirrors over soft-RoCE beside TCP; see guest/mirror_rdma.sh.
. "$(dirname "$0")/lib.sh"
libs=$(cd "$TGT_BIN/.." && pwd)
[ -e "$libs/liblive.a" ] || { VM_NAME=mirror_rdma; vm_skip "no archives beside $TGT_BIN (make all)"; }
nm "$libs/liblive.a" 2>/dev/null | grep -q mirror_rdma_new || { VM_NAME=mirror_rdma; vm_skip "built without rdma-core"; }
flags=
case $libs in
*/asan) flags=-fsanitize=address,undefined ;;
*/tsan) flags=-fsanitize=thread ;;
esac
mkdir -p "$VM_CACHE"
# shellcheck disable=SC2086
(cd "$VM_REPO" && ${CC:-cc} -std=gnu17 -O2 -D_GNU_SOURCE $flags -I. -o "$VM_CACHE/mirror-bench" tests/bench/mirror.c \
	-Wl,--start-group "$libs"/lib*.a -Wl,--end-group -laio -lnuma -lisal -lcrypto -ljansson -lsystemd -lrt -lm \
	-lseccomp -lrdmacm -libverbs $(pkg-config --exists libnbd && echo -lnbd)) ||
	{ echo "not ok mirror_rdma: the bench cannot be built"; exit 1; }
make --no-print-directory -C "$VM_REPO" "${libs#"$VM_REPO"/}/tests/unit/cluster/test_mirror_pair" \
	VARIANT="$(case $libs in */asan) echo asan ;; */tsan) echo tsan ;; *) echo release ;; esac)" >"$VM_CACHE/pair.log" 2>&1 ||
	{ echo "not ok mirror_rdma: test_mirror_pair cannot be built"; exit 1; }
vm_run mirror_rdma BENCH="$VM_CACHE/mirror-bench" PAIR="$libs/tests/unit/cluster/test_mirror_pair"
