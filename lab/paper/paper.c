/* SPDX-License-Identifier: Apache-2.0
 *
 * From the table of experiments to configurations and folders.
 *
 *   ROOT/e2-text/24fo+256zo/seed-0/      a run
 *   ROOT/e2-text/figures/, claims.md     what was made of them
 *   ROOT/e2-text-quick/                  the same in short, never mixed with the full one
 *
 * A folder's run counts as done only if its stored configuration is the one it should have (threads apart) and nothing
 * it uses has changed since.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hdo/experimental/file.h"
#include "hdo/experimental/fail.h"
#include "hdo/experimental/all.h"
#include "hdo/lab/paper.h"
#include "hdo/lab/verify.h"
#include "run/run_internal.h"
#include "lab/paper/paper_internal.h"

/* Long runs save themselves now and then, so that an interrupted one loses little. */
static const char *const always[] = {"checkpoint.every_s=60", "checkpoint.keep=1", NULL};

static hdo_status set_one(hdo_config *c, const char *key, const char *value, hdo_error *e) {
    return hdo_config_set_from(c, key, value, HDO_FROM_BASE, e);
}

/* "zo.lr=0.1" and "*.lr=0.1" concern classes the experiment may not have: then they concern nobody. */
static hdo_status apply(hdo_config *c, const char *set, hdo_error *e) {
    char key[96], full[160];
    const char *eq = strchr(set, '=');
    if (eq == NULL || (size_t)(eq - set) >= sizeof key) return hdo__fail(e, HDO_E_CONFIG, "'%s' is not key=value", set);
    snprintf(key, sizeof key, "%.*s", (int)(eq - set), set);
    const char *dot = strchr(key, '.');
    bool all = key[0] == '*', some = false;
    if (dot == NULL) return set_one(c, key, eq + 1, e);
    hdo_status st = HDO_OK;
    for (int k = 0; k < c->n_classes && st == HDO_OK; k++) {
        const char *name = c->population[k].name;
        bool named = strlen(name) == (size_t)(dot - key) && strncmp(key, name, (size_t)(dot - key)) == 0;
        if (!all && !named) continue;
        some = true;
        snprintf(full, sizeof full, "population.%s%s", name, dot);
        st = set_one(c, full, eq + 1, e);
    }
    bool class_key = all || strncmp(key, "fo.", 3) == 0 || strncmp(key, "zo.", 3) == 0;
    return st != HDO_OK || some || class_key ? st : set_one(c, key, eq + 1, e);
}

static hdo_status apply_all(hdo_config *c, const char *const *set, int cap, hdo_error *e) {
    hdo_status st = HDO_OK;
    for (int i = 0; i < cap && set[i] != NULL && st == HDO_OK; i++) st = apply(c, set[i], e);
    return st;
}

/* `balanced` needs a class to balance against; a population without one keeps the table's numbers. */
static void restore_rates(hdo_config *c, const hdo_config *before) {
    bool number = false;
    for (int k = 0; k < c->n_classes; k++) number = number || c->population[k].lr.id != HDO_LR_BALANCED;
    for (int k = 0; k < c->n_classes && !number; k++) {
        for (int i = 0; i < before->n_classes; i++) {
            if (strcmp(before->population[i].name, c->population[k].name) == 0)
                c->population[k].lr = before->population[i].lr;
        }
    }
}

/* In the authors' code a difference perturbs all tensors together with one vector; only the simulated forward mode goes
 * tensor by tensor, and that is what their presets say. */
static void join_tensors(const hdo_paper_reading *reading, hdo_config *c) {
    for (int k = 0; k < c->n_classes && strcmp(reading->suffix, "-authors") == 0; k++) {
        if (strcmp(c->population[k].estimator, "fd") == 0) c->population[k].directions.id = HDO_DIRECTIONS_WHOLE;
    }
}

static hdo_status load_preset(hdo_config *c, const char *preset, hdo_error *e) {
    const char *yaml = hdo_preset(preset);
    if (yaml == NULL) return hdo__fail(e, HDO_E_CONFIG, "there is no preset '%s'", preset);
    hdo_config_default(c);
    hdo_status st = hdo_config_load_bytes(c, preset, yaml, strlen(yaml), e);
    hdo_config_as_base(c);
    return st == HDO_OK ? apply_all(c, always, 2, e) : st;
}

hdo_status hdo_paper_start_config(const hdo_paper_case *k, hdo_config *c, hdo_error *e) {
    hdo_status st = load_preset(c, k->reading->start, e);
    return st == HDO_OK && k->quick ? apply_all(c, k->x->quick, HDO_PAPER_SETS, e) : st;
}

bool hdo_paper_start_dir(const hdo_paper_case *k, char *buf, size_t cap) {
    int len = snprintf(buf, cap, "%s/%s%s", k->root, k->reading->start, k->quick ? "-quick" : "");
    return len > 0 && (size_t)len < cap;
}

