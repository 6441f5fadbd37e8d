/* SPDX-License-Identifier: Apache-2.0
 *
 * What the loss of a batch of softmax regression sees of a direction: the changes of its B x C logits, X U' with
 * features X (B, p + 1; the last column is one, for the bias) and directions U (C, p + 1). For every class the row
 * space is that of X. With the Gram matrix K = X X' = L L' (pivoted Cholesky, rank m <= B),
 *
 *     Q = X_piv' L_piv^-T   (p + 1, m) acting on each class,      X Q = L   (B, m),      k = m C.
 *
 * Rows that are combinations of others (repeated samples, B > p + 1) have no pivot: their row of L says how. Inside one
 * tensor the same holds with the columns of that tensor: p features, or the column of ones.
 */
#include <math.h>
#include <string.h>

#include "base/explog.h"
#include "base/vec.h"
#include "objective/logreg.h"

/* A pivot below this part of its own diagonal entry is round-off: the Gram matrix is good to 1e-16, so a kept column of
 * Q is orthonormal to 1e-5 at worst, and what is dropped changes a logit by 3e-6 of its size at worst. Its own, not the
 * largest: a sample with features of order one counts beside one with features of order 1e8. */
#define RANK_TOL 1e-11
/* Beyond this e^t leaves the range of a double. */
#define LARGE_CHANGE 700.0

typedef struct span_state {
    bool weight, bias; /* which columns of X count */
    int m;             /* rank */
    int *pivot;        /* (m) rows */
    double *L;         /* (B, m) with leading dimension B */
    float *Lf;         /* the same in float, for products */
    double *prob;      /* (B, C) softmax at x */
    double *log_prob;  /* (B, C) its logarithm, also where the softmax is 0 in double */
    double *delta;     /* (B, C) scratch */
    float *coef;       /* (B, C) scratch */
} span_state;

static size_t lr_span_bytes(const hdo_objective *o, int batch) {
    const hdo_logreg *f = (const hdo_logreg *)o;
    size_t B = (size_t)batch, n = B * (size_t)f->C;
    return hdo__arena_round(sizeof(span_state)) + hdo__arena_round(B * sizeof(int)) +
           2 * hdo__arena_round(B * B * sizeof(double)) + 3 * hdo__arena_round(n * sizeof(double)) +
           hdo__arena_round(n * sizeof(float)) + 2 * hdo__arena_round(B * sizeof(double)) +
           hdo__arena_round(B * B * sizeof(float));
}

static int lr_span_most(const hdo_objective *o, int batch) {
    const hdo_logreg *f = (const hdo_logreg *)o;
    return (batch < f->p + 1 ? batch : f->p + 1) * f->C;
}

/* The next pivot: the largest remaining diagonal entry that is no round-off. B: there is none. */
static size_t next_pivot(size_t B, const double *K, const double *diag) {
    size_t top = B;
    for (size_t i = 0; i < B; i++) {
        bool counts = diag[i] > RANK_TOL * K[i * B + i];
        if (counts && (top == B || diag[i] > diag[top])) top = i;
    }
    return top;
}

/* K (B, B) -> L (B, m), pivots; returns m. A column is made from the columns before it, so K is only read. diag (B) is
 * scratch. */
static int pivoted_cholesky(int n, const double *K, double *L, double *diag, int *pivot, int most) {
    size_t B = (size_t)n;
    for (size_t i = 0; i < B; i++) diag[i] = K[i * B + i];
    int m = 0;
    for (; m < n && m < most; m++) {
        size_t top = next_pivot(B, K, diag), col = (size_t)m;
        if (top == B) break;
        double root = sqrt(diag[top]);
        pivot[m] = (int)top;
        for (size_t i = 0; i < B; i++) {
            double v = K[i * B + top];
            for (size_t j = 0; j < col; j++) v -= L[i * B + j] * L[top * B + j];
            L[i * B + col] = v / root;
            diag[i] -= L[i * B + col] * L[i * B + col];
        }
        for (int j = 0; j < m; j++) L[(size_t)pivot[j] * B + col] = 0.0; /* zero but for round-off */
        L[top * B + col] = root;
        for (int j = 0; j <= m; j++) diag[pivot[j]] = -1.0; /* done */
    }
    return m;
}

static double softmax(int B, int C, const float *z, const int32_t *label, double *prob, double *log_prob) {
    double sum = 0.0;
    for (int i = 0; i < B; i++) {
        const float *zi = z + (size_t)i * (size_t)C;
        double *pi = prob + (size_t)i * (size_t)C, *li = log_prob + (size_t)i * (size_t)C, total = 0.0;
        float top = zi[0];
        for (int c = 1; c < C; c++) top = zi[c] > top ? zi[c] : top;
        for (int c = 0; c < C; c++) total += pi[c] = hdo__exp((double)zi[c] - (double)top);
        double log_total = hdo__log(total);
        for (int c = 0; c < C; c++) pi[c] /= total;
        for (int c = 0; c < C; c++) li[c] = (double)zi[c] - (double)top - log_total;
        sum += log_total + (double)top - (double)zi[label[i]];
    }
    return sum / (double)B;
}

