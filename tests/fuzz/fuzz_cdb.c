/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * CDBs and their data against a device server with two disks and two initiators. An input is a list
 * of steps; a command must be answered exactly once whatever it is, aborted or not, and nothing may
 * be left when all are logged out (the host and the arenas check that).
 *
 *   step: [what][lun][cdb length][cdb 16][edtl 2][data length 2][data ...]
 *   what: bits 0-1  initiator, wire fast or slow
 *         bits 2-3  direction: none, in, out, both lengths at once
 *         bit 4     abort it a few iterations later
 *         bits 5-6  task attribute
 *         bits 5-7  7: instead of a command a task management function (cdb byte 0)
 */
#include <stdio.h>
#include <stdlib.h>
#include "events/bytes.h"
#include "events/log.h"
#include "tests/support/scsi_host.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define STEPS_MAX 16
#define INPUTS_PER_HOST 40 /* reservations, mode pages, ejected media do not stay for ever */

static struct host h;
static struct host_nexus *n[2];
static unsigned inputs;

static void removable(struct scsi_lu_conf *c)
{
	c->removable = true;
}

static void start(void)
{
	log_set_level(LOG_LVL_ERROR);
	host_open_conf(&h, "256k", 512, removable);
	host_add_lu(&h, 2, "1m", 4096);
	n[0] = host_login(&h, "iqn.a");
	n[1] = host_login(&h, "iqn.b");
	n[1]->late = true;
}

static void do_abort(void *arg)
{
	host_abort(arg);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (inputs == 0)
		start();
	for (unsigned step = 0; step < STEPS_MAX && size >= 23; step++) {
		uint8_t what = data[0], lun = data[1] & 3, cdb[SCSI_CDB_MAX] = { 0 };
		uint16_t edtl = get_be16(data + 19), len = get_be16(data + 21);
		struct host_nexus *me = n[what & 1];
		struct host_cmd *c;
		uint8_t *out = NULL;
		bool in = what & 4;

		memcpy(cdb, data + 3, 16);
		data += 23;
		size -= 23;
		len = (uint16_t)MIN(len, size);
		if (what >> 5 == 7) {
			host_tmf(me, cdb[0] % (TMF_I_T_NEXUS_RESET + 1), lun);
		} else {
			if (what & 8) {
				edtl = MAX(edtl, len);
				out = calloc(1, MAX(edtl, 1));
				memcpy(out, data, len);
			}
			me->attr = 1 + (what >> 5 & 3);
			c = host_start(me, (uint64_t)lun << 48 | (what & 0x20 ? 1ull << 62 : 0),
				       cdb, 16, in && !out, out, edtl);
			if (what & 0x10) {
				host_steps(&h, 1 + (what >> 5));
				if (!c->ended)
					host_do(&h, do_abort, c);
			}
			host_finish(c);
			free(out);
		}
		data += len;
		size -= len;
	}
	if (++inputs == INPUTS_PER_HOST) {
		host_close(&h);
		inputs = 0;
	}
	return 0;
}
