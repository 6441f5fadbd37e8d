/* SPDX-License-Identifier: Apache-2.0
 *
 * The complex pass in float: against forward mode at tiny nu on every model, second order in nu where nu is large, the
 * same bits on any number of threads, no allocation; erf of a complex number against 50 digits (mpmath); kinks by name.
 * test_nn_double.c compares every layer with the analytic continuation of its real loss.
 */
#include "nn_help.h"

#include "base/vec.h"
#include "kernels/cplx.h"

/* Two ways to a slope in float, relative to |g|, the size of a typical slope. */
static const double TOL_SLOPE = 1e-5;
/* The last block normalises six values a channel: a rounding there decides a ReLU or is divided by a small variance. */
static const double TOL_RESNET = 5e-5;
/* erf at complex points: a sum of 13 terms and more in double. */
static const double TOL_ERF = 1e-12;
/* Identities of GELU and sigmoid: float rounding of the stored results. */
static const double TOL_FLOAT = 3e-7;
/* Halving nu divides the truncation error by 4: up to the next order, (nu / radius of convergence)^2, and rounding. */
static const double TOL_ORDER = 0.1;

typedef struct net_row {
    const char *text; /* a model's name, or layers */
    bool authors;
    int C, H, W, vocab, classes, batch;
} net_row;

#define MODEL(name, authors, batch)                                                                                    \
    { name, authors, 0, 0, 0, 0, 0, batch }
static const net_row nets[] = {
    MODEL("logistic", false, 3),
    MODEL("logistic", true, 5),
    MODEL("mlp", false, 8),
    MODEL("mlp", true, 8),
    MODEL("cnn2", false, 70),
    MODEL("cnn2", true, 6),
    MODEL("cnn3", false, 33),
    MODEL("transformer", false, 5),
    MODEL("transformer", true, 2),
    MODEL("resnet18", false, 6),
    {"linear 40, gelu, linear 30, sigmoid, linear classes", false, 1, 1, 13, 0, 3, 70},
    {"conv 4 3 pad 1, save a, conv 4 3 pad 1, gelu, conv 4 3 pad 1, add a, avgpool, linear classes", false, 3, 9, 7, 0,
     5, 70},
    {"batchnorm, conv 4 3, batchnorm, gelu, avgpool, linear classes", false, 2, 8, 6, 0, 3, 7},
    {"linear 9, layernorm, gelu, dropout 0.3, linear classes", false, 1, 1, 6, 0, 4, 11},
    {"linear 3000, gelu, linear 300, gelu, linear classes", false, 1, 1, 20, 0, 4, 3}, /* large: tiles of weights */
    {"embed 6, position, save r, layernorm, linear 18, attention 3 dropout 0.2, linear 6, add r, gelu, flatten, "
     "linear classes",
     false, 1, 1, 9, 5, 3, 4},
};
enum { N_NETS = sizeof nets / sizeof nets[0], K = 3 };

static void open_net(nn_case *c, const net_row *n, int threads) {
    if (n->classes == 0) {
        nn_open_model(c, HDO_KERNELS_AUTO, n->text, n->authors, n->batch, 0.1, K, threads);
    } else {
        nn_open(c, HDO_KERNELS_AUTO, n->text, n->C, n->H, n->W, n->vocab, n->classes, n->batch, 0.1, K, threads);
    }
}

/* ---- functions ---- */

static void test_complex_erf(void **state) {
    (void)state;
    static const double gold[][4] = {/* x, y, and erf(x + i y) - erf(x) */
                                     {0.0, 1e-20, 0.0, 1.1283791670955125e-20},
                                     {0.7, 1e-20, 4.8389240227894103e-41, 6.9127486041053858e-21},
                                     {-3.0, 2e-15, -1.6710366233609745e-33, 2.7850610389349573e-19},
                                     {2.5, -1e-9, 5.445710575881775e-21, -2.1782842303527098e-12},
                                     {0.3, 0.0007, 1.5159538862640287e-7, 0.00072188273341743323},
                                     {-0.2, 0.0012, -3.1223103749766047e-7, 0.0013009623190307692},
                                     {1.0, 0.1, 0.0041579887722976276, 0.041371687213065716},
                                     {-5.0, 0.25, -2.8927228134774495e-12, 9.1421392962450572e-13},
                                     {0.0, 1.5, 0.0, 4.5847332572844269},
                                     {0.001, -2.0, 0.060478851446376877, -18.564679199971328},
                                     {1.75, 2.5, 4.4239638172366364, -1.0408256900928769},
                                     {6.0, 4.0, 1.8495766283383235e-11, -1.5957451210396658e-10},
                                     {-3.5, 9.0, 8.6650293326790095e+27, 4.1375622321706225e+28},
                                     {2.0, 13.0, 1.9596279586749745e+70, -1.9971160654138255e+68}};
    double worst = 0;
    for (size_t i = 0; i < sizeof gold / sizeof gold[0]; i++) {
        hdo_z r = hdo__z_erf_rest(gold[i][0], gold[i][1]);
        double size = hypot(gold[i][2], gold[i][3]);
        worst = fmax(worst, hypot(r.re - gold[i][2], r.im - gold[i][3]) / size);
    }
    print_message("erf: largest relative error %.1e\n", worst);
    assert_true(worst < TOL_ERF);
    assert_true(isinf(hdo__z_erf_rest(0.0, 14.0).im) && isnan(hdo__z_erf_rest((double)NAN, 1.0).re));
    assert_true(hdo__z_erf_rest(50.0, 20.0).re == 0.0);
}

