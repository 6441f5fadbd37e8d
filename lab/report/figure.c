/* SPDX-License-Identifier: Apache-2.0
 *
 * Figures through gnuplot: data in a .csv, drawing in a .gp beside it, so that anyone can restyle a figure without us.
 * Colours are Okabe and Ito's set (readable by colour-blind people); lines also differ in dash and point, for grey
 * print. A run that diverged is a thin line of its own that ends in a cross: it is not part of the mean.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hdo/experimental/spawn.h"
#include "hdo/experimental/fail.h"
#include "hdo/experimental/config.h"
#include "hdo/lab/report.h"
#include "lab/report/gnuplot.h"

static const char *const colours[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                      "#E69F00", "#56B4E9", "#000000", "#F0E442"};
enum { N_COLOURS = 8 };

/* ---- data ---- */

static const char header[] = "x,mean,se,low,high,runs,label\n";

/* The label stands last, so that gnuplot meets only numbers. */
static void put_row(FILE *f, double x, double mean, double se, int runs) {
    const double v[] = {x, mean, se, mean - se, mean + se};
    for (size_t j = 0; j < sizeof v / sizeof v[0]; j++) {
        hdo__gnuplot_number(f, v[j]);
        fputc(',', f);
    }
    fprintf(f, "%d,", runs);
}

/* Points of a run before it left the finite numbers. */
static int finite_points(const hdo_series *s) {
    int n = 0;
    while (n < s->n && isfinite(s->x[n]) && isfinite(s->y[n])) n++;
    return n;
}

static void put_lost(FILE *f, const hdo_figure *fig, const hdo_curve *c, const hdo_series *s) {
    char label[HDO_LABEL_MAX + 48];
    int n = finite_points(s);
    snprintf(label, sizeof label, "%s (seed %lld, diverged)", c->label, (long long)s->seed);
    fputs(header, f);
    for (int i = 0; i < n; i++) {
        put_row(f, s->x[i], s->y[i], (double)NAN, 1);
        hdo__quote_csv(f, label);
        fputc('\n', f);
    }
    /* Where the cross goes: the last point, or where the line leaves the figure. */
    double x = n > 0 ? s->x[n - 1] : (double)NAN, y = n > 0 ? s->y[n - 1] : (double)NAN;
    for (int i = 1; i < n && fig->y_max > 0.0; i++) {
        if (s->y[i] <= fig->y_max) continue;
        double t = (fig->y_max - s->y[i - 1]) / (s->y[i] - s->y[i - 1]);
        x = t > 0.0 ? s->x[i - 1] + t * (s->x[i] - s->x[i - 1]) : s->x[i - 1];
        y = fig->y_max;
        break;
    }
    fprintf(f, "\n\n%s", header);
    put_row(f, x, y, (double)NAN, 1);
    hdo__quote_csv(f, label);
    fputc('\n', f);
}

/* Blocks, separated by two blank lines (gnuplot's `index`): one per curve, then line and end of every run that
 * diverged. */
static void put_csv(FILE *f, const void *what) {
    const hdo_figure *fig = what;
    for (int k = 0; k < fig->n_curves; k++) {
        const hdo_curve *c = &fig->curves[k];
        if (k > 0) fputs("\n\n", f);
        fputs(header, f);
        for (int i = 0; i < c->n_points; i++) {
            put_row(f, c->x[i], c->mean[i], c->se[i], c->n_runs);
            hdo__quote_csv(f, c->label);
            fputc('\n', f);
        }
        if (c->n_points == 0) fputs("nan,nan,nan,nan,nan,0,\n", f); /* a block gnuplot can count */
        for (int j = 0; j < c->n_diverged; j++) {
            fputs("\n\n", f);
            put_lost(f, fig, c, &c->diverged[j]);
        }
    }
}

/* ---- drawing ---- */

