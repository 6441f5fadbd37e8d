/* SPDX-License-Identifier: Apache-2.0
 *
 * Known answers and properties of the theory functions; docs/theory.md section 6 names the case behind each test.
 *
 * Known answers were computed by an independent implementation and are compared to the last of their seven printed
 * digits; where fewer digits are printed the number of digits is stated. Exact expectations are compared with bounds
 * with a slack of 1e-9, the rounding of a thousand rounds of double arithmetic.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hdo/lab/theory.h"

#define LEN(a) (sizeof(a) / sizeof((a)[0]))
#define ROUNDING 1e-9

/* ---- comparing -------------------------------------------------------------------------------------------------- */

/* Equal to `digits` significant digits: half a unit of the last one, and a hair for ties. */
static int same_digits(double x, double want, int digits) {
    if (want == 0.0) return x == 0.0;
    double unit = pow(10.0, floor(log10(fabs(want))) - (double)(digits - 1));
    return fabs(x - want) <= 0.501 * unit;
}

static void check_digits(double x, double want, int digits, const char *what, int line) {
    if (same_digits(x, want, digits)) return;
    fail_msg("line %d: %s = %.10g, known answer %.10g (%d digits)", line, what, x, want, digits);
}

#define KNOWN(x, want) check_digits((x), (want), 7, #x, __LINE__)
#define KNOWN_D(x, want, digits) check_digits((x), (want), (digits), #x, __LINE__)

static void check_le(double x, double y, const char *what, int line) {
    if (x <= y + ROUNDING * fabs(y)) return;
    fail_msg("line %d: %s fails: %.15g > %.15g", line, what, x, y);
}

#define AT_MOST(x, y) check_le((x), (y), #x " <= " #y, __LINE__)

/* ---- making problems -------------------------------------------------------------------------------------------- */

static hdo_est_const forward(size_t d, int rv) {
    hdo_est_params p = hdo_theory_est_default(HDO_THEORY_FM, d);
    p.rv = rv;
    return hdo_theory_est_const(&p);
}

static hdo_est_const one_sided(size_t d, int rv, double nu, double L, bool quad) {
    hdo_est_params p = hdo_theory_est_default(HDO_THEORY_FD1, d);
    p.rv = rv;
    p.nu = nu;
    p.L = L;
    p.quad = quad;
    return hdo_theory_est_const(&p);
}

/* The hybrid of two classes: n0 nodes with estimator e0, n1 first-order nodes. */
static hdo_pop_const hybrid(int n0, int n1, hdo_est_const e0, double s0, double s1, double vs0, double vs1) {
    hdo_pop_class c[2] = {{.count = n0, .is_zo = true, .est = e0, .sigma = s0, .varsigma = vs0},
                          {.count = n1, .is_zo = false, .est = {.rho = 1.0}, .sigma = s1, .varsigma = vs1}};
    return hdo_theory_pop_const(c, 2);
}

static hdo_theory_problem problem(hdo_pop_const pop, hdo_theory_mix mix, double L, double ell, double ell_loc,
                                  hdo_theory_mode mode, bool balanced) {
    hdo_theory_problem p = {.pop = pop, .mix = hdo_theory_mix_const(mix, pop.n, 0.0), .L = L, .ell = ell};
    p.ell_loc = ell_loc;
    p.mode = mode;
    p.balanced = balanced;
    return p;
}

/* Cases A to E: 4 + 4 nodes, d = 20, L = 1, ell = 0.1, sigma = 1, varsigma = (0.5, 0.6). */
static hdo_theory_problem case_A(void) {
    return problem(hybrid(4, 4, forward(20, 1), 1, 1, .5, .6), HDO_THEORY_PAIR, 1, .1, .1, HDO_THEORY_MODE_U, true);
}

static hdo_theory_problem case_B(void) {
    return problem(hybrid(4, 4, forward(20, 1), 1, 1, .5, .6), HDO_THEORY_MATCH, 1, .1, .1, HDO_THEORY_MODE_U, true);
}

static hdo_theory_problem case_C(void) {
    hdo_est_const e = one_sided(20, 1, .01 / sqrt(20), 1, false);
    return problem(hybrid(4, 4, e, 1, 1, .5, .6), HDO_THEORY_PAIR, 1, .1, 0, HDO_THEORY_MODE_O, false);
}

static hdo_theory_problem case_D(void) {
    hdo_est_const e = one_sided(20, 8, .05, 1, false);
    return problem(hybrid(4, 4, e, 1, 1, .5, .6), HDO_THEORY_MATCH, 1, .1, .1, HDO_THEORY_MODE_U, true);
}

static hdo_theory_problem case_E(void) {
    return problem(hybrid(0, 8, forward(20, 1), 1, 1, .5, .6), HDO_THEORY_PAIR, 1, .1, .1, HDO_THEORY_MODE_U, true);
}

/* splitmix64: the tests' own generator, uniform in (0,1). */
static double uniform(uint64_t *state) {
    uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    z ^= z >> 31;
    return ((double)(z >> 11) + 0.5) * 0x1p-53;
}

static double log_uniform(uint64_t *state, double lo, double hi) {
    return lo * pow(hi / lo, uniform(state));
}

static int integer(uint64_t *state, int lo, int hi) {
    return lo + (int)(uniform(state) * (double)(hi - lo + 1));
}

/* ---- 6.1 estimators --------------------------------------------------------------------------------------------- */

static void test_est_const_known(void **unused) {
    (void)unused;
    const double inf = HUGE_VAL;
    static const struct {
        hdo_theory_est kind;
        size_t d, d_max;
        int rv;
        double nu, L, L2, tau, df;
        bool quad;
        double want[4];
    } row[] = {
        {HDO_THEORY_FO, 20, 0, 1, 0, 0, -1, 1, 0, false, {0, 1, 0, 0}},
        {HDO_THEORY_FM, 20, 0, 1, 0, 0, -1, 1, 0, false, {21, 22, 0, 0}},
        {HDO_THEORY_FM, 20, 0, 8, 0, 0, -1, 1, 0, false, {2.625, 3.625, 0, 0}},
        {HDO_THEORY_FM, 1000, 300, 16, 0, 0, -1, 1, 0, false, {18.8125, 19.8125, 0, 0}},
        {HDO_THEORY_FD1, 20, 0, 1, .01, 2, -1, 1, 0, false, {42, 43, 2.112, 0.08944272}},
        {HDO_THEORY_FD1, 20, 0, 4, .01, 2, 3, 1, 0, false, {10.5, 11.5, 0.528, 0.003}},
        {HDO_THEORY_FD1, 20, 0, 1, .01, 2, -1, 1, 0, true, {21, 22, 1.056, 0}},
        {HDO_THEORY_FD2, 20, 0, 1, .01, 2, -1, 1, 0, false, {42, 43, 2.112, 0.08944272}},
        {HDO_THEORY_FD2, 20, 0, 2, .01, 2, 3, 1, 0, false, {21, 22, 0.0006864, 0.003}},
        {HDO_THEORY_CSTEP, 20, 0, 1, .01, 0, 3, 1, 0, false, {42, 43, 0.0013728, 0.005138093}},
        {HDO_THEORY_FD1, 20, 0, 1, .01, 2, -1, .25, 0, false, {26.25, 27.25, 5.28, 0.08944272}},
        {HDO_THEORY_FD1, 20, 0, 1, .01, 2, -1, 1, 1e-7, false, {42, 43, 2.112368, 0.08945868}},
    };
    for (size_t k = 0; k < LEN(row); k++) {
        hdo_est_params p = hdo_theory_est_default(row[k].kind, row[k].d);
        p.d_max = row[k].d_max;
        p.rv = row[k].rv;
        p.nu = row[k].nu;
        p.L = row[k].L;
        p.L2 = row[k].L2 < 0 ? inf : row[k].L2;
        p.tau = row[k].tau;
        p.df = row[k].df;
        p.quad = row[k].quad;
        assert_int_equal(hdo_theory_est_check(&p, NULL), HDO_OK);
        hdo_est_const c = hdo_theory_est_const(&p);
        KNOWN(c.omega, row[k].want[0]);
        KNOWN(c.rho, row[k].want[1]);
        KNOWN(c.kappa, row[k].want[2]);
        KNOWN(c.b, row[k].want[3]);
        /* Only one of the two smoothness constants known: the other takes its place. */
        p.L_F = p.L;
        p.L = 0.0;
        hdo_est_const c2 = hdo_theory_est_const(&p);
        assert_memory_equal(&c, &c2, sizeof c);
    }
    KNOWN(hdo_theory_nu_best(20, 2, 1e-7), 9.32946e-05);
}

