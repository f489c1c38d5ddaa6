/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the parts of tgt-exporter share. One thread. */
#ifndef TOOLS_TGT_EXPORTER_EXPORTER_H
#define TOOLS_TGT_EXPORTER_EXPORTER_H

#include "conf/machine.h"

/* ---- openmetrics.c --------------------------------------------------------------------------- */
struct text {
	char *buf;
	size_t len, cap;
	bool failed; /* no memory, or more than TEXT_MAX */
};
#define TEXT_MAX (64u * 1024 * 1024)

/* The machine as OpenMetrics 1.0 text. @m NULL: no daemon answers. @initiators: a series for each
 * session, too. @out is the caller's to free; failed says whether it is whole. */
void openmetrics(const struct machine *m, bool initiators, struct text *out);

/* ---- page.c ---------------------------------------------------------------------------------- */
/* One file of the page. NULL: there is no such path. */
struct page_file {
	const char *path, *type;
	const char *begin, *end;
};
const struct page_file *page_find(const char *path);

#endif
