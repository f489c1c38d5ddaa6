/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * SANITIZE (SBC-4 4.11, 5.30): OVERWRITE, BLOCK ERASE, EXIT FAILURE MODE. CRYPTOGRAPHIC ERASE is
 * not offered: nothing is encrypted, so there is no key whose loss would erase anything. And the
 * work of FORMAT UNIT (format.c), which is the same but for its names.
 *
 * The work belongs to the logical unit and goes on when the command, its session or the unit is
 * reset; it runs on the unit's own thread. Meanwhile GATE_SANITIZE keeps everybody out. It begins
 * when all commands that had passed the gate before have ended, by whatever I_T nexus, and with
 * them pieces of copies: none of them writes into what has been sanitized. Others on the same disks
 * may be spared by a rate (tgtadm: sanitize_rate), which may change on the way.
 */
#include <stdlib.h>
#include "events/longwork.h"
#include "events/timer.h"
#include "tgtd/scsi/commands/commands.h"

/* Service actions, and what is none: FORMAT UNIT. */
enum { OVERWRITE = 0x01, BLOCK_ERASE = 0x02, EXIT_FAILURE_MODE = 0x1f, FORMAT = 0x100 };
enum { IMMED = 0x80, AUSE = 0x20 };

#define STEP_ERASE GiB(1)
#define STEP_WRITE KiB(512)
#define STEP_ZERO MiB(64)  /* where zeros are cheaper than data */

struct scsi_sanitize {
	struct scsi_lu *lu;
	struct loop *loop;
	struct blk_req io;
	struct loop_msg msg;
	struct scsi_nexus_walk visits; /* before it begins */
	struct scsi_gone_wait gone;
	struct timer pace;	     /* until the next step, with a rate */
	uint64_t paced_ns, paced;    /* since when, and how many bytes since */
	uint32_t rate;		     /* MiB/s, 0: none */
	uint16_t sa;
	bool unmap; /* FORMAT: deallocates, which reads as zeros */
	bool ause, invert;
	bool syncing;
	unsigned pass, passes;
	uint64_t at, size;
	uint8_t *pattern; /* STEP_WRITE bytes, whole blocks */
	/* lu->lock */
	bool running, failed, stop;
	unsigned draining; /* I_T_L nexuses with older commands, + 1 until all are asked */
	struct scsi_cmd *cmd;	     /* waits; NULL: IMMED, or aborted */
	struct loop_msg *waiter;     /* the LU is being deleted */
	struct loop *waiter_home;
	_Atomic uint32_t progress;   /* of 65536 */
	struct longwork work;	     /* the same, for administrators */
	int status;
};

static void sanitize_step(struct scsi_sanitize *s);

static uint16_t asc_in_progress(const struct scsi_sanitize *s)
{
	return s->sa == FORMAT ? ASC_FORMAT_IN_PROGRESS : ASC_SANITIZE_IN_PROGRESS;
}

static uint16_t asc_failed(const struct scsi_sanitize *s)
{
	return s->sa == FORMAT ? ASC_FORMAT_COMMAND_FAILED : ASC_SANITIZE_COMMAND_FAILED;
}

static void sanitize_end(struct scsi_sanitize *s, int status)
{
	struct scsi_lu *lu = s->lu;
	struct loop_msg *waiter;
	struct loop *home;
	unsigned tid, lun;
	bool format;

	free(s->pattern);
	s->pattern = NULL;
	pthread_mutex_lock(&lu->lock);
	/* Once nothing runs and the lock is let go, the LU may be deleted. */
	tid = lu->target->tid;
	lun = lu->lun;
	format = s->sa == FORMAT;
	s->status = status;
	s->failed = status < 0;
	s->running = false;
	if (!s->failed)
		scsi_lu_gate_locked(lu, GATE_SANITIZE, false);
	scsi_lu_record_locked(lu);
	waiter = s->waiter;
	home = s->waiter_home;
	if (s->cmd)
		scsi_job_done(s->cmd);
	s->cmd = NULL;
	longwork_end(&s->work);
	pthread_mutex_unlock(&lu->lock);
	if (status < 0)
		log_ratelimited(LOG_LVL_ERROR, "scsi: %s target %u LUN %u failed: %s",
				format ? "formatting" : "sanitizing", tid, lun, strerror(-status));
	else
		log_ratelimited(LOG_LVL_NOTICE, "scsi: target %u LUN %u is %s", tid, lun,
				format ? "formatted" : "sanitized");
	if (waiter)
		loop_post(home, waiter);
}