static void test_est_bf(void **unused) {
    (void)unused;
    hdo_est_params p = hdo_theory_est_default(HDO_THEORY_FD1, 20);
    p.nu = .1;
    p.L = 3;
    KNOWN(hdo_theory_est_bf(&p), .1 * .1 * 3 * 20 / 2);
    p.kind = HDO_THEORY_FD2;
    KNOWN(hdo_theory_est_bf(&p), 0.3);
    p.df = 1e-7;
    assert_true(isinf(hdo_theory_est_bf(&p)));
    p.df = 0;
    p.quad = true;
    assert_true(hdo_theory_est_bf(&p) == 0.0);
    p.quad = false;
    p.kind = HDO_THEORY_CSTEP;
    assert_true(isinf(hdo_theory_est_bf(&p)));
    p.kind = HDO_THEORY_FM;
    assert_true(hdo_theory_est_bf(&p) == 0.0);
    p.kind = HDO_THEORY_FO;
    assert_true(hdo_theory_est_bf(&p) == 0.0);
}

/* A fresh batch for each direction also averages the data noise. */
static void test_est_fresh_batch(void **unused) {
    (void)unused;
    hdo_est_params p = hdo_theory_est_default(HDO_THEORY_FM, 20);
    p.rv = 8;
    p.fresh_batch = true;
    KNOWN(hdo_theory_est_const(&p).rho, 22.0 / 8.0);
    p.kind = HDO_THEORY_FD1;
    p.nu = .01;
    p.L = 1;
    p.tau = .5;
    KNOWN(hdo_theory_est_const(&p).rho, (1 + 1.5 * 21) / 8.0);
}

static void test_est_check(void **unused) {
    (void)unused;
    hdo_error e = {0};
    hdo_est_params p = hdo_theory_est_default(HDO_THEORY_FD1, 20);
    assert_int_equal(hdo_theory_est_check(&p, &e), HDO_E_CONFIG); /* nu is still 0 */
    assert_non_null(strstr(e.msg, "nu"));
    p.nu = .1;
    assert_int_equal(hdo_theory_est_check(&p, &e), HDO_OK);
    p.nu = (double)NAN;
    assert_int_equal(hdo_theory_est_check(&p, &e), HDO_E_CONFIG);
    p.nu = .1;
    p.rv = 0;
    assert_int_equal(hdo_theory_est_check(&p, &e), HDO_E_CONFIG);
    p.rv = 1;
    p.d_max = 21;
    assert_int_equal(hdo_theory_est_check(&p, &e), HDO_E_CONFIG);
    p.d_max = 0;
    p.tau = 0;
    assert_int_equal(hdo_theory_est_check(&p, &e), HDO_E_CONFIG);
}

/* ---- 6.2 communication ------------------------------------------------------------------------------------------ */

static void test_mix_const_known(void **unused) {
    (void)unused;
    static const struct {
        hdo_theory_mix kind;
        int n;
        double lambda, want[7];
    } row[] = {
        {HDO_THEORY_PAIR, 2, 0, {1, .5, 0, 1, 0, 0, 0}},
        {HDO_THEORY_PAIR, 8, 0, {.25, .5, 0.4285714, 0.07142857, 1.5, 3.857143, 3}},
        {HDO_THEORY_PAIR, 50, 0, {.04, .5, 0.4897959, 0.01020408, 12, 35.26531, 24}},
        {HDO_THEORY_MATCH, 8, 0, {1, .125, 0, 0.2857143, .375, 1.071429, 0}},
        {HDO_THEORY_MATCH, 50, 0, {1, .02, 0, 0.255102, .48, 1.430204, 0}},
        {HDO_THEORY_GOSSIP, 8, .6476, {1, .125, 0, .1762, .56665, 3.027769, 0}},
        {HDO_THEORY_PAIR_GRAPH, 8, .9634, {.25, .5, 1, .0183, 1.5, 57.64481, 3}},
    };
    for (size_t k = 0; k < LEN(row); k++) {
        hdo_mix_const m = hdo_theory_mix_const(row[k].kind, row[k].n, row[k].lambda);
        const double got[7] = {m.tf, m.p_v, m.p_V, m.delta0, m.u_v, m.u_V, m.u_h};
        for (size_t j = 0; j < 7; j++) KNOWN(got[j], row[k].want[j]);
    }
    KNOWN(hdo_theory_lambda_ring_edge(8), 0.9633883);
    KNOWN(hdo_theory_lambda_ring_edge(16), 0.9952425);
    KNOWN(hdo_theory_lambda_ring_third(8), 0.647603);
    KNOWN(hdo_theory_lambda_ring_third(16), 0.9010813);
    KNOWN(hdo_theory_lambda_ring_match(8), 0.8535534);
    KNOWN(hdo_theory_lambda_ring_match(16), 0.9619398);
    KNOWN(hdo_theory_lambda_match(8), 0.4285714);
    KNOWN(hdo_theory_lambda_complete_edge(8), 0.8571429);
    assert_true(hdo_theory_lambda_match(7) == 0.5);
    KNOWN(hdo_theory_lambda_gap(1 - sqrt(0.6476)), 0.6476);
}

static void test_mix_check(void **unused) {
    (void)unused;
    hdo_error e = {0};
    assert_int_equal(hdo_theory_mix_check(HDO_THEORY_PAIR, 1, 0, &e), HDO_E_CONFIG);
    assert_int_equal(hdo_theory_mix_check(HDO_THEORY_GOSSIP, 8, 1.0, &e), HDO_E_CONFIG);
    assert_non_null(strstr(e.msg, "connected"));
    assert_int_equal(hdo_theory_mix_check(HDO_THEORY_PAIR_GRAPH, 8, -.1, &e), HDO_E_CONFIG);
    assert_int_equal(hdo_theory_mix_check(HDO_THEORY_GOSSIP, 8, .5, &e), HDO_OK);
    assert_int_equal(hdo_theory_mix_check(HDO_THEORY_MATCH, 7, 0, &e), HDO_OK);
}

/* Expected W of the built-in events, and ring matrices, against the closed forms. Also checks the enumeration: every
 * event has the stated probability, rows of W sum to one, the probabilities to one. */
static void mean_W(hdo_gram_event event, int n, int64_t count, double *mean) {
    size_t m = (size_t)n;
    double W[81], step[9], total = 0.0;
    memset(mean, 0, m * m * sizeof *mean);
    for (int64_t k = 0; k < count; k++) {
        double prob;
        event(NULL, n, k, &prob, W, step);
        total += prob;
        for (size_t i = 0; i < m; i++) {
            double sum = 0.0;
            for (size_t j = 0; j < m; j++) {
                sum += W[i * m + j];
                mean[i * m + j] += prob * W[i * m + j];
            }
            assert_true(fabs(sum - 1.0) < ROUNDING);
        }
    }
    assert_true(fabs(total - 1.0) < ROUNDING);
}

static double second_eigenvalue(const double *A, int n) {
    double work[32];
    hdo_theory_eig r;
    assert_int_equal(hdo_theory_power_dense(A, (size_t)n, &(hdo_theory_search){true, 1e-11, 100000, work}, &r, NULL),
                     HDO_OK);
    return r.value;
}

static void test_power_iteration(void **unused) {
    (void)unused;
    double A[256], work[48];
    mean_W(hdo_theory_gram_match, 8, hdo_theory_gram_match_count(8), A);
    KNOWN(second_eigenvalue(A, 8), 0.4285714);
    mean_W(hdo_theory_gram_match, 7, hdo_theory_gram_match_count(7), A);
    KNOWN(second_eigenvalue(A, 7), 0.5);
    mean_W(hdo_theory_gram_pair, 8, hdo_theory_gram_pair_count(8), A);
    KNOWN(second_eigenvalue(A, 8), 0.8571429);
    assert_int_equal(hdo_theory_gram_match_count(8), 105);
    assert_int_equal(hdo_theory_gram_match_count(7), 105);
    assert_int_equal(hdo_theory_gram_pair_count(8), 28);
    for (size_t n = 8; n <= 16; n += 8) { /* ring with weights one third */
        hdo_theory_eig r;
        memset(A, 0, sizeof A);
        for (size_t i = 0; i < n; i++) A[i * n + i] = A[i * n + (i + 1) % n] = A[i * n + (i + n - 1) % n] = 1.0 / 3.0;
        assert_int_equal(hdo_theory_lambda_dense(A, n, 1e-11, 100000, work, &r, NULL), HDO_OK);
        KNOWN(r.value, hdo_theory_lambda_ring_third((int)n));
        /* One uniform edge: E[W] = I - (Laplacian)/(2n). */
        for (size_t i = 0; i < n * n; i++) A[i] = 0.0;
        for (size_t i = 0; i < n; i++) {
            A[i * n + i] = 1.0 - 1.0 / (double)n;
            A[i * n + (i + 1) % n] = A[i * n + (i + n - 1) % n] = 0.5 / (double)n;
        }
        KNOWN(second_eigenvalue(A, (int)n), hdo_theory_lambda_ring_edge((int)n));
    }
    /* A directed ring walk is not symmetric; |(1 + w)/2|^2 = (1 + cos)/2 for the first Fourier mode. */
    hdo_theory_eig r;
    memset(A, 0, sizeof A);
    for (size_t i = 0; i < 8; i++) A[i * 8 + i] = A[i * 8 + (i + 1) % 8] = .5;
    assert_int_equal(hdo_theory_lambda_dense(A, 8, 1e-11, 100000, work, &r, NULL), HDO_OK);
    KNOWN(r.value, hdo_theory_lambda_ring_match(8));
    /* Perfect averaging contracts to zero. */
    for (size_t i = 0; i < 64; i++) A[i] = 1.0 / 8.0;
    assert_int_equal(hdo_theory_lambda_dense(A, 8, 1e-11, 1000, work, &r, NULL), HDO_OK);
    assert_true(fabs(r.value) < 1e-15);
    /* Without deflation: the largest eigenvalue of diag(1..8), and an honest failure when it cannot converge. */
    memset(A, 0, sizeof A);
    for (size_t i = 0; i < 8; i++) A[i * 8 + i] = (double)(i + 1);
    assert_int_equal(hdo_theory_power_dense(A, 8, &(hdo_theory_search){false, 1e-11, 100000, work}, &r, NULL), HDO_OK);
    KNOWN(r.value, 8);
    hdo_error e = {0};
    A[0] = -8.0;
    assert_int_equal(hdo_theory_power_dense(A, 8, &(hdo_theory_search){false, 1e-11, 1000, work}, &r, &e),
                     HDO_E_FAILED);
    assert_non_null(strstr(e.msg, "converge"));
}

