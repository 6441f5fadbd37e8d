/* SPDX-License-Identifier: Apache-2.0 — safetensors headers: planned, written, and read with suspicion. */
#include "base/stfile.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"

#define HEADER_MAX ((uint64_t)100 * 1000 * 1000) /* the format's own limit */
enum { TENSORS_MAX = 1 << 20 };

size_t hdo__st_dtype_bytes(const char *dtype) {
    static const struct {
        const char *name;
        size_t bytes;
    } types[] = {{"F64", 8}, {"F32", 4},  {"F16", 2}, {"BF16", 2}, {"I64", 8}, {"I32", 4},     {"I16", 2},    {"I8", 1},
                 {"U8", 1},  {"BOOL", 1}, {"U16", 2}, {"U32", 4},  {"U64", 8}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(types[i].name, dtype) == 0) return types[i].bytes;
    }
    return 0;
}

/* Product of the dimensions times the element size; false on overflow. */
static bool tensor_bytes(const hdo_st_tensor *t, uint64_t *bytes) {
    uint64_t n = hdo__st_dtype_bytes(t->dtype);
    for (int i = 0; i < t->n_dim; i++) {
        uint64_t d = (uint64_t)t->dim[i];
        if (d != 0 && n > UINT64_MAX / 4 / d) return false;
        n *= d;
    }
    *bytes = n;
    return true;
}

hdo_status hdo__st_plan(hdo_st_tensor *t, int n, const char *metadata, hdo_st_head *out, hdo_error *e) {
    hdo_json j;
    uint64_t off = 0;
    hdo__json_init(&j, false);
    hdo__json_object(&j, NULL);
    if (metadata != NULL) hdo__json_raw(&j, "__metadata__", metadata);
    for (int i = 0; i < n; i++) {
        if (!tensor_bytes(&t[i], &t[i].bytes)) {
            hdo__json_clear(&j);
            return hdo__fail(e, HDO_E_FAILED, "tensor '%s' is too large for a file", t[i].name);
        }
        hdo__json_object(&j, t[i].name);
        hdo__json_text(&j, "dtype", t[i].dtype);
        hdo__json_array(&j, "shape");
        for (int k = 0; k < t[i].n_dim; k++) hdo__json_int(&j, NULL, t[i].dim[k]);
        hdo__json_end(&j, ']');
        hdo__json_array(&j, "data_offsets");
        hdo__json_int(&j, NULL, (int64_t)off);
        hdo__json_int(&j, NULL, (int64_t)(off + t[i].bytes));
        hdo__json_end(&j, ']');
        hdo__json_end(&j, '}');
        t[i].off = off;
        off += t[i].bytes;
    }
    hdo__json_end(&j, '}');
    size_t len = (j.len + 63) / 64 * 64; /* padded with spaces, so that data start on a cache line */
    char *p = j.failed ? NULL : malloc(8 + len);
    if (p == NULL) {
        hdo__json_clear(&j);
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for a file header");
    }
    for (int i = 0; i < 8; i++) p[i] = (char)((uint64_t)len >> (8 * i) & 0xff);
    memcpy(p + 8, j.text, j.len);
    memset(p + 8 + j.len, ' ', len - j.len);
    hdo__json_clear(&j);
    for (int i = 0; i < n; i++) t[i].off += 8 + len;
    *out = (hdo_st_head){p, 8 + len, 8 + len + off};
    return HDO_OK;
}

static uint64_t read_u64(const unsigned char *p) {
    uint64_t v = 0;
    for (int i = 7; i >= 0; i--) v = v << 8 | p[i];
    return v;
}

