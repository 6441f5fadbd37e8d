/* SPDX-License-Identifier: Apache-2.0
 *
 * Estimators on softmax regression (d = 7850, batch 2: a node-step of experiment E2) and on larger batches; what
 * forward-law adds to the gradient of ResNet-18 (d = 11 million). One thread.
 *
 * Timing window: one estimate (the gradient or the losses, the random numbers, the combination) at a fixed point and
 * batch, a new step number every time; `node-step` rows add the update of the model. Gathering the batch, exchange and
 * evaluation are outside. A window repeats the call until it lasts 2 ms; times are for one call. Rows ending in /part
 * time a part by itself. resnet18 rows alternate both estimators; the row `added` has forward-law / fo - 1 in place of
 * seconds, of neighbouring calls; processor time. Optional argument: only benches whose name contains it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/simd.h"
#include "base/vec.h"
#include "estimator/estimator.h"
#include "objective/registry.h"

enum { REPS = 31 };

typedef struct work {
    hdo_objective *f;
    hdo_batch batch;
    hdo_estimator s;
    hdo_team team;
    float *x, *g;
    int64_t step;
    bool update;
    volatile double sink;
} work;

static void die(const char *what) {
    fprintf(stderr, "bench_estimator: %s\n", what);
    exit(1);
}

static void *get(size_t bytes) {
    void *p = hdo__alloc(bytes);
    if (p == NULL) die("no memory");
    return p;
}

static void run_estimate(work *w) {
    hdo_work hw = {&w->team.arena[0], &w->team, 0};
    hdo_request q = {.batch = &w->batch, .x = w->x, .seed = 1, .node = 3, .step = w->step++, .eta = 0.01};
    hdo_estimate_info info = {0};
    if (w->s.ops->estimate(&w->s, w->f, &q, &hw, w->g, &info) != HDO_OK) die("the estimate failed");
    if (w->update) hdo__axpy(w->f->d, -1e-9f, w->g, w->x);
    w->sink = info.loss;
}

static void run_normals(work *w) {
    hdo__rng_normal(hdo__stream(1, HDO_RNG_TEST, 0, (uint64_t)w->step++, 0), 0, w->f->d, w->g);
}
static void run_dot(work *w) {
    w->sink = hdo__dot(w->f->d, w->x, w->g);
}
static void run_axpby(work *w) {
    hdo__axpby(w->f->d, 0.5f, w->x, 0.5f, w->g);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const char *name, const char *shape, void (*run)(work *w), work *w) {
    double t[REPS];
    size_t calls = 1;
    for (;; calls *= 2) { /* also warms up */
        double start = hdo__now_s();
        for (size_t c = 0; c < calls; c++) run(w);
        if (hdo__now_s() - start >= 2e-3) break;
    }
    for (int r = 0; r < REPS; r++) {
        double start = hdo__now_s();
        for (size_t c = 0; c < calls; c++) run(w);
        t[r] = (hdo__now_s() - start) / (double)calls;
    }
    qsort(t, REPS, sizeof t[0], by_value);
    printf("%s,%s,%s,%d,%d,%.4g,%.4g,%.4g\n", name, shape, hdo__simd()->name, w->team.threads, REPS, t[REPS / 2],
           t[REPS / 10], t[REPS - 1 - REPS / 10]);
    fflush(stdout);
}

static void setup(work *w, const char *model, int C, int side, int B, float *in, int32_t *label) {
    static hdo_config c;
    static hdo_dataset ds;
    hdo_config_default(&c);
    snprintf(c.model.name, sizeof c.model.name, "%s", model);
    ds = (hdo_dataset){.count = 60000, .n_in = C * side * side, .shape = {C, side, side}, .classes = 10};
    hdo_objective_args p = {.config = &c, .train = &ds, .val = &ds, .n = 1};
    *w = (work){0};
    if (hdo__objective_find(model)->create(&p, &w->f, NULL) != HDO_OK) die("no objective");
    hdo__rng_normal(hdo__stream(1, HDO_RNG_TEST, 0, 0, 1), 0, (size_t)B * (size_t)ds.n_in, in);
    for (int i = 0; i < B; i++) label[i] = i % 10;
    w->batch = (hdo_batch){.size = B, .in = in, .label = label, .seed = 1, .train = true};
    w->x = get((w->f->d + w->f->n_buf) * sizeof(float));
    w->g = get((w->f->d + w->f->n_buf) * sizeof(float));
    if (w->f->ops->init(w->f, 1, w->x) != HDO_OK) die("no start");
    if (hdo__team_init(&w->team, 1, (size_t)256 << 20) != HDO_OK) die("no memory");
}

