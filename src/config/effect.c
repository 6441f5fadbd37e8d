/* SPDX-License-Identifier: Apache-2.0 — which settings have an effect, and under which condition.
 *
 * A setting that is typed and then ignored is a wrong result that nobody sees. So every option has one row below:
 * ALWAYS, or the condition under which the run reads it, in a small language that people can read in `hdo config help`
 * too:
 *
 *   condition   alternatives joined by " or ", each of tests joined by " and "
 *   test        KEY = word, word, ... | KEY != word, word, ... | KEY > number | KEY is set | KEY is empty
 *
 * KEY is dotted; in a row of a class a key without a dot is the class's own, if it has one of that name. Words are
 * compared without their number: dirichlet(0.3) is dirichlet.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/own.h"
#include "config/value.h"

#define ALWAYS ""
/* A model or data set of one's own goes by the name `own` here: without data, `own-data` with those of data.name,
 * `own-indices` with data that are its own. */
#define BUILT_IN "model.name != quadratic, own, own-data, own-indices"
#define READS "model.name != quadratic, own, own-indices"
#define DATA READS " and data.name != none or model.name = own-indices"
#define GRAPH "mixing.kind = graph"
#define MPI "engine = mpi"
/* Estimators of one's own: `own` with random directions, `own-plain` without. */
#define RANDOM "estimator != fo, fd-coord, own-plain"

static const struct {
    const char *key, *when; /* of a class: population.KEY */
} effects[] = {
    {"name", ALWAYS},
    {"seed", ALWAYS},
    {"steps", ALWAYS},
    {"warmup", ALWAYS},
    {"threads", ALWAYS},
    {"kernels", BUILT_IN},
    {"engine", ALWAYS},

    {"model.name", ALWAYS},
    {"model.reading", "model.name = logistic, mlp, cnn2, cnn3"},
    {"model.plugin", ALWAYS},
    {"model.options", "model.plugin is set"},
    {"model.trial_s", ALWAYS},
    {"model.identity", "model.plugin is set or model.name = own, own-data, own-indices"},
    {"model.init", BUILT_IN},
    {"model.buffers",
     "model.name = resnet18, custom or model.name = logistic, mlp, cnn2, cnn3 and model.reading = authors"},
    {"model.dropout_mask", "model.name = transformer, custom and model.dropout > 0"},
    {"model.dropout", "model.name = transformer, custom"},
    {"model.input_size", "model.name = resnet18"},
    {"model.resize", "model.name = resnet18"},
    {"model.layers", "model.name = custom"},
    {"model.train",
     "model.name != quadratic, logistic, logistic-l2 or model.name = logistic and model.reading = authors"},
    {"model.weights", ALWAYS},
    {"model.l2", "model.name = logistic-l2"},
    {"model.dim", "model.name = quadratic"},
    {"model.smoothness", "model.name = quadratic"},
    {"model.convexity", "model.name = quadratic"},
    {"model.noise", "model.name = quadratic"},
    {"model.spread", "model.name = quadratic"},
    {"model.start", "model.name = quadratic"},

    {"data.name", READS " or data.name = none"},
    {"data.plugin", READS},
    {"data.options", "data.plugin is set"},
    {"data.identity", "data.plugin is set or " READS " and data.name = own"},
    {"data.path", READS " and data.name != synthetic, none, own"},
    {"data.path_val", READS " and data.name = brackets, csv, libsvm, npy, idx"},
    {"data.label", READS " and data.name = csv"},
    {"data.validation", READS " and data.name = csv, libsvm, npy, idx and data.path_val is empty"},
    {"data.split", DATA},
    {"data.scaling", READS " and data.name = mnist, cifar10, csv, libsvm, npy, idx"},
    {"data.pretext", DATA},
    {"data.augment", READS " and data.name = cifar10"},
    {"data.augment_val", READS " and data.name = cifar10"},
    {"data.law", READS " and data.name = brackets and data.path is empty"},
    {"data.reshuffle", DATA},
    {"data.train", DATA},
    {"data.val", DATA},
    {"data.classes", READS " and data.name = synthetic"},
    {"data.features", READS " and data.name = synthetic"},
    {"data.separation", READS " and data.name = synthetic"},
    {"data.positions", READS " and data.name = brackets"},
    {"data.data_seed", READS " and data.name = synthetic or " READS " and data.name = "
                             "brackets and data.path is empty or " READS " and data.name = csv, libsvm, npy, "
                             "idx and data.path_val is empty"},

    {"mixing.kind", ALWAYS},
    {"mixing.plugin", ALWAYS},
    {"mixing.period", "mixing.kind = matching, allreduce or mixing.kind = graph and mixing.graph_mode != edge"},
    {"mixing.graph", GRAPH},
    {"mixing.graph_mode", GRAPH},
    {"mixing.placement", GRAPH},
    {"mixing.degree", GRAPH " and mixing.graph = small-world"},
    {"mixing.edges", GRAPH " and mixing.graph = file"},
    {"mixing.average", "mixing.kind != none, allreduce"},
    {"mixing.clip", "engine = fleet and mixing.kind != none"},
    {"mixing.partners", "mixing.kind = matching and engine != fleet"},

    {"eval.every", ALWAYS},
    {"eval.mean_model", ALWAYS},
    {"eval.consensus", ALWAYS},
    {"eval.trace", ALWAYS},
    {"eval.weighted", ALWAYS},

    {"checkpoint.every", "mpi.async = false or engine = sim"},
    {"checkpoint.every_s", "mpi.async = false or engine = sim"},
    {"checkpoint.keep", ALWAYS},

    {"stop.loss", ALWAYS},
    {"stop.accuracy", "model.name != quadratic"},
    {"stop.time_s", ALWAYS},
    {"stop.diverged", ALWAYS},

    {"sink.csv", ALWAYS},
    {"sink.plugin", ALWAYS},
    {"sink.tensorboard", ALWAYS},

    {"churn.leave", ALWAYS},
    {"churn.back", "churn.leave > 0"},
    {"churn.model", "churn.leave > 0 or churn.outage is set"},
    {"churn.loss", "mixing.kind != none, allreduce"},
    {"churn.straggle", ALWAYS},
    {"churn.outage", ALWAYS},
    {"churn.outage_from", "churn.outage is set"},
    {"churn.outage_to", "churn.outage is set"},

    {"mpi.roles", MPI},
    {"mpi.deadline_s", MPI},
    {"mpi.chunk", MPI},
    {"mpi.shared", MPI " and mpi.async = false"},
    {"mpi.memory", MPI},
    {"mpi.async", MPI},
    {"mpi.slow", MPI},

    {"fleet.beat_s", "engine = fleet"},
    {"fleet.forget_s", "engine = fleet"},

    {"population.count", ALWAYS},
    {"population.estimator", ALWAYS},
    {"population.plugin", ALWAYS},
    {"population.rv", RANDOM},
    {"population.nu", "estimator = fd, fd-central, fd-coord, fd-law, debiased, complex-step, own, own-plain"},
    {"population.lr", "schedule != file"},
    {"population.batch", ALWAYS},
    {"population.momentum", ALWAYS},
    {"population.momentum_kind", "momentum > 0"},
    {"population.weight_decay", ALWAYS},
    {"population.schedule", ALWAYS},
    {"population.schedule_file", "schedule = file"},
    {"population.directions", RANDOM " and estimator != own"},
    {"population.streams", RANDOM " or estimator = fd-coord and coords > 0"},
    {"population.distribution", RANDOM},
    {"population.forward_s", "estimator != fo, forward, forward-sim, forward-law"},
    {"population.backward_s", "estimator = fo, forward-sim, forward-law, own, own-plain"},
    {"population.jvp_s", "estimator = forward, own, own-plain"},
    {"population.latency_s", "mixing.kind != none"},
    {"population.bandwidth", "mixing.kind != none"},
    {"population.coords", "estimator = fd-coord"},
    {"population.debias_levels", "estimator = debiased"},
    {"population.debias_ratio", "estimator = debiased"},
    {"population.allow_piecewise", "estimator = complex-step"},
};

