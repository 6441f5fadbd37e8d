/* SPDX-License-Identifier: Apache-2.0 — plug-ins: loaded, checked, and their tables brought into a configuration. */
#define _XOPEN_SOURCE 700 /* realpath */
#include "plugin/plugin.h"

#include <dlfcn.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/value.h"
#include "hdo/hdo.h"

/* ---- one plug-in ---- */

void hdo__plugin_drop(void *use) {
    hdo_plugin_use *u = use;
    if (u == NULL || atomic_fetch_sub(&u->refs, 1) > 1) return;
    if (u->plugin != NULL && u->plugin->destroy != NULL) u->plugin->destroy(u->parts.user);
    if (u->so != NULL) dlclose(u->so);
    free(u);
}

static hdo_status check_head(const char *path, const hdo_plugin *p, hdo_error *e) {
    const size_t least = offsetof(hdo_plugin, create);
    if (p == NULL)
        return hdo__fail(e, HDO_E_UNSUPPORTED, "plug-in '%s': %s returned NULL instead of its table", path,
                         HDO_PLUGIN_SYMBOL);
    if (p->struct_size >= sizeof(size_t) + sizeof(int) && p->abi != HDO_ABI)
        return hdo__fail(e, HDO_E_UNSUPPORTED,
                         "plug-in '%s' was built for ABI %d of hdo, but this is ABI %d: build it again with %s headers",
                         path, p->abi, HDO_ABI, p->abi < HDO_ABI ? "these newer" : "these older");
    if (p->struct_size < least || p->parts.struct_size < offsetof(hdo_parts, objective) + sizeof(void *))
        return hdo__fail(
            e, HDO_E_UNSUPPORTED,
            "plug-in '%s': the struct_size of its table (%zu) or of its parts (%zu) is too small; set them "
            "to sizeof(hdo_plugin) and sizeof(hdo_parts)",
            path, p->struct_size, p->struct_size < least ? (size_t)0 : p->parts.struct_size);
    if (p->struct_size > sizeof(hdo_plugin) || p->parts.struct_size > sizeof(hdo_parts))
        return hdo__fail(e, HDO_E_UNSUPPORTED, "plug-in '%s' was built for a newer version of hdo than this, %s", path,
                         hdo_version());
    if (p->name == NULL || p->name[0] == '\0')
        return hdo__fail(e, HDO_E_UNSUPPORTED, "plug-in '%s' has no name in its table", path);
    return HDO_OK;
}

static hdo_status load(hdo_plugin_use *u, const char *path, hdo_plugin_stage stage, void *ctx, hdo_error *e) {
    hdo_plugin_entry_fn entry;
    if (access(path, F_OK) != 0)
        return hdo__fail(e, HDO_E_CONFIG,
                         "plug-in '%s' does not exist; a relative path counts from the configuration file", path);
    if (stage != NULL) stage(ctx, "loading");
    u->so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (u->so == NULL) return hdo__fail(e, HDO_E_UNSUPPORTED, "plug-in '%s' cannot be loaded: %s", path, dlerror());
    void *symbol = dlsym(u->so, HDO_PLUGIN_SYMBOL);
    if (symbol == NULL)
        return hdo__fail(e, HDO_E_UNSUPPORTED,
                         "'%s' is not a plug-in of hdo: it does not export %s (HDO_PLUGIN_EXPORT of <hdo/plugin.h>)",
                         path, HDO_PLUGIN_SYMBOL);
    memcpy(&entry, &symbol, sizeof entry); /* ISO C has no cast from an object to a function */
    if (stage != NULL) stage(ctx, HDO_PLUGIN_SYMBOL);
    const hdo_plugin *p = entry();
    hdo_status st = check_head(path, p, e);
    if (st == HDO_OK) u->plugin = p;
    return st;
}

static const void *part_of(const hdo_parts *p, int kind) {
    const void *const all[] = {p->objective, p->dataset, p->estimator, p->mixing, p->sink};
    return all[kind];
}

