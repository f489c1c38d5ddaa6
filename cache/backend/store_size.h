/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How large a file is by now. Who asks may be the thread that all administrators and logins wait
 * for, and a file on a file server that has gone does not answer: it is waited for a moment, and
 * then left alone.
 */
#ifndef CACHE_BACKEND_STORE_SIZE_H
#define CACHE_BACKEND_STORE_SIZE_H

#include <stdint.h>
#include "events/bug.h"

struct store_look;

/* *@bytes of the file at @fd; @at is the store's own, NULL at first. 0 or -errno: -ETIMEDOUT when
 * it does not say, and as long as it has not answered one who has gone. Any thread that may block;
 * one at a time of a store. */
int store_size_ask(struct store_look **at, int fd, uint64_t *bytes) must_check;
/* The store goes, before @fd is closed. */
void store_size_fini(struct store_look **at);

#endif
