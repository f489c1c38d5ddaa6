# SPDX-License-Identifier: GPL-2.0-or-later
#
# Side by side in one machine, over iSER, initiator ib_iser: our target and LIO with isert, each with a
# memory disk of 64 MiB below. Random reads of 4 KiB at depth 16 and of 256 KiB at depth 4, in turn. The
# figures are in /out/vs_lio; what is judged is the ratio of the better rounds. CPU time per operation: of the
# whole machine; of our daemon; of all kernel threads, which for LIO are the target (its work queues) and for
# both carry part of soft-RoCE, so that of ours it is what to subtract.

OURS=iqn.2026-11.net.tgtd:ours
LIO=iqn.2026-11.net.tgtd:lio
ROUNDS=${ROUNDS:-2}
SECS=${SECS:-8}

busy() { awk '/^cpu /{print $2 + $3 + $4 + $7 + $8}' /proc/stat; } # 1/100 s, all CPUs, without idle and I/O wait
daemon() { awk '{print $14 + $15}' "/proc/$(tgtd_worker)/stat"; }

kernel_threads() { # children of kthreadd; names may have blanks and brackets, so from the last bracket on
	cat /proc/[0-9]*/stat 2>/dev/null | sed 's/.*) //' | awk '$2 == 2 {n += $12 + $13} END {print n + 0}'
}

# round NAME DEVICE BS DEPTH: one line with operations per second and CPU time per operation.
round() {
	local b0 d0 k0 b1 d1 k1
	b0=$(busy) d0=$(daemon) k0=$(kernel_threads)
	fio --name=r --filename="$2" --size=32m --rw=randread --bs="$3" --direct=1 --ioengine=libaio --iodepth="$4" \
		--time_based --runtime="$SECS" --aux-path=/run --output-format=json --output=/run/fio.json || return 1
	b1=$(busy) d1=$(daemon) k1=$(kernel_threads)
	python3 - "$1" "$3" $((b1 - b0)) $((d1 - d0)) $((k1 - k0)) <<-'END' | tee -a /out/vs_lio
		import json, sys
		r = json.load(open('/run/fio.json'))['jobs'][0]['read']
		n = max(r['total_ios'], 1)
		print('%s %s iops %.0f MB/s %.1f cpu-us/op %.0f daemon-us/op %.0f kthreads-us/op %.0f' % (sys.argv[1], sys.argv[2],
		      r['iops'], r['bw_bytes'] / 1e6, *(int(a) * 1e4 / n for a in sys.argv[3:6])))
	END
}

compare() { # BS DEPTH
	local i
	round warm "$OURS_SD" "$1" "$2" && round warm "$LIO_SD" "$1" "$2" || return 1
	for i in $(seq "$ROUNDS"); do
		round ours "$OURS_SD" "$1" "$2" && round lio "$LIO_SD" "$1" "$2" || return 1
	done
	awk -v bs="$1" '$2 == bs && $1 != "warm" {if ($4 > best[$1]) best[$1] = $4}
		END {printf "ratio %s %.2f\n", bs, best["ours"] / best["lio"]; exit !(best["ours"] >= best["lio"])}' /out/vs_lio |
		tee -a /out/vs_lio
	[ "${PIPESTATUS[0]}" -eq 0 ]
}

need 'memory disks' brd_up 2 65536
need 'soft-RoCE device' rdma_up
need 'tgtd starts' tgtd_start $RDMA_IP:3260
need 'our target' eval "target_new 1 $OURS && lun_new 1 1 aio /dev/ram0"
need 'LIO target' lio_target $LIO /dev/ram1 $RDMA_IP:3271 iser
need 'initiator' iscsid_up
need 'login to ours' login $OURS $RDMA_IP:3260 iser
need 'login to LIO' login $LIO $RDMA_IP:3271 iser
need 'our disk' wait_sd OURS_SD $OURS 1
need 'disk of LIO' wait_sd LIO_SD $LIO 0
step 'our disk is filled' dd if=/dev/zero of="$OURS_SD" bs=1M count=32 oflag=direct
step 'disk of LIO is filled' dd if=/dev/zero of="$LIO_SD" bs=1M count=32 oflag=direct
step 'random reads of 4 KiB, not fewer than LIO' compare 4k 16
step 'random reads of 256 KiB, not slower than LIO' compare 256k 4
sed 's/^/# /' /out/vs_lio
step 'logout' iscsiadm -m node -u
step 'tgtd stops' tgtd_stop
