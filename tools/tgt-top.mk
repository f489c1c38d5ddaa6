# SPDX-License-Identifier: GPL-2.0-or-later
# It draws by ncurses; without that it is not built.
TOOLLDLIBS_tgt-top := -lncursesw -ltinfo
