/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Mode pages as bytes (SPC-4 7.5, SBC-4 6.5). All under lu->lock, unless the unit is being made. */
#ifndef TGTD_SCSI_COMMANDS_MODE_PAGES_H
#define TGTD_SCSI_COMMANDS_MODE_PAGES_H

#include "tgtd/scsi/commands/commands.h"

#define MODE_MAX 4096 /* bytes of all pages, with a header */

/* The PC field of MODE SENSE. */
enum mode_pc { MODE_PC_CURRENT, MODE_PC_CHANGEABLE, MODE_PC_DEFAULT, MODE_PC_SAVED };

/* Its length, header included, as the header says: SPF pages carry theirs in two bytes. */
size_t mode_page_len(const uint8_t *p);
/* Puts the pages that @code and @sub ask for (3Fh, FFh: all) one after the other at @p. There are
 * MODE_MAX bytes, of which 64 may be used already. Their length; 0: there is no such page. */
size_t mode_pages_put(const struct scsi_lu *lu, uint8_t code, uint8_t sub, enum mode_pc pc,
		      uint8_t *p);
/* Takes one page at @p (@left bytes of the list from it on) into @m. Its length, or 0 with the
 * offset of the fault in *bad, SIZE_MAX: the list ends within it. */
size_t mode_page_take(const struct scsi_lu *lu, struct scsi_mode *m, const uint8_t *p,
		      size_t left, size_t *bad);
/* One page that such a unit may have, whether or not the store that it has now gives it one. @p has
 * 64 bytes. Its length; 0: there is none. lu->lock. */
size_t mode_page_known(const struct scsi_lu *lu, uint8_t code, uint8_t sub, enum mode_pc pc,
		       uint8_t *p);
/* It is one that this unit works by, not one that was given as bytes. */
bool mode_page_lives(const struct scsi_lu *lu, uint64_t code, uint64_t sub);

#endif
