/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine against PyTorch and torchvision: tests/golden/nn.json, made in double precision by tools/make_golden.py.
 * Ours is float, so what is left is float rounding; the tolerances say how much of it each quantity collects.
 */
#include "nn_help.h"

#include <jansson.h>

#include "base/vec.h"

/* Relative to the largest quantity of the same kind. Losses: a few dozen float roundings of logits. Gradients:
 * batch-norm over five or six samples divides by small variances and amplifies: an order of summation is worth 1e-5 to
 * 6e-5 in the last stage of resnet18, whose maps have one pixel. SGD: ten steps feed errors back. */
static const double TOL_LOSS = 2e-6, TOL_GRAD = 1e-4, TOL_SGD = 2e-4;
static const double TOL_RESNET_LOGIT = 1e-4; /* absolute: the promise of the issue */

static json_t *golden;

static double num(const json_t *o, const char *key) {
    return json_number_value(json_object_get(o, key));
}

static void check(const char *label, const char *what, double got, double want, double tol, double scale) {
    if (!(fabs(got - want) <= tol * scale)) print_error("%s: %s is %.9g, should be %.9g\n", label, what, got, want);
    assert_true(fabs(got - want) <= tol * scale);
}

/* norm, projection and entries of one tensor; scale: norm of the whole gradient shared over its tensors. */
static void check_tensor(const char *label, const json_t *g, const float *x, size_t n, uint32_t salt, double scale) {
    const char *name = json_string_value(json_object_get(g, "name"));
    double dot = 0, norm = sqrt(hdo__sumsq(n, x)), want = num(g, "norm");
    double s = want > scale ? want : scale;
    for (size_t i = 0; i < n; i++) dot += (double)x[i] * hashed((uint32_t)i, salt);
    char what[128];
    snprintf(what, sizeof what, "norm of %s", name);
    check(label, what, norm, want, TOL_GRAD, s);
    snprintf(what, sizeof what, "projection of %s", name);
    check(label, what, dot, num(g, "dot"), TOL_GRAD, s);
    const json_t *head = json_object_get(g, "head");
    size_t m = json_array_size(head);
    for (size_t i = 0; i < m; i++) {
        size_t at = i;
        if (n > 32) at = i < 4 ? i : i < 6 ? n / 2 + i - 4 : n - 8 + i;
        snprintf(what, sizeof what, "%s[%zu]", name, at);
        check(label, what, (double)x[at], json_number_value(json_array_get(head, i)), TOL_GRAD, s);
    }
}

static void check_logits(nn_case *c, const char *label, const json_t *want, double tol) {
    size_t n = (size_t)c->s.size * (size_t)c->net->classes;
    float *z = hdo__alloc(n * sizeof(float));
    double worst = 0, top = 0;
    c->s.train = false;
    hdo__net_logits(c->net, &c->s, c->x, &c->work, z);
    c->s.train = true;
    assert_int_equal(json_array_size(want), n);
    for (size_t i = 0; i < n; i++) {
        double w = json_number_value(json_array_get(want, i)), diff = fabs((double)z[i] - w);
        if (diff > worst) worst = diff;
        if (fabs(w) > top) top = fabs(w);
    }
    print_message("%-20s logits: largest %.3g, largest difference %.2g\n", label, top, worst);
    assert_true(worst <= tol);
    hdo__free(z);
}

static void check_training(nn_case *c, const json_t *g, const char *label) {
    size_t d = c->net->params.total, n_buf = c->net->buffers.total;
    float *grad = hdo__alloc(d * sizeof(float)), *stats = hdo__alloc((n_buf + 1) * sizeof(float));
    double sum;
    hdo__ranges_clear(hdo__net_idle(c->net), 0, d, grad);
    hdo__net_grad(c->net, &c->s, c->x, &c->work, grad, &sum, stats);
    check(label, "loss", sum / c->s.size, num(g, "loss"), TOL_LOSS, 1.0 + num(g, "loss"));
    double loss_only;
    hdo__net_loss(c->net, &c->s, c->x, &c->work, &loss_only, NULL, NULL);
    check(label, "forward loss", loss_only / c->s.size, num(g, "loss"), TOL_LOSS, 1.0 + num(g, "loss"));

    const json_t *rows = json_object_get(g, "grad"), *bufs = json_object_get(g, "stats");
    double whole = 0;
    assert_int_equal(json_array_size(rows), c->net->params.n);
    assert_int_equal(json_array_size(bufs), c->net->buffers.n);
    for (int t = 0; t < c->net->params.n; t++) whole += pow(num(json_array_get(rows, (size_t)t), "norm"), 2);
    double scale = sqrt(whole / c->net->params.n);
    for (int t = 0; t < c->net->params.n; t++) {
        const hdo_param *row = &c->net->params.row[t];
        const json_t *want = json_array_get(rows, (size_t)t);
        assert_string_equal(row->name, json_string_value(json_object_get(want, "name")));
        assert_int_equal(json_array_size(json_object_get(want, "shape")), row->n_dim);
        float *plain = hdo__alloc(row->len * sizeof(float));
        hdo__split_plain(&row->split, row->len, grad + row->off, plain);
        check_tensor(label, want, plain, row->len, 500 + (uint32_t)t, scale);
        hdo__free(plain);
    }
    for (int t = 0; t < c->net->buffers.n; t++) {
        const hdo_param *row = &c->net->buffers.row[t];
        const json_t *want = json_array_get(bufs, (size_t)t);
        assert_string_equal(row->name, json_string_value(json_object_get(want, "name")));
        check_tensor(label, want, stats + row->off, row->len, 2000 + (uint32_t)t, 1.0);
    }

    const json_t *sgd = json_object_get(g, "sgd");
    double worst = 0;
    for (size_t t = 0; t < json_array_size(sgd); t++) {
        double want = json_number_value(json_array_get(sgd, t));
        hdo__net_grad(c->net, &c->s, c->x, &c->work, grad, &sum, n_buf > 0 ? c->x + d : NULL);
        if (fabs(sum / c->s.size - want) / (1.0 + want) > worst) worst = fabs(sum / c->s.size - want) / (1.0 + want);
        hdo__axpy(d, -(float)num(g, "lr"), grad, c->x);
    }
    print_message("%-20s loss %.7f (PyTorch %.7f), ten SGD losses within %.1g\n", label, loss_only / c->s.size,
                  num(g, "loss"), worst);
    check(label, "SGD losses", worst, 0.0, TOL_SGD, 1.0);
    hdo__free(grad);
    hdo__free(stats);
}

