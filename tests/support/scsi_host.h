/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A transport for tests: drives the device server on one stepped loop, from the calling thread.
 *
 *     struct host h; host_open(&h, "64m", 512);
 *     struct host_nexus *n = host_login(&h, "iqn.a");
 *     host_cdb(n, 1, (uint8_t[]){0x28, ...}, 10); ... n->status, n->in, n->key, n->asc
 */
#ifndef TESTS_SUPPORT_SCSI_HOST_H
#define TESTS_SUPPORT_SCSI_HOST_H

#include "tgtd/scsi/target.h"

struct host {
	struct loop *loop;
	struct scsi_target *target;
	struct scsi_lu *lu; /* LUN 1 */
	struct blk *blk;
	struct list nexuses;
};

struct host_cmd {
	struct scsi_cmd cmd;
	struct list link; /* nexus->cmds until ended */
	struct host_nexus *n;
	uint8_t cdb[SCSI_CDB_MAX];
	bool completed, ended;
	uint8_t status;
	uint8_t key;
	uint16_t asc;
	uint8_t *in; /* Data-In as it came, @in_len bytes */
	size_t in_len, in_size;
	const uint8_t *out;
	size_t out_len;
	unsigned on_wire; /* segments not yet given back */
	bool was_aborted;
	struct loop_msg msg;
	struct scsi_seg *late[SCSI_CMD_SEGS];
};

struct host_nexus {
	struct scsi_nexus n;
	struct host *h;
	struct list link;
	struct list cmds;
	bool late;	  /* fetch and send are done an iteration later */
	uint8_t attr;	  /* of commands to come; 0: SIMPLE */
	bool hold_fetch;  /* fetches stay open until host_release() or an abort */
	bool dropped, gone;
	/* of the last host_cdb() */
	uint8_t status, key;
	uint16_t asc;
	uint8_t sense[SCSI_SENSE_MAX];
	uint8_t sense_len;
	uint64_t in_total, out_total;
	uint8_t *in;
	size_t in_len;
	/* for host_cdb(): data to write, and the direction and length the request claims */
	void (*aborted)(void *arg);
	void *aborted_arg;
	struct scsi_lu *abort_lu;
};

/* A target "iqn.2026-11.test:t<tid>" with a ram disk at LUN 1. */
void host_open(struct host *h, const char *size, uint32_t block_size);
void host_open_conf(struct host *h, const char *size, uint32_t block_size,
		    void (*tweak)(struct scsi_lu_conf *c));
/* Logs all out, deletes the target, checks that nothing is left. */
void host_close(struct host *h);
struct scsi_lu *host_add_lu(struct host *h, uint32_t lun, const char *size, uint32_t block_size);
/* Runs fn(arg) on the loop (so that loop_current() is it). */
void host_do(struct host *h, void (*fn)(void *arg), void *arg);
/* Steps the loop until @flag, at most a few seconds. False: time out. */
bool host_wait(struct host *h, const bool *flag);
void host_steps(struct host *h, unsigned n);
/* Lets what can go on, then time pass (the clock is the test's), then what could wait for it. */
void host_pass(struct host *h, uint64_t ms);

struct host_nexus *host_login(struct host *h, const char *iqn);
void host_logout(struct host_nexus *n);
/* Logs in and takes the POWER ON attention of LUN 1 away. */
struct host_nexus *host_login_ready(struct host *h, const char *iqn);

/* Runs a command to its end and returns its status; results in @n. */
uint8_t host_in(struct host_nexus *n, uint32_t lun, const void *cdb, size_t cdb_len, size_t edtl);
uint8_t host_out(struct host_nexus *n, uint32_t lun, const void *cdb, size_t cdb_len,
		 const void *out, size_t edtl);
uint8_t host_none(struct host_nexus *n, uint32_t lun, const void *cdb, size_t cdb_len);
/* Starts one and returns it; host_finish() waits for it, takes the results into @n and frees it. */
struct host_cmd *host_start(struct host_nexus *n, uint64_t lun_field, const void *cdb,
			    size_t cdb_len, bool in, const void *out, size_t edtl);
/* A WRITE(10) of zeros to LUN 1, from block 0 on; at most 64 KiB of blocks of 512 bytes. */
struct host_cmd *host_start_write(struct host_nexus *n, uint16_t nblocks);
uint8_t host_finish(struct host_cmd *c);
/* host_finish() of each. */
void host_finish_all(struct host_cmd **c, unsigned n);
void host_abort(struct host_cmd *c);
/* Lets held fetches go. */
void host_release(struct host_nexus *n);
int host_tmf(struct host_nexus *n, enum scsi_tmf fn, uint32_t lun);

/* Short forms. */
uint8_t host_tur(struct host_nexus *n, uint32_t lun);
uint8_t host_read10(struct host_nexus *n, uint32_t lba, uint16_t nblocks);
uint8_t host_write10(struct host_nexus *n, uint32_t lba, uint16_t nblocks, const void *data,
		     size_t len);
/* Fills blocks with @c; the byte that all of these blocks hold, or -1. The
 * commands must end with GOOD. */
void host_fill(struct host_nexus *n, uint32_t lun, uint32_t lba, uint16_t nblocks, int c);
int host_holds(struct host_nexus *n, uint32_t lun, uint32_t lba, uint16_t nblocks);
/* The logical unit as an identification descriptor target descriptor (SPC-4
 * 6.4.5.2), from its VPD page 83h. */
void host_identification(struct host_nexus *n, uint32_t lun, uint8_t d[32]);
/* Status as "good", "conflict", "05/24/00" ...: readable in a failed assertion. */
const char *host_result(const struct host_nexus *n);
/* PERSISTENT RESERVE OUT to LUN 1 with the basic parameter list; its host_result(). */
const char *host_prout(struct host_nexus *n, uint8_t sa, uint8_t type, uint64_t key,
		       uint64_t sa_key);

/* What an administrative call reports: @arg of host_outcome(), which is its done. */
struct host_outcome {
	bool done;
	int status;
};
void host_outcome(void *arg, int status);

/* The path of the one file in @dir; empty if there is none, and more than one fails the test. */
void host_state_file(const char *dir, char *path, size_t size);

/* Compares with tests/unit/scsi/golden/NAME; GOLDEN_UPDATE=1 in the
 * environment writes it instead. */
void host_golden(const char *name, const uint8_t *data, size_t len);

#endif
