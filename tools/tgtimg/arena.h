/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tgtimg --arena: what lies in the memory of a cache. */
#ifndef TOOLS_TGTIMG_ARENA_H
#define TOOLS_TGTIMG_ARENA_H

#include "events/base.h"

/* Prints what is in the arena at @path, @all: each extent that is dirty. Exit status. */
int tgtimg_arena(const char *program, const char *path, bool all);

#endif