const char *hdo__option_when(const hdo_section *s, const hdo_option *o) {
    char key[HDO_KEY_MAX];
    snprintf(key, sizeof key, "%s%s%s", s->name, s->name[0] != '\0' ? "." : "", o->key);
    for (size_t i = 0; i < sizeof effects / sizeof *effects; i++)
        if (strcmp(effects[i].key, key) == 0) return effects[i].when;
    return NULL;
}

/* ---- the language ---- */

/* Cuts the text before `mark` (or all of it) off *rest into buf; false when nothing is left. */
static bool next_part(const char **rest, const char *mark, char *buf, size_t cap) {
    if (*rest == NULL) return false;
    const char *end = strstr(*rest, mark);
    size_t n = end != NULL ? (size_t)(end - *rest) : strlen(*rest);
    snprintf(buf, cap, "%.*s", (int)n, *rest);
    *rest = end != NULL ? end + strlen(mark) : NULL;
    return true;
}

/* The slot a test of the given row speaks about; col is -1 if there is none. */
static hdo_slot find(int row, const char *key) {
    const char *dot = strchr(key, '.');
    char section[HDO_KEY_MAX];
    if (dot == NULL) {
        int own = row >= HDO_SECTIONS_MAX ? hdo__option_index(&hdo__class_section, key) : -1;
        return own >= 0 ? (hdo_slot){row, own} : (hdo_slot){0, hdo__option_index(&hdo__sections[0], key)};
    }
    snprintf(section, sizeof section, "%.*s", (int)(dot - key), key);
    int at = hdo__section_index(section);
    return at > 0 ? (hdo_slot){at, hdo__option_index(&hdo__sections[at], dot + 1)} : (hdo_slot){0, -1};
}

