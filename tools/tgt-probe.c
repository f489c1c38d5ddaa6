/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tgt-probe: does a target work, as an initiator sees it? A discovery, a login, INQUIRY, READ
 * CAPACITY, and with --write a write and a read back of one MiB. Speaks through libiscsi, so it is
 * also a second opinion on our wire format.
 */
#include <getopt.h>
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <stdio.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PROBE_BYTES (1 << 20)
#define INITIATOR "iqn.2026-11.org.tgtd:probe"

static int fail(struct iscsi_context *i, const char *what)
{
	fprintf(stderr, "tgt-probe: %s: %s\n", what, i ? iscsi_get_error(i) : "out of memory");
	return 1;
}

static int discover(const char *portal)
{
	struct iscsi_context *i = iscsi_create_context(INITIATOR);
	struct iscsi_discovery_address *list, *a;

	if (!i)
		return fail(NULL, "discovery");
	iscsi_set_session_type(i, ISCSI_SESSION_DISCOVERY);
	if (iscsi_connect_sync(i, portal) || iscsi_login_sync(i))
		return fail(i, "discovery");
	list = iscsi_discovery_sync(i);
	if (!list)
		return fail(i, "discovery: no target is shown");
	for (a = list; a; a = a->next)
		for (struct iscsi_target_portal *p = a->portals; p; p = p->next)
			printf("discovery:  %s at %s\n", a->target_name, p->portal);
	iscsi_free_discovery_data(i, list);
	iscsi_logout_sync(i);
	iscsi_destroy_context(i);
	return 0;
}

static int identify(struct iscsi_context *i, int lun, uint32_t *block, uint64_t *blocks)
{
	struct scsi_task *task = iscsi_inquiry_sync(i, lun, 0, 0, 255);
	struct scsi_inquiry_standard *inq;
	struct scsi_readcapacity16 *rc;

	inq = task && task->status == SCSI_STATUS_GOOD ? scsi_datain_unmarshall(task) : NULL;
	if (!inq)
		return fail(i, "INQUIRY");
	printf("inquiry:    %.8s %.16s %.4s\n", inq->vendor_identification,
	       inq->product_identification, inq->product_revision_level);
	scsi_free_scsi_task(task);
	task = iscsi_readcapacity16_sync(i, lun);
	rc = task && task->status == SCSI_STATUS_GOOD ? scsi_datain_unmarshall(task) : NULL;
	if (!rc)
		return fail(i, "READ CAPACITY(16)");
	*block = rc->block_length;
	*blocks = rc->returned_lba + 1;
	scsi_free_scsi_task(task);
	printf("capacity:   %llu blocks of %u bytes, %llu MiB\n", (unsigned long long)*blocks,
	       *block, (unsigned long long)(*blocks * *block >> 20));
	return 0;
}

static int write_and_read(struct iscsi_context *i, int lun, uint32_t block, uint64_t blocks)
{
	uint8_t *data = malloc(PROBE_BYTES);
	uint64_t lba = blocks > PROBE_BYTES / block ? blocks - PROBE_BYTES / block : 0;
	struct scsi_task *task;
	int rc = 0;

	if (!data || blocks * block < PROBE_BYTES) {
		free(data);
		return fail(NULL, "the logical unit is smaller than 1 MiB; nothing written");
	}
	srandom((unsigned)time(NULL));
	for (int n = 0; n < PROBE_BYTES; n++)
		data[n] = (uint8_t)random();
	task = iscsi_write16_sync(i, lun, lba, data, PROBE_BYTES, (int)block, 0, 0, 0, 0, 0);
	if (!task || task->status != SCSI_STATUS_GOOD)
		rc = fail(i, "WRITE(16)");
	scsi_free_scsi_task(task);
	task = rc ? NULL : iscsi_read16_sync(i, lun, lba, PROBE_BYTES, (int)block, 0, 0, 0, 0, 0);
	if (!rc && (!task || task->status != SCSI_STATUS_GOOD))
		rc = fail(i, "READ(16)");
	if (!rc &&
	    (task->datain.size != PROBE_BYTES || memcmp(task->datain.data, data, PROBE_BYTES)))
		rc = fail(i, "what was read back is not what was written");
	if (task)
		scsi_free_scsi_task(task);
	if (!rc)
		printf("data:       1 MiB of random bytes written at LBA %llu and read back the "
		       "same\n",
		       (unsigned long long)lba);
	free(data);
	return rc;
}

static int usage(int status)
{
	fputs("Usage: tgt-probe [--write] [--lun N] --target IQN PORTAL\n"
	      "       tgt-probe PORTAL                 discovery only\n"
	      "--write overwrites the last MiB of the logical unit.\n",
	      status ? stderr : stdout);
	return status;
}

int main(int argc, char **argv)
{
	static const struct option longopts[] = {
		{ "write", no_argument, NULL, 'w' },
		{ "lun", required_argument, NULL, 'l' },
		{ "target", required_argument, NULL, 'T' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	const char *target = NULL;
	struct iscsi_context *i;
	bool write = false;
	int lun = 1, c, rc;
	uint32_t block = 0;
	uint64_t blocks = 0;

	while ((c = getopt_long(argc, argv, "wl:T:h", longopts, NULL)) != -1) {
		if (c == 'w')
			write = true;
		else if (c == 'l')
			lun = atoi(optarg);
		else if (c == 'T')
			target = optarg;
		else
			return usage(c == 'h' ? 0 : 2);
	}
	if (optind != argc - 1)
		return usage(2);
	rc = discover(argv[optind]);
	if (rc || !target)
		return rc;
	i = iscsi_create_context(INITIATOR);
	if (!i)
		return fail(NULL, "login");
	iscsi_set_targetname(i, target);
	iscsi_set_session_type(i, ISCSI_SESSION_NORMAL);
	iscsi_set_header_digest(i, ISCSI_HEADER_DIGEST_NONE_CRC32C);
	if (iscsi_full_connect_sync(i, argv[optind], lun))
		return fail(i, "login");
	rc = identify(i, lun, &block, &blocks);
	if (!rc && write)
		rc = write_and_read(i, lun, block, blocks);
	iscsi_logout_sync(i);
	iscsi_destroy_context(i);
	return rc;
}
