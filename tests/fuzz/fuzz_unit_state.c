/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a logical unit has told the process that comes after it (tgtd/scsi/lu_record.c):
 * reservations, mode pages, access states, a SANITIZE. The input is such a text, changed. What must
 * hold: it is understood or not, the unit serves in any case, and what it says of itself afterwards
 * is understood by another unit, which says the same.
 */
#include <stdlib.h>
#include <unistd.h>

#include "events/bug.h"
#include "events/log.h"
#include "tests/support/scsi_host.h"
#include "tgtd/scsi/lu.h"
#include "tgtd/state/journal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct host h;

static void removable(struct scsi_lu_conf *c)
{
	c->removable = true;
}

static void unit_begins(void)
{
	host_open_conf(&h, "256k", 512, removable);
}

static void key_of(char key[SCSI_LU_KEY])
{
	snprintf(key, SCSI_LU_KEY, "s/%u/%u", h.lu->target->tid, h.lu->lun);
}

struct job {
	const void *text;
	size_t len;
	int rc;
	char *said;
	size_t said_len;
};

/* The unit finds @text, and says what it is now. */
static void finds(void *arg)
{
	struct job *j = arg;
	char key[SCSI_LU_KEY];
	struct journal_rec rec;

	key_of(key);
	rec = (struct journal_rec){ .key = key, .value = j->text, .len = j->len };
	BUG_ON(journal_commit(&rec, 1));
	j->rc = scsi_lu_restore(h.lu);
	BUG_ON(scsi_lu_commit(h.lu, NULL, 0));
	j->said = journal_get(key, &j->said_len);
	BUG_ON(!j->said);
}

/* Any status, but an answer: what there is to read of what was restored. */
static void unit_serves(void)
{
	static const uint8_t cdbs[][16] = {
		{ 0x00 },
		{ 0x12, 0, 0, 0, 255 },
		{ 0x1a, 0, 0x3f, 0, 255 },
		{ 0x28, 0, 0, 0, 0, 0, 0, 0, 1 },
		{ 0x5e, 0, 0, 0, 0, 0, 0, 8, 0 },
		{ 0x5e, 1, 0, 0, 0, 0, 0, 8, 0 },
		{ 0x5e, 3, 0, 0, 0, 0, 0, 32, 0 },
		{ 0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 8, 0 },
		{ 0xa3, 0x0f, 0, 0, 0, 0, 0, 0, 8, 0 },
		{ 0x5f, 3, 0, 0, 0, 0, 0, 0, 24 },
	};
	static const uint8_t none[24];
	struct host_nexus *n = host_login(&h, "iqn.a");

	for (size_t i = 0; i < ARRAY_SIZE(cdbs); i++) {
		const bool out = cdbs[i][0] == 0x5f;

		for (unsigned twice = 0; twice < 2; twice++)
			host_finish(host_start(n, 1ull << 48, cdbs[i], 16, !out, out ? none : NULL,
					       out ? sizeof(none) : 8192));
	}
	host_logout(n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct job one = { .text = data, .len = MIN(size, (size_t)KiB(8)) }, two;
	int fd;

	log_threshold = -1;
	if (!one.len)
		return 0;
	fd = journal_open(-1, JOURNAL_SIZE_MIN);
	BUG_ON(fd < 0);
	unit_begins();
	host_do(&h, finds, &one);
	journal_freeze(true);
	unit_serves();
	host_close(&h);

	journal_freeze(false);
	two = (struct job){ .text = one.said, .len = one.said_len };
	unit_begins();
	host_do(&h, finds, &two);
	BUG_ON(two.rc);
	BUG_ON(two.said_len != one.said_len || memcmp(one.said, two.said, one.said_len));
	journal_freeze(true);
	unit_serves();
	host_close(&h);
	journal_close();
	close(fd);
	free(one.said);
	free(two.said);
	return 0;
}