static void run_case(const json_t *g, int kernels) {
    nn_case c;
    const char *label = json_string_value(json_object_get(g, "label")),
               *name = json_string_value(json_object_get(g, "model"));
    bool authors = json_is_true(json_object_get(g, "authors"));
    int B = (int)num(g, "batch"), size = (int)num(g, "input_size");
    if (size > 0) {
        char text[8192];
        int full = json_object_get(g, "resize") != NULL ? (int)num(g, "resize") : size;
        snprintf(text, sizeof text, "input: resize %d crop %d, %s", full, size, hdo__model_text(name, authors));
        nn_open(&c, kernels, text, 3, 32, 32, 0, 10, B, 0.0, 1, 1);
    } else {
        nn_open_model(&c, kernels, name, authors, B, 0.0, 1, 1);
    }
    assert_int_equal(c.net->params.total, (size_t)num(g, "d"));
    const json_t *z = json_object_get(g, "eval_logits");
    check_logits(&c, label, z, TOL_RESNET_LOGIT);
    if (json_object_get(g, "grad") != NULL) check_training(&c, g, label);
    nn_close(&c);
}

static void run_model(const char *model, int kernels) {
    size_t n = 0;
    const json_t *cases = json_object_get(golden, "cases");
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *g = json_array_get(cases, i);
        if (strcmp(json_string_value(json_object_get(g, "model")), model) != 0) continue;
        run_case(g, kernels);
        n++;
    }
    assert_true(n >= 2);
}

#define CASE(model)                                                                                                    \
    static void test_nn_golden_##model(void **state) {                                                                 \
        (void)state;                                                                                                   \
        run_model(#model, HDO_KERNELS_AUTO);                                                                           \
    }                                                                                                                  \
    static void test_nn_golden_##model##_ref(void **state) {                                                           \
        (void)state;                                                                                                   \
        run_model(#model, HDO_KERNELS_REF);                                                                            \
    }
CASE(logistic)
CASE(mlp)
CASE(cnn2)
CASE(cnn3)
CASE(transformer)

static void
test_nn_golden_resnet18(void **state) { /* reference kernels would take minutes here: the layers are covered above */
    (void)state;
    run_model("resnet18", HDO_KERNELS_AUTO);
}

static int load(void **state) {
    (void)state;
    json_error_t e;
    char path[1024];
    const char *dir = getenv("HDO_TEST_DIR");
    snprintf(path, sizeof path, "%s/golden/nn.json", dir != NULL ? dir : "tests");
    golden = json_load_file(path, 0, &e);
    if (golden == NULL) print_error("%s: %s\n", path, e.text);
    return golden == NULL;
}

static int unload(void **state) {
    (void)state;
    json_decref(golden);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nn_golden_logistic),    cmocka_unit_test(test_nn_golden_logistic_ref),
        cmocka_unit_test(test_nn_golden_mlp),         cmocka_unit_test(test_nn_golden_mlp_ref),
        cmocka_unit_test(test_nn_golden_cnn2),        cmocka_unit_test(test_nn_golden_cnn2_ref),
        cmocka_unit_test(test_nn_golden_cnn3),        cmocka_unit_test(test_nn_golden_cnn3_ref),
        cmocka_unit_test(test_nn_golden_transformer), cmocka_unit_test(test_nn_golden_transformer_ref),
        cmocka_unit_test(test_nn_golden_resnet18),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
