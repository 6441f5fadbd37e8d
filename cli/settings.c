/* SPDX-License-Identifier: Apache-2.0 — the configuration a command works on: sources, environment, options, data. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"

/* HDO_CONFIG names a file read before the run's own; HDO_NUM_THREADS sets threads. */
static hdo_status apply_environment(hdo_config *c, hdo_error *e) {
    const char *threads = getenv("HDO_NUM_THREADS");
    if (threads == NULL || threads[0] == '\0') threads = getenv("OMP_NUM_THREADS");
    if (threads != NULL && threads[0] != '\0') return hdo_config_set_from(c, "threads", threads, HDO_FROM_ENV, e);
    return HDO_OK;
}

static hdo_status load_source(hdo_config *c, const char *source, hdo_error *e) {
    bool name = strcmp(source, "-") != 0 && strchr(source, '/') == NULL;
    const char *text = name ? hdo_preset(source) : NULL, *near = name ? cli_nearest_preset(source) : NULL;
    struct stat info;
    bool there = stat(source, &info) == 0, file = there && !S_ISDIR(info.st_mode);
    if (text == NULL || file) { /* a folder of that name does not hide a preset */
        hdo_status st = hdo_config_load(c, source, e);
        size_t len = strlen(e->msg);
        if (st != HDO_OK && !there && near != NULL)
            snprintf(e->msg + len, sizeof e->msg - len, "; did you mean the preset '%s'?", near);
        return st;
    }
    hdo_status st = hdo_config_load_bytes(c, source, text, strlen(text), e);
    hdo_config_as_base(c);
    return st;
}

hdo_status cli_apply_sets(hdo_config *c, const cli_list *set, hdo_error *e) {
    hdo_status st = HDO_OK;
    for (int i = 0; i < set->n && st == HDO_OK; i++) {
        char key[256];
        const char *text = set->item[i], *eq = strchr(text, '=');
        if (eq == NULL || eq == text || (size_t)(eq - text) >= sizeof key) {
            e->code = HDO_E_CONFIG;
            snprintf(e->msg, sizeof e->msg,
                     "--set takes key=value, for example --set population.zo.rv=64; got '%.200s'", text);
            return HDO_E_CONFIG;
        }
        memcpy(key, text, (size_t)(eq - text));
        key[eq - text] = '\0';
        st = hdo_config_set_from(c, key, eq + 1, HDO_FROM_FLAG, e);
    }
    return st;
}

/* --allow-piecewise: population.NAME.allow_piecewise=true for every class whose estimator is complex-step. */
static hdo_status allow_piecewise(hdo_config *c, hdo_error *e) {
    hdo_status st = HDO_OK;
    for (int k = 0; k < c->n_classes && st == HDO_OK; k++) {
        char key[HDO_NAME_MAX + 32];
        if (strcmp(c->population[k].estimator, "complex-step") != 0) continue;
        snprintf(key, sizeof key, "population.%s.allow_piecewise", c->population[k].name);
        st = hdo_config_set_from(c, key, "true", HDO_FROM_FLAG, e);
    }
    return st;
}

static hdo_status apply_threads(hdo_config *c, int64_t threads, hdo_error *e) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)threads);
    return hdo_config_set_from(c, "threads", text, HDO_FROM_FLAG, e);
}

hdo_status cli_config(hdo_config *c, const char *source, const cli_common *o, hdo_error *e) {
    hdo_config_default(c);
    const char *user = getenv("HDO_CONFIG");
    hdo_status st = HDO_OK;
    if (user != NULL && user[0] != '\0') st = hdo_config_load(c, user, e);
    hdo_config_as_base(c); /* a user's own defaults are for all runs, whatever a run makes of them */
    if (st == HDO_OK && source != NULL) st = load_source(c, source, e);
    if (st == HDO_OK) st = apply_environment(c, e);
    if (st == HDO_OK && o->population != NULL) st = hdo_config_population(c, o->population, e);
    if (st == HDO_OK) st = cli_apply_sets(c, &o->set, e);
    if (st == HDO_OK && o->threads > 0) st = apply_threads(c, o->threads, e);
    if (st == HDO_OK && o->piecewise) st = allow_piecewise(c, e);
    return st == HDO_OK ? hdo_config_resolve(c, e) : st;
}

int cli_with_config(const char *source, const cli_common *o, cli_work *work, void *ctx) {
    hdo_error e = {HDO_E_MEMORY, "out of memory"};
    hdo_config *c = malloc(sizeof *c);
    int code = c != NULL && cli_config(c, source, o, &e) == HDO_OK ? work(ctx, c) : cli_fail(&e);
    if (c != NULL) hdo_config_let_go(c);
    free(c);
    return code;
}

hdo_status cli_fetch_data(const hdo_config *c, hdo_error *e) {
    hdo_data_info info;
    if (c->data.plugin[0] != '\0') return HDO_OK;
    hdo_status st = hdo_data_find(c->data.name, &info, e);
    if (st != HDO_OK || (info.state != HDO_DATA_ABSENT && info.state != HDO_DATA_DAMAGED)) return st;
    return hdo_data_get(c->data.name, NULL, NULL, e);
}