static hdo_status lr_span_open(const hdo_objective *o, const hdo_batch *b, const float *x, int tensor, hdo_work *w,
                               hdo_span *out) {
    const hdo_logreg *f = (const hdo_logreg *)o;
    size_t B = (size_t)b->size, n = B * (size_t)f->C, p = (size_t)f->p;
    span_state *s = hdo__arena_take(w->arena, sizeof *s);
    *s = (span_state){.weight = tensor != 1, .bias = tensor != 0};
    s->pivot = hdo__arena_take(w->arena, B * sizeof(int));
    s->L = hdo__arena_doubles(w->arena, B * B);
    memset(s->L, 0, B * B * sizeof(double));
    s->Lf = hdo__arena_floats(w->arena, B * B);
    s->prob = hdo__arena_doubles(w->arena, n);
    s->log_prob = hdo__arena_doubles(w->arena, n);
    s->delta = hdo__arena_doubles(w->arena, n);
    s->coef = hdo__arena_floats(w->arena, n);
    hdo__logreg_logits(f, b->size, b->in, x, s->coef);
    double loss = softmax(b->size, f->C, s->coef, b->label, s->prob, s->log_prob) + hdo__logreg_regulariser(f, x);

    size_t mark = hdo__arena_mark(w->arena);
    double *K = hdo__arena_doubles(w->arena, B * B), *diag = hdo__arena_doubles(w->arena, B);
    for (size_t i = 0; i < B; i++) {
        for (size_t j = 0; j <= i; j++) {
            double v = (s->weight ? hdo__dot(p, b->in + i * p, b->in + j * p) : 0.0) + (s->bias ? 1.0 : 0.0);
            K[i * B + j] = K[j * B + i] = v;
        }
    }
    s->m = pivoted_cholesky(b->size, K, s->L, diag, s->pivot, f->p * (s->weight ? 1 : 0) + (s->bias ? 1 : 0));
    hdo__arena_rewind(w->arena, mark);
    for (size_t i = 0; i < B * B; i++) s->Lf[i] = (float)s->L[i];
    *out = (hdo_span){.tensor = tensor, .k = s->m * f->C, .loss = loss, .state = s};
    return HDO_OK;
}

/* e^a - 1 for |a| <= 1/16 by its series, which compilers turn into vector code; the first term left out is below 1e-18.
 */
static inline double expm1_small(double a) {
    double q = 1.0 + a * (1.0 / 8.0) * (1.0 + a * (1.0 / 9.0));
    q = 1.0 + a * (1.0 / 6.0) * (1.0 + a * (1.0 / 7.0) * q);
    q = 1.0 + a * (1.0 / 4.0) * (1.0 + a * (1.0 / 5.0) * q);
    return a * (1.0 + a * (1.0 / 2.0) * (1.0 + a * (1.0 / 3.0) * q));
}

/* log sum_c e^(l_c + t_c) for any l and t: changes so large that nothing cancels. */
static double log_sum_exp(int C, const double *l, const double *t) {
    double top = l[0] + t[0], sum = 0.0;
    for (int c = 1; c < C; c++) top = l[c] + t[c] > top ? l[c] + t[c] : top;
    for (int c = 0; c < C; c++) sum += hdo__exp(l[c] + t[c] - top);
    return top + hdo__log(sum);
}

/* log sum_c p_c e^(t_c), without cancellation: log(1 + sum_c p_c (e^(t_c) - 1)). */
static double log_mean_exp(int C, const double *prob, const double *log_prob, const double *t) {
    double sum = 0.0, largest = 0.0;
    for (int c = 0; c < C; c++) largest = fabs(t[c]) > largest ? fabs(t[c]) : largest;
    if (largest <= 0.0625) {
        for (int c = 0; c < C; c++) sum += prob[c] * expm1_small(t[c]);
    } else if (largest <= LARGE_CHANGE) {
        for (int c = 0; c < C; c++) sum += prob[c] * hdo__expm1(t[c]);
        /* all of the weight fell away: what is left lies in classes that had next to none */
        if (sum < -0.5) return log_sum_exp(C, log_prob, t);
    } else {
        return log_sum_exp(C, log_prob, t);
    }
    return hdo__log1p(sum);
}

/* delta (B, C) = nu L y', y (C, m): how the logits change. A matrix product when it is worth a call. */
static void logit_changes(const hdo_logreg *f, const span_state *s, int n, double nu, const float *y) {
    size_t B = (size_t)n, C = (size_t)f->C, m = (size_t)s->m;
    if (n >= 8) {
        f->kernels->gemm(false, true, n, f->C, s->m, 1.0f, s->Lf, n, y, s->m, 0.0f, s->coef, f->C);
        for (size_t i = 0; i < B * C; i++) s->delta[i] = nu * (double)s->coef[i];
        return;
    }
    for (size_t i = 0; i < B; i++) {
        for (size_t c = 0; c < C; c++) {
            double v = 0.0;
            for (size_t j = 0; j < m; j++) v += s->L[i * B + j] * (double)y[c * m + j];
            s->delta[i * C + c] = nu * v;
        }
    }
}