static void pace_over(struct timer *t)
{
	sanitize_step(container_of(t, struct scsi_sanitize, pace));
}

/* The next step when the bytes so far have had their time. */
static void step_in_time(struct scsi_sanitize *s, uint32_t rate)
{
	uint64_t now = clock_now_ns(), due;

	if (rate != s->rate) {
		s->rate = rate;
		s->paced_ns = now;
		s->paced = 0;
	}
	due = rate ? s->paced_ns +
			      (uint64_t)((__uint128_t)s->paced * NSEC_PER_SEC / (rate * MiB(1))) :
		     0;
	if (due > now)
		loop_timer_arm(s->loop, &s->pace, due - now);
	else
		sanitize_step(s);
}

/* A step is over; the next one starts from the mailbox, so that others get their
 * turn and hits do not recurse. */
static void sanitize_again(struct loop_msg *m)
{
	struct scsi_sanitize *s = container_of(m, struct scsi_sanitize, msg);
	int status = s->io.status;
	uint32_t rate;
	bool stop;

	frags_put(&s->io.data);
	pthread_mutex_lock(&s->lu->lock);
	stop = s->stop;
	rate = s->lu->conf.sanitize_rate;
	pthread_mutex_unlock(&s->lu->lock);
	if (status < 0 || stop) {
		sanitize_end(s, status < 0 ? status : -ECANCELED);
		return;
	}
	if (s->syncing) {
		s->syncing = false;
		s->pass++;
		s->at = 0;
		if (s->invert)
			for (size_t i = 0; i < STEP_WRITE; i++)
				s->pattern[i] = (uint8_t)~s->pattern[i];
	} else {
		s->at += s->io.len;
		s->paced += s->io.len;
	}
	if (s->pass == s->passes)
		sanitize_end(s, 0);
	else
		step_in_time(s, rate);
}

static void stepped(struct blk_req *req)
{
	struct scsi_sanitize *s = container_of(req, struct scsi_sanitize, io);

	s->msg.handle = sanitize_again;
	loop_post(s->loop, &s->msg);
}

/* How much of @left the next step takes, which at least paces itself by the second. */
static uint64_t step_len(const struct scsi_sanitize *s, uint64_t left, uint64_t most)
{
	return MIN(left, s->rate ? MIN(s->rate * MiB(1), most) : most);
}

static void sanitize_step(struct scsi_sanitize *s)
{
	struct blk_req *io = &s->io;
	uint64_t left = s->size - s->at;

	s->progress = (uint32_t)(((__uint128_t)s->pass * s->size + s->at) * 65536 /
				 ((__uint128_t)s->passes * MAX(s->size, 1u)));
	longwork_done(&s->work, s->pass * s->size + s->at);
	io->flags = BLK_F_BACKGROUND;
	io->offset = s->at;
	io->done = stepped;
	if (left == 0) {
		s->syncing = true;
		io->op = BLK_SYNC;
		io->flags = BLK_F_WHAT_CAN; /* whatever was lost before is no more */
		io->offset = io->len = 0;
	} else if (s->sa == BLOCK_ERASE || (s->sa == FORMAT && s->unmap)) {
		io->op = BLK_DISCARD;
		io->len = step_len(s, left, STEP_ERASE);
	} else if (s->sa == FORMAT) {
		io->op = BLK_ZERO;
		io->len = step_len(s, left,
				   s->lu->blk->caps & BLK_CAP_ZERO ? STEP_ZERO : STEP_WRITE);
	} else {
		io->op = BLK_WRITE;
		io->flags |= BLK_F_FROM | BLK_F_DPO;
		io->len = MIN(left, MIN(STEP_WRITE, (uint64_t)s->lu->seg_max));
		if (frags_append(&io->data, s->pattern, (uint32_t)io->len, NULL) < 0) {
			sanitize_end(s, -ENOMEM);
			return;
		}
	}
	if (blk_submit(s->lu->blk, io))
		stepped(io);
}

/* ---- waiting for older commands -------------------------------------------------------------- */

/* Older commands of @itl, but for the SANITIZE command itself, and pins. lu->lock held,
 * nexus->loop. */