/* ---- 6.3 strongly convex ---------------------------------------------------------------------------------------- */

static void check_system(const hdo_sys_coef *s, const double want[8]) {
    const double got[8] = {s->theta, s->N_G, s->N_e, s->N_0, s->P_G, s->P_e, s->P_0, s->delta};
    for (size_t k = 0; k < 8; k++) KNOWN(got[k], want[k]);
}

/* rows of (T, a, Gamma, MG), start a_0 = 4 */
static void check_curve(const hdo_theory_problem *p, const hdo_sys_coef *s, const double row[][4], size_t n) {
    enum { T = 4000 };
    double *a = malloc((T + 1) * sizeof *a), *G = malloc((T + 1) * sizeof *G);
    assert_non_null(a);
    assert_non_null(G);
    hdo_theory_sc_curve(s, 4, 0, T, a, G);
    for (size_t k = 0; k < n; k++) {
        size_t t = (size_t)row[k][0];
        KNOWN(a[t], row[k][1]);
        KNOWN(G[t], row[k][2]);
        KNOWN(hdo_theory_mg_bound(p, a[t], G[t]), row[k][3]);
    }
    free(a);
    free(G);
}

static void check_weighted(const hdo_sys_coef *s, int64_t T, double f_y, double rate, double init) {
    hdo_sc_weighted w = hdo_theory_sc_weighted(s, 4, 0, T, .5);
    assert_true(w.ok);
    KNOWN(w.f_y, f_y);
    KNOWN(w.rate, rate);
    KNOWN(w.init, init);
    /* The four parts make the whole. */
    assert_true(fabs(w.init + w.het + w.noise + w.bias - w.f_y) <= ROUNDING * w.f_y);
    assert_true(w.noise_kappa <= w.noise);
}

static void test_case_A(void **unused) {
    (void)unused;
    hdo_theory_problem p = case_A();
    KNOWN(p.pop.omega_max, 21);
    KNOWN(p.pop.omega_bar, 10.5);
    KNOWN(p.pop.V0, 11.5);
    KNOWN(p.pop.Z, 2.625);
    KNOWN(p.pop.z2, 0.305);
    hdo_sys_coef s = hdo_theory_sys_coef(&p, .02);
    check_system(&s, (double[8]){.005, 23.85714, 25, 8.636429, 0.001917857, 0.001875, 0.0006869464, 0.06951071});
    hdo_sc_step m = hdo_theory_sc_step(&s);
    KNOWN(m.m11[0], 0.9990313);
    KNOWN(m.r1[0], 0.0002159107);
    KNOWN(m.m12, 0.005096429);
    KNOWN(m.m21, 0.0009375);
    KNOWN(m.m22, 0.9304893);
    assert_true(isinf(m.r1[1])); /* no bias, no second route */
    hdo_sc_lyap y = hdo_theory_sc_lyap(&s, 1);
    KNOWN(y.q, 0.1466372);
    KNOWN(y.eps, 1.820011);
    KNOWN(y.rate[0], 0.0009550028);
    KNOWN(y.R[0], 0.0003166426);
    static const double row[][4] = {{1, 3.996341, 0.004436946, 109.4799},
                                    {10, 3.964414, 0.03264845, 110.0434},
                                    {1000, 1.742574, 0.03365001, 58.98709},
                                    {4000, 0.3915559, 0.01518048, 27.06409}};
    check_curve(&p, &s, row, LEN(row));
    check_weighted(&s, 4000, 0.1063976, 0.0007275014, 0.03680622);
    KNOWN(hdo_theory_sc_weighted(&s, 4, 0, 4000, .5).coefa, 0.1598894);
    assert_int_equal(hdo_theory_sc_t_min(&p), 62950);
}

static void test_case_B(void **unused) {
    (void)unused;
    hdo_theory_problem p = case_B();
    hdo_sys_coef s = hdo_theory_sys_coef(&p, .02);
    check_system(&s, (double[8]){.02, 7.25, 9.25, 2.09375, 0.007157143, 0.0063, 0.002773929, 0.2785571});
    hdo_sc_lyap y = hdo_theory_sc_lyap(&s, 1);
    KNOWN(y.q, 0.150059);
    KNOWN(y.eps, 1.767731);
    KNOWN(y.rate[0], 0.003767731);
    KNOWN(y.R[0], 0.001253753);
    static const double row[][4] = {{1, 3.985577, 0.01537393, 109.7355},
                                    {10, 3.864148, 0.05207063, 108.6306},
                                    {1000, 0.3913511, 0.01439829, 27.0234}};
    check_curve(&p, &s, row, LEN(row));
    check_weighted(&s, 1000, 0.1094053, 0.002883866, 0.03848095);
    KNOWN(hdo_theory_sc_weighted(&s, 4, 0, 1000, .5).coefa, 0.1631394);
    assert_int_equal(hdo_theory_sc_t_min(&p), 14224);
}

static void test_case_C(void **unused) {
    (void)unused;
    hdo_theory_problem p = case_C();
    KNOWN(p.pop.omega_max, 42);
    KNOWN(p.pop.omega_bar, 21);
    KNOWN(p.pop.V0, 22.0132);
    KNOWN(p.pop.Z, 5.25);
    KNOWN(p.pop.z2, 0.305);
    KNOWN(p.pop.B, .005);
    KNOWN(p.pop.B2, 5e-05);
    KNOWN(p.pop.b_f, 2.5e-05);
    hdo_sys_coef s = hdo_theory_sys_coef(&p, .01);
    check_system(&s,
                 (double[8]){.0025, 67.71429, 135.4286, 19.40462, 0.001333929, 0.002667857, 0.0003834469, 0.07009464});
    hdo_sc_step m = hdo_theory_sc_step(&s);
    KNOWN(m.m11[0], 0.9997923);
    KNOWN(m.r1[0], 0.0001214039);
    KNOWN(m.m11[1], 0.9998962);
    KNOWN(m.r1[1], 0.0001227836);
    KNOWN(m.m12, 0.002923214);
    KNOWN(m.m21, 0.001333929);
    KNOWN(m.m22, 0.9299054);
    hdo_sc_lyap y = hdo_theory_sc_lyap(&s, 1);
    KNOWN(y.q, 0.08340764);
    KNOWN(y.eps, 1.572421);
    static const double row[][4] = {{1, 3.999291, 0.005719161, 571.6498},
                                    {10, 3.99354, 0.04210968, 575.7249},
                                    {1000, 3.425434, 0.07079932, 503.9826},
                                    {4000, 2.247024, 0.04831065, 344.263}};
    check_curve(&p, &s, row, LEN(row));
    check_weighted(&s, 4000, 0.4933182, 9.827629e-05, 0.41528);
    assert_int_equal(hdo_theory_sc_t_min(&p), 209845);
}

