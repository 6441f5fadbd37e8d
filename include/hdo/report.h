/* SPDX-License-Identifier: Apache-2.0
 *
 * Stored results: curves of runs, averaged over seeds, and figures of them.
 */
#ifndef HDO_REPORT_H
#define HDO_REPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "hdo/status.h"

/* One metric against another, over one run or over the seeds of a group. */
typedef struct hdo_curve {
    char label[64];
    int n_runs;   /* seeds */
    int n_points;
    double *x;    /* (n_points) */
    double *mean; /* (n_points) over seeds */
    double *se;   /* (n_points) standard error over seeds; 0 for one run */
} hdo_curve;

/* dir is a run folder, or a folder whose sub-folders are runs that differ in the seed. Only points that all seeds have
 * are kept. y and x are names of metrics ("val/loss_mean", "step"). The label is the last part of dir. */
HDO_API hdo_status hdo_curve_load(hdo_curve *out, const char *dir, const char *x, const char *y, hdo_error *e);
HDO_API void hdo_curve_clear(hdo_curve *c);

typedef struct hdo_figure {
    const char *title, *x_label, *y_label;
    bool log_x, log_y;
    const hdo_curve *curves;
    int n_curves;
} hdo_figure;

enum { HDO_FORMAT_SVG = 1, HDO_FORMAT_PNG = 2, HDO_FORMAT_PDF = 4 };

/* Writes base.csv and base.gp, then base.svg, .png, .pdf through gnuplot. Without gnuplot it fails with HDO_E_FAILED and
 * says how to install it; the .csv and .gp are there. */
HDO_API hdo_status hdo_figure_write(const hdo_figure *f, const char *base, unsigned formats, hdo_error *e);

/* The figure as text, width x height characters, through gnuplot's dumb terminal; free() the result. NULL on failure. */
HDO_API char *hdo_figure_text(const hdo_figure *f, int width, int height);

#endif
