/* SPDX-License-Identifier: Apache-2.0
 *
 * Slopes along random directions on one batch at the starting point: do gradient, forward mode, complex step and
 * central differences agree; how does the error of differences depend on nu; and how curved is the loss?
 *
 *     one-sided  (F(x + nu u) - F(x)) / nu            error nu u'Hu / 2      + 2 df / nu
 *     central    (F(x + nu u) - F(x - nu u)) / 2 nu   error nu^2 F'''/6      + df / nu
 *     trace      (F(x + nu u) - 2 F(x) + F(x - nu u)) / nu^2 has mean tr H over Gaussian u
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/vec.h"
#include "lab/check/lab.h"

enum { DIRECTIONS_MAX = HDO_DIRS_AT_ONCE, POWER_STEPS = 20 };
#define NU_FIRST 1.0 /* steps of the sweep: 1 down to 1e-8, four a decade */
#define NU_LAST 1e-8
#define NU_PER_DECADE 4
#define AGREE_TOL 2e-2 /* oracles of a float32 network agree to 1e-4 or so; a wrong derivative is off by order one */
#define CURVATURE_TIME_S 3.0 /* for each of trace and L */

typedef struct slopes {
    hdo_lab *l;
    hdo_batch batch;
    int k;
    double loss, scale;           /* scale: root mean square of the reference slopes */
    double exact[DIRECTIONS_MAX]; /* reference slopes */
    double plus[DIRECTIONS_MAX], minus[DIRECTIONS_MAX];
} slopes;

/* Root mean square of a - b. */
static double rms_difference(int k, const double *a, const double *b) {
    double sum = 0.0;
    for (int r = 0; r < k; r++) sum += (a[r] - b[r]) * (a[r] - b[r]);
    return sqrt(sum / (double)k);
}

static hdo_status both_sides(slopes *s, double nu) {
    hdo_dirs u = hdo__lab_dirs(s->l);
    const hdo_objective *f = s->l->f;
    hdo_status st = hdo__objective_loss_many(f, &s->batch, s->l->x, &u, 0, s->k, (float)nu, &s->l->work, s->plus);
    if (st != HDO_OK) return st;
    return hdo__objective_loss_many(f, &s->batch, s->l->x, &u, 0, s->k, (float)-nu, &s->l->work, s->minus);
}

/* u.g for all directions from the gradient, else forward mode, else extrapolated central differences. */
static hdo_status reference(slopes *s, hdo_check_agreement *a) {
    hdo_lab *l = s->l;
    const hdo_objective *f = l->f;
    hdo_dirs u = hdo__lab_dirs(l);
    hdo_status st = f->ops->loss(f, &s->batch, l->x, &l->work, &s->loss, NULL);
    a->grad_norm = (double)NAN;
    if (st != HDO_OK) return st;
    if (f->ops->grad != NULL) {
        a->reference = "grad";
        st = hdo__objective_grad(f, &s->batch, l->x, &l->work, l->g, &s->loss, NULL);
        a->grad_norm = sqrt(hdo__sumsq(f->d, l->g));
        for (int r = 0; r < s->k && st == HDO_OK; r++) {
            hdo__dirs_fill(&u, r, 0, f->d, l->v[0]);
            s->exact[r] = hdo__dot(f->d, l->v[0], l->g);
        }
    } else if (f->ops->jvp != NULL) {
        a->reference = "jvp";
        st = f->ops->jvp(f, &s->batch, l->x, &u, 0, s->k, &l->work, &s->loss, s->exact, NULL);
    } else {
        a->reference = "extrapolated differences"; /* (4 D(nu/2) - D(nu)) / 3: fourth order in nu */
        const double nu = 1e-2;
        memset(s->exact, 0, sizeof s->exact);
        for (int half = 0; half < 2 && st == HDO_OK; half++) {
            double step = half ? nu / 2.0 : nu, weight = half ? 4.0 / 3.0 : -1.0 / 3.0;
            st = both_sides(s, step);
            for (int r = 0; r < s->k; r++) s->exact[r] += weight * (s->plus[r] - s->minus[r]) / (2.0 * step);
        }
    }
    double sum = 0.0;
    for (int r = 0; r < s->k; r++) sum += s->exact[r] * s->exact[r];
    s->scale = sqrt(sum / (double)s->k);
    return st;
}

/* ---- sweep ---- */