/* gelu(z) - gelu(-z) = z, sigmoid(z) + sigmoid(-z) = 1, sqrt(z)^2 = z with a real part that is not negative. */
static void test_complex_identities(void **state) {
    (void)state;
    static const double steps[] = {1e-100, 1e-20, 1e-4, 0.02, 0.5};
    enum { N = 64 };
    for (size_t k = 0; k < sizeof steps / sizeof steps[0]; k++) {
        float a[N], t[N], na[N], nt[N], ya[N], yt[N], za[N], zt[N];
        double nu = steps[k];
        for (uint32_t i = 0; i < N; i++) {
            a[i] = (float)(6.0 * hashed(i, 1));
            t[i] = (float)(3.0 * hashed(i, 2));
            na[i] = -a[i];
            nt[i] = -t[i];
        }
        hdo__cplx_gelu(N, nu, a, t, ya, yt);
        hdo__cplx_gelu(N, nu, na, nt, za, zt);
        for (int i = 0; i < N; i++) {
            double size = 1 + fabs((double)ya[i]) + fabs((double)yt[i]);
            assert_true(fabs((double)ya[i] - (double)za[i] - (double)a[i]) <= 3 * TOL_FLOAT * size);
            assert_true(fabs((double)yt[i] - (double)zt[i] - (double)t[i]) <= 3 * TOL_FLOAT * size);
        }
        hdo__cplx_sigmoid(N, nu, a, t, ya, yt);
        hdo__cplx_sigmoid(N, nu, na, nt, za, zt);
        for (int i = 0; i < N; i++) {
            assert_true(fabs((double)ya[i] + (double)za[i] - 1) <= TOL_FLOAT * 2);
            assert_true(fabs((double)yt[i] + (double)zt[i]) <= TOL_FLOAT * 2);
        }
        for (int i = 0; i < N; i++) {
            hdo_z z = {(double)a[i], nu * (double)t[i]}, r = hdo__z_sqrt(z), s = hdo__z_mul(r, r);
            assert_true(r.re >= 0 && hypot(s.re - z.re, s.im - z.im) <= 1e-15 * hypot(z.re, z.im));
        }
    }
}

/* ---- the pass ---- */

static double norm_of_gradient(nn_case *c) {
    size_t d = c->net->params.total;
    float *g = hdo__alloc(d * sizeof(float));
    double sum;
    hdo__net_grad(c->net, &c->s, c->x, &c->work, g, &sum, NULL);
    double size = sqrt(hdo__sumsq(d, g));
    hdo__free(g);
    return size;
}

/* nu from where only the exponent knows of it to where truncation is just below rounding; training and evaluation. */
static void test_complex_is_forward_mode(void **state) {
    (void)state;
    static const double steps[] = {1e-100, 1e-20, 1e-6};
    for (int i = 0; i < N_NETS; i++) {
        nn_case c;
        open_net(&c, &nets[i], 1);
        hdo_dirs u = nn_dirs(&c);
        double worst = 0;
        for (int train = 1; train >= 0; train--) {
            double sum, want[K], got[K];
            c.s.train = train;
            double size = norm_of_gradient(&c);
            hdo__net_jvp(c.net, &c.s, c.x, &u, 2, K, &c.work, &sum, want, NULL);
            for (int k = 0; k < 3; k++) {
                hdo__net_complex(c.net, &c.s, c.x, &u, 2, K, steps[k], &c.work, got);
                for (int r = 0; r < K; r++) worst = fmax(worst, fabs(got[r] - want[r]) / size);
            }
        }
        print_message("%-60.60s complex pass and forward mode differ by %.1e |g|\n", nets[i].text, worst);
        assert_true(worst < (strcmp(nets[i].text, "resnet18") == 0 ? TOL_RESNET : TOL_SLOPE));
        nn_close(&c);
    }
}