/* One entry of the header into t, offsets still relative to the data. */
static hdo_status parse_tensor(const char *file, const char *name, const json_t *v, hdo_st_tensor *t, hdo_error *e) {
    const json_t *shape = json_object_get(v, "shape"), *range = json_object_get(v, "data_offsets");
    const char *dtype = json_string_value(json_object_get(v, "dtype"));
    *t = (hdo_st_tensor){0};
    if (strlen(name) >= sizeof t->name)
        return hdo__fail(e, HDO_E_DATA, "%s: the tensor name '%.60s...' is too long", file, name);
    memcpy(t->name, name, strlen(name) + 1);
    if (dtype == NULL || hdo__st_dtype_bytes(dtype) == 0) {
        return hdo__fail(e, HDO_E_DATA, "%s: tensor '%s' has no dtype we know", file, name);
    }
    snprintf(t->dtype, sizeof t->dtype, "%s", dtype);
    if (!json_is_array(shape) || json_array_size(shape) > HDO_ST_DIMS_MAX) {
        return hdo__fail(e, HDO_E_DATA, "%s: tensor '%s' has no shape, or more than %d dimensions", file, name,
                         HDO_ST_DIMS_MAX);
    }
    t->n_dim = (int)json_array_size(shape);
    for (int i = 0; i < t->n_dim; i++) {
        const json_t *d = json_array_get(shape, (size_t)i);
        t->dim[i] = json_integer_value(d);
        if (!json_is_integer(d) || t->dim[i] < 0)
            return hdo__fail(e, HDO_E_DATA, "%s: tensor '%s' has a bad shape", file, name);
    }
    const json_t *from = json_array_get(range, 0), *to = json_array_get(range, 1);
    if (!json_is_integer(from) || !json_is_integer(to) || json_array_size(range) != 2 || json_integer_value(from) < 0 ||
        json_integer_value(to) < json_integer_value(from)) {
        return hdo__fail(e, HDO_E_DATA, "%s: tensor '%s' has bad data_offsets", file, name);
    }
    t->off = (uint64_t)json_integer_value(from);
    t->bytes = (uint64_t)(json_integer_value(to) - json_integer_value(from));
    uint64_t bytes;
    if (!tensor_bytes(t, &bytes) || bytes != t->bytes) {
        return hdo__fail(e, HDO_E_DATA, "%s: tensor '%s' has %llu bytes, which is not what its shape needs", file, name,
                         (unsigned long long)t->bytes);
    }
    return HDO_OK;
}