static bool among(const char *words, const char *value) {
    char word[HDO_KEY_MAX];
    size_t len = strcspn(value, "(");
    while (next_part(&words, ", ", word, sizeof word))
        if (strlen(word) == len && strncmp(word, value, len) == 0) return true;
    return false;
}

/* The value as tests see it: the names of tables of one's own are any. */
static void format_for_test(const hdo_config *c, hdo_slot s, char *buf, size_t cap) {
    const char *key = hdo__slot_option(s)->key, *section = hdo__row_section(s.row)->name;
    bool name = strcmp(key, "name") == 0, model = name && strcmp(section, "model") == 0;
    const hdo_table_def *t = model ? hdo__own_find(c->own, HDO_OWN_OBJECTIVE, c->model.name) : NULL;
    bool data = name && strcmp(section, "data") == 0;
    const hdo_table_def *set = data ? hdo__own_find(c->own, HDO_OWN_DATASET, c->data.name) : NULL;
    const char *plugin = model ? c->model.plugin : data ? c->data.plugin : "";
    if (t == NULL && set == NULL && plugin[0] != '\0') {
        snprintf(buf, cap, "plugin"); /* what it needs is not known before it is loaded: all is allowed */
    } else if (t != NULL) {
        const hdo_objective_def *d = &t->def.objective;
        bool wants = (d->flags & (unsigned)(HDO_WANT_DATA | HDO_WANT_INDICES)) != 0;
        snprintf(buf, cap, "%s", !wants ? "own" : d->train_count > 0 ? "own-indices" : "own-data");
    } else if (set != NULL) {
        snprintf(buf, cap, "own");
    } else if (strcmp(key, "estimator") == 0 &&
               (t = hdo__own_find(c->own, HDO_OWN_ESTIMATOR, hdo__slot_value(c, s))) != NULL) {
        snprintf(buf, cap, t->def.estimator.uses_directions != 0 ? "own" : "own-plain");
    } else if (strcmp(key, "estimator") == 0 && s.row >= HDO_SECTIONS_MAX &&
               c->population[s.row - HDO_SECTIONS_MAX].plugin[0] != '\0') {
        snprintf(buf, cap, "own"); /* not loaded yet */
    } else {
        hdo__value_format(hdo__slot_option(s), hdo__slot_value(c, s), buf, cap);
    }
}

/* Does the test hold? Its slot goes to *s; one that cannot be read has col -1. */
static bool holds(const hdo_config *c, int row, const char *test, hdo_slot *s) {
    char key[HDO_KEY_MAX], value[HDO_VALUE_MAX];
    double v = 0.0, bound = 0.0;
    size_t n = strcspn(test, " ");
    snprintf(key, sizeof key, "%.*s", (int)n, test);
    const char *op = test[n] != '\0' ? test + n + 1 : "";
    *s = find(row, key);
    if (s->col < 0) return false;
    format_for_test(c, *s, value, sizeof value);
    if (strncmp(op, "= ", 2) == 0) return among(op + 2, value);
    if (strncmp(op, "!= ", 3) == 0) return !among(op + 3, value);
    if (strcmp(op, "is set") == 0) return value[0] != '\0';
    if (strcmp(op, "is empty") == 0) return value[0] == '\0';
    if (strncmp(op, "> ", 2) == 0 && hdo__real_parse(op + 2, &bound)) return hdo__real_parse(value, &v) && v > bound;
    s->col = -1;
    return false;
}

bool hdo__slot_idle(const hdo_config *c, hdo_slot s, hdo_slot *cause) {
    const char *rest = hdo__option_when(hdo__row_section(s.row), hdo__slot_option(s));
    char alternative[512], test[256];
    bool first = true;
    if (rest == NULL || rest[0] == '\0') return false;
    while (next_part(&rest, " or ", alternative, sizeof alternative)) {
        const char *tests = alternative;
        bool all = true;
        while (all && next_part(&tests, " and ", test, sizeof test)) {
            hdo_slot about;
            all = holds(c, s.row, test, &about);
            if (!all && first) *cause = about;
        }
        if (all) return false;
        first = false;
    }
    return true;
}

/* ---- configurations ---- */

static void slot_name(const hdo_config *c, hdo_slot s, char *buf, size_t cap) {
    char prefix[HDO_KEY_MAX];
    hdo__row_prefix(c, s.row, prefix, sizeof prefix);
    snprintf(buf, cap, "%s%s", prefix, hdo__slot_option(s)->key);
}

