# SPDX-License-Identifier: GPL-2.0-or-later
# It speaks HTTP by libmicrohttpd; without that it is not built. Its page is part of the program.
TOOLLDLIBS_tgt-exporter := -lmicrohttpd
$(O)/obj/tools/tgt-exporter/page.o: $(addprefix tools/tgt-exporter/page.,html css js)
