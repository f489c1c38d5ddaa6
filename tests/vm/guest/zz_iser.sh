T=iqn.2026-11.net.tgtd:cu
P=$RDMA_IP:3260
CU_LIMIT=500
need 'soft-RoCE device' rdma_up
need 'tgtd starts' tgtd_start $P --
need 'target and LUN' eval 'target_new 1 $T && lun_new 1 1 ram 64m'
step "SCSI" conformance iser://$P/$T/1 SCSI --dataloss