static size_t value_bytes(const hdo_option *o) {
    switch (o->type) {
    case HDO_OPT_BOOL: return sizeof(bool);
    case HDO_OPT_INT: return sizeof(int64_t);
    case HDO_OPT_REAL: return sizeof(double);
    case HDO_OPT_TEXT: return o->cap;
    case HDO_OPT_CHOICE: break;
    }
    return sizeof(hdo_choice);
}

/* The defaults, with the classes of c. */
static void defaults_for(const hdo_config *c, hdo_config *d) {
    hdo_config_default(d);
    d->n_classes = c->n_classes;
    for (int k = 0; k < c->n_classes; k++) hdo__class_default(&d->population[k], c->population[k].name);
}

/* Calls f for every value of c that has no effect. */
static hdo_status each_idle(const hdo_config *c, hdo_status (*f)(void *ctx, hdo_slot s, hdo_slot cause), void *ctx) {
    hdo_status st = HDO_OK;
    for (int row = 0; row < HDO_SECTIONS_MAX + c->n_classes && st == HDO_OK; row++) {
        if (row >= hdo__n_sections && row < HDO_SECTIONS_MAX) continue;
        for (hdo_slot s = {row, 0}; hdo__slot_option(s)->key != NULL && st == HDO_OK; s.col++) {
            hdo_slot cause;
            if (hdo__slot_idle(c, s, &cause)) st = f(ctx, s, cause);
        }
    }
    return st;
}

typedef struct idle_ctx {
    const hdo_config *c;
    hdo_config *defaults, *out;
    hdo_error *e;
} idle_ctx;

static hdo_status to_default(void *p, hdo_slot s, hdo_slot cause) {
    idle_ctx *x = p;
    (void)cause;
    memcpy(hdo__slot_place(x->out, s), hdo__slot_value(x->defaults, s), value_bytes(hdo__slot_option(s)));
    return HDO_OK;
}

bool hdo__config_rest(const hdo_config *c, hdo_config *out) {
    hdo_config *d = malloc(sizeof *d);
    if (d == NULL) return false;
    defaults_for(c, d);
    *out = *c;
    idle_ctx x = {.c = c, .defaults = d, .out = out};
    each_idle(c, to_default, &x);
    free(d);
    return true;
}

/* Idle, and somebody meant it: typed on the command line, or in a file that says something else than the default (a
 * complete file, such as that of a stored run, holds every key). What a preset says, or what a later word (a --set over
 * a file) put out of use, is no mistake. */
static hdo_status refuse(void *p, hdo_slot s, hdo_slot cause) {
    idle_ctx *x = p;
    const hdo_config *c = x->c;
    const hdo_option *o = hdo__slot_option(s);
    hdo_source from = (hdo_source)c->origin[s.row][s.col].source;
    char key[HDO_KEY_MAX], other[HDO_KEY_MAX], value[HDO_VALUE_MAX], usual[HDO_VALUE_MAX], why[HDO_VALUE_MAX];
    char where[HDO_PATH_MAX + 32], shown[HDO_SHOWN_MAX], shown_why[HDO_SHOWN_MAX];
    if (from <= HDO_FROM_BASE || from < (hdo_source)c->origin[cause.row][cause.col].source) return HDO_OK;
    hdo__value_format(o, hdo__slot_value(c, s), value, sizeof value);
    hdo__value_format(o, hdo__slot_value(x->defaults, s), usual, sizeof usual);
    if (from == HDO_FROM_FILE && strcmp(value, usual) == 0) return HDO_OK;
    slot_name(c, s, key, sizeof key);
    slot_name(c, cause, other, sizeof other);
    hdo__value_format(hdo__slot_option(cause), hdo__slot_value(c, cause), why, sizeof why);
    hdo__config_where(c, key, where, sizeof where);
    return hdo__fail(x->e, HDO_E_CONFIG,
                     "%s%s is '%s', but has no effect while %s is '%s': it needs %s. Set that, or leave %s out", where,
                     key, hdo__shown(value, shown), other, hdo__shown(why, shown_why),
                     hdo__option_when(hdo__row_section(s.row), o), key);
}

hdo_status hdo__config_effect_check(const hdo_config *c, hdo_error *e) {
    hdo_config *d = malloc(sizeof *d);
    if (d == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory");
    defaults_for(c, d);
    idle_ctx x = {.c = c, .defaults = d, .e = e};
    hdo_status st = each_idle(c, refuse, &x);
    free(d);
    return st;
}

void hdo_config_as_base(hdo_config *c) {
    for (int row = 0; row < HDO_SECTIONS_MAX + HDO_CLASSES_MAX; row++)
        for (int col = 0; col < HDO_OPTIONS_MAX; col++)
            if (c->origin[row][col].source > HDO_FROM_BASE) c->origin[row][col].source = HDO_FROM_BASE;
}