static bool older_left(const struct scsi_sanitize *s, const struct scsi_itl *itl)
{
	return itl->inflight - itl->post_sanitize > (s->cmd && s->cmd->itl == itl);
}

static void sanitize_drained(struct loop_msg *m)
{
	struct scsi_sanitize *s = container_of(m, struct scsi_sanitize, msg);
	bool stop;

	pthread_mutex_lock(&s->lu->lock);
	stop = s->stop;
	pthread_mutex_unlock(&s->lu->lock);
	if (stop) {
		sanitize_end(s, -ECANCELED);
		return;
	}
	scsi_tokens_written(s->lu, 0, s->size);
	longwork_begin(&s->work, s->sa == FORMAT ? "formatting" : "sanitizing",
		       s->passes * s->size, "target %u LUN %u", s->lu->target->tid, s->lu->lun);
	s->paced_ns = clock_now_ns();
	s->paced = 0;
	sanitize_step(s);
}

static void drained_one_locked(struct scsi_sanitize *s)
{
	ASSERT(s->draining > 0);
	if (--s->draining == 0) {
		s->msg.handle = sanitize_drained;
		loop_post(s->loop, &s->msg);
	}
}

void scsi_sanitize_ended(struct scsi_itl *itl)
{
	struct scsi_lu *lu = itl->lu;

	pthread_mutex_lock(&lu->lock);
	if (itl->drains && !older_left(lu->sanitize, itl)) {
		itl->drains = false;
		drained_one_locked(lu->sanitize);
	}
	pthread_mutex_unlock(&lu->lock);
}

static bool sanitize_drain(struct scsi_nexus_visit *v, struct scsi_nexus *n, struct scsi_itl *itl)
{
	struct scsi_sanitize *s = container_of(v->all, struct scsi_sanitize, visits);

	(void)n;
	pthread_mutex_lock(&itl->lu->lock);
	itl->drains = older_left(s, itl);
	s->draining += itl->drains;
	pthread_mutex_unlock(&itl->lu->lock);
	return true;
}

static void all_asked(struct scsi_sanitize *s)
{
	pthread_mutex_lock(&s->lu->lock);
	drained_one_locked(s);
	pthread_mutex_unlock(&s->lu->lock);
}

static void gone_over(struct loop_msg *m)
{
	all_asked(container_of(m, struct scsi_sanitize, gone.msg));
}

static void all_visited(struct scsi_nexus_walk *all)
{
	struct scsi_sanitize *s = container_of(all, struct scsi_sanitize, visits);

	s->gone.msg.handle = gone_over;
	if (!scsi_lu_gone_wait(s->lu, &s->gone))
		all_asked(s);
}

static void sanitize_begin(struct loop_msg *m)
{
	struct scsi_sanitize *s = container_of(m, struct scsi_sanitize, msg);

	memset(&s->visits, 0, sizeof(s->visits));
	s->visits.target = s->lu->target;
	s->visits.lu = s->lu;
	s->visits.fn = sanitize_drain;
	s->visits.done = all_visited;
	if (scsi_for_each_nexus(&s->visits) < 0) {
		/* Not all could be asked: what they have under way may come after it. */
		log_error("scsi: out of memory while sanitizing target %u LUN %u",
			  s->lu->target->tid, s->lu->lun);
		pthread_mutex_lock(&s->lu->lock);
		s->stop = true;
		pthread_mutex_unlock(&s->lu->lock);
	}
}

/* ---- the command ----------------------------------------------------------------------------- */

bool scsi_sanitize_pass(struct scsi_cmd *cmd)
{
	struct scsi_sanitize *s = cmd->lu->sanitize;
	bool running, format;
	uint16_t asc;

	pthread_mutex_lock(&cmd->lu->lock);
	running = s->running;
	format = s->sa == FORMAT;
	asc = running ? asc_in_progress(s) : asc_failed(s);
	pthread_mutex_unlock(&cmd->lu->lock);
	if (running) { /* LOGICAL UNIT NOT READY, SANITIZE or FORMAT IN PROGRESS */
		/* Initiators try again and again: the operation does not wait for these. */
		cmd->state |= CMD_POST_SANITIZE;
		cmd->itl->post_sanitize++;
		scsi_sense_progress(cmd, asc, (uint16_t)MIN(s->progress, 65535u));
		scsi_done(cmd);
		return false;
	}
	if (cmd->cdb[0] == 0x48 || (cmd->cdb[0] == 0x04 && format))
		return true; /* the way out of a failure */
	scsi_done_sense(cmd, SENSE_MEDIUM_ERROR, asc);
	return false;
}