/* Index of the least error, and the range around it where the error is at most three times that. */
static void best_step(int n, const double *nu, const double *err, double *best, double *lo, double *hi) {
    int at = 0;
    for (int i = 1; i < n; i++) at = err[i] < err[at] ? i : at;
    int a = at, b = at;
    while (a > 0 && err[a - 1] <= 3.0 * err[at]) a--;
    while (b + 1 < n && err[b + 1] <= 3.0 * err[at]) b++;
    *best = nu[at];
    *hi = nu[a]; /* steps fall along the sweep */
    *lo = nu[b];
}

static hdo_status sweep(slopes *s, hdo_check_sweep *w) {
    double one[DIRECTIONS_MAX], central[DIRECTIONS_MAX], floor_sum = 0.0;
    int floor_n = 0;
    double factor = pow(10.0, -1.0 / NU_PER_DECADE), unit = s->scale > 0.0 ? s->scale : 1.0;
    for (double nu = NU_FIRST; nu > 0.99 * NU_LAST && w->n < HDO_CHECK_NU_MAX; nu *= factor) {
        double step = (double)(float)nu;
        hdo_status st = both_sides(s, step);
        if (st != HDO_OK) return st;
        for (int r = 0; r < s->k; r++) {
            one[r] = (s->plus[r] - s->loss) / step;
            central[r] = (s->plus[r] - s->minus[r]) / (2.0 * step);
        }
        double e1 = rms_difference(s->k, one, s->exact), e2 = rms_difference(s->k, central, s->exact);
        if (nu <
            1e-7) { /* far below any sensible step: what is left is round-off, sqrt 2 df / (2 nu) of a central slope */
            floor_sum += e2 * step * sqrt(2.0);
            floor_n++;
        }
        /* An error of zero would vanish from a logarithmic figure. */
        w->nu[w->n] = step;
        w->one_sided[w->n] = fmax(e1 / unit, DBL_EPSILON);
        w->central[w->n++] = fmax(e2 / unit, DBL_EPSILON);
    }
    w->df = floor_n > 0 ? floor_sum / floor_n : (double)NAN;
    best_step(w->n, w->nu, w->one_sided, &w->nu_one, &w->lo_one, &w->hi_one);
    best_step(w->n, w->nu, w->central, &w->nu_central, &w->lo_central, &w->hi_central);
    return HDO_OK;
}

/* ---- agreement ---- */

static hdo_status agreement(slopes *s, const hdo_check_sweep *w, hdo_check_agreement *a) {
    hdo_lab *l = s->l;
    const hdo_objective *f = l->f;
    hdo_dirs u = hdo__lab_dirs(l);
    double other[DIRECTIONS_MAX], loss, unit = s->scale > 0.0 ? s->scale : 1.0;
    hdo_status st = HDO_OK;
    a->directions = s->k;
    a->batch = s->batch.size;
    a->loss = s->loss;
    a->jvp_error = a->complex_error = (double)NAN;
    if (f->ops->jvp != NULL) {
        st = f->ops->jvp(f, &s->batch, l->x, &u, 0, s->k, &l->work, &loss, other, NULL);
        a->jvp_error = rms_difference(s->k, other, s->exact) / unit;
    }
    if (st == HDO_OK && f->ops->complex_step != NULL) {
        st = f->ops->complex_step(f, &s->batch, l->x, &u, 0, s->k, 1e-20, &l->work, other);
        a->complex_error = rms_difference(s->k, other, s->exact) / unit;
    }
    a->central_error = HUGE_VAL;
    for (int i = 0; i < w->n; i++) a->central_error = fmin(a->central_error, w->central[i]);
    a->ok = isfinite(s->loss) && a->central_error < AGREE_TOL && !(a->jvp_error >= AGREE_TOL) &&
            !(a->complex_error >= AGREE_TOL);
    return st;
}

/* ---- curvature ---- */

/* grad F(x + step v) - grad F(x - step v), over 2 step: H v, averaged over that stretch, into out. y and h are scratch;
 * out may be v. */
static hdo_status hessian_times(slopes *s, double step, const float *v, float *y, float *h, float *out) {
    hdo_lab *l = s->l;
    const hdo_objective *f = l->f;
    size_t bytes = (f->d + f->n_buf) * sizeof(float);
    double loss;
    memcpy(y, l->x, bytes);
    hdo__axpy(f->d, (float)-step, v, y);
    hdo_status st = hdo__objective_grad(f, &s->batch, y, &l->work, h, &loss, NULL);
    if (st != HDO_OK) return st;
    memcpy(y, l->x, bytes);
    hdo__axpy(f->d, (float)step, v, y);
    st = hdo__objective_grad(f, &s->batch, y, &l->work, out, &loss, NULL);
    hdo__axpby(f->d, (float)(-0.5 / step), h, (float)(0.5 / step), out);
    return st;
}

