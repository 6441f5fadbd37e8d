/* SPDX-License-Identifier: Apache-2.0
 *
 * Loading and saving a model by tensor names, so that weights travel: a torchvision ResNet-18 saved as safetensors
 * (tools/pth2safetensors.py) starts a run, a run's model loads back into PyTorch. Trust nothing: first every tensor is
 * matched, then bytes are copied.
 */
#include "objective/weights.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MATCH_NONE, MATCH_LOAD, MATCH_HEAD };

static const hdo_tensor *row_of(const hdo_whole *f, int i) {
    return i < f->n_tensors ? &f->tensors[i] : &f->buffers[i - f->n_tensors];
}

static void shape_text(int n, const int64_t *dim, char *buf, size_t cap) {
    size_t at = (size_t)snprintf(buf, cap, "(");
    for (int i = 0; i < n && at < cap; i++)
        at += (size_t)snprintf(buf + at, cap - at, "%s%lld", i > 0 ? ", " : "", (long long)dim[i]);
    if (at < cap) snprintf(buf + at, cap - at, ")");
}

/* How the file's tensor fits the model's: MATCH_NONE means a shape that must not be. */
static int match(const hdo_tensor *m, const hdo_tensor_info *t, int classes) {
    if (m->n_dim != t->n_dim) return MATCH_NONE;
    bool rest = true;
    for (int i = 1; i < m->n_dim; i++) rest = rest && (int64_t)m->dim[i] == t->dim[i];
    if (rest && (int64_t)m->dim[0] == t->dim[0]) return MATCH_LOAD;
    return rest && m->dim[0] == classes && t->dim[0] > 0 ? MATCH_HEAD : MATCH_NONE;
}

static void say(hdo_weights_report *r, const char *fmt, ...) HDO_PRINTF(2, 3);
static void say(hdo_weights_report *r, const char *fmt, ...) {
    size_t used = strlen(r->text);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(r->text + used, sizeof r->text - used, fmt, ap);
    va_end(ap);
}

static bool in_model(const hdo_whole *f, const char *name) {
    for (int i = 0; i < f->n_tensors + f->n_buffers; i++)
        if (strcmp(row_of(f, i)->name, name) == 0) return true;
    return false;
}

static hdo_status refuse(const hdo_tensor *m, const hdo_tensor_info *t, hdo_error *e) {
    char want[128], have[128];
    int64_t dim[HDO_TENSOR_DIMS] = {0};
    for (int i = 0; i < m->n_dim; i++) dim[i] = m->dim[i];
    shape_text(m->n_dim, dim, want, sizeof want);
    shape_text(t->n_dim, t->dim, have, sizeof have);
    return hdo__fail(e, HDO_E_DATA, "tensor '%s' of the weights has shape %s, the model needs %s", m->name, have, want);
}

static size_t longest_split(const hdo_whole *f) {
    size_t most = 0;
    for (int i = 0; i < f->n_tensors; i++)
        if (f->tensors[i].split.kh > 0 && f->tensors[i].len > most) most = f->tensors[i].len;
    return most;
}

