/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of one's own that a configuration carries: objective, data set, estimators, mixing, sinks (<hdo/objective.h>
 * and its siblings). A table is copied once and then shared, counted, by configurations and runs; the last one to let
 * go calls its destroy. A set of them never changes: bringing another table makes a new set.
 */
#ifndef HDO_CONFIG_OWN_H
#define HDO_CONFIG_OWN_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/status.h"
#include "hdo/experimental/config.h"

enum { HDO_OWN_MAX = 16, HDO_IDENTITY_MAX = 512 };
typedef enum hdo_own_kind {
    HDO_OWN_OBJECTIVE,
    HDO_OWN_DATASET,
    HDO_OWN_ESTIMATOR,
    HDO_OWN_MIXING,
    HDO_OWN_SINK
} hdo_own_kind;

typedef struct hdo_table_def { /* a table of one's own, shared */
    atomic_int refs;
    hdo_own_kind kind;
    union {
        hdo_objective_def objective;
        hdo_dataset_def dataset;
        hdo_estimator_def estimator;
        hdo_mixing_def mixing;
        hdo_sink_def sink;
    } def; /* members beyond the user's struct_size are 0; texts point into this struct, tensors to a copy */
    void *user;
    void (*destroy)(void *user); /* may be NULL */
    bool any_thread;             /* callbacks may run at once; otherwise under `turn` */
    pthread_mutex_t turn;
    char name[HDO_NAME_MAX], identity[HDO_IDENTITY_MAX];
    void (*release)(void *holder); /* of a plug-in's table: lets go of the plug-in; NULL: not of a plug-in */
    void *holder;
    void *more; /* memory of its own behind the table; free() */
} hdo_table_def;

typedef struct hdo_own {
    atomic_int refs;
    int n;
    hdo_table_def *table[HDO_OWN_MAX];
} hdo_own;

extern const char *const hdo__own_kinds[]; /* "objective", "data set", ... */
void hdo__own_keep(hdo_own *o);            /* NULL is fine, here and below */
void hdo__own_drop(hdo_own *o);
/* The first table of that kind, of that name unless it is NULL; NULL: none. */
hdo_table_def *hdo__own_find(const hdo_own *o, hdo_own_kind kind, const char *name);
void hdo__table_keep(hdo_table_def *t);
void hdo__table_drop(hdo_table_def *t);

/* Brings a table: def begins with its size, name is its second member; identity may be NULL. Replaces one of the same
 * kind (estimators and sinks: of the same kind and name). Checks what all tables have in common; what is particular to
 * a kind is the caller's. The table is `copy` afterwards, to be completed. On failure c is untouched and nothing is
 * destroyed. */
typedef struct hdo_own_args {
    hdo_own_kind kind;
    const void *def;
    size_t size; /* of the kind's table in this library */
    const char *identity;
    unsigned flags;
    void *user;
    void (*destroy)(void *user);
} hdo_own_args;
/* The bytes of the user's table that exist into copy (size bytes), the rest 0. */
void hdo__own_read(void *copy, size_t size, const void *def);
/* d: such a copy of def, of a kind that has an identity. */
#define HDO_OWN_ARGS(of, d, table, pointer)                                                                            \
    {                                                                                                                  \
        .kind = (of), .def = (table), .size = sizeof(d), .identity = (d).identity, .flags = (d).flags,                 \
        .user = (pointer), .destroy = (d).destroy                                                                      \
    }
void hdo__own_set_text(hdo_config *c, const char *key, const char *value); /* a key that follows from a table */
/* The common checks alone: size, name, identity; and the name is none of ours. */
hdo_status hdo__own_check_head(const hdo_own_args *a, hdo_error *e);
hdo_status hdo__own_bring(hdo_config *c, const hdo_own_args *a, hdo_table_def **copy, hdo_error *e);

#endif
