/* SPDX-License-Identifier: Apache-2.0
 *
 * The tensor table: one row per named piece of the flat vector. Offsets, views, initialisation, weight files and the
 * messages of checks all derive from it. Trainable tensors and buffers are two tables; a buffer's offset counts from d.
 */
#include <stdio.h>
#include <string.h>

#include "nn/nn.h"

int hdo__layout_find(const hdo_layout *t, const char *name) {
    for (int i = 0; i < t->n; i++)
        if (strcmp(t->row[i].name, name) == 0) return i;
    return -1;
}

int hdo__layout_add(hdo_layout *t, const char *prefix, const char *suffix, int role, int n_dim, const int dim[4]) {
    char name[HDO_PARAM_NAME_MAX];
    int n = snprintf(name, sizeof name, "%s.%s", prefix, suffix);
    if (n < 0 || (size_t)n >= sizeof name || t->n == HDO_PARAMS_MAX || hdo__layout_find(t, name) >= 0) return -1;
    hdo_param *row = &t->row[t->n];
    *row = (hdo_param){.off = t->total, .len = 1, .n_dim = n_dim, .role = role, .fill = HDO_FILL_CONST};
    memcpy(row->name, name, sizeof name);
    for (int i = 0; i < n_dim; i++) {
        row->dim[i] = dim[i];
        row->len *= (size_t)dim[i];
    }
    t->total += row->len;
    return t->n++;
}
