/* SPDX-License-Identifier: Apache-2.0
 *
 * IDX, the format of MNIST: 00 00 08 <dimensions>, the dimensions as big-endian 32-bit numbers, then the bytes. Raw or
 * gzip. Only unsigned bytes (type 08): no IDX file of images with another type is in circulation.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sha256.h"
#include "data/data_impl.h"
#include "data/store.h"

static uint32_t big_endian(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | (uint32_t)p[3];
}

hdo_status hdo__idx_parse(hdo_idx *out, const uint8_t *buf, size_t len, const char *what, hdo_error *e) {
    if (len < 8) return hdo__fail(e, HDO_E_DATA, "'%s' is not an IDX file: it has only %zu bytes", what, len);
    if (buf[0] != 0 || buf[1] != 0) {
        return hdo__fail(e, HDO_E_DATA, "'%s' is not an IDX file: it begins with %02x %02x instead of 00 00", what,
                         buf[0], buf[1]);
    }
    if (buf[2] != 0x08) {
        return hdo__fail(e, HDO_E_DATA, "'%s' holds IDX type 0x%02x; only unsigned bytes (0x08) are read", what,
                         buf[2]);
    }
    const int n_dim = buf[3];
    if (n_dim < 1 || n_dim > 4) {
        return hdo__fail(e, HDO_E_DATA, "'%s' says it has %d dimensions; 1 to 4 are read", what, n_dim);
    }
    const size_t head = 4 + 4 * (size_t)n_dim;
    if (len < head) return hdo__fail(e, HDO_E_DATA, "'%s' is cut short inside its header", what);
    hdo_idx r = {.n_dim = n_dim, .data = buf + head};
    uint64_t bytes = 1;
    for (int i = 0; i < n_dim; i++) {
        uint32_t d = big_endian(buf + 4 + 4 * i);
        if (d == 0 || d > INT32_MAX) {
            return hdo__fail(e, HDO_E_DATA, "'%s' says dimension %d is %u; 1 .. 2147483647 makes sense", what, i, d);
        }
        r.dim[i] = d;
        bytes *= d; /* below 2^31 * 2^33: checked each turn */
        if (bytes > HDO_READ_MAX)
            return hdo__fail(e, HDO_E_DATA, "'%s' says it holds more than %zu bytes", what, HDO_READ_MAX);
    }
    if (len - head != bytes) {
        return hdo__fail(e, HDO_E_DATA, "'%s' is %s: its header promises %llu bytes of data, there are %zu", what,
                         len - head < bytes ? "cut short" : "too long", (unsigned long long)bytes, len - head);
    }
    r.bytes = (size_t)bytes;
    *out = r;
    return HDO_OK;
}

/* Images (N, h, w), (N, c, h, w) or (N, f), and N labels: checks that they belong together. */
static hdo_status check_pair(const hdo_idx *x, const hdo_idx *y, int shape[3], const char *what_x, const char *what_y,
                             hdo_error *e) {
    if (x->n_dim < 2) return hdo__fail(e, HDO_E_DATA, "'%s' has 1 dimension; images need 2 to 4 (count first)", what_x);
    if (y->n_dim != 1) return hdo__fail(e, HDO_E_DATA, "'%s' has %d dimensions; labels have 1", what_y, y->n_dim);
    if (x->dim[0] != y->dim[0]) {
        return hdo__fail(e, HDO_E_DATA, "'%s' has %lld images but '%s' has %lld labels", what_x, (long long)x->dim[0],
                         what_y, (long long)y->dim[0]);
    }
    int64_t size = 1;
    shape[0] = shape[1] = shape[2] = 1;
    for (int i = 1; i < x->n_dim; i++) {
        size *= x->dim[i];
        if (size > (1 << 24)) return hdo__fail(e, HDO_E_DATA, "'%s' has more than 2^24 numbers a sample", what_x);
        shape[3 - x->n_dim + i] = (int)x->dim[i];
    }
    return HDO_OK;
}

static int32_t *widen(const uint8_t *p, size_t n, int *classes) {
    int32_t *label = malloc(n * sizeof *label);
    if (label == NULL) return NULL;
    int most = 0;
    for (size_t i = 0; i < n; i++) {
        label[i] = p[i];
        if (p[i] > most) most = p[i];
    }
    *classes = most + 1;
    return label;
}

hdo_status hdo__idx_parse_pair(hdo_table *r, const hdo_file_pair *f, hdo_error *e) {
    *r = (hdo_table){0};
    hdo_idx x, y;
    int shape[3];
    hdo_status st = hdo__idx_parse(&x, f->images, f->n_images, f->what_images, e);
    if (st == HDO_OK) st = hdo__idx_parse(&y, f->labels, f->n_labels, f->what_labels, e);
    if (st == HDO_OK) st = check_pair(&x, &y, shape, f->what_images, f->what_labels, e);
    if (st != HDO_OK) return st;
    r->count = x.dim[0];
    memcpy(r->shape, shape, sizeof shape);
    r->n_in = shape[0] * shape[1] * shape[2];
    r->bytes = malloc(x.bytes);
    r->label = widen(y.data, y.bytes, &r->classes);
    if (r->bytes == NULL || r->label == NULL) {
        hdo__table_clear(r);
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for the images of '%s'", f->what_images);
    }
    memcpy(r->bytes, x.data, x.bytes);
    return HDO_OK;
}

