/* SPDX-License-Identifier: Apache-2.0
 *
 * Perturbation directions as values, not buffers. A set of directions u_0, u_1, ... for one estimate of one node is
 * an address; any slice of any of them can be written out at any time, so nobody ever holds rv x d numbers.
 */
#ifndef HDO_BASE_DIR_H
#define HDO_BASE_DIR_H

#include <stddef.h>

#include "base/rng.h"
#include "hdo/config.h" /* HDO_DIST_* */

typedef struct hdo_dirs {
    hdo_stream s;       /* sub is replaced by the number of the direction */
    int dist;           /* HDO_DIST_GAUSSIAN, _SPHERE, _RADEMACHER */
    size_t d;           /* length of every direction */
    const float *scale; /* sphere: sqrt(d) / |z_r| for r = 0, 1, ...; NULL otherwise */
} hdo_dirs;

/* Writes u_r[off .. off + len) to out. */
void hdo__dirs_fill(const hdo_dirs *u, int r, size_t off, size_t len, float *out);

/* Sphere only: fills scale[0 .. k) (a pass over k x d numbers) so that u->scale can point at it. */
void hdo__dirs_sphere_scale(const hdo_dirs *u, int k, float *scale);

#endif
