/* SPDX-License-Identifier: Apache-2.0 — which changes of estimators, models and data a stored run is older than. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hdo/experimental/file.h"
#include "hdo/experimental/config.h"
#include "hdo/lab/verify.h"

static json_t *read_json(const char *dir, const char *name) {
    char path[HDO_PATH_MAX + 64];
    return hdo__path_join(path, sizeof path, dir, name) ? json_load_file(path, 0, NULL) : NULL;
}

static int stored_number(const json_t *o, const hdo_revision *r) {
    const json_t *v = json_object_get(json_object_get(json_object_get(o, "revisions"), r->kind), r->name);
    return json_is_integer(v) ? (int)json_integer_value(v) : 1;
}

static bool setting_is(const hdo_config *c, const char *prefix, const char *when) {
    char key[160], value[256];
    const char *eq = strchr(when, '=');
    if (eq == NULL) return false;
    snprintf(key, sizeof key, "%s%.*s", prefix, (int)(eq - when), when);
    return hdo_config_get(c, key, value, sizeof value, NULL) == HDO_OK && strcmp(value, eq + 1) == 0;
}

/* Does the run use the thing, in the way that changed? */
static bool concerns(const hdo_revision *r, const hdo_config *c, const char *outcome) {
    static const char by_outcome[] = "outcome=";
    bool always = r->when == NULL;
    if (!always && strncmp(r->when, by_outcome, sizeof by_outcome - 1) == 0) {
        if (outcome == NULL || strcmp(outcome, r->when + sizeof by_outcome - 1) != 0) return false;
        always = true;
    }
    if (strcmp(r->kind, "model") == 0)
        return strcmp(c->model.name, r->name) == 0 && (always || setting_is(c, "", r->when));
    if (strcmp(r->kind, "data") == 0)
        return strcmp(c->data.name, r->name) == 0 && (always || setting_is(c, "", r->when));
    for (int k = 0; k < c->n_classes; k++) {
        char prefix[HDO_NAME_MAX + 16];
        if (c->population[k].count == 0 || strcmp(c->population[k].estimator, r->name) != 0) continue;
        snprintf(prefix, sizeof prefix, "population.%s.", c->population[k].name);
        if (always || setting_is(c, prefix, r->when)) return true;
    }
    return false;
}

int hdo_run_changes(const char *dir, const hdo_revision **out, int cap) {
    char path[HDO_PATH_MAX + 64];
    hdo_config *c = malloc(sizeof *c);
    int n = 0;
    if (c == NULL) return 0;
    hdo_config_default(c);
    if (!hdo__path_join(path, sizeof path, dir, "config.yaml") || hdo_config_load(c, path, NULL) != HDO_OK) {
        free(c);
        return 0;
    }
    /* A run that was begun before a change and ended after it is of both. */
    json_t *begun = read_json(dir, "manifest.json"), *ended = read_json(dir, "summary.json");
    const char *outcome = json_string_value(json_object_get(ended, "outcome"));
    for (int i = 0; hdo_revision_at(i) != NULL; i++) {
        const hdo_revision *r = hdo_revision_at(i);
        bool old = stored_number(begun, r) < r->number || (ended != NULL && stored_number(ended, r) < r->number);
        if (!old || !concerns(r, c, outcome)) continue;
        if (n < cap) out[n] = r;
        n++;
    }
    json_decref(begun);
    json_decref(ended);
    free(c);
    return n;
}