/* Per sample: log sum_c p_c e^(t_c) - t_y with t = nu L y. y_r is (C, m). */
static void lr_span_diff(const hdo_objective *o, const hdo_batch *b, const hdo_span *span, double nu, int n,
                         const float *y, hdo_work *w, double *diff) {
    const hdo_logreg *f = (const hdo_logreg *)o;
    const span_state *s = span->state;
    size_t C = (size_t)f->C;
    (void)w;
    for (int r = 0; r < n; r++) {
        double sum = 0.0;
        logit_changes(f, s, b->size, nu, y + (size_t)r * C * (size_t)s->m);
        for (size_t i = 0; i < (size_t)b->size; i++) {
            const double *t = s->delta + i * C;
            sum += log_mean_exp(f->C, s->prob + i * C, s->log_prob + i * C, t) - t[b->label[i]];
        }
        diff[r] = sum / (double)b->size;
    }
}

/* Solves L_piv v = v (transposed: L_piv' v = v), L_piv (m, m) the rows of the pivots: lower triangular. */
static void solve(const span_state *s, size_t B, bool transposed, double *v) {
    int m = s->m;
    for (int q = 0; q < m; q++) {
        int j = transposed ? m - 1 - q : q;
        const double *Lj = s->L + (size_t)s->pivot[j] * B;
        double a = v[j];
        if (transposed) {
            for (int i = j + 1; i < m; i++) a -= s->L[(size_t)s->pivot[i] * B + (size_t)j] * v[i];
        } else {
            for (int i = 0; i < j; i++) a -= Lj[i] * v[i];
        }
        v[j] = a / Lj[j];
    }
}

/* Q'z = L_piv^-1 X_piv z, class by class; out (C, m). */
static void lr_span_project(const hdo_objective *o, const hdo_batch *b, const hdo_span *span, const float *z,
                            hdo_work *w, double *out) {
    const hdo_logreg *f = (const hdo_logreg *)o;
    const span_state *s = span->state;
    size_t B = (size_t)b->size, C = (size_t)f->C, m = (size_t)s->m;
    const float *zb = z + C * (size_t)f->p;
    (void)w;
    if (s->weight) f->kernels->gemm(false, true, b->size, f->C, f->p, 1.0f, b->in, f->p, z, f->p, 0.0f, s->coef, f->C);
    for (size_t c = 0; c < C; c++) {
        for (size_t j = 0; j < m; j++) {
            out[c * m + j] =
                (s->weight ? (double)s->coef[(size_t)s->pivot[j] * C + c] : 0.0) + (s->bias ? (double)zb[c] : 0.0);
        }
        solve(s, B, false, out + c * m);
    }
}

/* g += Q v = X_piv' L_piv^-T v, class by class; v (C, m). */
static void lr_span_expand(const hdo_objective *o, const hdo_batch *b, const hdo_span *span, const double *v,
                           hdo_work *w, float *g) {
    const hdo_logreg *f = (const hdo_logreg *)o;
    const span_state *s = span->state;
    size_t mark = hdo__arena_mark(w->arena), B = (size_t)b->size, C = (size_t)f->C, m = (size_t)s->m;
    float *gb = g + C * (size_t)f->p;
    double *a = hdo__arena_doubles(w->arena, m);
    memset(s->coef, 0, B * C * sizeof(float)); /* rows without pivot stay zero */
    for (size_t c = 0; c < C; c++) {
        double sum = 0.0;
        memcpy(a, v + c * m, m * sizeof *a);
        solve(s, B, true, a);
        for (size_t j = 0; j < m; j++) {
            s->coef[(size_t)s->pivot[j] * C + c] = (float)a[j];
            sum += a[j];
        }
        if (s->bias) gb[c] += (float)sum;
    }
    if (s->weight) f->kernels->gemm(true, false, f->C, f->p, b->size, 1.0f, s->coef, f->C, b->in, f->p, 1.0f, g, f->p);
    hdo__arena_rewind(w->arena, mark);
}

static void lr_span_rest(const hdo_objective *o, const hdo_span *span, const float *x, float *g) {
    const hdo_logreg *f = (const hdo_logreg *)o;
    size_t off = span->tensor < 0 ? 0 : o->tensors[span->tensor].off;
    size_t len = span->tensor < 0 ? o->d : o->tensors[span->tensor].len;
    if (f->l2 > 0.0) hdo__axpy(len, (float)f->l2, x + off, g + off);
}

const hdo_span_ops hdo__logreg_span = {
    .work_bytes = lr_span_bytes,
    .most = lr_span_most,
    .open = lr_span_open,
    .diff = lr_span_diff,
    .project = lr_span_project,
    .expand = lr_span_expand,
    .rest = lr_span_rest,
};
