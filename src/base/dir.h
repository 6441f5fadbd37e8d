/* SPDX-License-Identifier: Apache-2.0
 *
 * Perturbation directions as values, not buffers. A set of directions u_0, u_1, ... for one estimate of one node is
 * an address; any slice of any of them can be written out at any time, so nobody ever holds rv x d numbers.
 */
#ifndef HDO_BASE_DIR_H
#define HDO_BASE_DIR_H

#include <stddef.h>

#include "base/rng.h"
#include "base/split.h"
#include "base/tensor.h"
#include "hdo/experimental/config.h" /* HDO_DIST_* */

typedef struct hdo_dirs {
    hdo_stream s;       /* sub is replaced by the number of the direction */
    int dist;           /* HDO_DIST_GAUSSIAN, _SPHERE, _RADEMACHER, or HDO_DIST_AXES */
    size_t d;           /* length of every direction */
    size_t lo, hi;      /* window: u is zero outside [lo, hi); hi = 0: no window. Inside, the numbers do not change */
    hdo_ranges idle;    /* u is zero there too: coordinates no loss depends on. Axes do not look at it */
    const float *scale; /* sphere: sqrt(n) / |z_r| for r = scale_from, ..., n: numbers that are not zero by the above;
                           NULL otherwise */
    int scale_from;
    int rank; /* low-rank directions: a matrix (m, n) has (1/sqrt(rank)) sum_q a_q b_q', all Gaussian; 0: they are plain
               */
    const hdo_tensor *tensors; /* (n_tensors): where matrices are, if rank > 0 */
    int n_tensors;
    const hdo_perm *axes; /* HDO_DIST_AXES: u_r is the unit vector of coordinate axes(r); NULL: of coordinate r */
    const float *given;   /* HDO_DIST_GIVEN: u_r is given[r * stride ..] */
    size_t stride;
} hdo_dirs;

/* Beside the distributions a user can choose: coordinate directions, and vectors that are there already. */
enum { HDO_DIST_AXES = 100, HDO_DIST_GIVEN };

/* Writes u_r[off .. off + len) to out. */
HDO_LAB void hdo__dirs_fill(const hdo_dirs *u, int r, size_t off, size_t len, float *out);

/* The tensor at `off` if directions of this rank have factors there: it is a matrix (m, n), live part, and they are
 * fewer numbers than it has, rank (m + n) < m n. NULL: directions are plain there. */
HDO_LAB const hdo_tensor *hdo__dirs_matrix(const hdo_dirs *u, size_t off, int *m, int *n);
/* The factors of u_r there: a (rank, m), which has the 1/sqrt(rank), and b (rank, n). */
void hdo__dirs_factors(const hdo_dirs *u, int r, const hdo_tensor *t, float *a, float *b);
/* The same with rows i0 .. i0 + rows - 1 of a alone, (rank, rows), times c. */
void hdo__dirs_factor_rows(const hdo_dirs *u, int r, const hdo_tensor *t, int i0, int rows, float c, float *a,
                           float *b);

/* Sphere only: fills scale[0 .. k) for the directions from u->scale_from on (a pass over k x d numbers), so that
 * u->scale can point at it. */
void hdo__dirs_sphere_scale(const hdo_dirs *u, int k, float *scale);

#endif
