/* SPDX-License-Identifier: Apache-2.0
 *
 * Calling a table of one's own: whose evaluation, whose turn, and what became of it. The sentence of the first failure,
 * by step and node, is kept until somebody reports it, however many threads were at work.
 *
 *     hdo_caller k;
 *     hdo__call_begin(&k, table, node, step, seed, thread);
 *     return hdo__call_end(&k, table->def.objective.loss(table->user, &k.call, ...), complaint);
 */
#ifndef HDO_CONFIG_OWN_CALL_H
#define HDO_CONFIG_OWN_CALL_H

#include "config/own.h"

enum { HDO_CALL_MESSAGE = 512 };

typedef struct hdo_sentence {
    bool any;
    int64_t node, step;
    char text[HDO_CALL_MESSAGE + HDO_NAME_MAX + 16];
} hdo_sentence;

typedef struct hdo_complaint { /* of one wired object; shared by all threads */
    pthread_mutex_t lock;
    hdo_sentence stop, skip; /* results below and above 0 */
} hdo_complaint;

typedef struct hdo_caller {
    hdo_call call;
    hdo_table_def *table;
    char message[HDO_CALL_MESSAGE];
} hdo_caller;

static inline void hdo__call_begin(hdo_caller *k, hdo_table_def *t, int64_t node, int64_t step, uint64_t seed,
                                   int thread) {
    k->call = (hdo_call){.struct_size = sizeof(hdo_call),
                         .node = node,
                         .step = step,
                         .seed = seed,
                         .thread = thread,
                         .message = k->message,
                         .message_cap = sizeof k->message};
    k->table = t;
    k->message[0] = '\0';
    if (!t->any_thread) pthread_mutex_lock(&t->turn);
}

hdo_status hdo__call_failed(hdo_caller *k, int result, hdo_complaint *c);

/* HDO_OK, HDO_E_SKIPPED (result above 0) or HDO_E_OBJECTIVE (below). */
static inline hdo_status hdo__call_end(hdo_caller *k, int result, hdo_complaint *c) {
    if (!k->table->any_thread) pthread_mutex_unlock(&k->table->turn);
    return result == 0 ? HDO_OK : hdo__call_failed(k, result, c);
}

hdo_complaint *hdo__complaint_new(void); /* NULL: out of memory */
void hdo__complaint_free(hdo_complaint *c);
/* "NAME: its sentence" into e if c (may be NULL) has one for this status. */
bool hdo__complaint_say(hdo_complaint *c, hdo_status st, hdo_error *e);

#endif