static int by_offset(const void *a, const void *b) {
    const hdo_st_tensor *x = a, *y = b;
    if (x->off != y->off) return x->off < y->off ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

void hdo__st_clear(hdo_st_list *l) {
    free(l->t);
    free(l->metadata);
    *l = (hdo_st_list){0};
}

static hdo_status parse_metadata(const json_t *v, const char *file, char **out, hdo_error *e) {
    const char *k;
    json_t *note;
    if (!json_is_object(v)) return hdo__fail(e, HDO_E_DATA, "%s: __metadata__ is not an object", file);
    json_object_foreach((json_t *)(uintptr_t)v, k, note) {
        if (!json_is_string(note))
            return hdo__fail(e, HDO_E_DATA, "%s: __metadata__ holds something else than text", file);
    }
    *out = json_dumps(v, JSON_COMPACT);
    return *out != NULL ? HDO_OK : hdo__fail(e, HDO_E_MEMORY, "%s: out of memory", file);
}

/* The tensors cover the data, which begin at start, without overlap and hole. */
static hdo_status check_cover(hdo_st_list *l, const char *file, uint64_t start, uint64_t file_len, hdo_error *e) {
    uint64_t at = 0, data_len = file_len - start;
    qsort(l->t, (size_t)l->n, sizeof *l->t, by_offset);
    for (int i = 0; i < l->n; i++) {
        hdo_st_tensor *t = &l->t[i];
        if (t->off != at)
            return hdo__fail(e, HDO_E_DATA, "%s: tensor '%s' %s", file, t->name,
                             t->off < at ? "overlaps another one" : "leaves a hole before it");
        at += t->bytes;
        t->off += start;
    }
    if (at == data_len) return HDO_OK;
    return hdo__fail(e, HDO_E_DATA, "%s: the header describes %llu bytes of data, but the file has %llu: it is %s",
                     file, (unsigned long long)at, (unsigned long long)data_len,
                     at > data_len ? "truncated" : "too long");
}

static hdo_status parse_header(json_t *root, const char *file, hdo_st_list *out, hdo_error *e) {
    size_t cap = json_object_size(root);
    if (cap > TENSORS_MAX) return hdo__fail(e, HDO_E_DATA, "%s: %zu tensors are too many", file, cap);
    out->t = calloc(cap + 1, sizeof *out->t);
    hdo_status st = out->t == NULL ? hdo__fail(e, HDO_E_MEMORY, "%s: out of memory", file) : HDO_OK;
    const char *key;
    json_t *v;
    json_object_foreach(root, key, v) {
        if (st != HDO_OK) break;
        st = strcmp(key, "__metadata__") == 0 ? parse_metadata(v, file, &out->metadata, e)
                                              : parse_tensor(file, key, v, &out->t[out->n++], e);
    }
    return st;
}

hdo_status hdo__st_parse(const void *buf, size_t len, uint64_t file_len, const char *name, hdo_st_list *out,
                         hdo_error *e) {
    *out = (hdo_st_list){0};
    if (len < 8) return hdo__fail(e, HDO_E_DATA, "%s: too short to be a safetensors file", name);
    uint64_t head = read_u64(buf);
    if (head > HEADER_MAX || head > len - 8 || head > file_len - 8) {
        return hdo__fail(e, HDO_E_DATA, "%s: not a safetensors file, or truncated (header of %llu bytes)", name,
                         (unsigned long long)head);
    }
    const char *text = (const char *)buf + 8;
    json_error_t je;
    json_t *root = head > 0 && text[0] == '{' ? json_loadb(text, (size_t)head, JSON_REJECT_DUPLICATES, &je) : NULL;
    if (!json_is_object(root)) {
        json_decref(root);
        return hdo__fail(e, HDO_E_DATA, "%s: the header is not a JSON object (or names a tensor twice)", name);
    }
    hdo_status st = parse_header(root, name, out, e);
    json_decref(root);
    if (st == HDO_OK) st = check_cover(out, name, 8 + head, file_len, e);
    if (st != HDO_OK) hdo__st_clear(out);
    return st;
}

hdo_status hdo__st_open(const char *path, int *fd, hdo_st_list *out, hdo_error *e) {
    struct stat sb;
    unsigned char size[8];
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0) return hdo__fail(e, HDO_E_DATA, "cannot read '%s': %s", path, strerror(errno));
    hdo_status st = HDO_OK;
    char *buf = NULL;
    if (fstat(*fd, &sb) != 0 || pread(*fd, size, 8, 0) != 8) {
        st = hdo__fail(e, HDO_E_DATA, "%s: too short to be a safetensors file", path);
    } else {
        uint64_t head = read_u64(size);
        if (head > HEADER_MAX || head + 8 > (uint64_t)sb.st_size) {
            st = hdo__fail(e, HDO_E_DATA, "%s: not a safetensors file, or truncated", path);
        } else if ((buf = malloc((size_t)head + 8)) == NULL) {
            st = hdo__fail(e, HDO_E_MEMORY, "%s: out of memory", path);
        } else if (pread(*fd, buf, (size_t)head + 8, 0) != (ssize_t)(head + 8)) {
            st = hdo__fail(e, HDO_E_DATA, "%s: reading failed", path);
        } else {
            st = hdo__st_parse(buf, (size_t)head + 8, (uint64_t)sb.st_size, path, out, e);
        }
    }
    free(buf);
    if (st != HDO_OK) {
        close(*fd);
        *fd = -1;
    }
    return st;
}

const hdo_st_tensor *hdo__st_find(const hdo_st_list *l, const char *name) {
    for (int i = 0; i < l->n; i++) {
        if (strcmp(l->t[i].name, name) == 0) return &l->t[i];
    }
    return NULL;
}
