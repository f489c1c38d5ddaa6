/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The composition root: makes the parts, ties them together, and takes them down in the reverse
 * order. What the parts do is theirs; nothing here is on a data path.
 *
 *   start:  topology -> loops of the nodes -> cache -> iSCSI, iSER -> admin
 *           socket -> portals -> privileges -> ready                (serve.c, inherit.c)
 *   stop:   portals closed, initiators asked to leave -> targets and LUs deleted (caches flushed)
 *           -> admin socket -> cache -> loops                       (stop.c, serve.c)
 */
#ifndef TGTD_SERVE_H
#define TGTD_SERVE_H

struct options;

/* Serves, until it is told to end. In the worker of a keeper, or in a process without one; once,
 * before any thread exists. @opt stays where it is, and is changed. Returns the exit status: 1 if
 * data is lost that no store would take. Does not return where it cannot start. */
int serve(struct options *opt);

#endif