static void test_case_D(void **unused) {
    (void)unused;
    hdo_theory_problem p = case_D();
    KNOWN(p.pop.omega_max, 5.25);
    KNOWN(p.pop.omega_bar, 2.625);
    KNOWN(p.pop.V0, 4.45);
    KNOWN(p.pop.Z, .65625);
    KNOWN(p.pop.B, 0.1118034);
    KNOWN(p.pop.B2, .025);
    KNOWN(p.pop.b_f, .0125);
    hdo_sys_coef s = hdo_theory_sys_coef(&p, .02);
    check_system(&s, (double[8]){.02, 4.3125, 7.3125, 0.7578125, 0.002860714, 0.001575, 0.001288661, 0.2828536});
    hdo_sc_step m = hdo_theory_sc_step(&s);
    KNOWN(m.m11[0], 0.9961463);
    KNOWN(m.r1[0], 0.000803125);
    KNOWN(m.m11[1], 0.9980731);
    KNOWN(m.r1[1], 0.002898);
    hdo_sc_lyap y = hdo_theory_sc_lyap(&s, 1);
    KNOWN(y.q, 0.1394715);
    KNOWN(y.eps, 1.842767);
    static const double row[][4] = {{1, 3.985388, 0.004438661, 39.74269},
                                    {10, 3.858387, 0.01486614, 38.86698},
                                    {1000, 0.3186287, 0.005446198, 9.508549}};
    check_curve(&p, &s, row, LEN(row));
    check_weighted(&s, 1000, 0.08927106, 0.002921383, 0.03593515);
    assert_int_equal(hdo_theory_sc_t_min(&p), 8091);
}

static void test_case_E(void **unused) {
    (void)unused;
    hdo_theory_problem p = case_E();
    assert_int_equal(p.pop.n0, 0);
    assert_int_equal(p.pop.n1, 8);
    hdo_sys_coef s = hdo_theory_sys_coef(&p, .02);
    check_system(&s, (double[8]){.005, 2.857143, 4, 0.8085714, 0.0003428571, 0.0003, 0.0001069286, 0.07108571});
    static const double row[][4] = {{1, 3.99604, 0.0007069286, 9.714908},
                                    {10, 3.960699, 0.005165421, 9.66206},
                                    {1000, 1.502559, 0.004718711, 4.743992},
                                    {4000, 0.1040726, 0.001726098, 1.93505}};
    check_curve(&p, &s, row, LEN(row));
    check_weighted(&s, 4000, 0.03904942, 0.0007465354, 0.03216052);
    assert_int_equal(hdo_theory_sc_t_min(&p), 19346);
}

/* Every combination of mode, balance and bias: 3 + 5 nodes, sigma = (1, 2), varsigma = (0.5, 0.6), eta = 0.02. */
static void test_mode_table(void **unused) {
    (void)unused;
    static const double want[8][6] = {
        {23.85714, 19.75, 7.616964, 0.001917857, 0.00148125, 0.0006122545},
        {34.35714, 27.625, 8.601339, 0.002705357, 0.002071875, 0.0006860826},
        {34.78571, 30.19643, 8.737946, 0.002801786, 0.002650446, 0.0007168192},
        {34.78571, 69.57143, 8.737946, 0.002801786, 0.005603571, 0.0007168192},
        {46.28571, 37.5, 16.18002, 0.003664286, 0.0028125, 0.001278591},
        {67.28571, 53.25, 18.14877, 0.005239286, 0.00399375, 0.001426247},
        {67.71429, 56.67857, 18.29342, 0.005335714, 0.004765179, 0.001458792},
        {67.71429, 135.4286, 18.29342, 0.005335714, 0.01067143, 0.001458792},
    };
    for (int k = 0; k < 8; k++) {
        hdo_est_const e = k < 4 ? forward(20, 1) : one_sided(20, 1, .05, 1, false);
        hdo_theory_problem p = problem(hybrid(3, 5, e, 1, 2, .5, .6), HDO_THEORY_PAIR, 1, .1, .1,
                                       k % 4 < 2 ? HDO_THEORY_MODE_U : HDO_THEORY_MODE_O, k % 2 == 0);
        hdo_sys_coef s = hdo_theory_sys_coef(&p, .02);
        const double got[6] = {s.N_G, s.N_e, s.N_0, s.P_G, s.P_e, s.P_0};
        for (size_t j = 0; j < 6; j++) KNOWN(got[j], want[k][j]);
    }
}

/* Steps beyond every condition still give a (growing) bound: 2 - theta N_e < 0 and delta < 0. */
static void test_curve_large_step(void **unused) {
    (void)unused;
    hdo_theory_problem p = case_A();
    hdo_sys_coef s = hdo_theory_sys_coef(&p, .5);
    assert_false(hdo_theory_sc_lyap(&s, 1).ok);
    KNOWN(hdo_theory_sc_step(&s).m11[0], 1.0578125);
    double a[21], G[21];
    hdo_theory_sc_curve(&s, 4, .3, 20, a, G);
    KNOWN(a[5], 58.0208);
    KNOWN(G[5], 150.2231);
    KNOWN(a[20], 2.062129e+07);
    KNOWN(G[20], 5.481214e+07);
    assert_false(hdo_theory_sc_radius(&s).bounded);
}

/* Condition number 1000: the radius is above one, the Lyapunov function keeps the curve bounded. */
static void test_curve_ill_conditioned(void **unused) {
    (void)unused;
    hdo_theory_problem p = case_A();
    p.ell = .001;
    p.ell_loc = 0;
    hdo_sys_coef s = hdo_theory_sys_coef(&p, .05);
    hdo_sc_limit lim = hdo_theory_sc_radius(&s);
    KNOWN(lim.radius, 1.001548);
    assert_true(isinf(lim.a) && isfinite(lim.Phi) && lim.bounded);
    double a[3001], G[3001];
    hdo_theory_sc_curve(&s, 4, .3, 3000, a, G);
    KNOWN(a[10], 4.068012);
    KNOWN(G[10], 0.377784);
    KNOWN(a[100], 4.529973);
    KNOWN(G[100], 0.512178);
    KNOWN(a[3000], 15.03278);
    KNOWN(G[3000], 1.548112);
    double stable = hdo_theory_eta_max(&p, HDO_THEORY_COND_STABLE);
    assert_true(stable < .05 && hdo_theory_eta_max(&p, HDO_THEORY_COND_BOUNDED) > .05);
}

/* Splitting a class in two equal halves changes nothing. */
static void test_pop_classes(void **unused) {
    (void)unused;
    hdo_est_const e = one_sided(20, 2, .05, 1, false);
    hdo_pop_class c[4] = {{3, true, e, 1, .5},
                          {0, true, {9, 9, 9, 9, HUGE_VAL}, 9, 9},
                          {1, true, e, 1, .5},
                          {4, false, {.rho = 1}, 1, .6}};
    hdo_pop_const a = hdo_theory_pop_const(c, 4), b = hybrid(4, 4, e, 1, 1, .5, .6);
    assert_int_equal(a.n0, b.n0);
    assert_int_equal(a.n1, b.n1);
    KNOWN(a.omega_max, b.omega_max);
    KNOWN(a.omega_bar, b.omega_bar);
    KNOWN(a.V0, b.V0);
    KNOWN(a.V0_kappa, b.V0_kappa);
    KNOWN(a.Z, b.Z);
    KNOWN(a.z2, b.z2);
    KNOWN(a.B, b.B);
    KNOWN(a.B2, b.B2);
    KNOWN(a.b_f, b.b_f);
}

static void test_problem_check(void **unused) {
    (void)unused;
    hdo_error e = {0};
    hdo_theory_problem p = case_A();
    assert_int_equal(hdo_theory_problem_check(&p, true, &e), HDO_OK);
    p.ell_loc = .2;
    assert_int_equal(hdo_theory_problem_check(&p, true, &e), HDO_E_CONFIG);
    p = case_A();
    p.mode = HDO_THEORY_MODE_O;
    assert_int_equal(hdo_theory_problem_check(&p, true, &e), HDO_OK);
    assert_int_equal(hdo_theory_problem_check(&p, false, &e), HDO_E_CONFIG);
    p = case_A();
    p.mix = hdo_theory_mix_const(HDO_THEORY_PAIR, 6, 0);
    assert_int_equal(hdo_theory_problem_check(&p, true, &e), HDO_E_CONFIG);
    assert_non_null(strstr(e.msg, "8 nodes"));
}

/* The recursion alone runs into the stated fixed point, and the curve (which may be better) stays below it. */
static void test_sc_radius(void **unused) {
    (void)unused;
    const hdo_theory_problem all[] = {case_A(), case_B(), case_C(), case_D(), case_E()};
    for (size_t k = 0; k < LEN(all); k++) {
        hdo_sys_coef s = hdo_theory_sys_coef(&all[k], .005);
        hdo_sc_limit lim = hdo_theory_sc_radius(&s);
        assert_true(lim.radius < 1.0 && isfinite(lim.a) && isfinite(lim.Gamma));
        hdo_sc_step m = hdo_theory_sc_step(&s);
        double a = 4, G = 0;
        for (int t = 0; t < 400000; t++) {
            double a2 = m.m11[0] * a + m.r1[0] + m.m12 * G;
            G = m.m21 * a + m.m22 * G + m.P_0;
            a = a2;
        }
        assert_true(fabs(a - lim.a) < 1e-6 * lim.a);
        assert_true(fabs(G - lim.Gamma) < 1e-6 * lim.Gamma);
        hdo_sc_iter it;
        hdo_theory_sc_iter_init(&it, &s, lim.a, lim.Gamma);
        for (int t = 0; t < 20000; t++) hdo_theory_sc_iter_next(&it);
        AT_MOST(it.a, lim.a);
        AT_MOST(it.Gamma, lim.Gamma);
        assert_int_equal(it.t, 20000);
        /* Characteristic polynomial vanishes at the radius. */
        double r = lim.radius, det = (m.m11[0] - r) * (m.m22 - r) - m.m12 * m.m21;
        assert_true(fabs(det) < 1e-12);
    }
}

