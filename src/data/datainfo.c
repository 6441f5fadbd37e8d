/* SPDX-License-Identifier: Apache-2.0 — data sets as a user sees them: see <hdo/experimental/data.h>. */
#include "hdo/experimental/data.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/options.h"
#include "data/data_impl.h"
#include "data/store.h"

const char *hdo_data_state_text(hdo_data_state s) {
    switch (s) {
    case HDO_DATA_BUILT_IN: return "built in";
    case HDO_DATA_OWN: return "your files";
    case HDO_DATA_ABSENT: return "absent";
    case HDO_DATA_DAMAGED: return "damaged";
    case HDO_DATA_UNCHECKED: return "unchecked";
    case HDO_DATA_READY: return "ready";
    }
    return "unknown";
}

int hdo_data_count(void) {
    int n = 0;
    while (hdo__data_entries[n].name != NULL) n++;
    return n;
}

hdo_status hdo_data_at(int i, hdo_data_info *out, hdo_error *e) {
    if (i < 0 || i >= hdo_data_count()) return hdo__fail(e, HDO_E_CONFIG, "there is no data set number %d", i);
    const hdo_data_entry *d = &hdo__data_entries[i];
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "%s", d->name);
    out->about = d->about;
    out->state = (hdo_data_state)d->state;
    const hdo_store_set *set = hdo__store_find(d->name);
    if (set == NULL) return HDO_OK;
    hdo_status st = hdo__store_path(set, out->path, sizeof out->path, e);
    if (st != HDO_OK) return st;
    out->state = hdo__store_state(set, out->path);
    out->n_files = set->n_files;
    for (int k = 0; k < set->n_files; k++) {
        snprintf(out->file[k].name, sizeof out->file[k].name, "%s", set->file[k].name);
        snprintf(out->file[k].sha256, sizeof out->file[k].sha256, "%s", set->file[k].sha256);
        out->file[k].bytes = set->file[k].bytes;
    }
    return HDO_OK;
}

hdo_status hdo_data_find(const char *name, hdo_data_info *out, hdo_error *e) {
    const hdo_data_entry *d = hdo__data_find(name);
    if (d != NULL) return hdo_data_at((int)(d - hdo__data_entries), out, e);
    const char *near = hdo__suggest(name, hdo_names("data"));
    return hdo__fail(e, HDO_E_CONFIG, "there is no data set '%s'%s%s%s; 'hdo data list' shows them", name,
                     near != NULL ? " (did you mean '" : "", near != NULL ? near : "", near != NULL ? "'?)" : "");
}

hdo_status hdo_data_dir(char *buf, size_t cap, hdo_error *e) {
    return hdo__store_dir(buf, cap, e);
}

hdo_status hdo_data_verify(const char *name, hdo_error *e) {
    const hdo_store_set *set = hdo__store_find(name);
    char dir[HDO_DATA_PATH_MAX];
    if (set == NULL) {
        hdo_data_info info;
        hdo_status st = hdo_data_find(name, &info, e);
        if (st != HDO_OK) return st;
        return hdo__fail(e, HDO_E_CONFIG, "%s has no files in the data folder, so there is nothing to verify", name);
    }
    hdo_status st = hdo__store_path(set, dir, sizeof dir, e);
    if (st != HDO_OK) return st;
    if (hdo__store_state(set, dir) == HDO_DATA_ABSENT) {
        return hdo__fail(e, HDO_E_DATA, "the data set %s is not in '%s': run 'hdo data get %s'", name, dir, name);
    }
    return hdo__store_verify(set, dir, e);
}

/* ---- what is in it ---- */

/* One of the two sets, values in [0, 1] where they are bytes. */
static hdo_status open_one(const hdo_data_config *c, bool val, hdo_dataset **out, hdo_error *e) {
    hdo_data_config d = *c;
    d.scaling = (hdo_choice){.id = HDO_SCALING_UNIT};
    hdo_dataset *both[2];
    hdo_status st = hdo__data_open(&d, &both[0], &both[1], e);
    if (st != HDO_OK) return st;
    *out = both[val];
    hdo__dataset_destroy(both[!val]);
    if (*out == NULL) return hdo__fail(e, HDO_E_CONFIG, "data: %s has no samples", c->name);
    return HDO_OK;
}

enum { STEP = 64 };

typedef struct sums { /* shifted by the first value of each channel, so that the squares do not cancel */
    double shift[4], s1[4], s2[4];
} sums;

