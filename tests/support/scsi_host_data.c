/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What several SCSI tests look at through scsi_host.h: what blocks hold, who a
 * logical unit is, its state file. */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include "events/bytes.h"
#include "tests/support/scsi_host.h"

void host_fill(struct host_nexus *n, uint32_t lun, uint32_t lba, uint16_t nblocks, int c)
{
	uint8_t *data = malloc(nblocks * 512u), cdb[10] = { 0x2a };

	ck_assert_ptr_nonnull(data);
	memset(data, c, nblocks * 512u);
	put_be32(cdb + 2, lba);
	put_be16(cdb + 7, nblocks);
	ck_assert_uint_eq(host_out(n, lun, cdb, 10, data, nblocks * 512u), SAM_GOOD);
	free(data);
}

int host_holds(struct host_nexus *n, uint32_t lun, uint32_t lba, uint16_t nblocks)
{
	uint8_t cdb[10] = { 0x28 };

	put_be32(cdb + 2, lba);
	put_be16(cdb + 7, nblocks);
	ck_assert_uint_eq(host_in(n, lun, cdb, 10, nblocks * 512u), SAM_GOOD);
	for (unsigned i = 1; i < nblocks * 512u; i++)
		if (n->in[i] != n->in[0])
			return -1;
	return n->in[0];
}

void host_identification(struct host_nexus *n, uint32_t lun, uint8_t d[32])
{
	ck_assert_uint_eq(host_in(n, lun, (uint8_t[]){ 0x12, 1, 0x83, 2, 0, 0 }, 6, 512), SAM_GOOD);
	for (size_t at = 4; at < n->in_len; at += 4u + n->in[at + 3])
		if ((n->in[at + 1] & 0x3f) == 3) { /* NAA of the logical unit */
			memset(d, 0, 32);
			d[0] = 0xe4;
			memcpy(d + 4, n->in + at, 4u + n->in[at + 3]);
			put_be24(d + 29, 512);
			return;
		}
	ck_abort_msg("no NAA");
}

void host_state_file(const char *dir, char *path, size_t size)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	ck_assert_ptr_nonnull(d);
	path[0] = 0;
	while ((e = readdir(d)) != NULL)
		if (e->d_name[0] != '.') {
			ck_assert_str_eq(path, ""); /* one file, no leftovers */
			snprintf(path, size, "%s/%.200s", dir, e->d_name);
		}
	closedir(d);
}