/* tr H = E u'Hu (Hutchinson). From gradients u'Hu loses little to round-off at a small step. Without them: second
 * differences at the step where their two errors balance, truncation nu^2 against round-off 4 df / nu^2. */
static hdo_status trace(slopes *s, double df, hdo_check_curvature *c) {
    hdo_lab *l = s->l;
    hdo_dirs u = hdo__lab_dirs(l);
    bool grad = l->f->ops->grad != NULL;
    double sum = 0.0, sum2 = 0.0, start = hdo__now_s(), nu = 1e-3;
    if (!grad) {
        nu = pow(fmax(df, 1e-16) * 1e2, 0.25); /* 1e2: fourth derivatives are small against F */
        nu = (double)(float)fmin(fmax(nu, 1e-3), 1e-1);
        hdo_status st = both_sides(s, nu);
        if (st != HDO_OK) return st;
    }
    int k = 0;
    for (; k < s->k && (k < 4 || hdo__now_s() - start < CURVATURE_TIME_S); k++) {
        double v = 0.0;
        if (grad) {
            hdo__dirs_fill(&u, k, 0, l->f->d, l->v[2]);
            hdo_status st = hessian_times(s, nu, l->v[2], l->v[0], l->v[1], l->v[2]); /* v[2] becomes H u */
            if (st != HDO_OK) return st;
            hdo__dirs_fill(&u, k, 0, l->f->d, l->v[0]);
            v = hdo__dot(l->f->d, l->v[0], l->v[2]);
        } else {
            v = (s->plus[k] - 2.0 * s->loss + s->minus[k]) / (nu * nu);
        }
        sum += v;
        sum2 += v * v;
    }
    c->trace = sum / (double)k;
    c->trace_se = sqrt(fmax(0.0, sum2 / (double)k - c->trace * c->trace) / (double)(k - 1));
    return HDO_OK;
}

/* Power iteration on v -> (grad F(x + e v) - grad F(x - e v)) / 2e. Started from the gradient, which leans towards the
 * large eigenvalues. The estimate is |H v|, a lower one; it is good enough when it moves by less than 1 %. */
static hdo_status largest_eigenvalue(slopes *s, hdo_check_curvature *c) {
    hdo_lab *l = s->l;
    const hdo_objective *f = l->f;
    size_t d = f->d;
    double start = hdo__now_s(), L = 0.0;
    c->L = (double)NAN;
    if (f->ops->grad == NULL) return HDO_OK;
    float *v = l->g; /* holds the gradient */
    double norm = sqrt(hdo__sumsq(d, v));
    if (!(norm > 0.0)) {
        hdo_dirs u = hdo__lab_dirs(l);
        hdo__dirs_fill(&u, 0, 0, d, v);
        norm = sqrt(hdo__sumsq(d, v));
    }
    for (int t = 0; t < POWER_STEPS && (t < 4 || hdo__now_s() - start < CURVATURE_TIME_S); t++) {
        hdo__scale(d, (float)(1.0 / norm), v);
        hdo_status st = hessian_times(s, 1e-2, v, l->v[0], l->v[1], v);
        if (st != HDO_OK) return st;
        norm = sqrt(hdo__sumsq(d, v));
        bool settled = t > 2 && fabs(norm - L) < 0.01 * norm;
        L = norm;
        if (settled || !(norm > 0.0) || !isfinite(norm)) break;
    }
    c->L = L;
    return HDO_OK;
}

hdo_status hdo__check_slopes(hdo_lab *l, hdo_check_result *r, hdo_error *e) {
    slopes s = {.l = l, .k = l->options->directions};
    s.batch = hdo__lab_batch(l, 0, 0, hdo__lab_batch_size(l));
    hdo_status st = reference(&s, &r->agreement);
    if (st == HDO_OK) st = sweep(&s, &r->sweep);
    if (st == HDO_OK) st = agreement(&s, &r->sweep, &r->agreement);
    if (st == HDO_OK) st = trace(&s, r->sweep.df, &r->curvature);
    if (st == HDO_OK) st = largest_eigenvalue(&s, &r->curvature);
    if (st != HDO_OK)
        return hdo__problem_fail(&l->problem, st, e, "the objective failed at the starting point: %s",
                                 hdo_status_text(st));
    r->curvature.dimension = r->curvature.trace / r->curvature.L;
    r->sweep.nu_theory =
        r->curvature.L > 0.0 ? hdo_theory_nu_best(hdo__objective_live(l->f), r->curvature.L, r->sweep.df) : (double)NAN;
    return HDO_OK;
}
