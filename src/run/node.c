/* SPDX-License-Identifier: Apache-2.0
 *
 * A member of a fleet, from the first word to the first step: the bus, who is there, the configuration (own, or
 * theirs), a class, a place in the population, a folder that may hold an earlier life, a model to start from.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/sha256.h"
#include "config/names.h"
#include "fleet/join.h"
#include "hdo/experimental/fleet.h"
#include "run/link.h"
#include "run/run_internal.h"

#define JOIN_S 1.5         /* to see who is there */
#define PLACE_S 0.6        /* to agree with other newcomers on places */
#define ANSWER_S 1.0       /* for configuration and model, from one member: it may have died just now */
#define EPOCH_0 1577836800 /* 2020-01-01: epochs are seconds since then, or one more than the last */

typedef struct joining { /* what is known so far */
    const hdo_node_options *o;
    hdo_fleet_seat *fleet;
    hdo_join join;
    hdo_config *config; /* of the run, then of this member */
    bool alone;         /* nobody is there */
    bool old;           /* the folder holds an earlier life */
    uint32_t stored_epoch;
    int stored_place;
} joining;

/* ---- the folder's memory: fleet.json ---- */

static void read_memory(joining *n) {
    char path[HDO_PATH_MAX + 64];
    n->stored_place = -1;
    if (n->o->dir == NULL || !hdo__path_join(path, sizeof path, n->o->dir, "fleet.json")) return;
    json_t *o = json_load_file(path, 0, NULL);
    const char *run = json_string_value(json_object_get(o, "run")),
               *name = json_string_value(json_object_get(o, "member"));
    if (run != NULL && name != NULL && hdo__fleet_name_ok(run) && hdo__fleet_name_ok(name)) {
        hdo_member_id *id = &n->fleet->id;
        snprintf(id->run, sizeof id->run, "%s", run);
        snprintf(id->name, sizeof id->name, "%s", name);
        n->stored_epoch = (uint32_t)json_integer_value(json_object_get(o, "epoch"));
        n->stored_place = (int)json_integer_value(json_object_get(o, "place"));
        hdo__path_join(path, sizeof path, n->o->dir, "config.yaml");
        n->old = hdo__path_exists(path);
    }
    json_decref(o);
}

static hdo_status write_memory(const joining *n, hdo_error *e) {
    char path[HDO_PATH_MAX + 64], text[512];
    const hdo_member_id *id = &n->fleet->id;
    if (n->o->dir == NULL) return HDO_OK;
    hdo__path_join(path, sizeof path, n->o->dir, "fleet.json");
    int len = snprintf(text, sizeof text,
                       "{\"run\": \"%s\", \"member\": \"%s\", \"class\": \"%s\", \"place\": %d, \"epoch\": %lu}\n",
                       id->run, id->name, id->role, id->place, (unsigned long)id->epoch);
    return hdo__file_write(path, text, (size_t)len, e);
}

/* ---- names ---- */

static hdo_status choose_name(const char *given, const char *what, char *name, hdo_error *e) {
    if (given != NULL && !hdo__fleet_name_ok(given))
        return hdo__fail(e, HDO_E_CONFIG,
                         "the name of a %s has letters, digits, - and _, at most %d of them, but is '%s'", what,
                         HDO_FLEET_NAME - 1, given);
    if (given != NULL) memcpy(name, given, strlen(given) + 1);
    return HDO_OK;
}

static hdo_status name_member(joining *n, const hdo_link *link, hdo_error *e) {
    char hex[9];
    hdo_member_id *id = &n->fleet->id;
    hdo_status st = choose_name(n->o->run, "run", id->run, e);
    if (st == HDO_OK) st = choose_name(n->o->name, "member", id->name, e);
    if (st != HDO_OK) return st;
    if (id->name[0] == '\0' && link->user[0] != '\0') {
        st = choose_name(link->user, "member", id->name, e);
    } else if (id->name[0] == '\0') {
        if (!hdo__random_hex(hex, 8)) return hdo__fail(e, HDO_E_FAILED, "no random numbers from the system");
        snprintf(id->name, sizeof id->name, "node-%s", hex);
    }
    if (st == HDO_OK && id->run[0] == '\0' && n->config != NULL && hdo__fleet_name_ok(n->config->name))
        snprintf(id->run, sizeof id->run, "%s", n->config->name);
    id->member = hdo__fleet_id(id->name);
    return st;
}

/* ---- the configuration ---- */

