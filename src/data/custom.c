/* SPDX-License-Identifier: Apache-2.0
 *
 * The user's own files: csv, libsvm (one file), npy, idx (a pair of files).
 *
 *   data.path      the training file. For pairs: the inputs' file, whose name gives the labels' file ("images" ->
 *                  "labels", "x" -> "y": train-images-idx3-ubyte, train_x.npy, x_train.npy), or "inputs,labels", or a
 *                  folder with train-images..., train-labels... (and t10k-, test- or val- files for validation).
 *   data.path_val  the validation file. Empty: a random share of the training samples, data.validation (a fifth unless
 *                  set) or data.val of them, chosen by data.data_seed, is held out.
 *   data.label     csv: the column of the label, see tabular.c.
 *
 * Scaling `normalised`: bytes by mean and deviation of each channel, floats by those of each column, both of the
 * training set. `unit`: bytes to [0, 1], floats as they are.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sha256.h"
#include "data/data_impl.h"

/* ---- which files ---- */

/* Replaces the last `from` in the file name of path by `to`. False when it is not there or does not fit. */
static bool rename_part(const char *path, const char *from, const char *to, char *out, size_t cap) {
    const char *base = strrchr(path, '/'), *hit = NULL;
    base = base != NULL ? base + 1 : path;
    for (const char *p = base; (p = strstr(p, from)) != NULL; p++) hit = p;
    if (hit == NULL) return false;
    int n = snprintf(out, cap, "%.*s%s%s", (int)(hit - path), path, to, hit + strlen(from));
    return n > 0 && (size_t)n < cap;
}

static bool readable(const char *path) {
    return access(path, R_OK) == 0;
}

static bool labels_beside(const char *images, char *out, size_t cap) {
    static const char *const swap[][2] = {{"images", "labels"}, {"x_", "y_"}, {"X_", "y_"}, {"_x", "_y"},
                                          {"_X", "_y"},         {"x.", "y."}, {"X.", "y."}};
    for (size_t k = 0; k < sizeof swap / sizeof swap[0]; k++) {
        if (!rename_part(images, swap[k][0], swap[k][1], out, cap)) continue;
        if (readable(out)) return true;
        char tmp[HDO_DATA_PATH_MAX];
        for (char d = '2'; d <= '4'; d++) { /* images-idx3-ubyte, labels-idx1-ubyte */
            const char from[] = {'i', 'd', 'x', d, '\0'};
            if (rename_part(out, from, "idx1", tmp, sizeof tmp) && readable(tmp)) {
                snprintf(out, cap, "%s", tmp);
                return true;
            }
        }
    }
    return false;
}

/* DIR/<prefix>-images... of the given format. */
static bool images_in_folder(const char *dir, const char *format, const char *prefix, char *out, size_t cap) {
    static const char *const idx[] = {"-images-idx3-ubyte", "-images-idx3-ubyte.gz", "-images-idx4-ubyte",
                                      "-images-idx2-ubyte", "-images.idx3-ubyte",    NULL};
    static const char *const npy[] = {"-images.npy", "_images.npy", "_x.npy", "_X.npy", NULL};
    const char *const *list = strcmp(format, "idx") == 0 ? idx : npy;
    for (; *list != NULL; list++) {
        int n = snprintf(out, cap, "%s/%s%s", dir, prefix, *list);
        if (n > 0 && (size_t)n < cap && readable(out)) return true;
    }
    int n = snprintf(out, cap, "%s/x_%s.npy", dir, prefix);
    return list != NULL && strcmp(format, "npy") == 0 && n > 0 && (size_t)n < cap && readable(out);
}

static hdo_status find_pair(const char *path, const char *format, bool val, char *images, char *labels, hdo_error *e) {
    const size_t cap = HDO_DATA_PATH_MAX;
    struct stat st;
    const char *comma = strrchr(path, ',');
    if (stat(path, &st) != 0 && comma != NULL) {
        snprintf(images, cap, "%.*s", (int)(comma - path), path);
        snprintf(labels, cap, "%s", comma + 1);
        return HDO_OK;
    }
    snprintf(images, cap, "%s", path);
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        bool ok = !val && images_in_folder(path, format, "train", images, cap);
        ok = ok || (val && (images_in_folder(path, format, "t10k", images, cap) ||
                            images_in_folder(path, format, "test", images, cap) ||
                            images_in_folder(path, format, "val", images, cap)));
        if (!ok) {
            return hdo__fail(e, HDO_E_DATA, "'%s' has no %s inputs for %s (such as %s-images%s)", path, format,
                             val ? "validation" : "training", val ? "t10k" : "train",
                             strcmp(format, "idx") == 0 ? "-idx3-ubyte" : ".npy");
        }
    }
    if (!readable(images)) return hdo__fail(e, HDO_E_DATA, "cannot read '%s' (the %s file of inputs)", images, format);
    if (!labels_beside(images, labels, cap)) {
        return hdo__fail(e, HDO_E_DATA,
                         "found no labels for '%s': name them alike (images/labels or x/y), or write data.path as "
                         "'inputs,labels'",
                         images);
    }
    return HDO_OK;
}

