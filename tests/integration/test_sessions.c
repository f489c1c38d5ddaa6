/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Many sessions, sessions in trouble, and sessions whose target changes under them. */
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/daemon.h"
#include "tests/support/unit.h"

#define MANY 1000

static bool sanitized(void)
{
	const char *bin = getenv("TGT_BIN");

	return bin && (strstr(bin, "/asan/") || strstr(bin, "/tsan/"));
}

static void must(struct iscsi_context *i, struct scsi_task *task)
{
	ck_assert_msg(task && task->status == SCSI_STATUS_GOOD, "%s", iscsi_get_error(i));
	scsi_free_scsi_task(task);
}

static unsigned connections(struct tgt *t)
{
	unsigned n = 0;

	tgt_adm_ok(t, "--lld iscsi --op show --mode conn --tid 1");
	for (const char *p = t->output; (p = strstr(p, "Connection:")); p++)
		n++;
	return n;
}

START_TEST(a_thousand_sessions)
{
	static struct iscsi_context *i[MANY];
	struct rlimit rl = { 4096, 4096 };
	unsigned many = sanitized() ? 100 : MANY;
	struct tgt t;
	uint64_t before, after;

	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &rl), 0);
	tgt_start(&t, "");
	tgt_target(&t, 1);
	tgt_lun_ram(&t, 1, 1, "16m");
	/* The first few pay for what is made once. */
	for (unsigned k = 0; k < 20; k++)
		tgt_logout(tgt_login(&t, 1, 1, NULL));
	/* Memory of the cache that is still being prepared is not that of sessions. */
	for (uint64_t was = 0; was != (before = tgt_rss(&t)); was = before)
		usleep(300000);
	for (unsigned k = 0; k < many; k++) {
		char name[64];

		snprintf(name, sizeof(name), "iqn.2026-11.org.tgtd.test:many-%u", k);
		i[k] = tgt_login(&t, 1, 1, name);
		must(i[k], iscsi_testunitready_sync(i[k], 1));
	}
	after = tgt_rss(&t);
	printf("# %u sessions: %llu bytes each\n", many,
	       (unsigned long long)(after - before) / many);
	if (!sanitized())
		ck_assert_uint_lt((after - before) / many, 16384);
	for (unsigned k = 0; k < many; k += 7)
		must(i[k], iscsi_read10_sync(i[k], 1, k, 512, 512, 0, 0, 0, 0, 0));
	for (unsigned k = 0; k < many; k++)
		tgt_logout(i[k]);
	for (unsigned k = 0; connections(&t) && k < 50; k++)
		usleep(20000);
	ck_assert_uint_eq(connections(&t), 0);
	tgt_stop(&t, true);
}
END_TEST

/* ---- storm ----------------------------------------------------------------------------------- */

#define STORM_CONNS 4
#define STORM_DEPTH 32

struct storm {
	struct iscsi_context *i;
	unsigned inflight, done, aborted, answered; /* commands; task management */
	struct scsi_task *task[STORM_DEPTH];
	uint8_t *data;
};
static struct storm storm[STORM_CONNS];

struct io {
	struct storm *s;
	unsigned slot;
};
static struct io ios[STORM_CONNS][STORM_DEPTH];

static void io_done(struct iscsi_context *i, int status, void *command_data, void *arg)
{
	struct io *io = arg;

	(void)i;
	(void)command_data;
	if (status == SCSI_STATUS_GOOD)
		io->s->done++;
	else
		io->s->aborted++;
	io->s->inflight--;
	scsi_free_scsi_task(io->s->task[io->slot]);
	io->s->task[io->slot] = NULL;
}

static void tmf_done(struct iscsi_context *i, int status, void *command_data, void *arg)
{
	(void)i;
	(void)status;
	(void)command_data;
	((struct storm *)arg)->answered++;
}

static void storm_fill(struct storm *s, unsigned c, unsigned *seed)
{
	for (unsigned k = 0; k < STORM_DEPTH; k++) {
		uint32_t len = 512u << rand_r(seed) % 10;
		uint32_t lba = (uint32_t)rand_r(seed) % 8192;
		struct scsi_task *task;

		if (s->task[k])
			continue;
		ios[c][k] = (struct io){ s, k };
		if (rand_r(seed) & 1)
			task = iscsi_write10_task(s->i, 1, lba, s->data, len, 512, 0, 0, 0, 0, 0,
						  io_done, &ios[c][k]);
		else
			task = iscsi_read10_task(s->i, 1, lba, len, 512, 0, 0, 0, 0, 0, io_done,
						 &ios[c][k]);
		if (!task)
			return;
		s->task[k] = task;
		s->inflight++;
	}
}

