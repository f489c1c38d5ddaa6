/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A tgtd of one's own for an integration test: started on a free port of 127.0.0.1 with a private
 * admin socket and state directory, configured through tgtadm as an admin would, stopped with
 * SIGTERM. Binaries come from $TGT_BIN (default build/bin). $TGT_TEST_CACHE (say size=1m) is its
 * --cache, unless the test asks for another, and makes files of what would be ram LUNs, which are
 * not cached. Everything fails the test by itself.
 */
#ifndef TESTS_SUPPORT_DAEMON_H
#define TESTS_SUPPORT_DAEMON_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct iscsi_context;

struct tgt {
	pid_t pid;	     /* of the process that was started, the keeper */
	pid_t worker;	     /* of the one that serves */
	int port;
	char dir[64];	     /* private; also for backing files */
	char portal[64];     /* 127.0.0.1:PORT */
	char output[65536];  /* of the last tgt_adm() */
};

#define TGT_IQN "iqn.2026-11.org.tgtd.test:t%d"

/* @args: further options of tgtd ("" for none), split at blanks. Waits until it serves. */
void tgt_start(struct tgt *t, const char *args);
/* Again on the same port and directories, after tgt_stop() or tgt_kill(). */
void tgt_restart(struct tgt *t, const char *args);
/* SIGTERM; fails unless it exits with 0 within 5 seconds, and no worker has died before. Removes
 * the directory when @clean. */
void tgt_stop(struct tgt *t, bool clean);
void tgt_kill(struct tgt *t); /* SIGKILL to both, as when a machine fails */
/* Runs tgtadm with these arguments; output is in t->output. Returns its exit status. */
int tgt_adm(struct tgt *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same, must succeed. */
void tgt_adm_ok(struct tgt *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Target @tid named TGT_IQN, open to ALL. */
void tgt_target(struct tgt *t, int tid);
/* A ram LUN of the size ("64m"); a file with $TGT_TEST_CACHE. */
void tgt_lun_ram(struct tgt *t, int tid, int lun, const char *size);
/* An aio LUN on a fresh sparse file below t->dir. */
void tgt_lun_aio(struct tgt *t, int tid, int lun, uint64_t bytes);
/* A logged-in libiscsi context; the caller disconnects and destroys it with tgt_logout(). NULL
 * @initiator: a default name. */
struct iscsi_context *tgt_login(struct tgt *t, int tid, int lun, const char *initiator);
void tgt_logout(struct iscsi_context *iscsi);
/* CPU time of the daemon's threads whose name begins with @prefix, in nanoseconds. */
uint64_t tgt_thread_cpu(struct tgt *t, const char *prefix);
uint64_t tgt_rss(struct tgt *t); /* bytes */

#endif
