/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradient and forward mode of every layer and model against central differences, and the complex pass against the
 * analytic continuation of the loss, in double precision: the sources of src/nn and the reference kernels compiled with
 * double_shim.h. This file supplies what the double build does not take
 * from src/base: flat vectors, directions and mask bits.
 */
#include "nn_help.h"

#include "base/simd.h"
#include "kernels/attn.h"
#include "kernels/mm.h"

/* Central differences with h = 1e-6: truncation h^2 f'''/6 and rounding 1e-16 F/h are both near 1e-10 of the largest
 * gradient entry; a kink of a ReLU inside the step would show as 1e-3 or more. */
static const double H = 1e-6, TOL_DIFFERENCE = 2e-8;
/* Two ways to the same sum of products. */
static const double TOL_JVP = 1e-12;
/* A polynomial through 17 losses on [-h, h], read at i h / 2, errs by (1.6 / r)^17 with r from the nearest pole of the
 * loss (that of a norm, about r = 8: 1e-12), and magnifies the rounding of the losses by 1.6^17 / nu: 1e-10. */
static const double TOL_CONTINUED = 5e-9;
static const double H_LAYERS = 0.02; /* a tenth of the way to the nearest pole or less */

/* ---- the base of the double build ---- */

static void axpy(size_t n, float a, const float *x, float *y) {
    for (size_t i = 0; i < n; i++) y[i] += a * x[i];
}

static void axpby(size_t n, float a, const float *x, float b, float *y) {
    for (size_t i = 0; i < n; i++) y[i] = a * x[i] + b * y[i];
}

static double dot(size_t n, const float *x, const float *y) {
    double s = 0;
    for (size_t i = 0; i < n; i++) s += x[i] * y[i];
    return s;
}

const hdo_simd *hdo__simd(void) {
    static const hdo_simd table = {.name = "double", .axpy = axpy, .axpby = axpby, .dot = dot};
    return &table;
}

/* No directions of low rank here. */
const hdo_tensor *hdo__dirs_matrix(const hdo_dirs *u, size_t off, int *m, int *n) {
    (void)u, (void)off, (void)m, (void)n;
    return NULL;
}
void hdo__dirs_factors(const hdo_dirs *u, int r, const hdo_tensor *t, float *a, float *b) {
    (void)u, (void)r, (void)t, (void)a, (void)b;
}

void hdo__dirs_fill(const hdo_dirs *u, int r, size_t off, size_t len, float *out) {
    (void)u;
    for (size_t i = 0; i < len; i++) out[i] = sqrt(3.0) * hashed((uint32_t)(off + i), 90000u + (uint32_t)r);
}

void hdo__rng_bits(hdo_stream s, uint64_t off, size_t len, uint32_t *out) {
    for (size_t i = 0; i < len; i++) {
        double v = hashed((uint32_t)(off + i), (uint32_t)s.seed * 31u + s.sub * 7u + s.step);
        out[i] = (uint32_t)((v + 1.0) * 2147483647.0);
    }
}

const hdo_kernels *hdo__kernels(int which) {
    static const hdo_kernels ref = {.name = "ref",
                                    .gemm = hdo__ref_gemm,
                                    .conv_work = hdo__ref_conv_work,
                                    .conv_fwd = hdo__ref_conv_fwd,
                                    .conv_bwd_x = hdo__ref_conv_bwd_x,
                                    .conv_bwd_w = hdo__ref_conv_bwd_w,
                                    .attn_fwd = hdo__ref_attn_fwd,
                                    .attn_bwd = hdo__ref_attn_bwd,
                                    .attn_jvp = hdo__ref_attn_jvp,
                                    .attn_work = hdo__ref_attn_work,
                                    .vexp = hdo__ref_vexp,
                                    .gelu = hdo__ref_gelu};
    (void)which;
    return &ref;
}

/* ---- checks ---- */

static double mean_loss(nn_case *c) {
    double sum;
    hdo__net_loss(c->net, &c->s, c->x, &c->work, &sum, NULL, NULL);
    return sum / c->s.size;
}

