/* SPDX-License-Identifier: Apache-2.0
 *
 * Stochastic Lanczos quadrature (Golub and Meurant, "Matrices, moments and quadrature", 2010; Ubaru, Chen, Saad, "Fast
 * estimation of tr(f(A)) via stochastic Lanczos quadrature", 2017). A symmetric operator is known through products with
 * it. From one start vector v come nodes and weights with
 *
 *     v' f(A) v  =  |v|^2 sum_i weight_i f(node_i)
 *
 * for every function f afterwards, exact for polynomials of degree 2 n - 1. With start vectors of E v v' = C the mean
 * of v' f(A) v is tr(C f(A)): C = I for Rademacher vectors.
 */
#ifndef HDO_PREDICT_SLQ_H
#define HDO_PREDICT_SLQ_H

#include <stddef.h>

#include "hdo/status.h"

enum { HDO_SLQ_MAX = 96 };

typedef struct hdo_quadrature {
    int n;
    double norm2;               /* |v|^2 */
    double node[HDO_SLQ_MAX];   /* rising */
    double weight[HDO_SLQ_MAX]; /* sum 1 */
} hdo_quadrature;

/* y = A x. */
typedef hdo_status (*hdo_product)(void *ctx, const double *x /* (n) */, double *y /* (n) */, hdo_error *e);

/* At most `steps` products, fewer when v lies in a small invariant subspace. The basis is kept in float: steps * n * 4
 * bytes; every new vector is made orthogonal to all before it, twice. A start vector of zeros gives n = 0. */
hdo_status hdo__slq(hdo_product mul, void *ctx, size_t n, const double *v, int steps, hdo_quadrature *out,
                    hdo_error *e);

/* |v|^2 sum_i weight_i f(node_i). */
double hdo__slq_sum(const hdo_quadrature *q, double (*f)(const void *ctx, double node), const void *ctx);

/* Eigenvalues of the symmetric tridiagonal matrix with diagonal a (m) and off-diagonal b (m - 1) into a, rising, and
 * the first component of every eigenvector into first (m): implicit QL with Wilkinson's shifts. b is destroyed. */
hdo_status hdo__tridiagonal(int m, double *a, double *b, double *first, hdo_error *e);

#endif
