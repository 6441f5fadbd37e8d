/* SPDX-License-Identifier: Apache-2.0 — tables of one's own that a configuration carries: copied, counted, shared. */
#include "config/own.h"

#include <stdlib.h>
#include <string.h>

void hdo__table_keep(hdo_table_def *t) {
    if (t != NULL) atomic_fetch_add(&t->refs, 1);
}

void hdo__table_drop(hdo_table_def *t) {
    if (t == NULL || atomic_fetch_sub(&t->refs, 1) > 1) return;
    if (t->destroy != NULL) t->destroy(t->user);
    if (t->release != NULL) t->release(t->holder);
    pthread_mutex_destroy(&t->turn);
    free(t->more);
    free(t);
}

void hdo__own_keep(hdo_own *o) {
    if (o != NULL) atomic_fetch_add(&o->refs, 1);
}

void hdo__own_drop(hdo_own *o) {
    if (o == NULL || atomic_fetch_sub(&o->refs, 1) > 1) return;
    for (int i = 0; i < o->n; i++) hdo__table_drop(o->table[i]);
    free(o);
}

hdo_table_def *hdo__own_find(const hdo_own *o, hdo_own_kind kind, const char *name) {
    for (int i = 0; o != NULL && i < o->n; i++)
        if (o->table[i]->kind == kind && (name == NULL || strcmp(o->table[i]->name, name) == 0)) return o->table[i];
    return NULL;
}

/* ---- bringing one ---- */

const char *const hdo__own_kinds[] = {"objective", "data set", "estimator", "mixing", "sink"};

/* What all tables begin with. */
typedef struct head {
    size_t struct_size;
    const char *name;
} head;

void hdo__own_read(void *copy, size_t size, const void *def) {
    size_t theirs;
    memcpy(&theirs, def, sizeof theirs);
    memset(copy, 0, size);
    memcpy(copy, def, theirs < size ? theirs : size);
}

/* Does the library have something of that kind and name itself? */
static bool is_ours(hdo_own_kind kind, const char *name) {
    static const char *const words[] = {"model", "data", "estimator", "mixing", NULL}; /* sinks have no names in keys */
    const char *const *names = words[kind] != NULL ? hdo_names(words[kind]) : NULL;
    for (int i = 0; names != NULL && names[i] != NULL; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

hdo_status hdo__own_check_head(const hdo_own_args *a, hdo_error *e) {
    head own;
    memcpy(&own, a->def, sizeof own);
    const head *h = &own;
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789-_";
    const char *kind = hdo__own_kinds[a->kind];
    if (h->struct_size < sizeof(head) + sizeof(void *) || h->struct_size > 4096)
        return hdo__fail(e, HDO_E_MISUSE, "the table of an %s has struct_size %zu; set it to sizeof the table", kind,
                         h->struct_size);
    if (h->struct_size > a->size)
        return hdo__fail(e, HDO_E_UNSUPPORTED,
                         "the table of an %s has struct_size %zu, but this library knows %zu bytes of it: it was built "
                         "for a newer version of hdo",
                         kind, h->struct_size, a->size);
    if (h->name == NULL || h->name[0] == '\0')
        return hdo__fail(e, HDO_E_MISUSE, "the table of an %s has no name", kind);
    if (strlen(h->name) >= HDO_NAME_MAX || strspn(h->name, letters) != strlen(h->name))
        return hdo__fail(e, HDO_E_MISUSE, "'%.40s' cannot name an %s: up to 31 of a-z, 0-9, '-' and '_' can", h->name,
                         kind);
    if (a->identity != NULL && strlen(a->identity) >= HDO_IDENTITY_MAX)
        return hdo__fail(e, HDO_E_MISUSE, "%s '%s' has an identity of %zu bytes; at most %d are kept", kind, h->name,
                         strlen(a->identity), HDO_IDENTITY_MAX - 1);
    if (is_ours(a->kind, h->name))
        return hdo__fail(e, HDO_E_MISUSE, "%s '%s': the library has one of that name; choose another", kind, h->name);
    return HDO_OK;
}

static hdo_table_def *make(const hdo_own_args *a, const head *h) {
    hdo_table_def *t = calloc(1, sizeof *t);
    if (t == NULL) return NULL;
    atomic_init(&t->refs, 1);
    t->kind = a->kind;
    memcpy(&t->def, a->def, h->struct_size);
    memcpy(t->name, h->name, strlen(h->name) + 1);
    t->def.objective.name = t->name; /* the second member of every table */
    const char *identity = a->identity != NULL ? a->identity : h->name;
    memcpy(t->identity, identity, strlen(identity) + 1);
    t->user = a->user;
    t->destroy = a->destroy;
    t->any_thread = (a->flags & (unsigned)HDO_ANY_THREAD) != 0;
    pthread_mutex_init(&t->turn, NULL);
    return t;
}

/* Does a new table of this kind and name take the place of t? */
static bool replaces(const hdo_table_def *t, hdo_own_kind kind, const char *name) {
    bool several = kind == HDO_OWN_ESTIMATOR || kind == HDO_OWN_SINK;
    return t->kind == kind && (!several || strcmp(t->name, name) == 0);
}

hdo_status hdo__own_bring(hdo_config *c, const hdo_own_args *a, hdo_table_def **copy, hdo_error *e) {
    head h;
    memcpy(&h, a->def, sizeof h);
    hdo_status st = hdo__own_check_head(a, e);
    if (st != HDO_OK) return st;
    hdo_own *o = calloc(1, sizeof *o);
    hdo_table_def *t = make(a, &h);
    if (o == NULL || t == NULL) {
        free(o);
        free(t);
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for the table of an %s", hdo__own_kinds[a->kind]);
    }
    atomic_init(&o->refs, 1);
    for (int i = 0; c->own != NULL && i < c->own->n; i++)
        if (!replaces(c->own->table[i], a->kind, t->name)) o->table[o->n++] = c->own->table[i];
    if (o->n == HDO_OWN_MAX) {
        free(o);
        free(t);
        return hdo__fail(e, HDO_E_UNSUPPORTED, "a configuration carries at most %d tables", HDO_OWN_MAX);
    }
    for (int i = 0; i < o->n; i++) hdo__table_keep(o->table[i]);
    o->table[o->n++] = t;
    hdo__own_drop(c->own);
    c->own = o;
    *copy = t;
    return HDO_OK;
}
