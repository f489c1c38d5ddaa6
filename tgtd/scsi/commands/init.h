/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the composition root needs of tgtd/scsi/commands. */
#ifndef TGTD_SCSI_COMMANDS_INIT_H
#define TGTD_SCSI_COMMANDS_INIT_H

/* Gives the machine its command table and its features. Main thread, before the first target is
 * made; again does no harm. */
void scsi_commands_init(void);

#endif
