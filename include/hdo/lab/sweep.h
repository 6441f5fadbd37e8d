/* SPDX-License-Identifier: Apache-2.0
 *
 * Searching over settings: a grid or random points, and successive halving, which stops hopeless runs early. The runs
 * themselves are the caller's; this is what to run, for how long, and what came out.
 *
 * Experimental: may change or vanish in any version.
 */
#ifndef HDO_LAB_SWEEP_H
#define HDO_LAB_SWEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hdo/experimental/config.h"
#include "hdo/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HDO_SWEEP_AXES = 8, HDO_SWEEP_VALUES = 64, HDO_SWEEP_POINTS = 4096, HDO_SWEEP_RUNGS = 8 };

typedef struct hdo_sweep_axis {
    char key[96];
    int n; /* values of a grid; 0: an interval */
    char value[HDO_SWEEP_VALUES][32];
    double lo, hi;
    bool log, whole; /* of an interval: evenly in the logarithm; whole numbers only */
} hdo_sweep_axis;

/* "key=a,b,c" (grid), "key=lo:hi", "key=lo:hi:log" (interval; whole numbers if both ends are written as such). */
HDO_API hdo_status hdo_sweep_axis_parse(const char *text, hdo_sweep_axis *out, hdo_error *e);

typedef struct hdo_sweep {
    int n_axes, n_points;
    hdo_sweep_axis axis[HDO_SWEEP_AXES];
    char (*value)[HDO_SWEEP_AXES][32]; /* (n_points): of every point */

    /* results, filled by the caller */
    double *score, *se; /* (n_points) NaN: diverged, or nothing known */
    int64_t *steps;     /* (n_points) how far it got */
} hdo_sweep;

/* All combinations (random == 0; axes must be lists), or `random` points (lists and intervals). */
HDO_API hdo_status hdo_sweep_create(hdo_sweep **out, const hdo_sweep_axis *axis, int n_axes, int random, uint64_t seed,
                                    hdo_error *e);
HDO_API void hdo_sweep_destroy(hdo_sweep *s);

/* The settings of a point over c. */
HDO_API hdo_status hdo_sweep_apply(const hdo_sweep *s, int point, hdo_config *c, hdo_error *e);

typedef struct hdo_sweep_rung {
    int64_t until; /* steps, warm-up included */
    int keep;      /* points that are run so far */
} hdo_sweep_rung;
/* Successive halving with a factor of three: all points for a while, the best third for three times as long, ...; the
 * last rung is the whole run. Fewer rungs where the first would be shorter than least steps. Returns how many. */
HDO_API int hdo_sweep_rungs(int n_points, int64_t total, int64_t least, hdo_sweep_rung out[HDO_SWEEP_RUNGS]);

/* Points from best to worst: those that got further first, then by score; diverged ones last. larger: a larger score is
 * better. order (n_points). */
HDO_API void hdo_sweep_order(const hdo_sweep *s, bool larger, int *order);

/* Reads the last value of a metric over the runs (seeds) in a folder; NaN if one diverged. */
HDO_API hdo_status hdo_sweep_score(const char *dir, const char *metric, double *score, double *se, int64_t *steps,
                                   hdo_error *e);

/* dir/sweep.csv, and for two or more listed axes dir/heatmap.{svg,png,pdf} of the first two (best over the others). */
HDO_API hdo_status hdo_sweep_write(const hdo_sweep *s, const char *metric, bool larger, const char *dir, hdo_error *e);

#ifdef __cplusplus
}
#endif

#endif
