/* SPDX-License-Identifier: Apache-2.0 — mixings of one's own (<hdo/mixing.h>): partners are asked for and checked. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "config/own_call.h"
#include "hdo/hdo.h"
#include "topo/mixer.h"

typedef struct own_ops { /* hangs on the table: the table's `more` */
    hdo_mixer_ops ops;
    hdo_table_def *table;
} own_ops;

/* In range and mutual, or a sentence. */
static hdo_status check(const hdo_table_def *t, int64_t step, int n, const int32_t *partner, hdo_error *e) {
    for (int i = 0; i < n; i++) {
        if (partner[i] < 0 || partner[i] >= n)
            return hdo__fail(e, HDO_E_OBJECTIVE,
                             "mixing '%s', step %lld: the partner of node %d is %d, but nodes are 0 to %d; a node that "
                             "stays alone is its own partner",
                             t->name, (long long)step, i, (int)partner[i], n - 1);
        if (partner[partner[i]] != i)
            return hdo__fail(e, HDO_E_OBJECTIVE,
                             "mixing '%s', step %lld: the partner of node %d is %d, but the partner of node %d is %d; "
                             "partners must be mutual",
                             t->name, (long long)step, i, (int)partner[i], (int)partner[i], (int)partner[partner[i]]);
    }
    return HDO_OK;
}

static int own_match(const hdo_mixer *m, int64_t t, hdo_pair *pairs, uint32_t *scratch) {
    const own_ops *own = (const own_ops *)(const void *)m->ops;
    int32_t *partner = (int32_t *)(void *)scratch;
    int found = 0;
    for (int i = 0; i < m->n; i++) partner[i] = i;
    hdo_caller k;
    hdo__call_begin(&k, own->table, -1, t, m->seed, 0);
    int result = own->table->def.mixing.pairs(own->table->user, &k.call, m->n, partner);
    hdo_status st = hdo__call_end(&k, result != 0 ? -1 : 0, m->complaint); /* without a plan there is no step */
    if (st != HDO_OK) hdo__complaint_say(m->complaint, st, m->trouble);
    if (st == HDO_OK) st = check(own->table, t, m->n, partner, m->trouble);
    for (int i = 0; i < m->n && st == HDO_OK; i++) {
        if (partner[i] > i) pairs[found++] = (hdo_pair){i, partner[i]};
    }
    return found;
}

hdo_status hdo__mixer_sound(const hdo_mixer *m, hdo_error *e) {
    if (m->trouble == NULL || m->trouble->code == HDO_OK) return HDO_OK;
    return hdo__fail(e, HDO_E_OBJECTIVE, "%s", m->trouble->msg);
}

static hdo_status init_own(hdo_mixer *m, const hdo_table_def *t, const hdo_config *c, int n, hdo_error *e) {
    const own_ops *own = t->more;
    *m = (hdo_mixer){
        .ops = &own->ops, .seed = (uint64_t)c->seed, .n = n, .period = c->mixing.period, .warmup = c->warmup};
    m->pairs = hdo__alloc((size_t)(n / 2 + 1) * sizeof(hdo_pair));
    m->scratch = hdo__alloc((size_t)n * sizeof(uint32_t));
    m->trouble = hdo__alloc(sizeof *m->trouble);
    m->complaint = hdo__complaint_new();
    if (m->pairs != NULL && m->scratch != NULL && m->trouble != NULL && m->complaint != NULL) return HDO_OK;
    hdo__mixer_clear(m);
    return hdo__fail(e, HDO_E_MEMORY, "out of memory for the partners of %d nodes", n);
}

hdo_status hdo__mixer_init_config(hdo_mixer *m, const hdo_config *c, int n, hdo_error *e) {
    const hdo_table_def *own = hdo__own_find(c->own, HDO_OWN_MIXING, c->mixing.kind);
    if (own != NULL) return init_own(m, own, c, n, e);
    return hdo__mixer_init_placed(m, &c->mixing, (uint64_t)c->seed, n, (int)c->population[0].count, c->warmup, e);
}

hdo_status hdo_config_use_mixing(hdo_config *c, const hdo_mixing_def *def, void *user, hdo_error *e) {
    hdo_mixing_def d;
    if (c == NULL || def == NULL) return hdo__misuse(e, "hdo_config_use_mixing", "a configuration and a table");
    hdo__own_read(&d, sizeof d, def);
    hdo_own_args a = HDO_OWN_ARGS(HDO_OWN_MIXING, d, def, user);
    hdo_status st = hdo__own_check_head(&a, e);
    if (st != HDO_OK) return st;
    if (d.pairs == NULL)
        return hdo__fail(e, HDO_E_MISUSE, "the table of mixing '%s' has no 'pairs', which is required", d.name);
    own_ops *own = calloc(1, sizeof *own);
    if (own == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the table of a mixing");
    st = hdo__own_bring(c, &a, &own->table, e);
    if (st != HDO_OK) {
        free(own);
        return st;
    }
    own->ops = (hdo_mixer_ops){
        .name = own->table->name, .help = "a mixing of one's own", .all_step = d.all_step != 0, .match = own_match};
    own->table->more = own;
    hdo__own_set_text(c, "mixing.kind", own->table->name);
    return HDO_OK;
}