/* Every step size gives a bound: never NaN, finite until the numbers overflow, bounded if the radius is below one. */
static void test_sc_curve_every_eta(void **unused) {
    (void)unused;
    hdo_est_params q = hdo_theory_est_default(HDO_THEORY_FD1, 20);
    q.nu = .05;
    q.L = 1;
    q.df = 1e-6; /* b_f unknown: only the second route */
    hdo_theory_problem round_off = case_C();
    round_off.pop = hybrid(4, 4, hdo_theory_est_const(&q), 1, 1, .5, .6);
    const hdo_theory_problem all[] = {case_A(), case_B(), case_C(), case_D(), case_E(), round_off};
    for (size_t k = 0; k < LEN(all); k++)
        for (double eta = 1e-8; eta < 1e4; eta *= 1.7) {
            hdo_sys_coef s = hdo_theory_sys_coef(&all[k], eta);
            hdo_sc_limit lim = hdo_theory_sc_radius(&s);
            hdo_sc_iter it;
            hdo_theory_sc_iter_init(&it, &s, 4, .5);
            for (int t = 0; t < 2000; t++) {
                hdo_theory_sc_iter_next(&it);
                assert_true(it.a >= 0.0 && it.Gamma >= 0.0); /* false for NaN */
                if (t < 10 || lim.radius < 1.0) assert_true(isfinite(it.a) && isfinite(it.Gamma));
            }
        }
}

/* Constants that are infinite give infinite bounds, never NaN. */
static void test_infinite_constants(void **unused) {
    (void)unused;
    hdo_est_params q = hdo_theory_est_default(HDO_THEORY_CSTEP, 20);
    q.nu = .05;
    q.L = 1;
    for (int kind = 0; kind < 2; kind++) {
        hdo_theory_problem p = kind == 0 ? case_A() : case_B();
        p.pop = hybrid(4, 4, hdo_theory_est_const(&q), 1, 1, .5, .6);
        hdo_sys_coef s = hdo_theory_sys_coef(&p, .001);
        assert_true(isinf(hdo_theory_sc_weighted(&s, 4, 0, 100, .5).f_y));
        hdo_sc_iter it;
        hdo_theory_sc_iter_init(&it, &s, 4, 0);
        for (int t = 0; t < 5; t++) hdo_theory_sc_iter_next(&it);
        assert_true(isinf(it.a) && it.Gamma > 0.0);
        assert_true(isinf(hdo_theory_nc_bound(&p, .001, 20, 0, 100).total));
        assert_true(isinf(hdo_theory_mg_bound(&p, 1, 1)));
        assert_true(hdo_theory_eta_max(&p, HDO_THEORY_COND_STABLE) == 0.0);
        double eta = -1, best = -1;
        assert_false(hdo_theory_nc_eta_best(&p, 20, 0, 1e5, &eta, &best));
        assert_true(eta == -1 && best == -1);
    }
}

/* ---- 6.4 non-convex --------------------------------------------------------------------------------------------- */

static void check_nc(const hdo_theory_problem *p, double eta, double T, const double want[6]) {
    hdo_nc_bound r = hdo_theory_nc_bound(p, eta, 20, 0, T);
    assert_true(r.ok);
    const double got[6] = {r.init, r.het, r.noise, r.bias, r.total, r.Gav};
    for (size_t k = 0; k < 6; k++) KNOWN(got[k], want[k]);
}

static void test_nonconvex_known(void **unused) {
    (void)unused;
    hdo_theory_problem p = case_A();
    hdo_nc_bound r = hdo_theory_nc_bound(&p, .01, 20, 0, 8000);
    KNOWN(r.delta, .07098661);
    KNOWN(r.q, .01857116);
    KNOWN(r.hc, .002778567);
    KNOWN(r.eps, .970825);
    check_nc(&p, .01, 8000, (double[6]){2.060103, 0.008411183, 0.01645689, 0, 2.084972, 0.009308106});
    assert_int_equal(hdo_theory_nc_t_min(&p, 20), 599);
    p.balanced = false;
    check_nc(&p, .01, 8000, (double[6]){2.091797, 0.012393, 0.01675654, 0, 2.120946, 0.01275187});
    assert_int_equal(hdo_theory_nc_t_min(&p, 20), 987);

    p = case_C();
    p.balanced = true;
    check_nc(&p, .01, 8000, (double[6]){2.137353, 0.01892104, 0.03599499, 5.372102e-05, 2.192323, 0.01862676});
    assert_int_equal(hdo_theory_nc_t_min(&p, 20), 1901);
    p.balanced = false;
    check_nc(&p, .01, 8000, (double[6]){2.214681, 0.02867284, 0.03750654, 5.566829e-05, 2.280916, 0.02640607});
    assert_int_equal(hdo_theory_nc_t_min(&p, 20), 3205);

    p = case_B();
    p.pop = hybrid(4, 4, forward(20, 8), 1, 1, .5, .6);
    check_nc(&p, .05, 1500, (double[6]){0.5473646, 0.01286514, 0.02317657, 0, 0.5834063, 0.02124949});
    p = case_E();
    check_nc(&p, .02, 6000, (double[6]){1.333333, 0.002521666, 0.003028677, 0, 1.338884, 0.004329437});
    assert_int_equal(hdo_theory_nc_t_min(&p, 20), 44);
}

static void test_nonconvex_leading_and_best(void **unused) {
    (void)unused;
    hdo_theory_problem p = case_A();
    hdo_nc_leading l = hdo_theory_nc_leading(&p, 20, 1e5);
    KNOWN(l.Sigma2, 8.636429);
    KNOWN(l.theta, 0.006805545);
    KNOWN(l.bound, 0.1175512);
    KNOWN(hdo_theory_nc_bound(&p, l.theta / p.mix.tf, 20, 0, 1e5).total, 0.1537718);

    double eta, best;
    assert_true(hdo_theory_nc_eta_best(&p, 20, 0, 1e5, &eta, &best));
    KNOWN_D(eta, 0.02018, 4);
    KNOWN_D(best, 0.14344, 5);
    p.pop = hybrid(0, 4, forward(20, 1), 1, 1, .5, .6);
    p.mix = hdo_theory_mix_const(HDO_THEORY_PAIR, 4, 0);
    assert_true(hdo_theory_nc_eta_best(&p, 20, 0, 1e5, &eta, &best));
    KNOWN_D(eta, 0.03936, 4);
    KNOWN_D(best, 0.037774, 5);
    assert_true(hdo_theory_nc_eta_best(&p, 20, 0, 5e4, &eta, &best));
    KNOWN_D(eta, 0.05278, 4);
    KNOWN_D(best, 0.055074, 5);
}

/* Beyond the admissible step there is no bound, and the reason can be read off. */
static void test_nonconvex_too_large(void **unused) {
    (void)unused;
    hdo_theory_problem p = case_A();
    hdo_nc_bound r = hdo_theory_nc_bound(&p, 10, 20, 0, 8000);
    assert_false(r.ok);
    assert_true(r.delta <= 0.0 && isinf(r.total) && isinf(r.Gav));
    /* Two first-order nodes: only the descent condition theta L <= 1 can fail. */
    p = problem(hybrid(0, 2, forward(20, 1), 1, 1, 0, 0), HDO_THEORY_PAIR, 1, 0, 0, HDO_THEORY_MODE_U, true);
    assert_true(hdo_theory_nc_bound(&p, 1.0, 20, 0, 8000).ok);
    r = hdo_theory_nc_bound(&p, 1.1, 20, 0, 8000);
    assert_true(!r.ok && r.delta == 1.0 && r.eps == 1.0 && isinf(r.total));
    KNOWN(r.hc, 1.1);
}

/* ---- 6.5 exact expectations ------------------------------------------------------------------------------------- */

struct exact_case {
    hdo_gram_event event;
    int64_t n_events;
    hdo_theory_mix mix;
    hdo_est_const est;
    double eta;
    int64_t T;
    size_t n_rows;
    double row[4][7]; /* t, exact a, Gamma, MG, bound a, Gamma, MG */
};