static bool folder_has_val(const char *path, const char *format) {
    char buf[HDO_DATA_PATH_MAX];
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) return false;
    return images_in_folder(path, format, "t10k", buf, sizeof buf) ||
           images_in_folder(path, format, "test", buf, sizeof buf) ||
           images_in_folder(path, format, "val", buf, sizeof buf);
}

/* ---- reading ---- */

static hdo_status fetch(hdo_blob *b, const char *path, char sha[65], hdo_error *e) {
    hdo_status st = hdo__blob_read(b, path, e);
    if (st != HDO_OK) return st;
    hdo__sha256_bytes(b->p, b->len, sha);
    st = hdo__blob_gunzip(b, HDO_READ_MAX, path, e);
    if (st != HDO_OK) hdo__blob_close(b);
    return st;
}

static hdo_status read_rows(hdo_table *r, const hdo_data_config *c, const char *path, bool val, const hdo_table *like,
                            hdo_error *e) {
    const char *format = c->name;
    *r = (hdo_table){0};
    hdo_blob x = {0}, y = {0};
    char sha[2][65];
    hdo_status st;
    if (strcmp(format, "csv") == 0 || strcmp(format, "libsvm") == 0) {
        st = fetch(&x, path, sha[0], e);
        if (st != HDO_OK) return st;
        st = format[0] == 'c' ? hdo__csv_parse_label(r, (const char *)x.p, x.len, like, c->label, path, e)
                              : hdo__libsvm_parse(r, (const char *)x.p, x.len, like, HDO_READ_MAX, path, e);
        memcpy(r->sha256, sha[0], 65);
        goto out;
    }
    char images[HDO_DATA_PATH_MAX], labels[HDO_DATA_PATH_MAX];
    st = find_pair(path, format, val, images, labels, e);
    if (st == HDO_OK) st = fetch(&x, images, sha[0], e);
    if (st == HDO_OK) st = fetch(&y, labels, sha[1], e);
    if (st != HDO_OK) goto out;
    hdo_file_pair f = {x.p, x.len, y.p, y.len, images, labels};
    st = strcmp(format, "npy") == 0 ? hdo__npy_parse(r, &f, e) : hdo__idx_parse_pair(r, &f, e);
    const char *const name[2] = {"inputs", "labels"};
    hdo__fingerprint((const char(*)[65])sha, name, 2, r->sha256);
    if (st != HDO_OK || like == NULL) goto out;
    if (memcmp(r->shape, like->shape, sizeof r->shape) != 0 || (r->bytes == NULL) != (like->bytes == NULL)) {
        st = hdo__fail(e, HDO_E_DATA, "'%s' holds %s samples of %dx%dx%d; the training file has %s of %dx%dx%d", images,
                       r->bytes != NULL ? "byte" : "float", r->shape[0], r->shape[1], r->shape[2],
                       like->bytes != NULL ? "byte" : "float", like->shape[0], like->shape[1], like->shape[2]);
    } else if (r->classes > like->classes) {
        st = hdo__fail(e, HDO_E_DATA, "'%s' has a label %d; the training labels are 0 .. %d", labels, r->classes - 1,
                       like->classes - 1);
    }
    r->classes = like->classes;
out:
    hdo__blob_close(&x);
    hdo__blob_close(&y);
    if (st != HDO_OK) hdo__table_clear(r);
    return st;
}

