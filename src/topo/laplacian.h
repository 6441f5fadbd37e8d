/* SPDX-License-Identifier: Apache-2.0
 *
 * The smallest eigenvalue of a weighted graph Laplacian beside its zero.
 */
#ifndef HDO_TOPO_LAPLACIAN_H
#define HDO_TOPO_LAPLACIAN_H

#include "topo/graph.h"

typedef struct hdo_laplacian {
    size_t n, n_edges;
    const hdo_pair *edges;
    const double *weight; /* (n_edges) */
    double *scale;        /* (n): S of S L S; ones, or degree^-1/2 for the normalised Laplacian */
    double *null;         /* (n): unit vector with S L S null = 0 */
} hdo_laplacian;

size_t hdo__laplacian_steps(const hdo_laplacian *l); /* at most; n and n_edges must be set */

/* tol: relative. work: 3 n + 2 hdo__laplacian_steps doubles. *error: what the last fifth of the steps changed, or all
 * of the value if that was still too much. */
double hdo__laplacian_smallest(const hdo_laplacian *l, double tol, double *work, double *error);

/* Smallest eigenvalue of the positive semidefinite matrix with diagonal alpha (m) and beside it beta (m - 1). */
double hdo__tridiagonal_smallest(size_t m, const double *alpha, const double *beta);

#endif