/* F along v at x: (F(x + h v) - F(x - h v)) / (2 h). */
static double difference(nn_case *c, const float *v, float *saved) {
    size_t d = c->net->params.total;
    memcpy(saved, c->x, d * sizeof(float));
    axpy(d, H, v, c->x);
    double up = mean_loss(c);
    memcpy(c->x, saved, d * sizeof(float));
    axpy(d, -H, v, c->x);
    double down = mean_loss(c);
    memcpy(c->x, saved, d * sizeof(float));
    return (up - down) / (2 * H);
}

static void check(nn_case *c, const char *name, int per_tensor, int n_dirs) {
    size_t d = c->net->params.total;
    float *g = hdo__alloc(d * sizeof(float)), *v = hdo__alloc(d * sizeof(float)),
          *saved = hdo__alloc(d * sizeof(float));
    double sum, slope[4], top = 0, worst = 0, worst_jvp = 0;
    hdo__net_grad(c->net, &c->s, c->x, &c->work, g, &sum, NULL);
    for (size_t i = 0; i < d; i++) top = fabs(g[i]) > top ? fabs(g[i]) : top;

    for (int t = 0; t < c->net->params.n; t++) { /* single coordinates, a few of every tensor */
        const hdo_param *row = &c->net->params.row[t];
        size_t n = row->len < (size_t)per_tensor ? row->len : (size_t)per_tensor;
        for (size_t k = 0; k < n; k++) {
            size_t i = row->off + (n == row->len ? k : (k * 7919 + 13) % row->len);
            memset(v, 0, d * sizeof(float));
            v[i] = 1;
            double off = fabs(difference(c, v, saved) - g[i]);
            if (off > TOL_DIFFERENCE * top)
                print_error("%s: %s[%zu] is %.10g, off by %.2g\n", name, row->name, i - row->off, g[i], off);
            worst = off > worst ? off : worst;
        }
    }
    hdo_dirs u = nn_dirs(c);
    double norm = sqrt(dot(d, g, g));
    hdo__net_jvp(c->net, &c->s, c->x, &u, 0, n_dirs, &c->work, &sum, slope, NULL);
    for (int r = 0; r < n_dirs; r++) { /* whole directions: forward mode, gradient, difference */
        hdo__dirs_fill(&u, r, 0, d, v);
        double want = dot(d, g, v);
        worst_jvp = fabs(slope[r] - want) > worst_jvp ? fabs(slope[r] - want) : worst_jvp;
        if (per_tensor > 0)
            assert_true(fabs(difference(c, v, saved) - slope[r]) <= 1e-4 * norm); /* kinks are many here */
    }
    print_message("%-70.70s differences %.1e, forward mode %.1e\n", name, worst / top, worst_jvp / norm);
    assert_true(worst <= TOL_DIFFERENCE * top);
    assert_true(worst_jvp <= TOL_JVP * norm);
    hdo__free(g);
    hdo__free(v);
    hdo__free(saved);
}

/* ---- complex points ---- */

enum { NODES = 17 };

/* Im F(x + i nu u_r) / nu from losses at real points alone: the polynomial through F(x + s_k u_r) at Chebyshev nodes
 * s_k in [-h, h], evaluated at s = i nu in Lagrange's barycentric form. */
static double continued(nn_case *c, const hdo_dirs *u, int r, double h, double nu) {
    size_t d = c->net->params.total;
    float *v = hdo__alloc(d * sizeof(float)), *saved = hdo__alloc(d * sizeof(float));
    double re = 0, im = 0, den_re = 0, den_im = 0;
    hdo__dirs_fill(u, r, 0, d, v);
    memcpy(saved, c->x, d * sizeof(float));
    for (int k = 0; k < NODES; k++) {
        double angle = (k + 0.5) * 3.14159265358979323846 / NODES, s = h * cos(angle);
        axpy(d, s, v, c->x);
        double F = mean_loss(c), w = (k % 2 == 0 ? 1 : -1) * sin(angle), n = s * s + nu * nu;
        memcpy(c->x, saved, d * sizeof(float));
        double a = -w * s / n, b = -w * nu / n; /* w / (i nu - s) */
        re += a * F;
        im += b * F;
        den_re += a;
        den_im += b;
    }
    hdo__free(v);
    hdo__free(saved);
    return (im * den_re - re * den_im) / (den_re * den_re + den_im * den_im) / nu;
}