/* "8zo (2 of 3 seeds diverged)" */
static void put_title(FILE *f, const hdo_curve *c) {
    char title[HDO_LABEL_MAX + 64];
    int all = c->n_runs + c->n_diverged;
    if (c->n_diverged == 0) {
        snprintf(title, sizeof title, "%s", c->label);
    } else if (all == 1) {
        snprintf(title, sizeof title, "%s (diverged)", c->label);
    } else {
        snprintf(title, sizeof title, "%s (%d of %d seeds diverged)", c->label, c->n_diverged, all);
    }
    fputs(" title ", f);
    hdo__quote_gnuplot(f, title);
}

typedef struct curves_ctx {
    const hdo_figure *fig;
    const char *name; /* of the figure; NULL: data in the block $data, plain lines */
} curves_ctx;

static void put_source(FILE *f, const curves_ctx *c, int *pieces, int index) {
    fputs((*pieces)++ > 0 ? ", \\\n     " : "plot ", f);
    if (c->name != NULL) {
        hdo__quote_gnuplot_file(f, c->name, ".csv");
    } else {
        fputs("$data", f);
    }
    fprintf(f, " index %d skip 1 using ", index);
}

static bool has_band(const hdo_curve *c) {
    return c->n_runs > 1 && c->n_points > 0;
}

static void put_curve(FILE *f, const curves_ctx *ctx, int k, int *index, int *pieces) {
    const hdo_curve *c = &ctx->fig->curves[k];
    const char *colour = colours[k % N_COLOURS];
    if (ctx->name != NULL && has_band(c)) {
        put_source(f, ctx, pieces, *index);
        fprintf(f, "1:4:5 with filledcurves fc rgb '%s' fs transparent solid 0.2 noborder notitle", colour);
    }
    if (c->n_points > 0) {
        put_source(f, ctx, pieces, *index);
        fprintf(f, "1:2 with lines lw 2 dt %d lc rgb '%s'", k % 5 + 1, colour);
        put_title(f, c);
    }
    ++*index;
    bool titled = c->n_points > 0;
    for (int j = 0; j < c->n_diverged; j++, *index += 2) {
        if (finite_points(&c->diverged[j]) == 0) continue;
        put_source(f, ctx, pieces, *index);
        fprintf(f, "1:2 with lines lw 1.5 dt 1 lc rgb '%s' notitle", colour);
        put_source(f, ctx, pieces, *index + 1);
        fprintf(f, "1:2 with points pt 2 ps 1.5 lw 2 lc rgb '%s'", colour);
        if (titled) {
            fputs(" notitle", f);
        } else {
            put_title(f, c);
        }
        titled = true;
    }
    if (titled) return; /* otherwise in the key, at least */
    fprintf(f, "%sNaN with points pt 2 lc rgb '%s'", (*pieces)++ > 0 ? ", \\\n     " : "plot ", colour);
    put_title(f, c);
}

/* Is there a point to draw? */
static bool any_point(const hdo_figure *fig) {
    for (int k = 0; k < fig->n_curves; k++) {
        const hdo_curve *c = &fig->curves[k];
        for (int i = 0; i < c->n_points; i++) {
            if (isfinite(c->x[i]) && isfinite(c->mean[i])) return true;
        }
        for (int j = 0; j < c->n_diverged; j++) {
            if (finite_points(&c->diverged[j]) > 0) return true;
        }
    }
    return false;
}

static void draw_curves(FILE *f, const void *ctx) {
    const curves_ctx *c = ctx;
    int index = 0, pieces = 0;
    if (!any_point(c->fig)) {
        fputs("unset logscale\nset xrange [0:1]\nset yrange [0:1]\n"
              "set label 'no finite value to draw' at graph 0.5,0.5 center\n",
              f);
    }
    for (int k = 0; k < c->fig->n_curves; k++) put_curve(f, c, k, &index, &pieces);
    fputs(pieces > 0 ? "\n" : "plot NaN notitle\n", f);
}

static void put_frame(FILE *f, const hdo_figure *fig) {
    fputs("set key top right noenhanced\nset border 3\nset tics nomirror\nset grid lc rgb '#dddddd'\n", f);
    hdo__gnuplot_set(f, "title", fig->title);
    hdo__gnuplot_set(f, "xlabel", fig->x_label);
    hdo__gnuplot_set(f, "ylabel", fig->y_label);
    if (fig->log_x) fputs("set logscale x\n", f);
    if (fig->log_y) fputs("set logscale y\n", f);
    if (fig->y_max > 0.0) {
        fputs("set yrange [*:", f);
        hdo__gnuplot_number(f, fig->y_max);
        fputs("]\n", f);
    }
}

