/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Passwords from files and from standard input, so that no command line shows them. */
#ifndef CONF_SECRET_FILE_H
#define CONF_SECRET_FILE_H

#include "events/base.h"

#define CONF_PASSWORD_MAX 255 /* as the daemon takes it */

/*
 * The first line of the file @path; "-": of standard input, as far as it goes. Without its line
 * end; 1 to CONF_PASSWORD_MAX bytes without control characters. 0: *password is the caller's, to
 * be given back by secret_strfree(); *exposed says that others may read the file. -errno with @err
 * filled, which names the file; -EINVAL: it is no such line. @wait: for the writer of a pipe.
 */
int conf_read_password(const char *path, bool wait, char **password, bool *exposed, char *err,
		       size_t err_len) must_check;

#endif