/* At tiny nu the complex pass is forward mode, kinks or not; at nu = h / 2 it is the continuation of the real loss, and
 * far from forward mode. */
static void check_complex(nn_case *c, const char *name, double h) {
    hdo_dirs u = nn_dirs(c);
    char kink[HDO_KINK_MAX];
    double slope[2], z[2], sum, size = 0, off_tiny = 0, off = 0, truncation = 0, nu = h / 2;
    hdo__net_jvp(c->net, &c->s, c->x, &u, 0, 2, &c->work, &sum, slope, NULL);
    for (int r = 0; r < 2; r++) size = fmax(size, fabs(slope[r]));
    for (double tiny = 1e-100; tiny < 1e-8; tiny *= 1e40) {
        hdo__net_complex(c->net, &c->s, c->x, &u, 0, 2, tiny, &c->work, z);
        for (int r = 0; r < 2; r++) off_tiny = fmax(off_tiny, fabs(z[r] - slope[r]));
    }
    hdo__net_kink(c->net, kink);
    hdo__net_complex(c->net, &c->s, c->x, &u, 0, 2, nu, &c->work, z);
    for (int r = 0; r < 2 && kink[0] == '\0'; r++) {
        off = fmax(off, fabs(z[r] - continued(c, &u, r, h, nu)));
        truncation = fmax(truncation, fabs(z[r] - slope[r]));
    }
    print_message("%-70.70s tiny nu %.1e, nu = %g %.1e, truncation there %.1e%s%s\n", name, off_tiny / size, nu,
                  off / size, truncation / size, kink[0] != '\0' ? ", kink: " : "", kink);
    assert_true(off_tiny <= TOL_JVP * size);
    assert_true(off <= TOL_CONTINUED * size);
    assert_true(kink[0] != '\0' || truncation > 1e3 * TOL_CONTINUED * size);
}

static const nn_row layers[] = {
    {"linear classes", 1, 1, 6, 0, 4, 3},
    {"flatten, linear classes", 2, 3, 2, 0, 4, 3}, /* a word that adds no layer, before there is one */
    {"linear 7 nobias, relu, linear classes", 1, 1, 6, 0, 4, 5},
    {"linear 5, gelu, linear classes", 1, 1, 6, 0, 4, 5},
    {"linear 5, sigmoid, linear classes", 1, 1, 6, 0, 4, 5},
    {"conv 3 3 pad 1, gelu, linear classes", 2, 5, 4, 0, 3, 2},
    {"conv 3 3 stride 2 pad 1 nobias, relu, conv 2 2, flatten, linear classes", 2, 9, 7, 0, 3, 3},
    {"conv 3 3, relu, pool 2, linear classes", 1, 8, 9, 0, 3, 2},
    {"conv 3 3, pool 3 stride 2 pad 1, gelu, avgpool, linear classes", 1, 8, 9, 0, 3, 2},
    {"conv 3 1, batchnorm, gelu, avgpool, linear classes", 2, 4, 5, 0, 3, 4},
    {"conv 3 1, batchnorm, relu, conv 3 3, batchnorm, linear classes", 2, 4, 5, 0, 3, 5},
    {"conv 3 3 pad 1, gelu, linear classes", 2, 1, 1, 0, 3, 4}, /* kernels over a picture smaller than they are */
    {"conv 3 5 pad 2 stride 3, gelu, conv 2 3 pad 1, linear classes", 2, 2, 3, 0, 3, 70},
    {"conv 4 3 stride 2 pad 1 nobias, batchnorm, relu, conv 3 3 pad 1 nobias, batchnorm, avgpool, linear classes", 2, 2,
     2, 0, 3, 5},
    {"batchnorm, linear 5, batchnorm, sigmoid, linear classes", 1, 1, 6, 0, 3, 7},
    {"linear 5, layernorm, gelu, layernorm nobias, linear classes", 1, 1, 6, 0, 3, 4},
    {"linear 6, save a, gelu, linear 6, add a, save b, relu, linear 6, add b, relu, linear classes", 1, 1, 5, 0, 3, 4},
    {"linear 6, save a, gelu, linear 6, save b, load a, sigmoid, linear 6, add b, add a, linear classes", 1, 1, 5, 0, 3,
     4},
    {"linear 8, dropout 0.4, gelu, dropout 0.2, linear classes", 1, 1, 5, 0, 3, 6},
    {"embed 4, position, gelu, flatten, linear classes", 1, 1, 6, 5, 3, 3},
    {"embed 4, linear 12, attention 2, flatten, linear classes", 1, 1, 6, 5, 3, 3},
    {"embed 6, position, save r, layernorm, linear 18, attention 3 dropout 0.3, linear 6, dropout 0.1, add r, flatten, "
     "linear classes",
     1, 1, 7, 5, 3, 3},
};

