/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The files of the page, as they are beside this one: put into the program when it is built. */
#include "tools/tgt-exporter/exporter.h"

#define FILE_IN(name, file)                                               \
	__asm__(".section .rodata\n"                                      \
		".global " #name "_begin\n" #name "_begin:\n"             \
		".incbin \"tools/tgt-exporter/" file "\"\n"               \
		".global " #name "_end\n" #name "_end:\n"                 \
		".byte 0\n.previous\n");                                  \
	extern const char name##_begin[], name##_end[]

FILE_IN(page_html, "page.html");
FILE_IN(page_css, "page.css");
FILE_IN(page_js, "page.js");

const struct page_file *page_find(const char *path)
{
	static const struct page_file files[] = {
		{ "/", "text/html; charset=utf-8", page_html_begin, page_html_end },
		{ "/page.css", "text/css; charset=utf-8", page_css_begin, page_css_end },
		{ "/page.js", "text/javascript; charset=utf-8", page_js_begin, page_js_end },
	};

	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		if (!strcmp(path, files[i].path))
			return &files[i];
	return NULL;
}