static void storm_trouble(struct tgt *t, struct storm *s, unsigned *seed)
{
	unsigned k = (unsigned)rand_r(seed) % STORM_DEPTH;

	switch (rand_r(seed) % 40) {
	case 0:
		iscsi_task_mgmt_lun_reset_async(s->i, 1, tmf_done, s);
		/* The tasks that it ends are never answered. */
		iscsi_scsi_cancel_all_tasks(s->i);
		break;
	case 1:
		iscsi_task_mgmt_abort_task_set_async(s->i, 1, tmf_done, s);
		iscsi_scsi_cancel_all_tasks(s->i);
		break;
	case 2:
	case 3:
	case 4:
	case 5:
		if (s->task[k]) {
			iscsi_task_mgmt_abort_task_async(s->i, s->task[k], tmf_done, s);
			iscsi_scsi_cancel_task(s->i, s->task[k]);
		}
		break;
	case 6: /* gone without a word */
		iscsi_scsi_cancel_all_tasks(s->i);
		close(iscsi_get_fd(s->i));
		iscsi_destroy_context(s->i);
		s->i = tgt_login(t, 1, 1, NULL);
		break;
	default:
		break;
	}
}

START_TEST(abort_and_reset_storm)
{
	time_t end;
	unsigned seed = 5, total = 0, ended = 0, managed = 0;
	struct tgt t;

	tgt_start(&t, "");
	tgt_target(&t, 1);
	tgt_lun_ram(&t, 1, 1, "16m");
	for (unsigned c = 0; c < STORM_CONNS; c++) {
		storm[c].i = tgt_login(&t, 1, 1, NULL);
		storm[c].data = calloc(1, 512 << 10);
	}
	end = time(NULL) + 4;
	while (time(NULL) < end) {
		for (unsigned c = 0; c < STORM_CONNS; c++) {
			struct pollfd pfd;

			storm_fill(&storm[c], c, &seed);
			storm_trouble(&t, &storm[c], &seed);
			for (unsigned k = 0; k < 4; k++) {
				pfd = (struct pollfd){ .fd = iscsi_get_fd(storm[c].i),
						       .events = (short)iscsi_which_events(
							       storm[c].i) };
				if (poll(&pfd, 1, 1) > 0)
					ck_assert_int_eq(iscsi_service(storm[c].i, pfd.revents), 0);
			}
		}
	}
	for (unsigned c = 0; c < STORM_CONNS; c++) {
		total += storm[c].done;
		ended += storm[c].aborted;
		managed += storm[c].answered;
		iscsi_scsi_cancel_all_tasks(storm[c].i);
		close(iscsi_get_fd(storm[c].i));
		iscsi_destroy_context(storm[c].i);
		free(storm[c].data);
	}
	printf("# %u commands answered, %u aborted or cancelled; %u task management functions "
	       "answered\n",
	       total, ended, managed);
	ck_assert_uint_gt(total, 100);
	ck_assert_uint_gt(ended, 10);
	ck_assert_uint_gt(managed, 10);
	for (unsigned k = 0; connections(&t) && k < 100; k++)
		usleep(20000);
	ck_assert_uint_eq(connections(&t), 0);
	/* It serves as if nothing had been. */
	storm[0].i = tgt_login(&t, 1, 1, NULL);
	must(storm[0].i, iscsi_read10_sync(storm[0].i, 1, 0, 4096, 512, 0, 0, 0, 0, 0));
	tgt_logout(storm[0].i);
	tgt_adm_ok(&t, "--lld iscsi --op delete --mode target --tid 1");
	tgt_stop(&t, true);
}
END_TEST

/* ---- the target changes ---------------------------------------------------------------------- */