static void test_nn_double_layers(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++)
        for (int train = 1; train >= 0; train--) {
            nn_case c;
            nn_open_row(&c, 0, &layers[i], 4, 1);
            c.s.train = train;
            check(&c, layers[i].text, 1 << 20, 4);
            check_complex(&c, layers[i].text, H_LAYERS);
            nn_close(&c);
        }
}

static void test_nn_double_models(void **state) {
    (void)state;
    static const struct {
        const char *name;
        double h;
    } models[] = {{"logistic", 4e-3}, {"mlp", 4e-3}, {"cnn2", 4e-3}, {"cnn3", 4e-3}, {"transformer", 2e-4}};
    for (int i = 0; i < 5; i++)
        for (int authors = 0; authors < 2; authors++) {
            nn_case c;
            nn_open_model(&c, 0, models[i].name, authors, 4, 0.1, 4, 1);
            check(&c, models[i].name, 4, 2);
            check_complex(&c, models[i].name, models[i].h);
            nn_close(&c);
        }
}

/* The engine only: differences of single coordinates of 11 million are left to the layers above. */
static void test_nn_double_resnet18(void **state) {
    (void)state;
    nn_case c;
    nn_open_model(&c, 0, "resnet18", false, 3, 0, 2, 1);
    check(&c, "resnet18", 0, 2);
    size_t d = c.net->params.total;
    float *v = hdo__alloc(d * sizeof(float)), *saved = hdo__alloc(d * sizeof(float));
    float *g = hdo__alloc(d * sizeof(float));
    double sum;
    hdo__net_grad(c.net, &c.s, c.x, &c.work, g, &sum, NULL);
    const char *some[] = {"conv1.weight", "layer1.0.bn2.bias", "layer2.0.downsample.0.weight", "layer4.1.bn2.weight"};
    for (int k = 0; k < 4; k++) {
        const hdo_param *row = &c.net->params.row[hdo__layout_find(&c.net->params, some[k])];
        size_t i = row->off + row->len / 3;
        memset(v, 0, d * sizeof(float));
        v[i] = 1;
        double got = difference(&c, v, saved);
        print_message("%s: %.9g, difference %.9g\n", some[k], g[i], got);
        assert_true(fabs(got - g[i]) <=
                    1e-5 * (fabs(g[i]) + 1e-3)); /* a kink among 10^5 ReLUs may lie inside the step */
    }
    hdo__free(v);
    hdo__free(g);
    hdo__free(saved);
    nn_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nn_double_layers),
        cmocka_unit_test(test_nn_double_models),
        cmocka_unit_test(test_nn_double_resnet18),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