/* n = 8, d = 20, f^i = |x-c_i|^2/2, centres e1, -e1, e2, -e2 in each group, start 5 e1, additive noise, variance 1. */
static void check_exact(const struct exact_case *c) {
    enum { n = 8, d = 20 };
    double X[n * d] = {0}, C[n * d] = {0}, K[4 * n * n], eta[n], omega[n], add[n];
    for (size_t i = 0; i < n; i++) {
        X[i * d] = 5.0;
        C[i * d + (i % 4) / 2] = i % 2 == 0 ? 1.0 : -1.0;
        eta[i] = c->eta;
        omega[i] = i < 4 ? c->est.omega : 0.0;
        add[i] = i < 4 ? c->est.rho + c->est.kappa : 1.0;
    }
    hdo_gram g = {.n = n, .h = 1.0, .eta = eta, .omega = omega, .add = add, .event = c->event, .ctx = NULL};
    g.n_events = c->n_events;
    size_t len = (size_t)c->T + 1;
    double *work = malloc(hdo_theory_gram_work(n) * sizeof *work), *a = malloc(len * sizeof *a);
    double *G = malloc(len * sizeof *G), *MG = malloc(len * sizeof *MG);
    assert_true(work != NULL && a != NULL && G != NULL && MG != NULL);
    hdo_theory_gram_init(n, d, X, C, K);
    hdo_theory_gram_run(&g, K, c->T, work, a, G, MG);

    hdo_theory_problem p = problem(hybrid(4, 4, c->est, 1, 1, 1, 1), c->mix, 1, 1, 1, HDO_THEORY_MODE_U, true);
    hdo_sys_coef s = hdo_theory_sys_coef(&p, c->eta);
    hdo_sc_iter it;
    hdo_theory_sc_iter_init(&it, &s, 25, 0);
    size_t row = 0;
    for (size_t t = 0; t < len; t++) {
        double mg = hdo_theory_mg_bound(&p, it.a, it.Gamma);
        if (row < c->n_rows && (size_t)c->row[row][0] == t) {
            const double *w = c->row[row++];
            KNOWN(a[t], w[1]);
            KNOWN(G[t], w[2]);
            KNOWN(MG[t], w[3]);
            KNOWN(it.a, w[4]);
            KNOWN(it.Gamma, w[5]);
            KNOWN(mg, w[6]);
        }
        AT_MOST(a[t], it.a);
        AT_MOST(G[t], it.Gamma);
        AT_MOST(MG[t], mg);
        hdo_theory_sc_iter_next(&it);
    }
    assert_int_equal(row, c->n_rows);
    free(work);
    free(a);
    free(G);
    free(MG);
}

static void test_exact_pair_forward(void **unused) {
    (void)unused;
    struct exact_case c = {hdo_theory_gram_pair,
                           28,
                           HDO_THEORY_PAIR,
                           forward(20, 1),
                           .02,
                           1000,
                           4,
                           {{1, 24.75419, .01257589, 307.8323, 24.75824, .02484911, 605.0826},
                            {10, 22.64805, .06488202, 284.2214, 22.68565, .1752673, 564.3321},
                            {100, 9.315001, .03812588, 130.3816, 9.479842, .1684398, 260.2846},
                            {1000, .0299869, .00629106, 23.10438, .04692634, .02094392, 36.54273}}};
    check_exact(&c);
}

static void test_exact_match_forward(void **unused) {
    (void)unused;
    struct exact_case c = {hdo_theory_gram_match,
                           105,
                           HDO_THEORY_MATCH,
                           forward(20, 1),
                           .02,
                           1000,
                           4,
                           {{1, 24.02422, .04284643, 299.8293, 24.04788, .08448214, 591.4873},
                            {10, 16.79116, .05459591, 216.6548, 16.96214, .2294289, 435.183},
                            {100, .4918591, .007677075, 28.43856, .5565261, .02778964, 48.57842},
                            {1000, .02787377, .006341108, 23.08068, .04419726, .02107777, 36.48611}}};
    check_exact(&c);
}

static void test_exact_pair_difference(void **unused) {
    (void)unused;
    struct exact_case c = {hdo_theory_gram_pair,
                           28,
                           HDO_THEORY_PAIR,
                           one_sided(20, 1, .2, 1, true),
                           .02,
                           1000,
                           3,
                           {{1, 24.75485, .01455589, 360.6746, 24.7589, .02682911, 657.9888},
                            {100, 9.357287, .05176812, 183.8934, 9.52323, .1974309, 315.4161},
                            {1000, .09731666, .02001917, 76.9055, .116863, .05037197, 92.30496}}};
    check_exact(&c);
}

static void test_exact_match_difference(void **unused) {
    (void)unused;
    struct exact_case c = {hdo_theory_gram_match,
                           105,
                           HDO_THEORY_MATCH,
                           one_sided(20, 2, .2, 1, true),
                           .05,
                           300,
                           3,
                           {{1, 22.61536, .1596496, 181.4489, 22.72052, .291904, 336.454},
                            {100, .1249264, .06324635, 39.77142, .1717493, .1822623, 51.85343},
                            {300, .1238781, .06323623, 39.76478, .1699827, .1821598, 51.82878}}};
    check_exact(&c);
}

/* Random isotropic problems: unequal groups, pairs, matchings of even and odd populations, a fixed ring. */
static void test_exact_below_bound_random(void **unused) {
    (void)unused;
    uint64_t st = 11;
    for (int trial = 0; trial < 150; trial++) {
        enum { max = 7, d = 4, T = 60 };
        int n = integer(&st, 3, max), n0 = integer(&st, 0, n), scheme = trial % 3;
        size_t m = (size_t)n;
        double h = log_uniform(&st, .1, 10), eta_v = log_uniform(&st, 1e-3, .5) / h, sd = log_uniform(&st, .01, 3);
        double X[max * d], C[max * d], K[4 * max * max], W[max * max] = {0}, eta[max], omega[max], add[max];
        double a[T + 1], G[T + 1], MG[T + 1], work[1000], mean[d] = {0}, x0[d], z2 = 0, a0 = 0;
        assert_true(hdo_theory_gram_work(n) <= LEN(work));
        hdo_est_const e = trial % 2 == 0 ? forward(d, integer(&st, 1, 8))
                                         : one_sided(d, integer(&st, 1, 8), log_uniform(&st, 1e-3, 1), h, true);
        for (size_t l = 0; l < d; l++) x0[l] = 4 * uniform(&st) - 2;
        for (size_t i = 0; i < m; i++)
            for (size_t l = 0; l < d; l++) {
                X[i * d + l] = x0[l];
                C[i * d + l] = 2 * uniform(&st) - 1;
                mean[l] += C[i * d + l] / (double)n;
            }
        double vs0 = 0, vs1 = 0; /* varsigma of the two groups */
        for (size_t i = 0; i < m; i++) {
            bool zo = i < (size_t)n0;
            double z = 0;
            for (size_t l = 0; l < d; l++) z += h * h * (C[i * d + l] - mean[l]) * (C[i * d + l] - mean[l]);
            z2 += z / (double)n;
            *(zo ? &vs0 : &vs1) += z / (double)(zo ? n0 : n - n0);
            eta[i] = eta_v;
            omega[i] = zo ? e.omega : 0.0;
            add[i] = zo ? e.rho * sd * sd + e.kappa : sd * sd;
            W[i * m + i] = W[i * m + (i + 1) % m] = W[i * m + (i + m - 1) % m] = 1.0 / 3.0;
        }
        for (size_t l = 0; l < d; l++) a0 += (x0[l] - mean[l]) * (x0[l] - mean[l]);
        hdo_gram g = {.n = n, .h = h, .eta = eta, .omega = omega, .add = add};
        hdo_theory_mix kind = scheme == 0 ? HDO_THEORY_PAIR : scheme == 1 ? HDO_THEORY_MATCH : HDO_THEORY_GOSSIP;
        g.event = scheme == 0 ? hdo_theory_gram_pair : scheme == 1 ? hdo_theory_gram_match : hdo_theory_gram_fixed;
        g.ctx = W;
        g.n_events = scheme == 0 ? hdo_theory_gram_pair_count(n) : scheme == 1 ? hdo_theory_gram_match_count(n) : 1;
        hdo_theory_gram_init(n, d, X, C, K);
        hdo_theory_gram_run(&g, K, T, work, a, G, MG);
        for (int mode = 0; mode < 2; mode++) {
            hdo_theory_problem p = {.pop = hybrid(n0, n - n0, e, sd, sd, sqrt(vs0), sqrt(vs1)), .L = h, .ell = h};
            p.ell_loc = h;
            p.mix = hdo_theory_mix_const(kind, n, hdo_theory_lambda_ring_third(n));
            p.mode = mode == 0 ? HDO_THEORY_MODE_U : HDO_THEORY_MODE_O;
            p.balanced = false; /* random centres: the group means differ */
            assert_true(fabs(p.pop.z2 - z2) <= ROUNDING * z2);
            hdo_sys_coef s = hdo_theory_sys_coef(&p, eta_v);
            hdo_sc_iter it;
            hdo_theory_sc_iter_init(&it, &s, a0, 0);
            for (int t = 0; t <= T; t++) {
                AT_MOST(a[t], it.a);
                AT_MOST(G[t], it.Gamma + 1e-12); /* Gamma_0 = 0 up to cancellation */
                AT_MOST(MG[t], hdo_theory_mg_bound(&p, it.a, it.Gamma));
                hdo_theory_sc_iter_next(&it);
            }
        }
    }
}

