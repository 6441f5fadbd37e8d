/* SPDX-License-Identifier: Apache-2.0
 *
 * A grid of values as a heat map, through gnuplot: base.csv (rows as they are, names in the first column) and base.gp.
 * Colours run from dark blue to yellow with rising lightness, so that grey print keeps the order.
 */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "hdo/config.h"
#include "hdo/report.h"
#include "report/gnuplot.h"

static void put_value(FILE *f, double v) {
    char buf[32];
    hdo__real_text(v, buf);
    fputs(isfinite(v) ? buf : "nan", f);
}

static void put_csv(FILE *f, const hdo_heatmap *h) {
    for (int i = 0; i < h->nx; i++) {
        fputc(',', f);
        hdo__csv_label(f, h->x_name[i]);
    }
    fputc('\n', f);
    for (int j = 0; j < h->ny; j++) {
        hdo__csv_label(f, h->y_name[j]);
        for (int i = 0; i < h->nx; i++) {
            fputc(',', f);
            put_value(f, h->value[j * h->nx + i]);
        }
        fputc('\n', f);
    }
}

static void put_tics(FILE *f, char axis, const char *const *name, int n) {
    fprintf(f, "set %ctics (", axis);
    for (int i = 0; i < n; i++) {
        fprintf(f, "%s'", i > 0 ? ", " : "");
        hdo__gnuplot_label(f, name[i]);
        fprintf(f, "' %d", i);
    }
    fputs(")\n", f);
}

static void put_text(FILE *f, const char *what, const char *text) {
    if (text == NULL) return;
    fprintf(f, "set %s '", what);
    hdo__gnuplot_label(f, text);
    fputs("' noenhanced\n", f);
}

typedef struct map_ctx {
    const hdo_heatmap *h;
    const char *csv;
} map_ctx;

static void draw(FILE *f, const void *ctx) {
    const map_ctx *c = ctx;
    const char *matrix = "matrix rowheaders columnheaders";
    fprintf(
        f,
        "plot '%s' %s using 1:2:3 with image notitle, \\\n     '%s' %s using 1:2:(sprintf('%%.4g', $3)) with labels "
        "tc rgb '#ffffff' font ',10' notitle\n",
        c->csv, matrix, c->csv, matrix);
}

hdo_status hdo_heatmap_write(const hdo_heatmap *h, const char *base, unsigned formats, hdo_error *e) {
    char path[HDO_PATH_MAX + 8], csv[HDO_PATH_MAX];
    hdo_text t;
    hdo_status st = hdo__gnuplot_prepare(base, e);
    if (st != HDO_OK) return st;
    hdo__text_open(&t);
    if (t.f != NULL) put_csv(t.f, h);
    snprintf(path, sizeof path, "%s.csv", base);
    st = hdo__text_save(&t, path, e);
    if (st != HDO_OK) return st;
    const char *name = hdo__gnuplot_name(base);
    snprintf(csv, sizeof csv, "%s.csv", name);
    hdo__text_open(&t);
    if (t.f != NULL) {
        fprintf(t.f, "# gnuplot %s.gp draws this figure again, in this folder\nset datafile separator ','\nunset key\n",
                name);
        put_text(t.f, "title", h->title);
        put_text(t.f, "xlabel", h->x_label);
        put_text(t.f, "ylabel", h->y_label);
        put_text(t.f, "cblabel", h->value_label);
        fprintf(t.f, "set xrange [-0.5:%d.5]\nset yrange [-0.5:%d.5]\nset tics scale 0\n", h->nx - 1, h->ny - 1);
        put_tics(t.f, 'x', h->x_name, h->nx);
        put_tics(t.f, 'y', h->y_name, h->ny);
        double lo = HUGE_VAL, hi = -HUGE_VAL;
        for (int i = 0; i < h->nx * h->ny; i++) {
            if (!isfinite(h->value[i])) continue;
            lo = fmin(lo, h->value[i]);
            hi = fmax(hi, h->value[i]);
        }
        if (lo > 0.0 && hi > 10.0 * lo) fputs("set logscale cb\n", t.f); /* one bad setting must not hide the others */
        fputs("set palette defined (0 '#00204d', 0.5 '#7c7b78', 1 '#c9b030')\n", t.f);
        map_ctx ctx = {h, csv};
        hdo__gnuplot_each(t.f, name, formats, draw, &ctx);
    }
    snprintf(path, sizeof path, "%s.gp", base);
    st = hdo__text_save(&t, path, e);
    return st == HDO_OK && formats != 0 ? hdo__gnuplot_call(base, e) : st;
}