static hdo_status create(hdo_plugin_use *u, const hdo_plugin_ask *a, hdo_plugin_stage stage, void *ctx, hdo_error *e) {
    const hdo_plugin *p = u->plugin;
    char message[512] = "";
    memcpy(&u->parts, &p->parts, p->parts.struct_size);
    bool own = p->struct_size >= offsetof(hdo_plugin, create) + sizeof p->create && p->create != NULL;
    if (!own && a->options[0] != '\0' && strcmp(a->options, "{}") != 0)
        return hdo__fail(e, HDO_E_CONFIG, "plug-in '%s' takes no options, but has %.200s", a->path, a->options);
    if (!own) return HDO_OK;
    if (stage != NULL) stage(ctx, "create");
    int result = p->create(a->options[0] != '\0' ? a->options : "{}", &u->parts, message, sizeof message);
    message[sizeof message - 1] = '\0';
    if (result == 0) return HDO_OK;
    u->plugin = NULL; /* nothing was made: nothing to destroy */
    return hdo__fail(e, HDO_E_CONFIG, "plug-in '%s': %s", a->path,
                     message[0] != '\0' ? message : "create refused its options and gave no reason");
}

static hdo_status check_options(const hdo_plugin_ask *a, hdo_error *e) {
    if (a->options[0] == '\0') return HDO_OK;
    json_error_t why;
    json_t *o = json_loads(a->options, JSON_REJECT_DUPLICATES, &why);
    bool object = json_is_object(o);
    json_decref(o);
    if (object) return HDO_OK;
    return hdo__fail(e, HDO_E_CONFIG, "the options of plug-in '%s' are not a group of keys: %.200s", a->path,
                     a->options);
}

