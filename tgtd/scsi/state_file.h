/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a logical unit keeps over restarts: reservations, saved mode pages. Each kind and unit has
 * one small text file, with a checksum as its last line. It is replaced as a whole: written beside,
 * fsync, rename, fsync of the directory. A file that is cut or altered is refused as a whole.
 * Private to tgtd/scsi.
 */
#ifndef TGTD_SCSI_STATE_FILE_H
#define TGTD_SCSI_STATE_FILE_H

#include <stdio.h>
#include "tgtd/scsi/lu.h"

/* There is a directory (scsi_set_state_dir()). */
bool state_file_possible(void);
/* Begins a text in memory with its two first lines: "tgtd-<kind> 1" and the unit's name. NULL: no
 * memory. Finished by state_file_seal(), which closes @f and adds the checksum: the text (*len
 * bytes, the caller's) or NULL. @text and @len are those given to state_file_begin(). */
FILE *state_file_begin(const struct scsi_lu *lu, const char *kind, char **text, size_t *len);
char *state_file_seal(FILE *f, char **text, size_t *len);
/* Helper thread (it waits for the disk). 0 or -errno, and then the old file is what there is. */
int state_file_write(const struct scsi_lu *lu, const char *kind, const char *text, size_t len);
/* May block. Returns the lines after the unit's name, or NULL. *err then is 0 for no file, -EBADMSG
 * for a damaged one, another -errno for one that could not be read. An error means that the content
 * is not known, which is not the same as no file. free() *text afterwards. */
char *state_file_read(const struct scsi_lu *lu, const char *kind, char **text, int *err);
/* Where it is, for messages. */
void state_file_path(const struct scsi_lu *lu, const char *kind, const char *suffix, char *path,
		     size_t size);

#endif