hdo_status hdo__weights_load(const hdo_objective *o, const hdo_tensors *t, int classes, float *x,
                             hdo_weights_report *report, hdo_error *e) {
    const hdo_whole whole = hdo__objective_whole(o), *f = &whole;
    hdo_weights_report r = {0};
    int n = f->n_tensors + f->n_buffers;
    for (int i = 0; i < n; i++) { /* match everything before a byte moves */
        const hdo_tensor *m = row_of(f, i);
        int k = hdo_tensors_find(t, m->name);
        if (k < 0) {
            r.initialised++;
            say(&r, "initialised: %s (not in the file)\n", m->name);
            continue;
        }
        const hdo_tensor_info *info = hdo_tensors_at(t, k);
        int how = match(m, info, classes);
        if (how == MATCH_NONE) return refuse(m, info, e);
        if (strncmp(info->dtype, "F8", 2) == 0)
            return hdo__fail(e, HDO_E_DATA, "tensor '%s' of the weights is stored as %s, which cannot be read", m->name,
                             info->dtype);
        if (how == MATCH_HEAD) {
            r.initialised++;
            say(&r, "initialised: %s (the file has %lld classes, the data %d)\n", m->name, (long long)info->dim[0],
                classes);
        } else {
            r.loaded++;
            r.numbers += m->len;
        }
    }
    for (int k = 0; k < hdo_tensors_count(t); k++) {
        const char *name = hdo_tensors_at(t, k)->name;
        if (in_model(f, name)) continue;
        r.skipped++;
        size_t len = strlen(name), tail = strlen(".num_batches_tracked");
        if (len > tail && strcmp(name + len - tail, ".num_batches_tracked") == 0)
            continue; /* every batch-norm has one */
        say(&r, "skipped: %s (no place in the model)\n", name);
    }
    if (r.loaded == 0)
        return hdo__fail(e, HDO_E_DATA, "the weights hold no tensor of this model (first name wanted: '%s')",
                         n > 0 ? row_of(f, 0)->name : "");
    float *plain = malloc((longest_split(f) + 1) * sizeof *plain);
    if (plain == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory loading weights");
    for (int i = 0; i < n; i++) {
        const hdo_tensor *m = row_of(f, i);
        int k = hdo_tensors_find(t, m->name);
        if (k < 0 || match(m, hdo_tensors_at(t, k), classes) != MATCH_LOAD) continue;
        float *to = x + m->off + (i < f->n_tensors ? 0 : f->d);
        hdo_status st = hdo_tensors_read(t, k, m->split.kh > 0 ? plain : to);
        assert(st == HDO_OK); /* types were checked above */
        (void)st;
        if (m->split.kh > 0) hdo__split_store(&m->split, m->len, plain, to);
    }
    free(plain);
    if (report != NULL) *report = r;
    return HDO_OK;
}

static hdo_status save_model(const hdo_whole *f, const float *x, const char *const *notes, const char *path,
                             hdo_error *e) {
    int n = f->n_tensors + f->n_buffers;
    size_t copies = 0; /* floats of tensors that are not stored plain */
    for (int i = 0; i < f->n_tensors; i++) copies += f->tensors[i].split.kh > 0 ? f->tensors[i].len : 0;
    hdo_tensor_out *rows = calloc((size_t)n + 1, sizeof *rows);
    float *block = malloc((copies + 1) * sizeof *block), *plain = block;
    if (rows == NULL || block == NULL) {
        free(rows);
        free(block);
        return hdo__fail(e, HDO_E_MEMORY, "out of memory writing '%s'", path);
    }
    for (int i = 0; i < n; i++) {
        const hdo_tensor *m = row_of(f, i);
        rows[i] =
            (hdo_tensor_out){.name = m->name, .n_dim = m->n_dim, .data = x + m->off + (i < f->n_tensors ? 0 : f->d)};
        for (int k = 0; k < m->n_dim; k++) rows[i].dim[k] = m->dim[k];
        if (m->split.kh == 0) continue;
        hdo__split_plain(&m->split, m->len, x + m->off, plain);
        rows[i].data = plain;
        plain += m->len;
    }
    hdo_status st = hdo_tensors_write(path, rows, n, notes, e);
    free(rows);
    free(block);
    return st;
}

hdo_status hdo__weights_save(const hdo_objective *f, const float *x, const char *const *notes, const char *path,
                             hdo_error *e) {
    const hdo_whole whole = hdo__objective_whole(f);
    if (f->whole == NULL) return save_model(&whole, x, notes, path, e);
    float *model = malloc((whole.d + whole.n_buf) * sizeof *model);
    if (model == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory writing '%s'", path);
    f->ops->join(f, x, model);
    hdo_status st = save_model(&whole, model, notes, path, e);
    free(model);
    return st;
}

hdo_status hdo__weights_save_part(const hdo_objective *f, const float *x, const char *const *notes, const char *path,
                                  hdo_error *e) {
    enum { LONG = 192 };
    size_t n = (size_t)(f->n_tensors + f->n_buffers);
    const hdo_whole own = {f->d, f->n_buf, f->tensors, f->n_tensors, f->buffers, f->n_buffers};
    hdo_tensor *rows = calloc(n + 1, sizeof *rows);
    char(*names)[LONG] = calloc(n + 1, sizeof *names);
    hdo_status st =
        rows != NULL && names != NULL ? HDO_OK : hdo__fail(e, HDO_E_MEMORY, "out of memory writing '%s'", path);
    for (size_t i = 0; i < n && st == HDO_OK; i++) {
        rows[i] = *row_of(&own, (int)i);
        snprintf(names[i], sizeof names[i], "base_model.model.%s", rows[i].name);
        rows[i].name = names[i];
    }
    if (st == HDO_OK) {
        hdo_whole part = own;
        part.tensors = rows;
        part.buffers = rows + f->n_tensors;
        st = save_model(&part, x, notes, path, e);
    }
    free(rows);
    free(names);
    return st;
}