static void add_batch(hdo_data_stats *o, sums *m, const hdo_dataset *ds, const float *in, int n, bool first) {
    const int channels = ds->shape[0] < 4 ? ds->shape[0] : 4, plane = ds->shape[1] * ds->shape[2];
    for (int k = 0; k < n; k++) {
        for (int c = 0; c < channels; c++) {
            const float *p = in + (size_t)k * (size_t)ds->n_in + (size_t)c * (size_t)plane;
            if (first && k == 0) m->shift[c] = (double)p[0];
            double a = 0, b = 0;
            for (int i = 0; i < plane; i++) {
                double v = (double)p[i], d = v - m->shift[c];
                a += d;
                b += d * d;
                if (v < o->min) o->min = v;
                if (v > o->max) o->max = v;
            }
            m->s1[c] += a;
            m->s2[c] += b;
        }
    }
}

hdo_status hdo_data_statistics(const hdo_data_config *c, bool val, hdo_data_stats *out, hdo_error *e) {
    hdo_dataset *ds;
    hdo_status st = open_one(c, val, &ds, e);
    if (st != HDO_OK) return st;
    hdo_data_stats o = {.count = ds->count,
                        .classes = ds->classes,
                        .n_in = ds->n_in,
                        .vocab = ds->vocab,
                        .min = HUGE_VAL,
                        .max = -HUGE_VAL,
                        .bayes_error = (double)NAN};
    memcpy(o.shape, ds->shape, sizeof o.shape);
    memcpy(o.sha256, ds->sha256, sizeof o.sha256);
    if (strcmp(c->name, "synthetic") == 0)
        o.bayes_error = hdo__synth_bayes_error(c->classes, c->features, c->separation);
    for (int k = 0; k < 4; k++) o.mean[k] = o.sd[k] = (double)NAN;
    for (int64_t i = 0; i < ds->count; i++) {
        int32_t y = ds->ops->label(ds, i);
        if (y < HDO_DATA_HISTOGRAM) o.per_class[y]++;
    }
    if (ds->vocab > 0) {
        o.min = 0;
        o.max = ds->vocab - 1;
        goto out;
    }
    float *in = malloc((size_t)STEP * (size_t)ds->n_in * sizeof *in);
    if (in == NULL) {
        st = hdo__fail(e, HDO_E_MEMORY, "out of memory for a batch");
        goto out;
    }
    sums m = {{0}, {0}, {0}};
    for (int64_t i = 0; i < ds->count; i += STEP) {
        int64_t idx[STEP];
        int32_t label[STEP];
        int n = ds->count - i < STEP ? (int)(ds->count - i) : STEP;
        for (int k = 0; k < n; k++) idx[k] = i + k;
        hdo__dataset_gather(ds, idx, n, NULL, in, NULL, label);
        add_batch(&o, &m, ds, in, n, i == 0);
    }
    free(in);
    for (int k = 0; k < 4 && k < ds->shape[0]; k++) {
        const double n = (double)ds->count * (double)ds->shape[1] * (double)ds->shape[2], d = m.s1[k] / n;
        const double v = m.s2[k] / n - d * d;
        o.mean[k] = m.shift[k] + d;
        o.sd[k] = v > 0 ? sqrt(v) : 0;
    }
out:
    hdo__dataset_destroy(ds);
    if (st == HDO_OK) *out = o;
    return st;
}

const char *hdo_data_class_name(const char *data, int label) {
    static const char *const brackets[2] = {"incorrect", "correct"};
    if (strcmp(data, "cifar10") == 0 && label >= 0 && label < 10) return hdo__cifar_names[label];
    if (strcmp(data, "brackets") == 0 && label >= 0 && label < 2) return brackets[label];
    return NULL;
}

hdo_status hdo_data_sample_text(const hdo_data_config *c, bool val, int64_t i, char *buf, size_t cap, hdo_error *e) {
    hdo_dataset *ds;
    if (cap > 0) buf[0] = '\0';
    hdo_status st = open_one(c, val, &ds, e);
    if (st != HDO_OK) return st;
    int32_t label, *tok = NULL;
    if (ds->vocab == 0) {
        st = hdo__fail(e, HDO_E_UNSUPPORTED, "samples of %s are not text", c->name);
    } else if (i < 0 || i >= ds->count) {
        st = hdo__fail(e, HDO_E_CONFIG, "sample %lld: there are %lld", (long long)i, (long long)ds->count);
    } else if ((tok = malloc((size_t)ds->n_in * sizeof *tok)) == NULL) {
        st = hdo__fail(e, HDO_E_MEMORY, "out of memory for a sample");
    } else {
        static const char symbol[] = {'<', '>', ' ', '?', '(', ')'};
        hdo__dataset_gather(ds, &i, 1, NULL, NULL, tok, &label);
        size_t at = 0;
        for (int p = 0; p < ds->n_in && at + 1 < cap; p++) {
            if (tok[p] == HDO_TOK_UNK || tok[p] >= HDO_TOK_OPEN) buf[at++] = symbol[tok[p]];
        }
        if (cap > 0) buf[at] = '\0';
    }
    free(tok);
    hdo__dataset_destroy(ds);
    return st;
}
