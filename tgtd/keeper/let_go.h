/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Closes what a worker had the keeper hold. A file whose server has gone does not let itself be
 * closed, and the keeper has one thread: another process, with the same table of files, waits then.
 */
#ifndef TGTD_KEEPER_LET_GO_H
#define TGTD_KEEPER_LET_GO_H

/* @fd is no more open. Waits for no file. The keeper's one thread. */
void hold_no_more(int fd);
/* As the keeper ends: nobody listens there any more, or talks, or has the lock of the control port.
 * A worker that has died may have a copy for as long as a store hangs. */
void hold_for_nobody(const char *key, int fd);

#endif