bool scsi_sanitize_running_locked(const struct scsi_lu *lu)
{
	return lu->sanitize && lu->sanitize->running;
}

void scsi_sanitize_record_locked(const struct scsi_lu *lu, FILE *f)
{
	const struct scsi_sanitize *s = lu->sanitize;

	if (s && (s->running || s->failed))
		fprintf(f, "under way %u %d\n", s->sa, s->ause);
}

bool scsi_sanitize_restore_locked(struct scsi_lu *lu, char *lines)
{
	struct scsi_sanitize *s;
	unsigned sa, ause;

	if (!*lines)
		return true;
	if (sscanf(lines, "under way %u %u", &sa, &ause) != 2 || sa > FORMAT || lu->sanitize)
		return false;
	s = lu->sanitize = calloc(1, sizeof(*s));
	if (!s)
		return false;
	blk_req_init(&s->io);
	s->lu = lu;
	s->sa = (uint16_t)sa;
	s->ause = ause;
	s->failed = true;
	s->status = -ECANCELED;
	scsi_lu_gate_locked(lu, GATE_SANITIZE, true);
	return true;
}

/* For REQUEST SENSE: the progress, or -1. */
int scsi_sanitize_progress(struct scsi_lu *lu, uint16_t *asc)
{
	int p = -1;

	pthread_mutex_lock(&lu->lock);
	if (lu->sanitize && lu->sanitize->running) {
		p = (int)MIN(lu->sanitize->progress, 65535u);
		*asc = asc_in_progress(lu->sanitize);
	}
	pthread_mutex_unlock(&lu->lock);
	return p;
}

bool scsi_sanitize_wait(struct scsi_lu *lu, struct loop_msg *msg, struct loop *home)
{
	bool wait;

	pthread_mutex_lock(&lu->lock);
	wait = lu->sanitize && lu->sanitize->running;
	if (wait) {
		lu->sanitize->stop = true;
		lu->sanitize->waiter = msg;
		lu->sanitize->waiter_home = home;
	}
	pthread_mutex_unlock(&lu->lock);
	return wait;
}

void scsi_sanitize_free(struct scsi_lu *lu)
{
	struct scsi_sanitize *s = lu->sanitize;

	if (!s)
		return;
	ASSERT(!s->running);
	blk_req_fini(&s->io);
	free(s->pattern);
	free(s);
	lu->sanitize = NULL;
}

static void sanitized(struct scsi_cmd *cmd)
{
	const struct scsi_sanitize *s = cmd->lu->sanitize;
	uint16_t asc;

	pthread_mutex_lock(&cmd->lu->lock);
	asc = s->status < 0 ? asc_failed(s) : 0;
	pthread_mutex_unlock(&cmd->lu->lock);
	if (asc)
		scsi_sense(cmd, SENSE_MEDIUM_ERROR, asc);
	scsi_done(cmd);
}

static bool cancel(struct scsi_cmd *cmd)
{
	struct scsi_lu *lu = cmd->lu;
	bool detached;

	pthread_mutex_lock(&lu->lock);
	detached = lu->sanitize->cmd == cmd;
	if (detached)
		lu->sanitize->cmd = NULL;
	pthread_mutex_unlock(&lu->lock);
	return detached; /* else it has just ended and says so by message */
}