/* More columns, zero: LIBSVM files leave out trailing zeros, so the validation file may be the wider one. */
static hdo_status widen(hdo_table *r, int n_in, hdo_error *e) {
    if (r->n_in >= n_in) return HDO_OK;
    float *x = calloc((size_t)r->count * (size_t)n_in, sizeof *x);
    if (x == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for %lld samples", (long long)r->count);
    for (int64_t i = 0; i < r->count; i++) {
        memcpy(x + (size_t)i * (size_t)n_in, r->reals + (size_t)i * (size_t)r->n_in, (size_t)r->n_in * sizeof *x);
    }
    free(r->reals);
    r->reals = x;
    r->n_in = r->shape[2] = n_in;
    return HDO_OK;
}

/* Rows first .. first+n-1 of a random order of src into dst. */
static hdo_status take(hdo_table *dst, const hdo_table *src, uint64_t seed, int64_t first, int64_t n, hdo_error *e) {
    *dst = *src;
    dst->names = NULL;
    dst->count = n;
    const size_t width = (size_t)src->n_in * (src->bytes != NULL ? 1 : sizeof(float));
    uint8_t *to = malloc((size_t)n * width);
    dst->label = malloc((size_t)n * sizeof *dst->label);
    dst->bytes = NULL;
    dst->reals = NULL;
    if (to == NULL || dst->label == NULL) {
        free(to);
        hdo__table_clear(dst);
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for %lld samples", (long long)n);
    }
    const uint8_t *from = src->bytes != NULL ? src->bytes : (const uint8_t *)src->reals;
    const hdo_perm perm = hdo__perm(hdo__stream(seed, HDO_RNG_DATA, 2, 0, 0), (uint64_t)src->count);
    for (int64_t i = 0; i < n; i++) {
        uint64_t j = hdo__perm_at(&perm, (uint64_t)(first + i));
        memcpy(to + (size_t)i * width, from + (size_t)j * width, width);
        dst->label[i] = src->label[j];
    }
    if (src->bytes != NULL) {
        dst->bytes = to;
    } else {
        dst->reals = (float *)(void *)to;
    }
    return HDO_OK;
}

/* ---- scaling ---- */

/* Mean and deviation per channel of bytes scaled to [0, 1]. */
static void byte_moments(const hdo_table *r, float *mean, float *sd) {
    const size_t plane = (size_t)r->shape[1] * (size_t)r->shape[2];
    for (int c = 0; c < r->shape[0]; c++) {
        double s1 = 0, s2 = 0;
        for (int64_t i = 0; i < r->count; i++) {
            const uint8_t *p = r->bytes + (size_t)i * (size_t)r->n_in + (size_t)c * plane;
            uint64_t a = 0, b = 0;
            for (size_t k = 0; k < plane; k++) {
                a += p[k];
                b += (uint64_t)p[k] * p[k];
            }
            s1 += (double)a;
            s2 += (double)b;
        }
        const double n = (double)r->count * (double)plane, m = s1 / n, v = s2 / n - m * m;
        mean[c] = (float)(m / 255);
        sd[c] = v > 1e-9 ? (float)(sqrt(v) / 255) : 1.0f;
    }
}

/* Columns of both sets to mean 0 and deviation 1 of the training set; a constant column becomes 0. */
static hdo_status standardise(hdo_table *t, hdo_table *v, hdo_error *e) {
    const size_t F = (size_t)t->n_in;
    double *mean = calloc(2 * F, sizeof *mean), *sd = mean + F;
    if (mean == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for %zu columns", F);
    for (int64_t i = 0; i < t->count; i++) {
        for (size_t f = 0; f < F; f++) mean[f] += (double)t->reals[(size_t)i * F + f];
    }
    for (size_t f = 0; f < F; f++) mean[f] /= (double)t->count;
    for (int64_t i = 0; i < t->count; i++) {
        for (size_t f = 0; f < F; f++) {
            double d = (double)t->reals[(size_t)i * F + f] - mean[f];
            sd[f] += d * d;
        }
    }
    for (size_t f = 0; f < F; f++) {
        sd[f] = sqrt(sd[f] / (double)t->count);
        if (!(sd[f] > 1e-12 * fabs(mean[f])) || sd[f] < 1e-37) sd[f] = 0;
    }
    hdo_table *both[2] = {t, v};
    for (int k = 0; k < 2; k++) {
        for (int64_t i = 0; i < both[k]->count; i++) {
            float *row = both[k]->reals + (size_t)i * F;
            for (size_t f = 0; f < F; f++) row[f] = sd[f] > 0 ? (float)(((double)row[f] - mean[f]) / sd[f]) : 0.0f;
        }
    }
    free(mean);
    return HDO_OK;
}

/* Hands the memory of r over to a data set. */
static hdo_status to_dataset(hdo_table *r, const float *mean, const float *sd, int64_t limit, hdo_dataset **out,
                             hdo_error *e) {
    hdo_status st;
    if (r->bytes != NULL) {
        hdo_byteset_spec s = {.count = r->count,
                              .per_chunk = r->count,
                              .chunk = {r->bytes},
                              .stride = (size_t)r->n_in,
                              .classes = r->classes,
                              .label = r->label,
                              .mean = mean,
                              .sd = sd,
                              .n_blobs = 1,
                              .blob = {{.p = r->bytes, .len = (size_t)r->count * (size_t)r->n_in}}};
        memcpy(s.shape, r->shape, sizeof s.shape);
        st = hdo__byteset_create(out, &s, e);
    } else {
        st = hdo__floatset_create(out, r->count, r->shape, r->classes, r->reals, r->label, e);
    }
    if (st != HDO_OK) return st;
    r->bytes = NULL;
    r->reals = NULL;
    r->label = NULL;
    memcpy((*out)->sha256, r->sha256, sizeof r->sha256);
    if (limit > 0 && limit < (*out)->count) (*out)->count = limit;
    return HDO_OK;
}

hdo_status hdo__custom_open(const hdo_data_config *c, hdo_dataset **train, hdo_dataset **val, hdo_error *e) {
    hdo_table t = {0}, v = {0}, all = {0};
    float *moments = NULL;
    if (c->path[0] == '\0') {
        return hdo__fail(e, HDO_E_CONFIG, "data.name is %s, so data.path must name the training file", c->name);
    }
    const bool beside = c->path_val[0] == '\0' && (strcmp(c->name, "idx") == 0 || strcmp(c->name, "npy") == 0) &&
                        folder_has_val(c->path, c->name);
    const bool hold_out = c->path_val[0] == '\0' && !beside;
    const bool share = hdo__validation_set(c);
    if (!hold_out && share) {
        return hdo__fail(
            e, HDO_E_CONFIG,
            "data.validation is %g, but the validation samples have a file of their own (%s): leave one of "
            "them out",
            c->validation, beside ? "in the folder data.path" : "data.path_val");
    }
    hdo_status st = read_rows(hold_out ? &all : &t, c, c->path, false, NULL, e);
    if (st != HDO_OK) goto out;
    if (hold_out) {
        int64_t n =
            c->val > 0 ? c->val : (int64_t)((share ? c->validation : HDO_VALIDATION_DEFAULT) * (double)all.count);
        if (n < 1) n = 1;
        if (n >= all.count) {
            st = hdo__fail(e, HDO_E_DATA, "'%s' has %lld samples; %lld of them for validation leave none for training",
                           c->path, (long long)all.count, (long long)n);
            goto out;
        }
        st = take(&v, &all, (uint64_t)c->data_seed, 0, n, e);
        if (st == HDO_OK) st = take(&t, &all, (uint64_t)c->data_seed, n, all.count - n, e);
    } else {
        st = read_rows(&v, c, beside ? c->path : c->path_val, true, &t, e);
        if (st == HDO_OK && t.reals != NULL) st = widen(&t, v.n_in, e);
    }
    if (st != HDO_OK) goto out;
    if (t.classes < 2) {
        st = hdo__fail(e, HDO_E_DATA, "'%s' has only one class", c->path);
        goto out;
    }
    const bool unit = c->scaling.id == HDO_SCALING_UNIT;
    if (!unit && t.bytes != NULL) {
        moments = malloc(2 * (size_t)t.shape[0] * sizeof *moments);
        if (moments == NULL) {
            st = hdo__fail(e, HDO_E_MEMORY, "out of memory");
            goto out;
        }
        byte_moments(&t, moments, moments + t.shape[0]);
    }
    if (!unit && t.reals != NULL) st = standardise(&t, &v, e);
    const float *sd = moments != NULL ? moments + t.shape[0] : NULL;
    if (st == HDO_OK) st = to_dataset(&t, moments, sd, c->train, train, e);
    if (st == HDO_OK) st = to_dataset(&v, moments, sd, c->val, val, e);
out:
    free(moments);
    hdo__table_clear(&t);
    hdo__table_clear(&v);
    hdo__table_clear(&all);
    return st;
}