START_TEST(the_lu_on_whose_thread_a_session_lives_is_deleted)
{
	struct iscsi_context *i;
	struct scsi_task *task;
	struct tgt t;

	tgt_start(&t, "");
	tgt_target(&t, 1);
	tgt_lun_ram(&t, 1, 1, "16m");
	i = tgt_login(&t, 1, 1, NULL); /* homed with LUN 1, there is no other */
	tgt_lun_ram(&t, 1, 2, "16m");
	tgt_adm_ok(&t, "--lld iscsi --op delete --mode logicalunit --tid 1 --lun 1");
	for (unsigned k = 0; k < 5; k++) { /* unit attentions: the inventory has changed */
		task = iscsi_testunitready_sync(i, 2);
		ck_assert_ptr_nonnull(task);
		scsi_free_scsi_task(task);
	}
	must(i, iscsi_testunitready_sync(i, 2));
	must(i, iscsi_read10_sync(i, 2, 0, 4096, 512, 0, 0, 0, 0, 0));
	task = iscsi_testunitready_sync(i, 1);
	ck_assert_int_eq(task->status, SCSI_STATUS_CHECK_CONDITION);
	ck_assert_int_eq(task->sense.ascq, 0x2500); /* LOGICAL UNIT NOT SUPPORTED */
	scsi_free_scsi_task(task);
	tgt_logout(i);
	tgt_stop(&t, true);
}
END_TEST

START_TEST(a_closed_connection_comes_back)
{
	struct iscsi_context *i;
	unsigned sid = 0, cid = 0;
	struct tgt t;
	char *p;

	tgt_start(&t, "");
	tgt_target(&t, 1);
	tgt_lun_ram(&t, 1, 1, "16m");
	i = tgt_login(&t, 1, 1, NULL);
	tgt_adm_ok(&t, "--lld iscsi --op show --mode conn --tid 1");
	p = strstr(t.output, "Session: ");
	ck_assert_ptr_nonnull(p);
	ck_assert_int_eq(sscanf(p, "Session: %u\n    Connection: %u", &sid, &cid), 2);
	tgt_adm_ok(&t, "--lld iscsi --op delete --mode conn --tid 1 --sid %u --cid %u", sid, cid);
	/* libiscsi logs in again by itself. */
	for (unsigned k = 0; k < 5; k++) {
		struct scsi_task *task = iscsi_testunitready_sync(i, 1);

		ck_assert_ptr_nonnull(task);
		scsi_free_scsi_task(task);
	}
	must(i, iscsi_read10_sync(i, 1, 0, 4096, 512, 0, 0, 0, 0, 0));
	ck_assert_uint_eq(connections(&t), 1);
	ck_assert_int_eq(
		tgt_adm(&t, "--lld iscsi --op delete --mode conn --tid 1 --sid 9999 --cid 0"), 22);
	tgt_logout(i);
	tgt_stop(&t, true);
}
END_TEST

START_TEST(digests_both_ways)
{
	uint8_t data[65536];
	struct iscsi_context *i;
	struct scsi_task *task;
	char iqn[128];
	struct tgt t;

	for (size_t k = 0; k < sizeof(data); k++)
		data[k] = (uint8_t)(k * 31 + (k >> 9));
	tgt_start(&t, "");
	tgt_target(&t, 1);
	tgt_lun_ram(&t, 1, 1, "16m");
	i = iscsi_create_context("iqn.2026-11.org.tgtd.test:digests");
	snprintf(iqn, sizeof(iqn), TGT_IQN, 1);
	iscsi_set_targetname(i, iqn);
	iscsi_set_session_type(i, ISCSI_SESSION_NORMAL);
	iscsi_set_header_digest(i, ISCSI_HEADER_DIGEST_CRC32C);
	ck_assert_msg(iscsi_full_connect_sync(i, t.portal, 1) == 0, "%s", iscsi_get_error(i));
	for (unsigned k = 0; k < 20; k++) {
		must(i, iscsi_write10_sync(i, 1, k * 128, data, sizeof(data), 512, 0, 0, 0, 0, 0));
		task = iscsi_read10_sync(i, 1, k * 128, sizeof(data), 512, 0, 0, 0, 0, 0);
		ck_assert(task && task->status == SCSI_STATUS_GOOD);
		ck_assert_mem_eq(task->datain.data, data, sizeof(data));
		scsi_free_scsi_task(task);
	}
	tgt_logout(i);
	tgt_stop(&t, true);
}
END_TEST

UNIT_MAIN("sessions", 60, a_thousand_sessions, abort_and_reset_storm,
	  the_lu_on_whose_thread_a_session_lives_is_deleted, a_closed_connection_comes_back,
	  digests_both_ways)