/* What is this member's own business does not belong to the run: threads, folders, paths. */
static char *common_text(const hdo_config *own) {
    hdo_config *c = malloc(2 * sizeof *c), *plain = c + 1;
    if (c == NULL) return NULL;
    hdo_config_default(plain);
    *c = *own;
    c->threads = 0;
    c->engine.id = HDO_ENGINE_FLEET;
    c->checkpoint = plain->checkpoint;
    c->sink = plain->sink;
    memset(c->data.path, 0, sizeof c->data.path);
    memset(c->data.path_val, 0, sizeof c->data.path_val);
    char *text = hdo_config_dump(c, false);
    free(c);
    return text;
}

static hdo_status settle_config(joining *n, hdo_error *e) {
    unsigned char digest[32];
    hdo_sha256 h;
    hdo_member_id *id = &n->fleet->id;
    hdo_config_as_base(n->config);
    n->config->engine.id = HDO_ENGINE_FLEET;
    free(n->fleet->config_text);
    n->fleet->config_text = common_text(n->config);
    if (n->fleet->config_text == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the configuration text");
    hdo__sha256_init(&h);
    hdo__sha256_update(&h, n->fleet->config_text, strlen(n->fleet->config_text));
    hdo__sha256_final(&h, digest);
    memcpy(id->config_hash, digest, HDO_FLEET_ID);
    id->classes = n->config->n_classes;
    id->seed = (uint64_t)n->config->seed;
    memcpy(n->join.config_hash, id->config_hash, HDO_FLEET_ID);
    n->join.has_config = true;
    n->join.classes = id->classes;
    return HDO_OK;
}

static int living(const joining *n) {
    int members = 0;
    for (int k = 0; k < n->join.roster.used; k++) members += n->join.roster.entry[k].beat.leaving == 0;
    return members;
}

/* Our own configuration, or theirs. */
static hdo_status find_config(joining *n, hdo_error *e) {
    hdo_status st = n->config != NULL ? settle_config(n, e) : HDO_OK;
    if (st != HDO_OK) return st;
    hdo__join_listen(&n->join, n->o->join_s > 0.0 ? n->o->join_s : JOIN_S, 0.3, true);
    st = hdo__join_verdict(&n->join, e);
    n->alone = living(n) == 0;
    if (st != HDO_OK || n->config != NULL) return st;
    if (n->alone)
        return hdo__fail(
            e, HDO_E_ENGINE,
            "nobody of run '%s' is there, and there is no configuration here to start it with (--config FILE)",
            n->join.run);
    st = hdo__join_ask_config(&n->join, ANSWER_S, e);
    if (st != HDO_OK) return st;
    n->config = hdo__alloc(sizeof *n->config);
    if (n->config == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory");
    hdo_config_default(n->config);
    st = hdo_config_load_bytes(n->config, "the configuration of the run", n->join.text, strlen(n->join.text), e);
    return st == HDO_OK ? settle_config(n, e) : st;
}

/* ---- class and place ---- */

static bool plays(const hdo_class_config *c, const char *role) {
    const hdo_estimator_name *est = hdo__estimator_named(c->estimator);
    if (strcmp(c->name, role) == 0) return true;
    if (est == NULL || (strcmp(role, "zo") != 0 && strcmp(role, "fo") != 0)) return false;
    return est->zeroth == (strcmp(role, "zo") == 0);
}

static hdo_status find_class(joining *n, int *first, int *count, hdo_error *e) {
    const hdo_config *c = n->config;
    hdo_member_id *id = &n->fleet->id;
    char all[HDO_MSG_MAX / 2] = "";
    *first = *count = 0;
    for (int k = 0; k < c->n_classes; k++) {
        const hdo_class_config *p = &c->population[k];
        *count = (int)p->count;
        if (*count > 0 && (n->o->role == NULL || plays(p, n->o->role))) {
            id->class_id = n->join.class_id = (uint32_t)k;
            snprintf(id->role, sizeof id->role, "%s", p->name);
            return HDO_OK;
        }
        *first += *count;
        size_t len = strlen(all);
        snprintf(all + len, sizeof all - len, "%s%s", k > 0 ? ", " : "", p->name);
    }
    return hdo__fail(e, HDO_E_CONFIG, "run '%s' has no nodes of class '%s': it has %s", id->run,
                     n->o->role != NULL ? n->o->role : "", all);
}

/* A place nobody has: the given one, that of the life before, or one chosen by name, so that newcomers that come
 * together do not choose the same. All taken: one is shared, with random numbers of its own. */
static hdo_status find_place(joining *n, hdo_error *e) {
    int first, count;
    hdo_member_id *id = &n->fleet->id;
    hdo_join *j = &n->join;
    hdo_status st = find_class(n, &first, &count, e);
    if (st != HDO_OK) return st;
    if (id->nodes > count || (n->o->place > 0 && (n->o->place <= first || n->o->place - 1 + id->nodes > first + count)))
        return hdo__fail(e, HDO_E_CONFIG, "class '%s' has the places %d to %d: no room for %d nodes%s", id->role,
                         first + 1, first + count, id->nodes, n->o->place > 0 ? " there (--place)" : "");
    int start = (int)(id->member >> 8 & 0xffffff), old = n->stored_place;
    bool keeps = old >= first && old + id->nodes <= first + count;
    id->place = n->o->place > 0 ? n->o->place - 1 : keeps ? old : -1;
    bool fixed = id->place >= 0;
    for (int k = 0; k < 3 && !fixed; k++) {
        int place = hdo__roster_free_place(&j->roster, first, count, id->nodes, start, j->now_us);
        if (place == id->place) break;
        id->place = place;
        if (place < 0) break;
        j->wish.place = (uint32_t)place;
        j->wish.nodes = (uint32_t)id->nodes;
        snprintf(j->wish.role, sizeof j->wish.role, "%s", id->role);
        hdo__join_listen(j, PLACE_S, PLACE_S, true);
        if ((st = hdo__join_verdict(j, e)) != HDO_OK) return st;
    }
    if (id->place < 0) {
        id->place = first + start % (count - id->nodes + 1);
        n->config->seed ^= (int64_t)(id->member >> 24 & 0xffffffff);
    }
    return HDO_OK;
}

/* ---- this member's own settings ---- */

static const char *format_of(const char *path) {
    static const char *const ends[][2] = {{".csv", "csv"}, {".tsv", "csv"},  {".svm", "libsvm"}, {".libsvm", "libsvm"},
                                          {".npy", "npy"}, {"ubyte", "idx"}, {"ubyte.gz", "idx"}};
    size_t len = strlen(path);
    for (size_t k = 0; k < sizeof ends / sizeof ends[0]; k++) {
        size_t n = strlen(ends[k][0]);
        if (len > n && strcmp(path + len - n, ends[k][0]) == 0) return ends[k][1];
    }
    return NULL;
}

/* Own data: the file as a whole, for all nodes of this member. */
static hdo_status own_data(joining *n, hdo_error *e) {
    const char *path = n->o->data, *format = path != NULL ? format_of(path) : NULL;
    hdo_data_config *d = &n->config->data;
    if (path == NULL && n->o->data_val == NULL) return HDO_OK;
    if (path == NULL) return hdo__fail(e, HDO_E_CONFIG, "--data-val goes with --data");
    static const char *const own[] = {"csv", "libsvm", "npy", "idx"};
    bool same = false;
    for (int k = 0; k < 4; k++) same = same || strcmp(d->name, own[k]) == 0;
    if (format == NULL && !same)
        return hdo__fail(e, HDO_E_CONFIG,
                         "--data %s: which format? A name that ends in .csv, .svm, .npy or -ubyte tells", path);
    if (strlen(path) >= sizeof d->path || (n->o->data_val != NULL && strlen(n->o->data_val) >= sizeof d->path_val))
        return hdo__fail(e, HDO_E_CONFIG, "the path '%.80s...' is too long", path);
    if (format != NULL) snprintf(d->name, sizeof d->name, "%s", format);
    snprintf(d->path, sizeof d->path, "%s", path);
    if (n->o->data_val != NULL) snprintf(d->path_val, sizeof d->path_val, "%s", n->o->data_val);
    d->split = (hdo_choice){.id = HDO_SPLIT_SHARED};
    d->train = d->val = 0;
    return HDO_OK;
}

static void choose_epoch(joining *n) {
    uint32_t now = (uint32_t)(time(NULL) - EPOCH_0), seen = n->join.epoch_seen;
    if (now <= n->stored_epoch) now = n->stored_epoch + 1;
    if (now <= seen) now = seen + 1;
    n->fleet->id.epoch = now;
}

/* ---- the run ---- */

/* A model to start from: a late joiner begins where somebody else is. */
static hdo_status take_model(joining *n, hdo_run *r, hdo_error *e) {
    hdo_models *m = &r->population.models;
    uint64_t step = 0;
    hdo_roster_view v;
    hdo__roster_look(&n->join.roster, n->join.now_us, &v);
    if (n->alone || v.step_max == 0) return HDO_OK;
    hdo_status st = hdo__join_ask_model(&n->join, 0, m->len, ANSWER_S, m->X, &step, e);
    if (st != HDO_OK && n->join.drops[HDO_DROP_LENGTH] > 0)
        return hdo__fail(
            e, HDO_E_CONFIG,
            "the models of run '%s' have another size than ours (%zu numbers): have --data as many columns and "
            "classes as the others'?",
            n->join.run, m->len);
    if (st != HDO_OK) return st;
    for (int i = 1; i < m->count; i++) memcpy(m->X + (size_t)i * m->ld, m->X, m->len * sizeof(float));
    int64_t last = r->config.warmup + r->config.steps;
    r->progress.step = (int64_t)step < last ? (int64_t)step : last;
    return HDO_OK;
}

static hdo_status make_run(joining *n, hdo_run **out, const hdo_hooks *hooks, hdo_error *e) {
    hdo_fleet_seat *fleet = n->fleet;
    if (n->o->threads > 0) n->config->threads = n->o->threads;
    hdo_status st = own_data(n, e);
    if (st != HDO_OK) return st;
    hdo_config_as_base(n->config);
    st = hdo__run_create(out, n->config, fleet, hooks, e);
    if (st != HDO_OK) return st;
    hdo_run *r = *out;
    if (n->o->dir != NULL && n->old) {
        st = hdo__record_resume(&r->record, n->o->dir, "", false, e);
    } else if (n->o->dir != NULL) {
        st = hdo__record_attach(&r->record, n->o->dir, false, n->o->command_line, e);
    }
    if (st == HDO_OK && r->progress.step == 0) st = take_model(n, r, e);
    if (st == HDO_OK) st = write_memory(n, e);
    if (st != HDO_OK) {
        r->fleet = NULL;
        hdo_run_destroy(r);
        *out = NULL;
        return st;
    }
    n->fleet = NULL; /* the run has it now */
    return HDO_OK;
}

static hdo_status join(joining *n, hdo_run **out, const hdo_hooks *hooks, hdo_error *e) {
    hdo_member_id *id = &n->fleet->id;
    hdo_link link;
    read_memory(n);
    hdo_status st = hdo__link_read(&link, &n->o->link, e);
    if (st == HDO_OK) st = name_member(n, &link, e);
    if (st == HDO_OK) st = hdo__link_open(&n->fleet->bus, &link, id->name, e);
    if (st == HDO_OK && id->run[0] == '\0') st = hdo__join_find_run(n->fleet->bus, 2.0 * JOIN_S, id->run, e);
    if (st == HDO_OK) st = hdo__join_open(&n->join, n->fleet->bus, id->run, id->name, e);
    if (st == HDO_OK) st = find_config(n, e);
    if (st == HDO_OK) st = find_place(n, e);
    if (st != HDO_OK) return st;
    choose_epoch(n);
    hdo__fleet_run_id(id->run, id->run_id);
    n->fleet->started = n->alone;
    n->fleet->heard = living(n);
    return make_run(n, out, hooks, e);
}

hdo_status hdo_node_create(hdo_run **out, const hdo_config *c, const hdo_node_options *o, const hdo_hooks *hooks,
                           hdo_error *e) {
    joining n = {.o = o, .fleet = hdo__alloc(sizeof *n.fleet)};
    *out = NULL;
    if (c != NULL && (n.config = hdo__alloc(sizeof *n.config)) != NULL) *n.config = *c;
    if (n.fleet == NULL || (c != NULL && n.config == NULL)) {
        hdo__free(n.fleet);
        return hdo__fail(e, HDO_E_MEMORY, "out of memory");
    }
    n.fleet->pace_s = o->pace_s;
    n.fleet->slow = o->slow > 1.0 ? o->slow : 1.0;
    n.fleet->id.nodes = o->nodes > 0 ? o->nodes : 1;
    hdo_status st = n.fleet->id.nodes <= HDO_FLEET_NODES_MAX
                        ? join(&n, out, hooks, e)
                        : hdo__fail(e, HDO_E_CONFIG, "a member has at most %d nodes", HDO_FLEET_NODES_MAX);
    hdo__join_close(&n.join);
    hdo__fleet_close(n.fleet);
    hdo__free(n.config);
    return st;
}

void hdo_node_describe(const hdo_run *r, hdo_node_info *info) {
    *info = (hdo_node_info){0};
    if (r->fleet == NULL) return;
    const hdo_member_id *id = &r->fleet->id;
    *info = (hdo_node_info){.place = id->place + 1,
                            .nodes = id->nodes,
                            .members = r->fleet->heard,
                            .epoch = id->epoch,
                            .started = r->fleet->started,
                            .stopped = r->fleet->was_stopped};
    memcpy(info->run, id->run, sizeof id->run);
    memcpy(info->name, id->name, sizeof id->name);
    memcpy(info->role, id->role, sizeof id->role);
}

bool hdo_fleet_name_ok(const char *name) {
    return hdo__fleet_name_ok(name);
}

void hdo__fleet_close(hdo_fleet_seat *f) {
    if (f == NULL) return;
    if (f->bus != NULL) f->bus->ops->destroy(f->bus);
    free(f->config_text);
    hdo__free(f);
}
