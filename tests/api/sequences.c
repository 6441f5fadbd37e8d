/* SPDX-License-Identifier: Apache-2.0
 *
 * Random sequences of calls of the public interface, sensible and foolish: NULL, wrong order, wrong names, callbacks
 * that fail, callbacks that call back, two threads on one run. Whatever is done, a call gives a status with a sentence,
 * or what its comment says; never a crash. Meant for the sanitizers (tools/api-sequences).
 *
 *   sequences COUNT [FIRST]
 */
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hdo/hdo.h"

enum { CONFIGS = 3, RUNS = 3, CALLS = 40, DIM = 5, QUESTIONS = 6 };

typedef struct world {
    uint64_t random;
    hdo_config *config[CONFIGS];
    hdo_run *run[RUNS];
    hdo_run *inside; /* the run whose callbacks are running, for calls from inside */
    char dir[64];
    uint64_t id[QUESTIONS]; /* ids seen */
    _Atomic int calls;      /* callbacks of a run on another thread count too */
    int failures, destroyed, brought;
} world;

static uint64_t draw(world *w, uint64_t below) {
    uint64_t z = (w->random += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % below;
}

#define ONE_OF(w, list) ((list)[draw(w, sizeof(list) / sizeof((list)[0]))])

static void die(const char *what, const char *call) {
    fprintf(stderr, "sequences: %s: %s\n", call, what);
    exit(1);
}

/* A status is one of the list; a failure has a sentence, a success leaves the error alone. */
static hdo_status judge(world *w, hdo_status st, const hdo_error *e, const char *call) {
    w->calls++;
    if (strcmp(hdo_status_text(st), hdo_status_text((hdo_status)-9999)) == 0) die("an unknown status", call);
    if (st != HDO_OK) w->failures++;
    if (st != HDO_OK && e->msg[0] == '\0') die("a failure without a sentence", call);
    if (st != HDO_OK && memchr(e->msg, '\0', sizeof e->msg) == NULL) die("a sentence without an end", call);
    if (st != HDO_OK && e->code != st) die("the sentence is of another status", call);
    return st;
}

#define CALL(w, call)                                                                                                  \
    do {                                                                                                               \
        hdo_error e = {0};                                                                                             \
        judge(w, call, &e, #call);                                                                                     \
    } while (0)

/* ---- tables ---- */

typedef struct part { /* the user's pointer: what its callbacks do */
    world *w;
    int mood; /* 0: fine; 1: fails now and then; 2: stops; 3: NaN; 4: calls back */
    int count;
} part;

static int mood_of(part *p, hdo_call *call) {
    int turn = ++p->count;
    if (call->struct_size < sizeof *call || call->message_cap < 256) die("a call without room", "callback");
    if (p->mood == 1 && turn % 7 == 3) return 1;
    if (p->mood == 2 && turn > 30) {
        snprintf(call->message, call->message_cap, "the oracle is tired after %d calls", turn);
        return -1;
    }
    if (p->mood == 4 && turn % 5 == 0 && p->w->inside != NULL) {
        hdo_error e = {0};
        hdo_stop why;
        if (hdo_run_advance(p->w->inside, 1, &why, &e) != HDO_E_MISUSE)
            die("a call from inside went through", "callback");
        if (hdo_run_save(p->w->inside, &e) != HDO_E_MISUSE) die("a call from inside went through", "callback");
    }
    return 0;
}

static int loss(void *user, hdo_call *call, const hdo_samples *s, const float *x, double *out) {
    part *p = user;
    (void)s;
    *out = 0.0;
    for (int j = 0; j < DIM; j++) *out += 0.5 * (double)x[j] * (double)x[j] - 0.1 * (double)x[j];
    int rc = mood_of(p, call);
    if (p->mood == 3 && p->count > 40) *out = (double)NAN;
    return rc;
}

static int gradient(void *user, hdo_call *call, const hdo_samples *s, const float *x, double *out, float *g) {
    for (int j = 0; j < DIM; j++) g[j] = x[j] - 0.1f;
    return loss(user, call, s, x, out);
}

static int estimate(void *user, hdo_call *call, hdo_oracle *o, const float *x, float *g) {
    double value = 0.0;
    int rc = hdo_oracle_loss(o, x, &value);
    if (rc != 0) return rc;
    if (hdo_oracle_loss(o, NULL, &value) == 0 || hdo_oracle_direction(o, -1, g) == 0) die("no refusal", "oracle");
    rc = hdo_oracle_direction(o, 0, g);
    return rc != 0 ? rc : mood_of(user, call);
}

static int pairs(void *user, hdo_call *call, int n, int32_t *partner) {
    part *p = user;
    if (p->mood == 3 && n > 2) partner[0] = 1, partner[1] = 2; /* not mutual */
    if (p->mood == 0)
        for (int i = 0; i + 1 < n; i += 2) partner[i] = i + 1, partner[i + 1] = i;
    return mood_of(user, call);
}

static int row(void *user, hdo_call *call, const struct hdo_row *r) {
    if (isnan(hdo_row_value(r, "step"))) die("a row without a step", "sink");
    return mood_of(user, call);
}

static int gather(void *user, hdo_call *call, int train, int count, const int64_t *index, float *inputs,
                  int32_t *tokens, int32_t *labels) {
    (void)train, (void)tokens;
    for (int k = 0; k < count; k++) {
        for (int j = 0; j < 3; j++) inputs[3 * k + j] = (float)((index[k] * 7 + j) % 5);
        labels[k] = (int32_t)(index[k] % 2);
    }
    return mood_of(user, call);
}

static void destroy(void *user) {
    part *p = user;
    p->w->destroyed++;
    free(p);
}

static void bring(world *w, hdo_config *c) {
    part *p = calloc(1, sizeof *p);
    *p = (part){.w = w, .mood = (int)draw(w, 5)};
    hdo_error e = {0};
    hdo_status st = HDO_OK;
    bool foolish = draw(w, 6) == 0;
    size_t cut = foolish ? draw(w, 40) : 0;
    static const char *const names[] = {"mine", "mine", "mine",
                                        "",     "a b",  "much-too-long-a-name-for-a-table-of-any-kind"};
    const char *name = foolish ? ONE_OF(w, names) : "mine";
    unsigned flags = draw(w, 2) == 0 ? HDO_ANY_THREAD * 0u : 0u;
    switch (draw(w, 5)) {
    case 0: {
        hdo_objective_def d = {.struct_size = sizeof d - cut, .name = name, .flags = flags, .dim = foolish ? 0 : DIM};
        bool asked = draw(w, 3) == 0;
        if (!asked) d.loss = loss;
        if (!asked && draw(w, 2) == 0) d.gradient = gradient;
        d.destroy = destroy;
        st = hdo_config_use_objective(c, foolish && cut == 0 ? NULL : &d, p, &e);
        break;
    }
    case 1: {
        hdo_estimator_def d = {
            .struct_size = sizeof d - cut, .name = name, .needs = (unsigned)draw(w, 16), .flags = flags};
        d.estimate = foolish ? NULL : estimate;
        d.uses_directions = 1;
        d.destroy = destroy;
        st = hdo_config_use_estimator(c, &d, p, &e);
        break;
    }
    case 2: {
        hdo_mixing_def d = {.struct_size = sizeof d - cut, .name = name, .all_step = (int)draw(w, 2)};
        d.pairs = foolish ? NULL : pairs;
        d.destroy = destroy;
        st = hdo_config_use_mixing(c, &d, p, &e);
        break;
    }
    case 3: {
        hdo_sink_def d = {.struct_size = sizeof d - cut, .name = name};
        d.row = foolish ? NULL : row;
        d.destroy = destroy;
        st = hdo_config_use_sink(c, &d, p, &e);
        break;
    }
    default: {
        hdo_dataset_def d = {.struct_size = sizeof d - cut, .name = name, .flags = flags, .train_count = 40};
        d.val_count = 10, d.n_in = 3, d.classes = foolish ? 0 : 2;
        d.gather = gather;
        d.destroy = destroy;
        st = hdo_config_use_dataset(c, &d, p, &e);
    }
    }
    judge(w, st, &e, "hdo_config_use_...");
    if (st == HDO_OK) {
        w->brought++;
    } else {
        free(p);
    }
}

/* ---- settings ---- */

static const char *const keys[] = {"steps",
                                   "seed",
                                   "population.zo.count",
                                   "population.fo.estimator",
                                   "population.zo.rv",
                                   "threads",
                                   "mixing.kind",
                                   "eval.every",
                                   "model.name",
                                   "no.such",
                                   "",
                                   "population.zo.estimator",
                                   "checkpoint.every",
                                   "stop.loss",
                                   "population",
                                   "data.name"};
static const char *const values[] = {"0",        "1",        "3",       "-1",   "fd",         "fo",       "mine",
                                     "matching", "pairwise", "none",    "1e99", "nan",        "",         "quadratic",
                                     "2",        "true",     "1fo+2zo", "{",    "fd-central", "synthetic"};
static const char *const texts[] = {
    "steps: 6\n",
    "population: {zo: {count: 3, estimator: fd, rv: 2, lr: 0.1}}\n",
    "model: {name: quadratic, dim: 5}\ndata: {name: none}\n",
    "population: {fo: {count: 1, estimator: fo, lr: 0.1}, zo: {count: 2, estimator: mine, lr: 0.1}}\n",
    "{",
    "a: [",
    "steps: x\n",
    "",
    "mixing: {kind: graph, graph: ring}\n",
    "eval: {every: 2}\ncheckpoint: {every: 2, keep: 1}\n"};

static void on_log(void *ctx, hdo_log_level level, const char *message) {
    (void)level;
    ((world *)ctx)->calls += message != NULL;
}
static void on_row(void *ctx, const hdo_row *r) {
    ((world *)ctx)->calls += r != NULL;
}

static hdo_config *new_config(world *w) {
    hdo_error why = {0};
    static const char *const presets[] = {NULL, NULL, NULL, NULL, NULL, NULL, NULL, "demo", "no-such-preset", ""};
    hdo_config *c = hdo_config_new(ONE_OF(w, presets), &why);
    if (c == NULL && why.msg[0] == '\0') die("no configuration and no sentence", "hdo_config_new");
    if (c == NULL) return NULL;
    CALL(w, hdo_config_load_text(
                c,
                "steps: 6\nmodel: {name: quadratic, dim: 5}\ndata: {name: none}\neval: {every: 3}\nthreads: 1\n"
                "population: {fo: {count: 1, estimator: fo, lr: 0.1}, zo: {count: 2, estimator: fd, "
                "rv: 2, nu: 1.0e-3, lr: 0.1}}\n",
                &e));
    return c;
}

static void config_call(world *w) {
    uint64_t k = draw(w, CONFIGS);
    hdo_config *c = draw(w, 12) == 0 ? NULL : w->config[k];
    char buf[64];
    switch (draw(w, 15)) {
    case 0:
        hdo_config_free(w->config[k]);
        w->config[k] = new_config(w);
        break;
    case 1: CALL(w, hdo_config_set(c, ONE_OF(w, keys), ONE_OF(w, values), &e)); break;
    case 2: CALL(w, hdo_config_set(c, draw(w, 5) ? "steps" : NULL, draw(w, 5) ? "7" : NULL, &e)); break;
    case 3: CALL(w, hdo_config_load_text(c, draw(w, 9) ? ONE_OF(w, texts) : NULL, &e)); break;
    case 4: CALL(w, hdo_config_load(c, draw(w, 3) ? "/no/such/file.yaml" : NULL, &e)); break;
    case 5:
        CALL(w, hdo_config_get(c, ONE_OF(w, keys), draw(w, 5) ? buf : NULL, (size_t)draw(w, sizeof buf), &e));
        break;
    case 6: CALL(w, hdo_config_check(c, &e)); break;
    case 7: CALL(w, hdo_config_population(c, draw(w, 4) ? ONE_OF(w, values) : NULL, &e)); break;
    case 8: hdo_free(hdo_config_text(c)); break;
    case 9: {
        hdo_config *copy = hdo_config_copy(c);
        if (c != NULL && copy == NULL) die("no copy", "hdo_config_copy");
        hdo_config_free(w->config[k]);
        w->config[k] = copy;
        break;
    }
    case 10:
        hdo_free(hdo_config_help(draw(w, 2) ? ONE_OF(w, keys) : NULL));
        hdo_free(hdo_features());
        (void)hdo_names(draw(w, 2) ? "estimator" : draw(w, 2) ? NULL : "no such kind");
        break;
    default: bring(w, c);
    }
}

/* ---- runs ---- */

static void *elsewhere(void *p) {
    hdo_error e = {0};
    hdo_stop why;
    hdo_status st = hdo_run_advance(p, 2, &why, &e);
    if (st != HDO_OK && e.msg[0] == '\0') die("a failure without a sentence", "another thread");
    return NULL;
}

static void two_threads(world *w, hdo_run *r) {
    pthread_t t;
    if (r == NULL || pthread_create(&t, NULL, elsewhere, r) != 0) return;
    CALL(w, hdo_run_advance(r, 2, NULL, &e));
    pthread_join(t, NULL);
}

static void ask_and_tell(world *w, hdo_run *r) {
    hdo_question q[QUESTIONS];
    hdo_stop why;
    int n = 0;
    CALL(w, hdo_ask(r, (int)draw(w, QUESTIONS + 1), draw(w, 15) ? q : NULL, &n, draw(w, 2) ? &why : NULL, &e));
    for (int k = 0; k < n; k++) {
        float g[DIM] = {0};
        double value = draw(w, 20) == 0 ? (double)INFINITY : 0.5 * (double)q[k].x[0];
        w->id[draw(w, QUESTIONS)] = q[k].id;
        if (draw(w, 8) == 0) continue;
        if (draw(w, 8) == 0) CALL(w, hdo_tell_failed(r, q[k].id, &e));
        CALL(w, hdo_tell(r, q[k].id, value, draw(w, 20) ? g : NULL, &e));
    }
    CALL(w, hdo_tell(r, draw(w, 2) ? ONE_OF(w, w->id) : draw(w, UINT64_MAX), 1.0, NULL, &e));
    CALL(w, hdo_tell_failed(r, ONE_OF(w, w->id), &e));
}

static void look(world *w, hdo_run *r) {
    char hex[65];
    float mean[64];
    size_t d = 0;
    hdo_run_fingerprint(r, hex);
    if (memchr(hex, '\0', sizeof hex) == NULL) die("a text without an end", "hdo_run_fingerprint");
    hdo_free(hdo_run_summary(r));
    const float *x = hdo_run_params(r, (int64_t)draw(w, 9) - 2, &d);
    if (x != NULL && d != hdo_run_dim(r)) die("another size", "hdo_run_params");
    if (hdo_run_dim(r) <= 64) CALL(w, hdo_run_mean(r, draw(w, 9) ? mean : NULL, &e));
    for (size_t i = 0; i < hdo_run_row_count(r); i++)
        if (isnan(hdo_row_value(hdo_run_row(r, i), "step"))) die("a row without a step", "hdo_run_row");
    if (!isnan(hdo_row_value(hdo_run_last_row(r), "no/such/column"))) die("a figure", "hdo_row_value");
    if (hdo_run_row(r, 1000000) != NULL || !isnan(hdo_row_value(NULL, "step"))) die("a row", "hdo_run_row");
    const char *const *columns = hdo_run_columns(r);
    for (int k = 0; columns != NULL && columns[k] != NULL; k++) (void)hdo_row_value(hdo_run_last_row(r), columns[k]);
    (void)hdo_run_step(r), (void)hdo_run_nodes(r), (void)hdo_run_rank(r), (void)hdo_run_config(r);
}

static void open_run(world *w, uint64_t k, bool resume) {
    const hdo_config *c = draw(w, 15) == 0 ? NULL : w->config[draw(w, CONFIGS)];
    hdo_run_free(w->run[k]);
    w->run[k] = NULL;
    if (resume) {
        CALL(w, hdo_run_resume(&w->run[k], draw(w, 9) ? w->dir : NULL, c, &e));
    } else {
        CALL(w, hdo_run_new(draw(w, 30) ? &w->run[k] : NULL, c, &e));
    }
}

static void run_call(world *w) {
    uint64_t k = draw(w, RUNS);
    hdo_run *r = draw(w, 12) == 0 ? NULL : w->run[k];
    hdo_stop why;
    w->inside = r;
    switch (draw(w, 20)) {
    case 0:
    case 1: open_run(w, k, false); break;
    case 2: open_run(w, k, true); break;
    case 3: CALL(w, hdo_run_open_dir(r, draw(w, 9) ? w->dir : NULL, draw(w, 2) == 0, &e)); break;
    case 4: CALL(w, hdo_run_save(r, &e)); break;
    case 5: CALL(w, hdo_run_write_summary(r, &e)); break;
    case 6:
        if (draw(w, 4) == 0) CALL(w, hdo_run_stop(r, &e));
        break;
    case 7:
        CALL(w, hdo_run_on_log(r, draw(w, 3) ? on_log : NULL, w, &e));
        CALL(w, hdo_run_on_row(r, draw(w, 3) ? on_row : NULL, w, &e));
        break;
    case 8:
        w->inside = NULL;
        two_threads(w, r);
        break;
    case 9:
    case 10: ask_and_tell(w, r); break;
    case 11: look(w, r); break;
    default: CALL(w, hdo_run_advance(r, (int64_t)draw(w, 5) - 1, draw(w, 2) ? &why : NULL, &e));
    }
    w->inside = NULL;
}

static void sequence(uint64_t seed, world *total) {
    world w = {.random = seed * 7919};
    char command[128];
    char folder[] = "/tmp/hdo-seq-XXXXXX";
    if (mkdtemp(folder) == NULL) die("cannot be made", folder);
    snprintf(w.dir, sizeof w.dir, "%s/run", folder);
    for (int k = 0; k < CONFIGS; k++) {
        w.config[k] = new_config(&w);
        while (draw(&w, 2) == 0) bring(&w, w.config[k]);
    }
    for (uint64_t k = 0; k < RUNS; k++) open_run(&w, k, false);
    for (int k = 0; k < CALLS; k++) {
        if (draw(&w, 3) == 0) {
            config_call(&w);
        } else {
            run_call(&w);
        }
    }
    for (int k = 0; k < CONFIGS; k++) hdo_config_free(w.config[k]); /* runs keep what they need of them */
    for (int k = 0; k < RUNS; k++) look(&w, w.run[k]);
    for (int k = 0; k < RUNS; k++) hdo_run_free(w.run[k]);
    if (w.destroyed != w.brought) die("a table was not destroyed once", "the end");
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0) die("cannot be removed", folder);
    total->calls += w.calls;
    total->failures += w.failures;
    total->brought += w.brought;
}

int main(int argc, char **argv) {
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 20, first = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    world total = {0};
    for (uint64_t seed = first; seed < first + count; seed++) {
        if (getenv("HDO_SEQUENCES_TALK") != NULL) fprintf(stderr, "seed %" PRIu64 "\n", seed);
        sequence(seed, &total);
    }
    printf("%" PRIu64 " sequences, %d calls, %d refused with a sentence, %d tables brought and destroyed\n", count,
           total.calls, total.failures, total.brought);
    return total.calls > 0 && total.failures > 0 ? 0 : 1;
}