/* Takes over @pattern. */
static void sanitize_start(struct scsi_cmd *cmd, uint16_t sa, bool immed, uint8_t *pattern,
			   unsigned passes, bool invert)
{
	struct scsi_lu *lu = cmd->lu;
	struct scsi_sanitize *s = NULL;

	pthread_mutex_lock(&lu->lock);
	if (!lu->sanitize) {
		lu->sanitize = calloc(1, sizeof(*s));
		if (lu->sanitize)
			blk_req_init(&lu->sanitize->io);
	}
	/* Not while another store is to come, which waits for this command only. */
	if (lu->sanitize && !lu->sanitize->running && !(lu->gate & GATE_FROZEN)) {
		s = lu->sanitize;
		s->lu = lu;
		s->loop = lu->loop ? lu->loop : cmd->nexus->loop;
		s->sa = sa;
		s->unmap = scsi_lu_thin(lu) && (lu->blk->caps & BLK_CAP_DISCARD_ZEROES);
		s->ause = sa != FORMAT && (cmd->cdb[1] & AUSE);
		s->invert = invert;
		s->syncing = s->failed = s->stop = false;
		s->pass = 0;
		s->passes = passes;
		s->at = 0;
		s->size = scsi_lu_blocks(lu) << lu->block_shift;
		s->pattern = pattern;
		s->rate = lu->conf.sanitize_rate;
		timer_init(&s->pace, pace_over);
		s->progress = 0;
		s->draining = 1;
		s->running = true;
		s->cmd = immed ? NULL : cmd;
		scsi_lu_gate_locked(lu, GATE_SANITIZE, true);
		scsi_lu_record_locked(lu);
	}
	pthread_mutex_unlock(&lu->lock);
	if (!s) {
		free(pattern);
		cmd->status = SAM_BUSY;
		scsi_done(cmd);
		return;
	}
	log_ratelimited(LOG_LVL_NOTICE, "scsi: %s %s target %u LUN %u", cmd->nexus->iqn,
			sa == FORMAT ? "formats" : "sanitizes", lu->target->tid, lu->lun);
	if (!immed) {
		scsi_job_begin(cmd, sanitized);
		cmd->cancel = cancel;
	}
	s->msg.handle = sanitize_begin;
	loop_post(s->loop, &s->msg);
	if (immed)
		scsi_done(cmd);
}

static void sanitize_overwrite(struct scsi_cmd *cmd)
{
	const uint8_t *p = cmd->heap;
	unsigned passes = p[0] & 0x1f, len;
	uint32_t bs = cmd->lu->block_size;
	uint8_t *pattern;

	len = cmd->heap_got >= 4 ? get_be16(p + 2) : 0;
	if (cmd->heap_got < 5 || passes == 0 || len == 0 || len > bs || len != cmd->heap_got - 4 ||
	    (p[0] & 0x60)) {
		scsi_bad_param(cmd, passes == 0 || (p[0] & 0x60) ? 0 : 2, -1);
		return;
	}
	pattern = malloc(STEP_WRITE);
	if (!pattern) {
		cmd->status = SAM_BUSY;
		scsi_done(cmd);
		return;
	}
	for (uint32_t i = 0; i < bs; i++)
		pattern[i] = p[4 + i % len];
	for (size_t at = bs; at < STEP_WRITE; at += bs)
		memcpy(pattern + at, pattern, bs);
	sanitize_start(cmd, OVERWRITE, cmd->cdb[1] & IMMED, pattern, passes, p[0] & 0x80);
}

void scsi_format(struct scsi_cmd *cmd, bool immed)
{
	sanitize_start(cmd, FORMAT, immed, NULL, 1, false);
}

void op_sanitize(struct scsi_cmd *cmd)
{
	struct scsi_lu *lu = cmd->lu;
	uint8_t sa = cmd->cdb[1] & 0x1f;
	uint32_t len = get_be16(cmd->cdb + 7);
	bool failed, ause;

	if (sa == OVERWRITE ? len < 5 || len > lu->block_size + 4 : len != 0) {
		scsi_bad_cdb(cmd, 7, -1);
		return;
	}
	if (sa == OVERWRITE) {
		scsi_data_out(cmd, len, sanitize_overwrite);
		return;
	}
	if (sa == BLOCK_ERASE) {
		if (scsi_lu_thin(lu))
			sanitize_start(cmd, BLOCK_ERASE, cmd->cdb[1] & IMMED, NULL, 1, false);
		else
			scsi_bad_cdb(cmd, 1, 4);
		return;
	}
	pthread_mutex_lock(&lu->lock);
	failed = lu->sanitize && lu->sanitize->failed;
	ause = failed && lu->sanitize->ause; /* of FORMAT UNIT: not, it takes another one */
	if (ause) {
		lu->sanitize->failed = false;
		scsi_lu_gate_locked(lu, GATE_SANITIZE, false);
		scsi_lu_record_locked(lu);
	}
	pthread_mutex_unlock(&lu->lock);
	if (failed && !ause)
		scsi_bad_cdb(cmd, 1, 4);
	else
		scsi_done(cmd);
}
