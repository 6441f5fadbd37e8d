/* SPDX-License-Identifier: Apache-2.0
 *
 * Stored results: curves of runs, averaged over seeds; figures and pages of them; differences between groups of runs.
 *
 * Experimental: may change or vanish in any version.
 */
#ifndef HDO_LAB_REPORT_H
#define HDO_LAB_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hdo/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HDO_LABEL_MAX 64

/* ---- curves ---- */

/* One metric against another in one run. */
typedef struct hdo_series {
    int64_t seed;  /* -1: the run has no summary yet */
    bool finished; /* it has one, and was not stopped */
    bool diverged;
    int n;
    double *x, *y; /* (n) */
} hdo_series;

/* The runs of a group, which differ in the seed. */
typedef struct hdo_bundle {
    char label[HDO_LABEL_MAX];
    int n_runs;
    hdo_series *run; /* (n_runs) */
} hdo_bundle;

/* dir is a run folder, or a folder whose sub-folders are runs that differ in the seed. y and x are names of metrics
 * ("val/loss_mean", "step"). The label is the last part of dir. */
HDO_API hdo_status hdo_bundle_load(hdo_bundle *out, const char *dir, const char *x, const char *y, hdo_error *e);
HDO_API void hdo_bundle_clear(hdo_bundle *b);

/* y at x, between two points by a straight line; NaN outside what was recorded. */
HDO_API double hdo_series_at(const hdo_series *s, double x);

/* The mean of a group, with its standard error. Runs that diverged are not part of the mean: a mean over those that are
 * left at each point would fall whenever a bad one leaves. */
typedef struct hdo_curve {
    char label[HDO_LABEL_MAX];
    int n_runs; /* seeds of the mean */
    int n_points;
    double *x;    /* (n_points) */
    double *mean; /* (n_points) over seeds */
    double *se;   /* (n_points) standard error over seeds; NaN for one run */
    int n_diverged;
    hdo_series *diverged; /* (n_diverged) runs that diverged, as far as they were recorded */
} hdo_curve;

/* As hdo_bundle_load; only points that all seeds of the mean have are kept. */
HDO_API hdo_status hdo_curve_load(hdo_curve *out, const char *dir, const char *x, const char *y, hdo_error *e);
HDO_API void hdo_curve_clear(hdo_curve *c);

/* The curve minus that of another group, seed by seed: what a figure of nearly equal curves hides. Only seeds both
 * groups have count; HDO_E_DATA when there is none. */
HDO_API hdo_status hdo_curve_difference(hdo_curve *out, const char *dir, const char *reference, const char *x,
                                        const char *y, hdo_error *e);

/* ---- figures ---- */

typedef struct hdo_figure {
    const char *title, *x_label, *y_label;
    bool log_x, log_y;
    double y_max; /* cut the axis here, so that a diverged curve does not hide the others; 0: none */
    const hdo_curve *curves;
    int n_curves;
} hdo_figure;

enum { HDO_FORMAT_SVG = 1, HDO_FORMAT_PNG = 2, HDO_FORMAT_PDF = 4 };

/* Writes base.csv and base.gp, then base.svg, .png, .pdf through gnuplot. Without gnuplot it fails with HDO_E_FAILED
 * and says how to install it; the .csv and .gp are there. */
HDO_API hdo_status hdo_figure_write(const hdo_figure *f, const char *base, unsigned formats, hdo_error *e);

/* The figure as text, width x height characters, through gnuplot's dumb terminal; free() the result. NULL on failure.
 */
HDO_API char *hdo_figure_text(const hdo_figure *f, int width, int height);

/* A y_max for these curves: 0 unless one of them rises far above where all of them start (and above 1: accuracies
 * rise). */
HDO_API double hdo_figure_clip(const hdo_curve *curves, int n);

/* What an axis is called: "step" -> "steps", "bytes_exchanged" -> "bytes exchanged"; other names as they are. */
HDO_API const char *hdo_axis_label(const char *metric);

/* Values on a grid of two settings. NaN cells are drawn as diverged. */
typedef struct hdo_heatmap {
    const char *title, *x_label, *y_label, *value_label;
    int nx, ny;
    const char *const *x_name; /* (nx) */
    const char *const *y_name; /* (ny) */
    const double *value;       /* (ny, nx) */
} hdo_heatmap;
HDO_API hdo_status hdo_heatmap_write(const hdo_heatmap *h, const char *base, unsigned formats, hdo_error *e);

/* ---- differences of two groups ---- */

/* a and b: means over n_a and n_b values with their standard errors. Values that belong together (same seed) are
 * compared pair by pair, otherwise by Welch's test. */
typedef struct hdo_difference {
    double a, a_se, b, b_se;
    int n_a, n_b;
    bool paired;
    double diff, se;  /* a - b */
    double low, high; /* 95 % confidence interval of diff; NaN with fewer than two values */
    double t, p;      /* two-sided */
} hdo_difference;

/* seeds may be NULL: not paired. Values that are not finite must have been dealt with by the caller. */
HDO_API hdo_difference hdo_compare_values(const double *a, const int64_t *seed_a, int n_a, const double *b,
                                          const int64_t *seed_b, int n_b);
HDO_API double hdo_student_quantile(double p, double dof); /* p in (0.5, 1) */

/* The groups in two folders at equal *x. *x < 0: the largest x that every run of both groups has, which *x receives. An
 * axis that is constant in a run is refused (HDO_E_CONFIG). */
HDO_API hdo_status hdo_compare_runs(const char *dir_a, const char *dir_b, const char *metric, const char *axis,
                                    double *x, hdo_difference *out, hdo_error *e);

/* ---- pages ---- */

/* A self-contained HTML page of runs or groups of runs: figures inline, tables, configurations. x: axis of the figures.
 * Without gnuplot the page has no figures and says so. */
HDO_API hdo_status hdo_report_write(const char *const *dirs, int n, const char *title, const char *x, const char *path,
                                    hdo_error *e);

#ifdef __cplusplus
}
#endif

#endif