/* Im F(x + i nu u) / nu = F' - nu^2 F'''/6 + ...: an honest evaluation at a complex point, not a derivative. */
static void test_complex_truncation_is_second_order(void **state) {
    (void)state;
    static const struct {
        net_row net;
        double nu;
    } cases[] = {
        {{"linear 16, gelu, linear 16, gelu, linear classes", false, 1, 1, 8, 0, 4, 16}, 0.025},
        {{"linear 16, sigmoid, linear 16, sigmoid, linear classes", false, 1, 1, 8, 0, 4, 16}, 0.06},
        {{"conv 4 3 pad 1, batchnorm, gelu, avgpool, linear classes", false, 2, 8, 6, 0, 3, 8}, 0.025},
        {{"embed 8, linear 24, attention 2, layernorm, flatten, linear classes", false, 1, 1, 9, 5, 3, 4}, 0.015}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        nn_case c;
        open_net(&c, &cases[i].net, 1);
        hdo_dirs u = nn_dirs(&c);
        double sum, exact, whole, half, nu = cases[i].nu;
        hdo__net_jvp(c.net, &c.s, c.x, &u, 0, 1, &c.work, &sum, &exact, NULL);
        hdo__net_complex(c.net, &c.s, c.x, &u, 0, 1, nu, &c.work, &whole);
        hdo__net_complex(c.net, &c.s, c.x, &u, 0, 1, nu / 2, &c.work, &half);
        double ratio = (whole - exact) / (half - exact);
        print_message("%-60.60s slope %.6f, error %.2e at nu = %g, ratio %.3f at half of it\n", cases[i].net.text,
                      exact, whole - exact, nu, ratio);
        assert_true(fabs(whole - exact) > 5e-4 * fabs(exact)); /* far above rounding */
        assert_true(fabs(ratio - 4) < 4 * TOL_ORDER);
        nn_close(&c);
    }
}

static void test_complex_bits_and_memory(void **state) {
    (void)state;
    for (int i = 0; i < N_NETS; i++) {
        double slope[3][K];
        for (int threads = 1; threads <= 3; threads++) {
            nn_case c;
            open_net(&c, &nets[i], threads);
            hdo_dirs u = nn_dirs(&c);
            hdo_team team;
            size_t bytes = hdo__net_work_for(c.net, HDO_PASS_CPLX, c.s.size, K);
            assert_int_equal(hdo__team_init(&team, threads, bytes), HDO_OK); /* aborts if that is too little */
            hdo_work w = {&team.arena[0], &team, 0};
            size_t before = hdo__alloc_count();
            hdo__net_complex(c.net, &c.s, c.x, &u, 0, K, 1e-3, &w, slope[threads - 1]);
            assert_int_equal(hdo__alloc_count(), before);
            assert_int_equal(hdo__arena_mark(&team.arena[0]), 0);
            hdo__team_clear(&team);
            nn_close(&c);
        }
        assert_memory_equal(slope[0], slope[1], sizeof slope[0]);
        assert_memory_equal(slope[0], slope[2], sizeof slope[0]);
    }
}

/* The mask is the batch's for all directions, also where perturbed losses would draw fresh ones. */
static void test_complex_shares_the_mask(void **state) {
    (void)state;
    nn_case c;
    open_net(&c, &nets[N_NETS - 1], 1);
    hdo_dirs u = nn_dirs(&c);
    double one[K], fresh[K], other[K], none[K];
    hdo__net_complex(c.net, &c.s, c.x, &u, 0, K, 1e-20, &c.work, one);
    c.net->fresh = true;
    hdo__net_complex(c.net, &c.s, c.x, &u, 0, K, 1e-20, &c.work, fresh);
    assert_memory_equal(one, fresh, sizeof one);
    c.s.step++;
    hdo__net_complex(c.net, &c.s, c.x, &u, 0, K, 1e-20, &c.work, other);
    c.s.train = false;
    hdo__net_complex(c.net, &c.s, c.x, &u, 0, K, 1e-20, &c.work, none);
    for (int r = 0; r < K; r++) assert_true(relative(one[r], other[r]) > 1e-3 && relative(one[r], none[r]) > 1e-3);
    nn_close(&c);
}

static void test_complex_kinks(void **state) {
    (void)state;
    static const struct {
        net_row net;
        const char *kink;
    } cases[] = {
        {MODEL("logistic", true, 1), ""},
        {MODEL("mlp", false, 1), "ReLU behind fc1"},
        {MODEL("mlp", true, 1), "ReLU behind bn1"},
        {MODEL("cnn2", false, 1), "ReLU behind conv1"},
        {MODEL("resnet18", false, 1), "ReLU behind bn1"},
        {MODEL("transformer", false, 1), ""},
        {{"relu, linear classes", false, 1, 1, 4, 0, 2, 1}, "ReLU at the input"},
        {{"a: conv 2 3, gelu, pool 2, linear classes", false, 1, 6, 6, 0, 2, 1}, "max-pool behind a"},
        {{"linear 4, save r, gelu, linear 4, add r, relu, linear classes", false, 1, 1, 4, 0, 2, 1}, "ReLU behind 2"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        nn_case c;
        char kink[HDO_KINK_MAX];
        open_net(&c, &cases[i].net, 1);
        hdo__net_kink(c.net, kink);
        assert_string_equal(kink, cases[i].kink);
        nn_close(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_complex_erf),
        cmocka_unit_test(test_complex_identities),
        cmocka_unit_test(test_complex_is_forward_mode),
        cmocka_unit_test(test_complex_truncation_is_second_order),
        cmocka_unit_test(test_complex_bits_and_memory),
        cmocka_unit_test(test_complex_shares_the_mask),
        cmocka_unit_test(test_complex_kinks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