/* ---- 6.6 others ------------------------------------------------------------------------------------------------- */

static void test_zo_help_known(void **unused) {
    (void)unused;
    static const struct {
        int n0, n1, rv;
        double vs0, vs1, want[7];
    } row[] = {
        {4, 4, 1, 0, 0, {22, 3, 5.75, 11.5, 5.75, 0.9565217, 0.04545455}},
        {4, 4, 10, 0, 0, {3.1, 3, 1.025, 2.05, 1.025, 0.7560976, 0.3225806}},
        {4, 4, 11, 0, 0, {2.909091, 3, 0.9772727, 1.954545, 0.9772727, 0.744186, 0.34375}},
        {28, 4, 3, 0, 0, {8, 9, 0.890625, 7.125, 0.890625, 0.5333333, 0.125}},
        {4, 4, 16, .5, .5, {2.96875, 3, 0.9921875, 1.80971, 0.9048549, 0.7480315, 0.3368421}},
        {4, 4, 1, .5, .6, {32.5, 3, 8.375, 11.67085, 5.835425, 0.9701493, 0.03076923}},
    };
    for (size_t k = 0; k < LEN(row); k++) {
        hdo_est_const e = forward(20, row[k].rv);
        double a0 = hdo_theory_node_noise(&e, 1, row[k].vs0, 2);
        hdo_zo_help z = hdo_theory_zo_help(row[k].n0, row[k].n1, a0, 1, row[k].vs0, row[k].vs1, false);
        const double got[7] = {z.noise_ratio, z.threshold, z.match, z.pair, z.parallel, z.weighted, z.eta_ratio};
        for (size_t j = 0; j < 7; j++) KNOWN(got[j], row[k].want[j]);
        /* The ratio crosses one exactly where the noise ratio crosses the threshold; scaled steps always help. */
        assert_true((z.match < 1.0) == (z.noise_ratio < z.threshold));
        assert_true(z.weighted < 1.0);
    }
    KNOWN(hdo_theory_zo_rv(20, 4, 4, 1, 1, 0, 2), 10.5);
    KNOWN(hdo_theory_zo_rv(20, 28, 4, 1, 1, 0, 2), 21.0 * 4.0 / 32.0);
    assert_true(isinf(hdo_theory_zo_rv(20, 4, 4, 2, 1, 0, 2))); /* the data noise alone is too large */
    /* The threshold in rv agrees with the criterion on both sides. */
    for (int side = 0; side < 2; side++) {
        double edge = hdo_theory_zo_rv(200, 4, 4, 1, 1, .5, 2);
        hdo_est_const e = forward(200, (int)floor(edge) + side);
        double a0 = hdo_theory_node_noise(&e, 1, .5, 2);
        assert_true((hdo_theory_zo_help(4, 4, a0, 1, 0, 0, false).match < 1.0) == (side == 1));
    }
    hdo_theory_problem p = case_B();
    KNOWN(hdo_theory_zo_early(&p), 4.0 / (4.0 + 4.0 * 10.5 / 8.0));
    assert_true(isnan(hdo_theory_zo_help(4, 1, 2, 1, 0, 0, false).pair));
}

static hdo_paper_params paper_case(void) {
    hdo_paper_params p = {.n0 = 4, .n1 = 4, .d = 20, .L = 1, .ell = .1, .sigma0 = 1, .sigma1 = 1, .varsigma0 = .5};
    p.varsigma1 = .6;
    p.a_0 = 4;
    p.c = sqrt(20);
    return p;
}

static void test_paper_known(void **unused) {
    (void)unused;
    hdo_paper_params p = paper_case();
    hdo_paper_sc r = hdo_theory_paper_sc(&p, .001, 400000);
    KNOWN(r.B, .006166188);
    KNOWN(r.C1, .000427);
    KNOWN(r.C2, .000312125);
    KNOWN(r.C3, 6.436624e-06);
    KNOWN(r.D1, .0004251647);
    KNOWN(r.D2, 6.705303e-06);
    KNOWN(r.rhs, .02102931);
    KNOWN(r.a_bound, 1.682345);
    assert_true(r.ok && r.cond_consensus && r.cond_ell && r.cond_bias && r.cond_D1);
    assert_int_equal(hdo_theory_paper_t_min(&p), 772014);
    KNOWN(4 * 8 * log(772014.) / (772014. * .1), .00561928);
    assert_false(hdo_theory_paper_sc(&p, .02, 4000).ok);

    p.ell = 1e-3; /* the condition on the bias, alone: eta <= 0.0006732698 for c = 0.1 */
    p.c = .1;
    r = hdo_theory_paper_sc(&p, .001, 1000);
    assert_true(r.cond_consensus && r.cond_ell && r.cond_D1 && !r.cond_bias && !r.ok);
    KNOWN(r.B, 0.2757603);
    KNOWN(r.C3, 6.668715e-06);
    KNOWN(r.D2, 6.918613e-06);
    assert_true(hdo_theory_paper_sc(&p, .00067326, 1000).cond_bias);
    assert_false(hdo_theory_paper_sc(&p, .00067328, 1000).cond_bias);
    p = paper_case();

    hdo_paper_noise t = hdo_theory_paper_noise(&p, .01, 1);
    KNOWN(t.het, .01 * (20 * 4 * .25 + 4 * .36) / 64);
    KNOWN(t.noise, .01 * (20 * 4 + 4) / 64);
    KNOWN(t.bias, 1e-4 * 10);
    KNOWN(hdo_theory_paper_noise(&p, .01, 2).bias, 1e-4 * 100);
}

static void test_corollaries_known(void **unused) {
    (void)unused;
    hdo_theory_problem A = case_A(), B = case_B();
    hdo_corollary c = hdo_theory_cor_sc(&A, .01, 4, 10000);
    assert_true(c.ok);
    KNOWN(c.bound, 0.1487886);
    c = hdo_theory_cor_sc(&B, .01, 4, 3000);
    assert_true(c.ok);
    KNOWN(c.bound, 0.1253574);
    c = hdo_theory_cor_nc(&A, .01, 20, 8000);
    assert_true(c.ok);
    KNOWN(c.bound, 4.073128);
    hdo_theory_problem C = case_C();
    assert_false(hdo_theory_cor_sc(&C, 1e-4, 4, 10000).ok); /* biased: not covered */
}

static void test_fwd_draw_known(void **unused) {
    (void)unused;
    const double g[3] = {3, 0, 4}, z[3] = {.5, -1, 2}, none[3] = {0, 0, 0};
    double G[3];
    hdo_theory_fwd_draw(3, g, 3, 2.5, z, G);
    KNOWN(G[0], 0.8134519);
    KNOWN(G[1], -2.635231);
    KNOWN(G[2], 4.598244);
    double in_place[3] = {.5, -1, 2};
    hdo_theory_fwd_draw(3, g, 3, 2.5, in_place, in_place);
    assert_memory_equal(G, in_place, sizeof G);
    hdo_theory_fwd_draw(3, none, 3, 2.5, z, G);
    assert_memory_equal(G, none, sizeof G);
}

/* ---- properties ------------------------------------------------------------------------------------------------- */

/* More directions never hurt, in any of the bounds. */
static void test_bounds_decrease_in_rv(void **unused) {
    (void)unused;
    for (int kind = 0; kind < 6; kind++) {
        double last[4] = {HUGE_VAL, HUGE_VAL, HUGE_VAL, HUGE_VAL};
        for (int rv = 1; rv <= 256; rv *= 2) {
            hdo_theory_problem p = kind < 2 ? case_A() : kind < 4 ? case_B() : case_C();
            hdo_est_const e = kind % 2 == 0 ? forward(20, rv) : one_sided(20, rv, .01, 1, false);
            p.pop = hybrid(4, 4, e, 1, 1, .5, .6);
            hdo_sys_coef s = hdo_theory_sys_coef(&p, .005);
            hdo_sc_iter it;
            hdo_theory_sc_iter_init(&it, &s, 4, 0);
            for (int t = 0; t < 3000; t++) hdo_theory_sc_iter_next(&it);
            const double now[4] = {it.a, it.Gamma, hdo_theory_sc_weighted(&s, 4, 0, 3000, .5).f_y,
                                   hdo_theory_nc_bound(&p, .005, 20, 0, 3000).total};
            for (size_t k = 0; k < 4; k++) {
                assert_true(isfinite(now[k]) && now[k] < last[k]);
                last[k] = now[k];
            }
        }
    }
}

/* The closed forms are above the program's bounds wherever their step-size condition holds, and that condition implies
 * the program's own. */