static void put_gp(FILE *f, const void *what, const char *name, unsigned formats) {
    const hdo_figure *fig = what;
    hdo__gnuplot_head(f, name);
    put_frame(f, fig);
    curves_ctx ctx = {fig, name};
    hdo__gnuplot_each(f, name, formats, draw_curves, &ctx);
}

hdo_status hdo_figure_write(const hdo_figure *f, const char *base, unsigned formats, hdo_error *e) {
    return hdo__gnuplot_write(&(hdo_gnuplot){f, put_csv, put_gp}, base, formats, e);
}

/* Extends the highest start and the highest point by those of a line. */
static void stretch(const double *y, int n, double *start, double *top) {
    for (int i = 0; i < n; i++) {
        if (!isfinite(y[i])) continue;
        if (i == 0) *start = fmax(*start, y[i]);
        *top = fmax(*top, y[i]);
    }
}

double hdo_figure_clip(const hdo_curve *curves, int n) {
    double start = 0.0, top = 0.0;
    for (int k = 0; k < n; k++) {
        stretch(curves[k].mean, curves[k].n_points, &start, &top);
        for (int j = 0; j < curves[k].n_diverged; j++)
            stretch(curves[k].diverged[j].y, curves[k].diverged[j].n, &start, &top);
    }
    return start > 0.0 && top > 1.0 && top > 2.0 * start ? 1.5 * start : 0.0; /* up to 1: accuracies, which rise */
}

const char *hdo_axis_label(const char *metric) {
    static const char *const names[][2] = {{"step", "steps"},
                                           {"interactions", "interactions (pairs that averaged)"},
                                           {"parallel_time", "parallel time"},
                                           {"oracle/forward", "forward passes, all nodes"},
                                           {"oracle/backward", "gradients by reverse mode, all nodes"},
                                           {"oracle/jvp", "forward-mode derivatives, all nodes"},
                                           {"oracle/cost", "cost: weighted passes, all nodes"},
                                           {"cost", "cost: weighted passes, all nodes"},
                                           {"bytes_exchanged", "bytes exchanged"},
                                           {"sim_time", "simulated time (s)"},
                                           {"time/wall", "time (s)"},
                                           {"val/loss_mean", "validation loss, mean over nodes"},
                                           {"val/acc_mean", "validation accuracy, mean over nodes"},
                                           {"val/loss_std", "standard deviation of the loss over nodes"},
                                           {"val/loss_mu", "validation loss of the mean model"},
                                           {"consensus/gamma", "consensus distance"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(names[i][0], metric) == 0) return names[i][1];
    }
    return metric;
}

/* gnuplot reads data and script from one temporary file, given as inline blocks. */
char *hdo_figure_text(const hdo_figure *f, int width, int height) {
    char name[] = "/tmp/hdo-figure-XXXXXX";
    int fd = mkstemp(name);
    if (fd < 0) return NULL;
    FILE *s = fdopen(fd, "w");
    if (s == NULL) {
        close(fd);
        unlink(name);
        return NULL;
    }
    curves_ctx ctx = {f, NULL};
    hdo__gnuplot_head(s, "figure");
    fputs("$data << END\n", s);
    put_csv(s, f); /* starts no line with END: every line is a heading, a number or blank */
    fputs("END\n", s);
    put_frame(s, f);
    fprintf(s, "unset grid\nset terminal dumb size %d,%d\n", width, height);
    draw_curves(s, &ctx);
    bool ok = fclose(s) == 0;
    size_t cap = (size_t)width * (size_t)height * 4 + 4096;
    char *out = ok ? malloc(cap) : NULL;
    const char *const argv[] = {"gnuplot", name, NULL};
    if (out != NULL && hdo__spawn(&(hdo_spawn){.argv = argv, .quiet = true, .out = out, .cap = cap}) != 0) {
        free(out);
        out = NULL;
    }
    unlink(name);
    return out;
}