/* ---- MNIST ---- */

static const float mnist_mean[1] = {0.1307f}, mnist_sd[1] = {0.3081f};

/* DIR/name, DIR/name.gz, or with the dot some archives use (train-images.idx3-ubyte). */
static bool find_own(const char *dir, const char *name, char *path, size_t cap) {
    static const char *const end[] = {"", ".gz"};
    for (int dot = 0; dot < 2; dot++) {
        for (int z = 0; z < 2; z++) {
            int n = snprintf(path, cap, "%s/%s%s", dir, name, end[z]);
            if (n < 0 || (size_t)n >= cap) return false;
            char *mark = strstr(path + strlen(dir), "-idx");
            if (dot == 1 && mark != NULL) *mark = '.';
            if (access(path, R_OK) == 0) return true;
        }
    }
    return false;
}

typedef struct half_file {
    char path[HDO_DATA_PATH_MAX], sha[65];
    hdo_blob b;
} half_file;

/* Opens a file of the set: mapped from the store, or (own) read from the user's folder and hashed. */
static hdo_status fetch(const hdo_store_file *file, const char *dir, bool own, half_file *f, hdo_error *e) {
    const char *name = file->name;
    if (!own) {
        snprintf(f->path, sizeof f->path, "%s/%s", dir, name);
        memcpy(f->sha, file->sha256, 65);
        return hdo__blob_map(&f->b, f->path, e);
    }
    if (!find_own(dir, name, f->path, sizeof f->path)) {
        return hdo__fail(e, HDO_E_DATA, "'%s' has neither '%s' nor '%s.gz'; 'hdo data get mnist' obtains MNIST", dir,
                         name, name);
    }
    hdo_status st = hdo__blob_read(&f->b, f->path, e);
    if (st == HDO_OK) st = hdo__blob_gunzip(&f->b, HDO_READ_MAX, f->path, e);
    if (st == HDO_OK) hdo__sha256_bytes(f->b.p, f->b.len, f->sha);
    return st;
}

static hdo_status open_half(const hdo_data_config *c, const hdo_store_set *set, int k, const char *dir, int64_t limit,
                            hdo_dataset **out, hdo_error *e) {
    half_file x = {0}, y = {0};
    hdo_idx ix, iy;
    const bool own = c->path[0] != '\0', unit = c->scaling.id == HDO_SCALING_UNIT;
    hdo_byteset_spec s = {0};
    hdo_status st = fetch(&set->file[k], dir, own, &x, e);
    if (st == HDO_OK) st = fetch(&set->file[k + 1], dir, own, &y, e);
    if (st == HDO_OK) st = hdo__idx_parse(&ix, x.b.p, x.b.len, x.path, e);
    if (st == HDO_OK) st = hdo__idx_parse(&iy, y.b.p, y.b.len, y.path, e);
    if (st == HDO_OK) st = check_pair(&ix, &iy, s.shape, x.path, y.path, e);
    if (st != HDO_OK) goto out;
    if (s.shape[0] != 1 || s.shape[1] != 28 || s.shape[2] != 28) {
        st = hdo__fail(e, HDO_E_DATA, "'%s' holds %dx%d images; MNIST has 28x28 (for others use data: idx)", x.path,
                       s.shape[1], s.shape[2]);
        goto out;
    }
    int32_t *label = widen(iy.data, iy.bytes, &s.classes);
    if (label == NULL) {
        st = hdo__fail(e, HDO_E_MEMORY, "out of memory for the labels of '%s'", y.path);
        goto out;
    }
    if (s.classes > 10) {
        free(label);
        st = hdo__fail(e, HDO_E_DATA, "'%s' has a label %d; MNIST has 0 .. 9", y.path, s.classes - 1);
        goto out;
    }
    s.classes = 10;
    s.count = limit > 0 && limit < ix.dim[0] ? limit : ix.dim[0];
    s.per_chunk = ix.dim[0];
    s.chunk[0] = ix.data;
    s.stride = 784;
    s.label = label;
    s.mean = unit ? NULL : mnist_mean;
    s.sd = unit ? NULL : mnist_sd;
    s.blob[0] = x.b;
    s.n_blobs = 1;
    st = hdo__byteset_create(out, &s, e);
    if (st != HDO_OK) {
        free(label);
        goto out;
    }
    x.b = (hdo_blob){0};
    const char *const name[2] = {set->file[k].name, set->file[k + 1].name};
    char sha[2][65];
    memcpy(sha[0], x.sha, 65);
    memcpy(sha[1], y.sha, 65);
    hdo__fingerprint((const char(*)[65])sha, name, 2, (*out)->sha256);
out:
    hdo__blob_close(&x.b);
    hdo__blob_close(&y.b);
    return st;
}

hdo_status hdo__mnist_open(const hdo_data_config *c, hdo_dataset **train, hdo_dataset **val, hdo_error *e) {
    const hdo_store_set *set = hdo__store_find("mnist");
    char dir[HDO_DATA_PATH_MAX];
    hdo_status st = hdo__store_folder(set, c->path, dir, sizeof dir, e);
    if (st == HDO_OK) st = open_half(c, set, 0, dir, c->train, train, e);
    if (st == HDO_OK) st = open_half(c, set, 2, dir, c->val, val, e);
    return st;
}