hdo_status hdo__plugin_open(hdo_plugin_use **out, const hdo_plugin_ask *a, hdo_plugin_stage stage, void *ctx,
                            hdo_error *e) {
    hdo_plugin_use *u = calloc(1, sizeof *u);
    if (u == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for a plug-in");
    atomic_init(&u->refs, 1);
    hdo_status st = check_options(a, e);
    if (st == HDO_OK) st = load(u, a->path, stage, ctx, e);
    if (st == HDO_OK) st = create(u, a, stage, ctx, e);
    bool any = false;
    for (int k = 0; st == HDO_OK && k <= (int)HDO_OWN_SINK; k++) any = any || part_of(&u->parts, k) != NULL;
    if (st == HDO_OK && (a->part >= 0 ? part_of(&u->parts, a->part) == NULL : !any))
        st = hdo__fail(e, HDO_E_UNSUPPORTED, "plug-in '%s' (%s) offers no %s: that table is NULL", a->path,
                       u->plugin->name, a->part >= 0 ? hdo__own_kinds[a->part] : "table");
    if (st != HDO_OK) {
        hdo__plugin_drop(u);
        return st;
    }
    *out = u;
    return HDO_OK;
}

/* ---- a configuration's ---- */

/* The table belongs to the plug-in's use. */
static void adopt(hdo_config *c, hdo_own_kind kind, hdo_plugin_use *u) {
    hdo_table_def *t = c->own->table[c->own->n - 1]; /* the one just brought */
    if (t->kind != kind) return;
    atomic_fetch_add(&u->refs, 1);
    t->destroy = NULL;
    t->release = hdo__plugin_drop;
    t->holder = u;
}

static hdo_status bring(hdo_config *c, int kind, hdo_plugin_use *u, const char *path, hdo_error *e) {
    const hdo_parts *p = &u->parts;
    hdo_status st = HDO_E_UNSUPPORTED;
    switch ((hdo_own_kind)kind) {
    case HDO_OWN_OBJECTIVE: st = hdo_config_use_objective(c, p->objective, p->user, e); break;
    case HDO_OWN_DATASET: st = hdo_config_use_dataset(c, p->dataset, p->user, e); break;
    case HDO_OWN_ESTIMATOR: st = hdo_config_use_estimator(c, p->estimator, p->user, e); break;
    case HDO_OWN_MIXING: st = hdo_config_use_mixing(c, p->mixing, p->user, e); break;
    case HDO_OWN_SINK: st = hdo_config_use_sink(c, p->sink, p->user, e); break;
    }
    if (st == HDO_OK)
        adopt(c, (hdo_own_kind)kind, u);
    else
        hdo__error_prefix(e, "plug-in '%s'", path);
    return st;
}

static bool carries(const hdo_config *c, hdo_own_kind kind) {
    const hdo_table_def *t = hdo__own_find(c->own, kind, NULL);
    return t != NULL && t->holder != NULL;
}

static bool carries_estimator(const hdo_config *c, const hdo_class_config *k) {
    const hdo_table_def *t = hdo__own_find(c->own, HDO_OWN_ESTIMATOR, k->estimator);
    return k->plugin[0] == '\0' || (t != NULL && t->holder != NULL);
}

bool hdo__plugins_wanted(const hdo_config *c) {
    for (int k = 0; k < c->n_classes; k++) {
        if (!carries_estimator(c, &c->population[k])) return true;
    }
    if (c->mixing.plugin[0] != '\0' && !carries(c, HDO_OWN_MIXING)) return true;
    if (c->sink.plugin[0] != '\0' && !carries(c, HDO_OWN_SINK)) return true;
    return (c->model.plugin[0] != '\0' && !carries(c, HDO_OWN_OBJECTIVE)) ||
           (c->data.plugin[0] != '\0' && !carries(c, HDO_OWN_DATASET));
}

static hdo_status make_absolute(char path[HDO_PATH_MAX], hdo_error *e) {
    char *whole = realpath(path, NULL);
    hdo_status st = HDO_OK;
    if (whole != NULL && strlen(whole) >= HDO_PATH_MAX)
        st = hdo__fail(e, HDO_E_CONFIG, "the path of plug-in '%s' is too long", path);
    if (whole != NULL && st == HDO_OK) memcpy(path, whole, strlen(whole) + 1);
    free(whole);
    return st;
}

typedef struct wish { /* one of model, data */
    int kind;
    char *path, *name, *identity;
    const char *options, *key;
    size_t identity_cap;
    hdo_source name_from;
} wish;

/* Brings the one table that is wished for, and holds the plug-in to what the configuration says of it. */
static hdo_status resolve(hdo_config *c, const wish *w, hdo_error *e) {
    hdo_plugin_use *u = NULL;
    char identity[HDO_IDENTITY_MAX], name[HDO_NAME_MAX];
    hdo_plugin_ask a = {.path = w->path, .options = w->options, .part = w->kind, .trial_s = c->model.trial_s};
    snprintf(identity, sizeof identity, "%s", w->identity);
    snprintf(name, sizeof name, "%s", w->name);
    hdo_status st = make_absolute(w->path, e);
    if (st == HDO_OK && a.trial_s > 0.0) st = hdo__plugin_trial(&a, e);
    if (st == HDO_OK) st = hdo__plugin_open(&u, &a, NULL, NULL, e);
    if (st == HDO_OK) st = bring(c, w->kind, u, w->path, e);
    hdo__plugin_drop(u); /* the table holds it */
    if (st != HDO_OK) return st;
    if (w->name_from > HDO_FROM_DEFAULT && strcmp(name, w->name) != 0 && identity[0] == '\0' &&
        w->name_from > HDO_FROM_BASE)
        return hdo__fail(e, HDO_E_CONFIG, "%s.name is '%s', but plug-in '%s' offers '%s'; leave the name out", w->key,
                         name, w->path, w->name);
    if (identity[0] != '\0' && strcmp(identity, w->identity) != 0)
        return hdo__fail(e, HDO_E_CONFIG,
                         "plug-in '%s' has identity '%.150s', but '%.150s' is asked for (%s.identity): results of the "
                         "two do not go together. Bring the one it was made with, or start a new run",
                         w->path, w->identity, identity, w->key);
    return HDO_OK;
}

static hdo_source source_of(const hdo_config *c, const char *key) {
    hdo_slot s;
    if (hdo__slot_find(c, key, &s, NULL) != HDO_OK) return HDO_FROM_DEFAULT;
    return (hdo_source)c->origin[s.row][s.col].source;
}

/* An estimator, a mixing or a sink. key: where its name goes; NULL: nowhere. */
static hdo_status resolve_part(hdo_config *c, hdo_own_kind kind, char *path, const char *key, hdo_error *e) {
    hdo_plugin_use *u = NULL;
    hdo_plugin_ask a = {.path = path, .options = "", .part = (int)kind, .trial_s = c->model.trial_s};
    hdo_status st = make_absolute(path, e);
    if (st == HDO_OK && a.trial_s > 0.0) st = hdo__plugin_trial(&a, e);
    if (st == HDO_OK) st = hdo__plugin_open(&u, &a, NULL, NULL, e);
    if (st == HDO_OK) st = bring(c, (int)kind, u, path, e);
    if (st == HDO_OK && key != NULL) hdo__own_set_text(c, key, c->own->table[c->own->n - 1]->name);
    hdo__plugin_drop(u); /* the table holds it */
    return st;
}

static hdo_status resolve_parts(hdo_config *c, hdo_error *e) {
    hdo_status st = HDO_OK;
    for (int k = 0; k < c->n_classes && st == HDO_OK; k++) {
        char key[HDO_NAME_MAX + 32];
        snprintf(key, sizeof key, "population.%s.estimator", c->population[k].name);
        if (!carries_estimator(c, &c->population[k]))
            st = resolve_part(c, HDO_OWN_ESTIMATOR, c->population[k].plugin, key, e);
    }
    if (st == HDO_OK && c->mixing.plugin[0] != '\0' && !carries(c, HDO_OWN_MIXING))
        st = resolve_part(c, HDO_OWN_MIXING, c->mixing.plugin, NULL, e);
    if (st == HDO_OK && c->sink.plugin[0] != '\0' && !carries(c, HDO_OWN_SINK))
        st = resolve_part(c, HDO_OWN_SINK, c->sink.plugin, NULL, e);
    return st;
}

hdo_status hdo__plugins_resolve(hdo_config *c, hdo_error *e) {
    hdo_status st = resolve_parts(c, e);
    if (st != HDO_OK) return st;
    if (c->model.plugin[0] != '\0' && !carries(c, HDO_OWN_OBJECTIVE))
        st = resolve(c,
                     &(wish){.kind = HDO_OWN_OBJECTIVE,
                             .path = c->model.plugin,
                             .name = c->model.name,
                             .identity = c->model.identity,
                             .options = c->model.options,
                             .key = "model",
                             .name_from = source_of(c, "model.name")},
                     e);
    if (st == HDO_OK && c->data.plugin[0] != '\0' && !carries(c, HDO_OWN_DATASET))
        st = resolve(c,
                     &(wish){.kind = HDO_OWN_DATASET,
                             .path = c->data.plugin,
                             .name = c->data.name,
                             .identity = c->data.identity,
                             .options = c->data.options,
                             .key = "data",
                             .name_from = source_of(c, "data.name")},
                     e);
    return st;
}

hdo_status hdo_config_resolve(hdo_config *c, hdo_error *e) {
    if (!hdo__plugins_wanted(c)) return HDO_OK;
    return hdo__plugins_resolve(c, e);
}

void hdo_config_let_go(hdo_config *c) {
    hdo__own_drop(c->own);
    c->own = NULL;
}
