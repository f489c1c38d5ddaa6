/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Hit-ratio curves as SVG. */
#include <math.h>
#include <stdio.h>
#include "tools/bench/tgt-cachesim/sim.h"

#define WIDTH 640.0
#define HEIGHT 400.0
#define LEFT 56.0
#define TOP 44.0
#define RIGHT 110.0
#define BOTTOM 44.0

static double x_of(double percent, double max)
{
	/* Logarithmic from 1 % on: the small caches are the interesting ones. */
	return LEFT + (WIDTH - LEFT - RIGHT) * log(percent) / log(max);
}

static double y_of(double ratio)
{
	return TOP + (HEIGHT - TOP - BOTTOM) * (1 - ratio);
}

int draw(const char *path, const struct trace *t, const double *percent, unsigned nsizes,
	 const uint64_t *hits)
{
	FILE *f = fopen(path, "w");
	double max = percent[nsizes - 1];
	if (!f)
		return -errno;
	fprintf(f,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
		"font-family=\"sans-serif\" font-size=\"11\">\n",
		WIDTH, HEIGHT);
	fprintf(f, "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n");
	fprintf(f, "<text x=\"%.0f\" y=\"20\" font-size=\"14\">%s: %s</text>\n", LEFT, t->name,
		t->what);
	fprintf(f,
		"<text x=\"%.0f\" y=\"35\" fill=\"#555\">%u references to %u blocks; hit ratio "
		"over cache size in per cent of the footprint</text>\n",
		LEFT, t->n, t->footprint);
	for (int i = 0; i <= 10; i += 2)
		fprintf(f,
			"<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" "
			"stroke=\"#ddd\"/><text x=\"%.1f\" y=\"%.1f\" "
			"text-anchor=\"end\">%.1f</text>\n",
			LEFT, WIDTH - RIGHT, y_of(i / 10.0), y_of(i / 10.0), LEFT - 6,
			y_of(i / 10.0) + 4, i / 10.0);
	for (unsigned s = 0; s < nsizes; s++)
		fprintf(f,
			"<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" "
			"stroke=\"#eee\"/><text x=\"%.1f\" y=\"%.1f\" "
			"text-anchor=\"middle\">%g</text>\n",
			x_of(percent[s], max), x_of(percent[s], max), TOP, HEIGHT - BOTTOM,
			x_of(percent[s], max), HEIGHT - BOTTOM + 16, percent[s]);
	for (unsigned m = nmodels; m-- > 0;) { /* ours last, on top */
		fprintf(f, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%s\"%s points=\"",
			models[m].colour, m ? "1.3" : "2.6",
			m == 1 ? " stroke-dasharray=\"5 3\"" : "");
		for (unsigned s = 0; s < nsizes; s++)
			fprintf(f, "%.1f,%.1f ", x_of(percent[s], max),
				y_of((double)hits[m * nsizes + s] / t->n));
		fprintf(f,
			"\"/>\n<line x1=\"%.0f\" x2=\"%.0f\" y1=\"%.0f\" y2=\"%.0f\" stroke=\"%s\" "
			"stroke-width=\"%s\"/><text x=\"%.0f\" y=\"%.0f\">%s</text>\n",
			WIDTH - RIGHT + 14, WIDTH - RIGHT + 34, TOP + 10 + m * 18.0,
			TOP + 10 + m * 18.0, models[m].colour, m ? "1.3" : "2.6",
			WIDTH - RIGHT + 40, TOP + 14 + m * 18.0, models[m].name);
	}
	fprintf(f, "</svg>\n");
	return fclose(f) ? -errno : 0;
}