static void test_corollaries_above_program(void **unused) {
    (void)unused;
    uint64_t st = 7;
    int tried[3] = {0};
    double least = HUGE_VAL;
    for (int trial = 0; trial < 12000; trial++) {
        int kind = trial % 3, n0 = integer(&st, 0, 40), n1 = integer(&st, 0, 40);
        if (n0 + n1 < 3) continue;
        if (kind == 1 && (n0 + n1) % 2 != 0) n1++; /* the matching corollary is for even populations */
        size_t d = (size_t)integer(&st, 1, 2000);
        hdo_pop_const pop = hybrid(n0, n1, forward(d, integer(&st, 1, 64)), log_uniform(&st, .01, 10),
                                   log_uniform(&st, .01, 10), log_uniform(&st, .01, 10), log_uniform(&st, .01, 10));
        double L = log_uniform(&st, .01, 100), ell = L * log_uniform(&st, 1e-4, 1), ell_loc = ell * uniform(&st);
        hdo_theory_problem p =
            problem(pop, kind == 1 ? HDO_THEORY_MATCH : HDO_THEORY_PAIR, L, ell, ell_loc, HDO_THEORY_MODE_U, true);
        double eta = log_uniform(&st, 1e-4, 1) / (8 * L * sqrt(2 * (pop.omega_max + 3)));
        double start = log_uniform(&st, .01, 100);
        int64_t T = (int64_t)log_uniform(&st, 10, 1e7);
        if (kind < 2) {
            hdo_corollary c = hdo_theory_cor_sc(&p, eta, start, T);
            if (!c.ok) continue;
            assert_true(hdo_theory_sc_ok(&p, eta));
            hdo_sys_coef s = hdo_theory_sys_coef(&p, eta);
            double f = hdo_theory_sc_weighted(&s, start, 0, T, .5).f_y;
            AT_MOST(f, c.bound);
            least = fmin(least, c.bound / f);
        } else {
            hdo_corollary c = hdo_theory_cor_nc(&p, eta, start, (double)T);
            if (!c.ok) continue;
            assert_true(hdo_theory_nc_ok(&p, eta));
            double f = hdo_theory_nc_bound(&p, eta, start, 0, (double)T).total;
            AT_MOST(f, c.bound);
            least = fmin(least, c.bound / f);
        }
        tried[kind]++;
    }
    for (size_t k = 0; k < 3; k++) assert_true(tried[k] > 1000);
    assert_true(least > 1.3);
}

static bool sc_pred(const hdo_theory_problem *p, int64_t T) {
    return hdo_theory_sc_ok(p, hdo_theory_sc_eta(p, T));
}

static bool nc_pred(const hdo_theory_problem *p, int64_t T) {
    return hdo_theory_nc_ok(p, hdo_theory_nc_eta(p, 20, T));
}

static bool at_least(const void *ctx, int64_t T) {
    return T >= *(const int64_t *)ctx;
}

static void test_t_min_is_smallest(void **unused) {
    (void)unused;
    const hdo_theory_problem all[] = {case_A(), case_B(), case_C(), case_D(), case_E()};
    for (size_t k = 0; k < LEN(all); k++) {
        int64_t T = hdo_theory_sc_t_min(&all[k]);
        assert_true(sc_pred(&all[k], T) && !sc_pred(&all[k], T - 1));
        T = hdo_theory_nc_t_min(&all[k], 20);
        assert_true(nc_pred(&all[k], T) && !nc_pred(&all[k], T - 1));
    }
    hdo_paper_params p = paper_case();
    int64_t T = hdo_theory_paper_t_min(&p);
    double t = (double)(T - 1);
    assert_false(hdo_theory_paper_sc(&p, 32 * log(t) / (t * .1), t).ok);
    const int64_t edge[] = {1, 4, 5, 7, 8, 9, 1000003, INT64_C(1) << 52};
    for (size_t k = 0; k < LEN(edge); k++)
        assert_int_equal(hdo_theory_t_min(at_least, &edge[k]), edge[k] < 4 ? 4 : edge[k]);
    const int64_t never = INT64_MAX;
    assert_int_equal(hdo_theory_t_min(at_least, &never), -1);
}

/* On both sides of the largest admissible step. */
static void test_eta_max_is_the_edge(void **unused) {
    (void)unused;
    const hdo_theory_problem all[] = {case_A(), case_B(), case_C(), case_D(), case_E()};
    for (size_t k = 0; k < LEN(all); k++) {
        const hdo_theory_problem *p = &all[k];
        for (int side = 0; side < 2; side++) {
            double f = side == 0 ? 1.0 : 1.0 + 1e-9;
            bool want = side == 0;
            hdo_sys_coef s = hdo_theory_sys_coef(p, f * hdo_theory_eta_max(p, HDO_THEORY_COND_CONSENSUS));
            assert_true((s.delta > 0.0) == want);
            s = hdo_theory_sys_coef(p, f * hdo_theory_eta_max(p, HDO_THEORY_COND_DESCENT));
            assert_true(hdo_theory_sc_weighted(&s, 4, 0, 100, .5).ok == want);
            s = hdo_theory_sys_coef(p, f * hdo_theory_eta_max(p, HDO_THEORY_COND_STABLE));
            assert_true((hdo_theory_sc_radius(&s).radius < 1.0) == want);
            assert_true(hdo_theory_sc_ok(p, f * hdo_theory_eta_max(p, HDO_THEORY_COND_SC_OK)) == want);
            assert_true(hdo_theory_nc_ok(p, f * hdo_theory_eta_max(p, HDO_THEORY_COND_NC_OK)) == want);
            double eta = f * hdo_theory_eta_max(p, HDO_THEORY_COND_NC_BOUND);
            assert_true(hdo_theory_nc_bound(p, eta, 1, 0, 1).ok == want);
        }
    }
    /* Two nodes always agree after a round: no consensus limit. */
    hdo_theory_problem two =
        problem(hybrid(1, 1, forward(20, 1), 1, 1, 0, 0), HDO_THEORY_PAIR, 1, .1, .1, HDO_THEORY_MODE_U, true);
    assert_true(isinf(hdo_theory_eta_max(&two, HDO_THEORY_COND_CONSENSUS)));
    double eta, best;
    assert_true(hdo_theory_sc_eta_best(&two, 4, 0, 1000, &eta, &best));
}

/* The best step of the grid is not beaten by its neighbours, nor by the published schedule. */
static void test_eta_best_is_best(void **unused) {
    (void)unused;
    const hdo_theory_problem all[] = {case_A(), case_B(), case_C(), case_D(), case_E()};
    for (size_t k = 0; k < LEN(all); k++) {
        double eta, best;
        assert_true(hdo_theory_sc_eta_best(&all[k], 4, 0, 300000, &eta, &best));
        for (double f = .5; f < 2.0; f += .01) {
            hdo_sys_coef s = hdo_theory_sys_coef(&all[k], f * eta);
            assert_true(hdo_theory_sc_weighted(&s, 4, 0, 300000, .5).f_y > best * (1 - 1e-3));
        }
        hdo_sys_coef s = hdo_theory_sys_coef(&all[k], hdo_theory_sc_eta(&all[k], 300000));
        assert_true(hdo_theory_sc_weighted(&s, 4, 0, 300000, .5).f_y > best);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_est_const_known),
        cmocka_unit_test(test_est_bf),
        cmocka_unit_test(test_est_fresh_batch),
        cmocka_unit_test(test_est_check),
        cmocka_unit_test(test_mix_const_known),
        cmocka_unit_test(test_mix_check),
        cmocka_unit_test(test_power_iteration),
        cmocka_unit_test(test_case_A),
        cmocka_unit_test(test_case_B),
        cmocka_unit_test(test_case_C),
        cmocka_unit_test(test_case_D),
        cmocka_unit_test(test_case_E),
        cmocka_unit_test(test_mode_table),
        cmocka_unit_test(test_curve_large_step),
        cmocka_unit_test(test_curve_ill_conditioned),
        cmocka_unit_test(test_pop_classes),
        cmocka_unit_test(test_problem_check),
        cmocka_unit_test(test_sc_radius),
        cmocka_unit_test(test_sc_curve_every_eta),
        cmocka_unit_test(test_infinite_constants),
        cmocka_unit_test(test_nonconvex_known),
        cmocka_unit_test(test_nonconvex_leading_and_best),
        cmocka_unit_test(test_nonconvex_too_large),
        cmocka_unit_test(test_exact_pair_forward),
        cmocka_unit_test(test_exact_match_forward),
        cmocka_unit_test(test_exact_pair_difference),
        cmocka_unit_test(test_exact_match_difference),
        cmocka_unit_test(test_exact_below_bound_random),
        cmocka_unit_test(test_zo_help_known),
        cmocka_unit_test(test_paper_known),
        cmocka_unit_test(test_corollaries_known),
        cmocka_unit_test(test_fwd_draw_known),
        cmocka_unit_test(test_bounds_decrease_in_rv),
        cmocka_unit_test(test_corollaries_above_program),
        cmocka_unit_test(test_t_min_is_smallest),
        cmocka_unit_test(test_eta_max_is_the_edge),
        cmocka_unit_test(test_eta_best_is_best),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
