/* SPDX-License-Identifier: Apache-2.0
 *
 * CIFAR-10 in its official binary layout: rows of 3073 bytes, the label, then the red, green and blue planes of 1024.
 * Five training batches and one test batch of 10,000 rows. The files are mapped; labels are copied out once (they are
 * checked anyway).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"
#include "data/data_impl.h"
#include "data/store.h"

const char *const hdo__cifar_names[10] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                          "dog",      "frog",       "horse", "ship", "truck"};

/* The usual constants, of the training set. */
static const float cifar_mean[3] = {0.4914f, 0.4822f, 0.4465f}, cifar_sd[3] = {0.2470f, 0.2435f, 0.2616f};

/* The authors' code: (x - m) / s with other deviations, then, in front of their ResNet-18, once more with ImageNet's
 * constants m', s'. Together (x - (m + m' s)) / (s s'). Resizing in between makes no difference: its weights add to 1.
 */
static const double authors_mean[3] = {0.4914, 0.4822, 0.4465}, authors_sd[3] = {0.2023, 0.1994, 0.2010};
static const double imagenet_mean[3] = {0.485, 0.456, 0.406}, imagenet_sd[3] = {0.229, 0.224, 0.225};

bool hdo__cifar_scaling(int scaling, float mean[3], float sd[3]) {
    for (int k = 0; k < 3; k++) {
        bool twice = scaling == HDO_SCALING_TWICE;
        mean[k] = twice ? (float)(authors_mean[k] + imagenet_mean[k] * authors_sd[k]) : cifar_mean[k];
        sd[k] = twice ? (float)(authors_sd[k] * imagenet_sd[k]) : cifar_sd[k];
    }
    return scaling != HDO_SCALING_UNIT;
}

hdo_status hdo__cifar_check(const uint8_t *buf, size_t len, int32_t *label, const char *what, hdo_error *e) {
    if (len == 0 || len % HDO_CIFAR_ROW != 0) {
        return hdo__fail(e, HDO_E_DATA, "'%s' has %zu bytes, which is no multiple of 3073 (label and 32x32 RGB planes)",
                         what, len);
    }
    for (size_t i = 0; i < len / HDO_CIFAR_ROW; i++) {
        uint8_t y = buf[i * HDO_CIFAR_ROW];
        if (y > 9) return hdo__fail(e, HDO_E_DATA, "'%s': image %zu has label %u; CIFAR-10 has 0 .. 9", what, i, y);
        if (label != NULL) label[i] = y;
    }
    return HDO_OK;
}

typedef struct half { /* batches first .. first+n-1 of the set in dir, at most limit samples of them (0: all) */
    const hdo_store_set *set;
    const char *dir;
    int first, n;
    int64_t limit;
} half;

static hdo_status open_half(const hdo_data_config *c, const half *h, hdo_dataset **out, hdo_error *e) {
    const int n = h->n;
    const bool own = c->path[0] != '\0';
    float mean[3], sd[3];
    const bool scaled = hdo__cifar_scaling(c->scaling.id, mean, sd);
    hdo_byteset_spec s = {.per_chunk = HDO_CIFAR_BATCH, .stride = HDO_CIFAR_ROW, .shape = {3, 32, 32}, .classes = 10};
    char sha[HDO_CHUNKS_MAX][65];
    const char *name[HDO_CHUNKS_MAX];
    hdo_status st = HDO_OK;
    int32_t *label = malloc((size_t)n * HDO_CIFAR_BATCH * sizeof *label);
    if (label == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the labels of CIFAR-10");
    for (int k = 0; k < n && st == HDO_OK; k++) {
        const hdo_store_file *f = &h->set->file[h->first + k];
        char path[HDO_DATA_PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", h->dir, f->name);
        st = own ? hdo__blob_read(&s.blob[k], path, e) : hdo__blob_map(&s.blob[k], path, e);
        if (st != HDO_OK) break;
        s.n_blobs = k + 1;
        if (s.blob[k].len != (size_t)f->bytes) {
            st = hdo__fail(e, HDO_E_DATA, "'%s' has %zu bytes instead of %lld", path, s.blob[k].len,
                           (long long)f->bytes);
            break;
        }
        st = hdo__cifar_check(s.blob[k].p, s.blob[k].len, label + (size_t)k * HDO_CIFAR_BATCH, path, e);
        s.chunk[k] = s.blob[k].p + 1;
        name[k] = f->name;
        if (own) {
            hdo__sha256_bytes(s.blob[k].p, s.blob[k].len, sha[k]);
        } else {
            memcpy(sha[k], f->sha256, 65);
        }
    }
    int64_t all = (int64_t)n * HDO_CIFAR_BATCH;
    s.count = h->limit > 0 && h->limit < all ? h->limit : all;
    s.label = label;
    s.mean = scaled ? mean : NULL;
    s.sd = scaled ? sd : NULL;
    s.augment = c->augment && h->first == 0;
    s.always = c->augment_val && h->first != 0;
    s.seed = (uint64_t)c->data_seed;
    if (st == HDO_OK) st = hdo__byteset_create(out, &s, e);
    if (st == HDO_OK) {
        hdo__fingerprint((const char(*)[65])sha, name, n, (*out)->sha256);
        return HDO_OK;
    }
    for (int k = 0; k < s.n_blobs; k++) hdo__blob_close(&s.blob[k]);
    free(label);
    return st;
}

hdo_status hdo__cifar_open(const hdo_data_config *c, hdo_dataset **train, hdo_dataset **val, hdo_error *e) {
    const hdo_store_set *set = hdo__store_find("cifar10");
    char dir[HDO_DATA_PATH_MAX];
    hdo_status st = hdo__store_folder(set, c->path, dir, sizeof dir, e);
    if (st == HDO_OK) st = open_half(c, &(half){set, dir, 0, 5, c->train}, train, e);
    if (st == HDO_OK) st = open_half(c, &(half){set, dir, 5, 1, c->val}, val, e);
    if (st == HDO_E_DATA && c->path[0] != '\0') {
        hdo__error_prefix(e, "data.path has no CIFAR-10 binary batches ('hdo data import %s' converts PNG sheets)",
                          c->path);
    }
    return st;
}
