/* SPDX-License-Identifier: Apache-2.0
 *
 * Does a configuration make sense as a whole? Single values were range-checked when they were set; here are the names
 * that only the registries know and the rules that span several keys. Every sentence starts with where the value at
 * fault was set, if it was.
 */
#include <stdio.h>
#include <string.h>

#include "config/names.h"
#include "config/options.h"
#include "config/own.h"

#define STEPS_LIMIT INT64_C(0xF0000000) /* a step is 32 bits of an address; the top sixteenth is for measurements */

static hdo_status check_name(const hdo_config *c, const char *kind, const char *key, const char *value, hdo_error *e) {
    const char *const *names = hdo_names(kind);
    if (strcmp(kind, "estimator") == 0 && hdo__own_find(c->own, HDO_OWN_ESTIMATOR, value) != NULL) return HDO_OK;
    if (strcmp(kind, "mixing") == 0 && hdo__own_find(c->own, HDO_OWN_MIXING, value) != NULL) return HDO_OK;
    char all[HDO_MSG_MAX / 2] = "";
    for (int i = 0; names[i] != NULL; i++) {
        if (strcmp(names[i], value) == 0) return HDO_OK;
        size_t len = strlen(all);
        snprintf(all + len, sizeof all - len, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    char where[HDO_PATH_MAX + 32];
    hdo__config_where(c, key, where, sizeof where);
    const char *near = hdo__suggest(value, names);
    return hdo__fail(e, HDO_E_CONFIG, "%s%s is '%s', but must be one of: %s%s%s%s", where, key, value, all,
                     near != NULL ? ". Did you mean '" : "", near != NULL ? near : "", near != NULL ? "'?" : "");
}

static hdo_status check_class(const hdo_config *c, const hdo_class_config *k, hdo_error *e) {
    char key[3 * HDO_NAME_MAX], where[HDO_PATH_MAX + 32];
    snprintf(key, sizeof key, "population.%s.estimator", k->name);
    hdo_status st = k->plugin[0] != '\0' ? HDO_OK : check_name(c, "estimator", key, k->estimator, e);
    if (st != HDO_OK) return st;
    if (k->lr.id == HDO_NUMBER && !(k->lr.arg > 0.0)) {
        snprintf(key, sizeof key, "population.%s.lr", k->name);
        hdo__config_where(c, key, where, sizeof where);
        return hdo__fail(e, HDO_E_CONFIG, "%s%s is %g, but a learning rate must be positive", where, key, k->lr.arg);
    }
    if (k->schedule.id == HDO_SCHEDULE_FILE && k->schedule_file[0] == '\0') {
        return hdo__fail(e, HDO_E_CONFIG, "population.%s.schedule is 'file', but schedule_file is empty", k->name);
    }
    return HDO_OK;
}

static hdo_status check_model(const hdo_model_config *m, hdo_error *e) {
    if (m->resize > 0 && strcmp(m->name, "resnet18") != 0) {
        return hdo__fail(e, HDO_E_CONFIG, "model.resize is for resnet18, but model.name is '%s'", m->name);
    }
    if (m->resize > 0 && m->resize < m->input_size) {
        return hdo__fail(e, HDO_E_CONFIG,
                         "model.resize is %lld, but its centre of model.input_size (%lld) is to be kept",
                         (long long)m->resize, (long long)m->input_size);
    }
    return HDO_OK;
}

/* With shared streams all nodes have one S = (1/rv) sum_r u_r u_r', and G_i = S g_i. An estimator that is exact in law
 * has no vectors to share: every G_i would have its law, but not together. One node alone has nobody to agree with. */
static hdo_status check_streams(const hdo_config *c, hdo_error *e) {
    int64_t sharing = 0;
    const hdo_class_config *law = NULL;
    for (int k = 0; k < c->n_classes; k++) {
        const hdo_class_config *p = &c->population[k];
        const hdo_estimator_name *est = hdo__estimator_named(p->estimator);
        if (est == NULL || !est->zeroth || p->streams.id != HDO_STREAMS_SHARED || p->count == 0) continue;
        sharing += p->count;
        if (est->vectors != NULL && law == NULL) law = p;
    }
    if (law == NULL || sharing < 2) return HDO_OK;
    char key[3 * HDO_NAME_MAX], where[HDO_PATH_MAX + 32];
    snprintf(key, sizeof key, "population.%s.streams", law->name);
    hdo__config_where(c, key, where, sizeof where);
    return hdo__fail(
        e, HDO_E_CONFIG,
        "%s%s is 'shared' for %lld nodes in all, but population.%s.estimator is '%s', which draws no vectors "
        "that nodes could share; use estimator %s, or streams: independent",
        where, key, (long long)sharing, law->name, law->estimator, hdo__estimator_named(law->estimator)->vectors);
}

/* Rules about the run as a whole. */
static hdo_status check_run(const hdo_config *c, hdo_error *e) {
    bool own = false, balanced = false;
    for (int k = 0; k < c->n_classes; k++) {
        own = own || (c->population[k].lr.id != HDO_LR_BALANCED && c->population[k].lr.id != HDO_LR_AUTO);
        balanced = balanced || c->population[k].lr.id == HDO_LR_BALANCED;
    }
    if (balanced && !own) {
        return hdo__fail(e, HDO_E_CONFIG,
                         "every class has lr: balanced; at least one needs a number to balance against");
    }
    if (strchr(c->name, '/') != NULL || strcmp(c->name, "..") == 0 || strcmp(c->name, ".") == 0 || c->name[0] == '\0') {
        return hdo__fail(e, HDO_E_CONFIG, "name is '%s', but must be usable as the name of a folder", c->name);
    }
    if (c->churn.outage[0] != '\0' && c->churn.outage_to <= c->churn.outage_from) {
        return hdo__fail(e, HDO_E_CONFIG, "churn.outage_to (%lld) must be after churn.outage_from (%lld)",
                         (long long)c->churn.outage_to, (long long)c->churn.outage_from);
    }
    return HDO_OK;
}

/* A model or data set of one's own, or of the library. */
static hdo_status check_own(const hdo_config *c, hdo_own_kind kind, const char *name, const char *identity,
                            hdo_error *e) {
    bool model = kind == HDO_OWN_OBJECTIVE;
    const hdo_table_def *t = hdo__own_find(c->own, kind, name);
    const char *what = hdo__own_kinds[kind], *key = model ? "model.name" : "data.name";
    const char *plugin = model ? c->model.plugin : c->data.plugin;
    if (t == NULL && plugin[0] != '\0') return HDO_OK; /* it says its name when it is loaded */
    if (t == NULL && identity[0] != '\0')
        return hdo__fail(e, HDO_E_CONFIG,
                         "%s is '%s', an %s of a program of its own (identity '%.200s'), which is not here: only a "
                         "program that brings it (hdo_config_use_%s, hdo_run_resume) can use it",
                         key, name, what, identity, model ? "objective" : "dataset");
    if (t == NULL) return check_name(c, model ? "model" : "data", key, name, e);
    if (identity[0] != '\0' && strcmp(identity, t->identity) != 0)
        return hdo__fail(e, HDO_E_CONFIG,
                         "%s '%s' has identity '%.200s', but '%.200s' is asked for: results of the two do not go "
                         "together. Bring the one it was made with, or start a new run",
                         what, name, t->identity, identity);
    return HDO_OK;
}

hdo_status hdo_config_check(const hdo_config *c, hdo_error *e) {
    if (c == NULL) return hdo__misuse(e, "hdo_config_check", "a configuration");
    hdo_status st = check_own(c, HDO_OWN_OBJECTIVE, c->model.name, c->model.identity, e);
    if (st == HDO_OK) st = check_own(c, HDO_OWN_DATASET, c->data.name, c->data.identity, e);
    if (st == HDO_OK && c->mixing.plugin[0] == '\0') st = check_name(c, "mixing", "mixing.kind", c->mixing.kind, e);
    int64_t n = 0;
    for (int k = 0; k < c->n_classes && st == HDO_OK; k++) {
        n += c->population[k].count;
        st = check_class(c, &c->population[k], e);
    }
    if (st != HDO_OK) return st;
    if (n < 1) {
        return hdo__fail(e, HDO_E_CONFIG,
                         "the population is empty: give at least one class a count of 1 or more, for example "
                         "--population 4fo+28zo");
    }
    if (n >= INT64_C(1) << 24) {
        return hdo__fail(e, HDO_E_CONFIG, "the population has %lld nodes, but at most %d can be addressed",
                         (long long)n, (1 << 24) - 1);
    }
    if (c->steps + c->warmup >= STEPS_LIMIT) {
        return hdo__fail(e, HDO_E_CONFIG, "steps + warmup is %lld, but must be below %lld",
                         (long long)(c->steps + c->warmup), (long long)STEPS_LIMIT);
    }
    st = check_model(&c->model, e);
    if (st == HDO_OK) st = check_streams(c, e);
    if (st == HDO_OK) st = check_run(c, e);
    return st == HDO_OK ? hdo__config_effect_check(c, e) : st;
}