hdo_status hdo_paper_config(const hdo_paper_case *k, int variant, int64_t seed, hdo_config *c, hdo_error *e) {
    const hdo_paper_variant *v = &k->x->variant[variant];
    char preset[HDO_NAME_MAX], text[32];
    snprintf(preset, sizeof preset, "%s%s", k->x->id, k->reading->suffix);
    hdo_status st = load_preset(c, preset, e);
    hdo_config *before = malloc(sizeof *before);
    if (before == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory");
    *before = *c;
    if (st == HDO_OK) st = apply_all(c, k->reading->set, HDO_PAPER_SETS, e);
    if (st == HDO_OK) st = apply_all(c, v->set, HDO_PAPER_SETS, e);
    if (st == HDO_OK && k->quick) st = apply_all(c, k->x->quick, HDO_PAPER_SETS, e);
    if (st == HDO_OK && k->weights != NULL) st = set_one(c, "model.weights", k->weights, e);
    if (st == HDO_OK) st = hdo_config_population(c, v->population, e);
    if (st == HDO_OK) {
        restore_rates(c, before);
        join_tensors(k->reading, c);
    }
    free(before);
    snprintf(text, sizeof text, "%lld", (long long)seed);
    if (st == HDO_OK) st = set_one(c, "seed", text, e);
    return st;
}

bool hdo_paper_dir(const hdo_paper_case *k, int variant, int64_t seed, char *buf, size_t cap) {
    int len = snprintf(buf, cap, "%s/%s-%s%s", k->root, k->x->id, k->reading->name, k->quick ? "-quick" : "");
    if (variant >= 0 && len > 0 && (size_t)len < cap) {
        char *from = buf + len;
        len += snprintf(buf + len, cap - (size_t)len, "/%s", k->x->variant[variant].label);
        for (char *p = from; *p != '\0'; p++) *p = *p == ' ' ? '-' : *p;
    }
    if (variant >= 0 && seed >= 0 && len > 0 && (size_t)len < cap) {
        len += snprintf(buf + len, cap - (size_t)len, "/seed-%lld", (long long)seed);
    }
    return len > 0 && (size_t)len < cap;
}

/* Forward passes over a sample, as docs/metrics.md counts them; but laws (fd-law, forward-law), which draw the result
 * of all vectors at once, make one gradient here whatever rv. */
static double passes(const hdo_class_config *p) {
    static const struct {
        const char *name;
        double each, more; /* passes a vector, and besides */
    } kind[] = {{"fd", 1, 1},      {"fd-central", 2, 0},  {"debiased", 2, 1},
                {"forward", 2, 0}, {"forward-sim", 2, 0}, {"complex-step", 4, 1}};
    for (size_t k = 0; k < sizeof kind / sizeof kind[0]; k++)
        if (strcmp(p->estimator, kind[k].name) == 0) return kind[k].each * (double)p->rv + kind[k].more;
    return 3.0;
}

double hdo_paper_cost(const hdo_config *c) {
    double cost = 0.0, nodes = 0.0;
    for (int k = 0; k < c->n_classes; k++) {
        const hdo_class_config *p = &c->population[k];
        cost += (double)p->count * (double)p->batch * passes(p);
        nodes += (double)p->count;
    }
    double samples = c->data.val > 0 ? (double)c->data.val : 10000.0;
    double every = c->eval.every > 0 ? (double)c->eval.every : (double)(c->steps + 1);
    return (double)(c->steps + c->warmup) * (cost + nodes * samples / every);
}

bool hdo__same_settings(const hdo_config *a, const hdo_config *b) {
    hdo_config *c = malloc(2 * sizeof *c);
    if (c == NULL) return false;
    c[0] = *a;
    c[1] = *b;
    c[0].threads = c[1].threads = 0;
    char *text_a = hdo_config_dump(&c[0], false), *text_b = hdo_config_dump(&c[1], false);
    bool same = text_a != NULL && text_b != NULL && strcmp(text_a, text_b) == 0;
    free(text_a);
    free(text_b);
    free(c);
    return same;
}

hdo_stored hdo_run_stored(const char *dir, const hdo_config *want) {
    char path[HDO_PATH_MAX + 64];
    if (!hdo__path_join(path, sizeof path, dir, "config.yaml") || !hdo__path_exists(path)) return HDO_STORED_NOTHING;
    hdo_config *c = malloc(sizeof *c);
    if (c == NULL) return HDO_STORED_PART;
    hdo_status st = hdo__stored_config_load(dir, c, NULL, 0, NULL);
    if (st != HDO_OK && !hdo__stored_config_sealed(dir)) { /* of an older version: taken as it is */
        hdo_config_default(c);
        st = hdo_config_load(c, path, NULL);
    }
    bool same = st == HDO_OK && hdo__same_settings(c, want);
    free(c);
    if (st != HDO_OK) return HDO_STORED_PART; /* damage is no reason to replace a run: resuming says what is wrong */
    if (!same || hdo_run_changes(dir, NULL, 0) > 0) return HDO_STORED_OTHER;
    if (!hdo__path_join(path, sizeof path, dir, "summary.json")) return HDO_STORED_OTHER;
    json_t *o = json_load_file(path, 0, NULL);
    const char *outcome = json_string_value(json_object_get(o, "outcome"));
    bool done = outcome != NULL && strcmp(outcome, "stopped") != 0;
    json_decref(o);
    return done ? HDO_STORED_DONE : HDO_STORED_PART;
}