static void clear(work *w) {
    hdo__objective_destroy(w->f);
    hdo__team_clear(&w->team);
    hdo__free(w->x);
    hdo__free(w->g);
}

static void choose(work *w, const char *name, int rv, int directions) {
    w->s = (hdo_estimator){.ops = hdo__estimator_find(name),
                           .rv = rv,
                           .nu = {HDO_NUMBER, 1e-4},
                           .directions = directions,
                           .streams = HDO_STREAMS_INDEPENDENT,
                           .distribution = HDO_DIST_GAUSSIAN,
                           .levels = 4,
                           .ratio = 0.5};
}

static double cpu_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void print_row(const char *name, const char *shape, double t[REPS]) {
    qsort(t, REPS, sizeof t[0], by_value);
    printf("%s,%s,%s,1,%d,%.4g,%.4g,%.4g\n", name, shape, hdo__simd()->name, REPS, t[REPS / 2], t[REPS / 10],
           t[REPS - 1 - REPS / 10]);
    fflush(stdout);
}

static void added_to_gradient(int B, float *in, int32_t *label) {
    static const char *const names[2] = {"fo", "forward-law"};
    work w;
    char shape[64];
    double t[2][REPS], added[REPS];
    setup(&w, "resnet18", 3, 32, B, in, label);
    for (int r = -2; r < REPS; r++) { /* two to warm up */
        for (int k = 0; k < 2; k++) {
            choose(&w, names[k], 128, HDO_DIRECTIONS_WHOLE);
            double start = cpu_s();
            run_estimate(&w);
            if (r >= 0) t[k][r] = cpu_s() - start;
        }
        if (r >= 0) added[r] = t[1][r] / t[0][r] - 1.0;
    }
    snprintf(shape, sizeof shape, "d%zu_b%d_rv128", w.f->d, B);
    print_row("resnet18/fo", shape, t[0]);
    print_row("resnet18/forward-law", shape, t[1]);
    print_row("resnet18/added", shape, added);
    clear(&w);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int rv, directions;
    } rows[] = {{"fo", 1, 1},
                {"forward-law", 128, 1},
                {"forward-law", 128, 2},
                {"forward-sim", 128, 1},
                {"forward-sim", 128, 2},
                {"forward", 128, 1},
                {"fd", 128, 1},
                {"fd-central", 128, 1},
                {"fd-law", 128, 1},
                {"debiased", 128, 1},
                {"complex-step", 128, 1}};
    static const int batches[] = {2, 32, 256};
    const char *only = argc > 1 ? argv[1] : "";
    float *in = get((size_t)256 * 784 * sizeof(float));
    int32_t label[256];
    printf("bench,shape,backend,threads,reps,median_s,p10_s,p90_s\n");
    for (size_t b = 0; b < sizeof batches / sizeof batches[0]; b++) {
        work w;
        setup(&w, "logistic", 1, 28, batches[b], in, label);
        char name[96], shape[64];
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            choose(&w, rows[i].name, rows[i].rv, rows[i].directions);
            snprintf(name, sizeof name, "%s%s", rows[i].name,
                     rows[i].directions == HDO_DIRECTIONS_PER_TENSOR ? "/per-tensor" : "");
            snprintf(shape, sizeof shape, "d%zu_b%d_rv%d", w.f->d, batches[b], rows[i].rv);
            if (strstr(name, only) != NULL) measure(name, shape, run_estimate, &w);
        }
        choose(&w, "forward-law", 128, HDO_DIRECTIONS_WHOLE);
        w.update = true;
        snprintf(shape, sizeof shape, "d%zu_b%d_rv128", w.f->d, batches[b]);
        if (strstr("node-step", only) != NULL) measure("node-step/forward-law", shape, run_estimate, &w);
        if (b == 0 && strstr("part", only) != NULL) {
            snprintf(shape, sizeof shape, "%zu", w.f->d);
            measure("normals/part", shape, run_normals, &w);
            measure("dot/part", shape, run_dot, &w);
            measure("axpby/part", shape, run_axpby, &w);
        }
        clear(&w);
    }
    if (strstr("resnet18", only) != NULL) {
        added_to_gradient(10, in, label);
        added_to_gradient(50, in, label);
    }
    hdo__free(in);
    return 0;
}
