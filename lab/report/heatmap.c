/* SPDX-License-Identifier: Apache-2.0
 *
 * A grid of values as a heat map, through gnuplot: base.csv (rows as they are, names in the first column, for people)
 * and base.gp, which holds the values once more.
 * Colours run from dark blue to yellow with rising lightness, so that grey print keeps the order.
 */
#include <math.h>
#include <string.h>

#include "hdo/experimental/config.h"
#include "hdo/lab/report.h"
#include "lab/report/gnuplot.h"

static void put_csv(FILE *f, const void *what) {
    const hdo_heatmap *h = what;
    for (int i = 0; i < h->nx; i++) {
        fputc(',', f);
        hdo__quote_csv(f, h->x_name[i]);
    }
    fputc('\n', f);
    for (int j = 0; j < h->ny; j++) {
        hdo__quote_csv(f, h->y_name[j]);
        for (int i = 0; i < h->nx; i++) {
            fputc(',', f);
            hdo__gnuplot_number(f, h->value[j * h->nx + i]);
        }
        fputc('\n', f);
    }
}

static void put_tics(FILE *f, char axis, const char *const *name, int n) {
    fprintf(f, "set %ctics noenhanced (", axis);
    for (int i = 0; i < n; i++) {
        if (i > 0) fputs(", ", f);
        hdo__quote_gnuplot(f, name[i]);
        fprintf(f, " %d", i);
    }
    fputs(")\n", f);
}

/* The cells again, as gnuplot reads them whatever the names are: column, row, value; those without a value apart. */
static void put_cells(FILE *f, const hdo_heatmap *h, bool known) {
    fprintf(f, "$%s << END\n", known ? "cells" : "diverged");
    for (int i = 0; i < h->nx * h->ny; i++) {
        if (isfinite(h->value[i]) != known) continue;
        fprintf(f, "%d,%d,", i % h->nx, i / h->nx);
        hdo__gnuplot_number(f, h->value[i]);
        fputc('\n', f);
    }
    fputs("END\n", f);
}

static int count_known(const hdo_heatmap *h, double *lo, double *hi) {
    int n = 0;
    *lo = HUGE_VAL;
    *hi = -HUGE_VAL;
    for (int i = 0; i < h->nx * h->ny; i++) {
        if (!isfinite(h->value[i])) continue;
        n++;
        *lo = fmin(*lo, h->value[i]);
        *hi = fmax(*hi, h->value[i]);
    }
    return n;
}

/* Cells with a value in its colour, the others hatched in grey: nothing that could be taken for a value. */
static void draw(FILE *f, const void *ctx) {
    const hdo_heatmap *h = ctx;
    double lo, hi;
    int known = count_known(h, &lo, &hi);
    const char *before = "plot ";
    if (known > 0) {
        fprintf(f,
                "%s$cells using 1:2:(0.5):(0.5):3 with boxxyerror fs solid noborder lc palette notitle, \\\n"
                "     $cells using 1:2:(sprintf('%%.4g', $3)) with labels tc rgb '#ffffff' font ',10' notitle",
                before);
        before = ", \\\n     ";
    }
    if (known < h->nx * h->ny) {
        fprintf(f,
                "%s$diverged using 1:2:(0.5):(0.5) with boxxyerror lc rgb '#999999' fs pattern 5 border lc rgb "
                "'#999999' notitle, \\\n"
                "     $diverged using 1:2:('diverged') with labels tc rgb '#000000' font ',10' boxed notitle",
                before);
    }
    fputc('\n', f);
}

static void put_gp(FILE *f, const void *what, const char *name, unsigned formats) {
    const hdo_heatmap *h = what;
    double lo, hi;
    hdo__gnuplot_head(f, name);
    fputs("unset key\nset style textbox opaque noborder\n", f);
    hdo__gnuplot_set(f, "title", h->title);
    hdo__gnuplot_set(f, "xlabel", h->x_label);
    hdo__gnuplot_set(f, "ylabel", h->y_label);
    hdo__gnuplot_set(f, "cblabel", h->value_label);
    fprintf(f, "set xrange [-0.5:%d.5]\nset yrange [-0.5:%d.5]\nset tics scale 0\n", h->nx - 1, h->ny - 1);
    put_tics(f, 'x', h->x_name, h->nx);
    put_tics(f, 'y', h->y_name, h->ny);
    if (count_known(h, &lo, &hi) > 0 && lo > 0.0 && hi > 10.0 * lo)
        fputs("set logscale cb\n", f); /* one bad setting must not hide the others */
    fputs("set palette defined (0 '#00204d', 0.5 '#7c7b78', 1 '#c9b030')\n", f);
    put_cells(f, h, true);
    put_cells(f, h, false);
    hdo__gnuplot_each(f, name, formats, draw, h);
}

hdo_status hdo_heatmap_write(const hdo_heatmap *h, const char *base, unsigned formats, hdo_error *e) {
    return hdo__gnuplot_write(&(hdo_gnuplot){h, put_csv, put_gp}, base, formats, e);
}
