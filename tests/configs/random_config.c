/* SPDX-License-Identifier: Apache-2.0 — a number becomes a configuration: every model, estimator, mixing, split, ... */
#include "random_config.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "hdo/experimental/config.h"

uint64_t rnd_next(rnd *r) { /* splitmix64 */
    uint64_t z = (r->s += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

int rnd_below(rnd *r, int n) {
    return (int)(rnd_next(r) % (uint64_t)n);
}

/* ---- the text under construction ---- */

typedef struct draft {
    rnd r;
    char *text;
    size_t len;
    const char *folder;
    const char *model;
    bool analytic; /* no kinks: complex-step needs no leave */
    bool large;    /* tens of thousands of numbers: few estimates */
    bool odd;      /* this one may hold settings that are out of place */
    int n;         /* nodes so far */
} draft;

static void put(draft *d, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(d->text + d->len, TEXT_MAX - d->len, fmt, ap);
    va_end(ap);
    if (n > 0 && d->len + (size_t)n < TEXT_MAX) d->len += (size_t)n;
}

#define PICK(d, list) ((list)[rnd_below(&(d)->r, (int)(sizeof(list) / sizeof((list)[0])))])

static bool chance(draft *d, int percent) {
    return rnd_below(&d->r, 100) < percent;
}

/* ", key: value" from a list written "a|b|c" */
static void option(draft *d, int percent, const char *key, const char *values) {
    if (!chance(d, percent)) return;
    int n = 1;
    for (const char *p = values; *p != '\0'; p++) n += *p == '|';
    int k = rnd_below(&d->r, n);
    const char *p = values;
    for (; k > 0; p++) k -= *p == '|';
    put(d, ", %s: %.*s", key, (int)strcspn(p, "|"), p);
}

/* ---- models and data ---- */

static const char *const vector_layers[] = {
    "linear 8, relu, linear classes",
    "linear 6, gelu, linear 5, sigmoid, linear classes",
    "linear 8, batchnorm, relu, dropout 0.2, linear classes",
    "linear 7, layernorm, gelu, linear classes",
    "linear 8, save a, linear 8, relu, add a, linear classes nobias",
    "flatten, linear classes",
    "linear classes, sigmoid",
};
static const char *const picture_layers[] = {
    "conv 4 3 pad 1, relu, pool 2, linear classes",
    "conv 3 3 stride 2 pad 1, batchnorm, gelu, avgpool, linear classes",
    "conv 4 1, save a, conv 4 3 pad 1, relu, conv 4 3 pad 1, add a, relu, avgpool, linear classes",
    "conv 5 5 pad 2 stride 2 nobias, sigmoid, conv 6 3, flatten, linear 6, linear classes",
    "pool 3 stride 2 pad 1, conv 2 2, layernorm, linear classes",
};
static const char *const token_layers[] = {
    "embed 4, position, flatten, linear classes",
    "embed 4, position, save r, layernorm, linear 12, attention 2, linear 4, add r, flatten, linear classes",
    "embed 6 std 0.1, linear 18, attention 3 dropout 0.2, gelu, flatten, linear classes",
};

static bool kinks(const char *layers) {
    return strstr(layers, "relu") != NULL || strstr(layers, "pool ") != NULL;
}

static void layers(draft *d, const char *list) {
    d->analytic = !kinks(list);
    put(d, ", layers: \"%s\"", list);
}

static void shared_data_options(draft *d) {
    option(d, 60, "split", "copies|single|shared|dirichlet(0.1)|dirichlet(100)|shards(1)|shards(3)");
    option(d, 30, "scaling", "normalised|unit");
    put(d, "}\n");
}

static void vectors(draft *d) {
    int kind = rnd_below(&d->r, 10);
    if (kind < 8) {
        put(d, "data: {name: synthetic");
        option(d, 100, "train", "2|3|8|40|64");
        option(d, 100, "val", "1|5|20");
        option(d, 100, "classes", "2|3|10");
        option(d, 100, "features", "1|2|5|17|33");
        option(d, 30, "separation", "0|1|1000");
        option(d, 20, "data_seed", "0|7");
    } else {
        put(d, "data: {name: %s, path: \"%s/%s\"", kind == 8 ? "csv" : "libsvm", d->folder,
            kind == 8 ? "t.csv" : "t.libsvm");
        option(d, 50, "train", "5|20");
        option(d, 50, "val", "3|8");
    }
    shared_data_options(d);
}

static void pictures(draft *d) {
    put(d, "data: {name: idx, path: \"%s/train-images\"", d->folder);
    option(d, 40, "train", "3|12");
    option(d, 40, "val", "2|6");
    option(d, 20, "pretext", "rotation");
    shared_data_options(d);
}

static void tokens(draft *d) {
    put(d, "data: {name: brackets");
    option(d, 100, "positions", "4|8|13");
    option(d, 100, "train", "4|30");
    option(d, 100, "val", "2|10");
    shared_data_options(d);
}

static void start_options(draft *d) {
    option(d, 20, "init", "pytorch|he|normal(0.1)|zero");
    option(d, 20, "reading", "text|authors");
    option(d, 20, "buffers", "average|private");
    if (d->odd) option(d, 30, "l2", "0.1");
    put(d, "}\n");
}

static void model_and_data(draft *d) {
    static const char *const models[] = {"quadratic", "quadratic", "logistic", "logistic",    "logistic-l2", "mlp",
                                         "custom",    "custom",    "custom",   "transformer", "cnn2",        "cnn3"};
    d->model = PICK(d, models);
    d->large = strcmp(d->model, "mlp") == 0 || strncmp(d->model, "cnn", 3) == 0;
    d->analytic = !d->large;
    put(d, "model: {name: %s", d->model);
    if (strcmp(d->model, "quadratic") == 0) {
        option(d, 100, "dim", "1|2|7|20|100");
        option(d, 50, "convexity", "0|0.1|1");
        option(d, 50, "noise", "0|0.1|5");
        option(d, 50, "spread", "0|1");
        option(d, 50, "start", "0|1|100");
        put(d, "}\n%s", chance(d, 70) ? "data: none\n" : "");
    } else if (strcmp(d->model, "transformer") == 0) {
        option(d, 40, "dropout", "0|0.5");
        option(d, 30, "dropout_mask", "shared|fresh");
        start_options(d);
        tokens(d);
    } else if (strncmp(d->model, "cnn", 3) == 0) {
        start_options(d);
        pictures(d);
    } else if (strcmp(d->model, "custom") == 0) {
        int kind = rnd_below(&d->r, 3);
        layers(d, kind == 0 ? PICK(d, vector_layers) : kind == 1 ? PICK(d, picture_layers) : PICK(d, token_layers));
        start_options(d);
        if (kind == 0) vectors(d);
        if (kind == 1) pictures(d);
        if (kind == 2) tokens(d);
    } else {
        if (strcmp(d->model, "logistic-l2") == 0) option(d, 50, "l2", "0|0.001|1");
        start_options(d);
        vectors(d);
    }
}

/* ---- the population ---- */

static const char *const estimators[] = {"fo",      "fd",           "fd-central",  "fd-coord",    "debiased",
                                         "forward", "complex-step", "forward-sim", "forward-law", "fd-law"};

static bool one_of(const char *name, const char *list) {
    size_t n = strlen(name);
    for (const char *p = list; (p = strstr(p, name)) != NULL; p++) {
        if ((p == list || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0')) return true;
    }
    return false;
}

static void class_options(draft *d, const char *e, bool second) {
    bool stepped = one_of(e, "fd fd-central fd-coord debiased complex-step fd-law");
    bool directed = !one_of(e, "fo fd-coord"), law = one_of(e, "forward-law fd-law");
    if (directed) option(d, 100, "rv", d->large ? "1|2|3" : "1|2|3|5|17");
    if (stepped) option(d, 60, "nu", one_of(e, "complex-step") ? "1.0e-20|1.0e-8" : "1.0e-6|1.0e-4|0.01|1|eta/sqrt(d)");
    if (directed) option(d, 25, "directions", "whole|per-tensor");
    if (directed && !law) {
        option(d, 15, "streams", "independent|shared");
        option(d, 30, "distribution", "gaussian|sphere|rademacher");
    }
    if (one_of(e, "fd-coord")) option(d, 50, "coords", "0|1|2|50");
    if (one_of(e, "debiased")) {
        option(d, 50, "debias_levels", "1|4|24");
        option(d, 50, "debias_ratio", "0.26|0.5|0.95");
    }
    if (one_of(e, "complex-step") && !d->analytic) put(d, ", allow_piecewise: true");
    option(d, 100, "lr", second && !d->large ? "1.0e-3|0.01|0.1|1|balanced" : "1.0e-6|0.01|0.1|1|100");
    option(d, 100, "batch", "1|2|3|8");
    option(d, 30, "momentum", "0.5|0.999");
    option(d, 20, "weight_decay", "0.01|1");
    if (chance(d, 15)) {
        put(d, ", schedule: file, schedule_file: \"%s/rates\"", d->folder);
    } else {
        option(d, 25, "schedule", "constant|cosine");
    }
    if (chance(d, 10)) {
        option(d, 70, "forward_s", "0.5|2");
        option(d, 70, "backward_s", "1");
        option(d, 70, "latency_s", "0.25");
        option(d, 70, "bandwidth", "1000|1.0e+6");
    }
    if (d->odd) option(d, 30, one_of(e, "fo") ? "nu" : "debias_levels", "3");
}

static void population(draft *d) {
    static const char *const names[] = {"fo", "zo", "third"};
    int classes = 1 + rnd_below(&d->r, chance(d, 20) ? 3 : 2);
    put(d, "population:\n");
    for (int k = 0; k < classes; k++) {
        const char *e = PICK(d, estimators);
        if (strcmp(d->model, "logistic") != 0 && strcmp(e, "fd-law") == 0) e = "forward"; /* it is for softmax alone */
        int count = chance(d, 4) ? 40 : 1 + rnd_below(&d->r, 5);
        if (one_of(d->model, "cnn2 cnn3 mlp transformer custom") && count > 4) count = 4;
        if (d->large && one_of(e, "fd-coord")) e = "fd"; /* one evaluation a number */
        d->n += count;
        put(d, "  %s: {count: %d, estimator: %s", names[k], count, e);
        class_options(d, e, k > 0);
        put(d, "}\n");
    }
}

/* ---- everything else ---- */

static void mixing(draft *d) {
    static const char *const kinds[] = {"matching", "matching", "pairwise", "graph", "graph", "none", "allreduce"};
    const char *kind = PICK(d, kinds);
    put(d, "mixing: {kind: %s", kind);
    if (strcmp(kind, "graph") == 0) {
        if (chance(d, 10)) {
            put(d, ", graph: file, edges: \"%s/edges-%d\"", d->folder, d->n < 50 ? d->n : 1);
        } else if (chance(d, 10)) {
            put(d, ", graph: small-world(0.2), degree: 2");
        } else {
            option(d, 100, "graph",
                   "complete|ring|torus(0)|hypercube|star|path|random-regular(3)|erdos-renyi(0.6)|exponential");
        }
        option(d, 50, "graph_mode", "matching|colour|edge");
        option(d, 50, "placement", "random|spread|clustered|hub|order");
    } else if (d->odd) {
        option(d, 50, "graph", "ring");
    }
    if (!one_of(kind, "none allreduce") && !d->large) option(d, 15, "average", "equal|noise");
    if (strcmp(kind, "none") != 0) option(d, 30, "period", "2|3");
    put(d, "}\n");
}

static void churn(draft *d) {
    put(d, "churn: {loss: %s", chance(d, 50) ? "0" : "0.3");
    if (chance(d, 50)) {
        put(d, ", leave: 0.3");
        option(d, 50, "back", "0|0.5|1");
        option(d, 50, "model", "stale|fresh");
    }
    option(d, 50, "straggle", "0.2|1");
    if (chance(d, 25))
        put(d, ", outage: %s, outage_from: %d, outage_to: %d", chance(d, 90) ? "fo" : "zo", rnd_below(&d->r, 4),
            4 + rnd_below(&d->r, 4));
    put(d, "}\n");
}

/* ---- settings without effect ---- */

/* Takes the setting whose value stands at this line and column out of the text. False: it is not there. */
static bool take_out(char *text, int line, int column) {
    char *p = text;
    for (int k = 1; k < line; k++) {
        p = strchr(p, '\n');
        if (p == NULL) return false;
        p++;
    }
    char *start = p, *value = p + column - 1, *end = value;
    if (strchr(start, '\n') == NULL || value > strchr(start, '\n')) return false;
    for (bool quoted = false; *end != '\n' && (quoted || (*end != ',' && *end != '}')); end++) quoted ^= *end == '"';
    char *from = value;
    while (from > start && *from != ',' && *from != '{') from--;
    if (from == start) { /* a line of its own */
        end = strchr(start, '\n') + 1;
    } else if (*from == '{') { /* the first of its map: the comma behind it goes too */
        from++;
        if (*end == ',') end += 2;
    }
    memmove(from, end, strlen(end) + 1);
    return true;
}

static void take_out_all(char *text) {
    static hdo_config c;
    hdo_error e;
    for (int tries = 0; tries < 100; tries++) {
        int line, column;
        hdo_config_default(&c);
        hdo_status st = hdo_config_load_bytes(&c, "fuzz", text, strlen(text), &e);
        if (st == HDO_OK) st = hdo_config_check(&c, &e);
        if (st == HDO_OK || strstr(e.msg, "has no effect") == NULL) return;
        if (sscanf(e.msg, "(fuzz:%d:%d)", &line, &column) != 2 || !take_out(text, line, column)) return;
    }
}

void random_config(uint64_t number, const char *folder, char text[TEXT_MAX]) {
    draft d = {.r = {number * 2 + 1}, .text = text, .folder = folder};
    text[0] = '\0';
    d.odd = chance(&d, 3);
    put(&d, "seed: %d\nsteps: %d\n", rnd_below(&d.r, 1000), rnd_below(&d.r, 10));
    if (chance(&d, 30)) put(&d, "warmup: %d\n", rnd_below(&d.r, 5));
    put(&d, "kernels: %s\n", chance(&d, 50) ? "ref" : "auto");
    model_and_data(&d);
    population(&d);
    mixing(&d);
    if (chance(&d, 25)) churn(&d);
    put(&d, "eval: {every: %d", rnd_below(&d.r, 5));
    option(&d, 15, "mean_model", "false");
    option(&d, 15, "consensus", "false");
    option(&d, 30, "trace", "true");
    option(&d, 20, "weighted", "0.01|0.5|1");
    put(&d, "}\ncheckpoint: {every: %d, keep: %d}\n", rnd_below(&d.r, 4), 1 + rnd_below(&d.r, 3));
    if (chance(&d, 10))
        put(&d, "stop: {diverged: %s, loss: %s}\n", chance(&d, 50) ? "3" : "1.0e+9", chance(&d, 50) ? "0" : "0.5");
    if (chance(&d, 15))
        put(&d, "sink: {csv: %s, tensorboard: %s}\n", chance(&d, 50) ? "true" : "false",
            chance(&d, 50) ? "true" : "false");
    if (!d.odd) take_out_all(text);
}

/* ---- files ---- */

static FILE *create(const char *folder, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return fopen(path, "wb");
}

static int close_all(FILE *f, int ok) {
    if (f == NULL) return 0;
    return fclose(f) == 0 && ok;
}

static int tables(const char *folder) {
    rnd r = {99};
    FILE *csv = create(folder, "t.csv"), *svm = create(folder, "t.libsvm");
    for (int i = 0; i < 40 && csv != NULL && svm != NULL; i++) {
        int a = rnd_below(&r, 100), b = rnd_below(&r, 100), label = (a + b > 100) + (a > 70);
        fprintf(csv, "%d,%d.5,%d,%d\n", a, b, rnd_below(&r, 10), label);
        fprintf(svm, "%d 1:%d 3:%d\n", label, a, b);
    }
    int ok = close_all(csv, 1);
    return close_all(svm, 1) && ok;
}

static int idx_pair(const char *folder) {
    enum { N = 30, SIDE = 8 };
    static const unsigned char images[16] = {0, 0, 8, 3, 0, 0, 0, N, 0, 0, 0, SIDE, 0, 0, 0, SIDE},
                               labels[8] = {0, 0, 8, 1, 0, 0, 0, N};
    rnd r = {100};
    FILE *x = create(folder, "train-images"), *y = create(folder, "train-labels");
    if (x != NULL && y != NULL) {
        fwrite(images, 1, sizeof images, x);
        fwrite(labels, 1, sizeof labels, y);
    }
    for (int i = 0; i < N && x != NULL && y != NULL; i++) {
        fputc(i % 3, y);
        for (int p = 0; p < SIDE * SIDE; p++) fputc(i % 3 * 60 + rnd_below(&r, 100), x);
    }
    int ok = close_all(x, 1);
    return close_all(y, 1) && ok;
}

int random_files(const char *folder) {
    int ok = tables(folder) && idx_pair(folder);
    FILE *f = create(folder, "rates");
    if (f != NULL) fputs("# rates\n0 0.1\n3 0.02\n6 0\n", f);
    ok = close_all(f, ok);
    for (int n = 1; n < 50; n++) { /* a ring with a chord */
        char name[32];
        snprintf(name, sizeof name, "edges-%d", n);
        f = create(folder, name);
        for (int i = 0; f != NULL && i + 1 < n; i++) fprintf(f, "%d %d\n", i, i + 1);
        if (f != NULL && n > 3) fprintf(f, "0,%d\n0 %d # again\n", n - 1, n / 2);
        ok = close_all(f, ok);
    }
    return ok;
}
