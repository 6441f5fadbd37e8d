/* SPDX-License-Identifier: Apache-2.0
 *
 * The safetensors format, reader and writer. The core works on bytes in memory (tests/fuzz/fuzz_safetensors.c feeds it
 * whatever comes); files are read and written through base/file.h.
 *
 *   u64 little-endian N (at most 100 MB) | N bytes of JSON starting with '{', space-padded at the end | data
 *   {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ..., "__metadata__": {"key": "text"}}
 *
 * Offsets count from the start of the data, which the tensors cover exactly: sorted by offset, each begins where the
 * one before ends, the first at 0, the last at the end of the file. Empty and 0-dimensional tensors are fine.
 */
#include "hdo/experimental/weights.h"

#include <assert.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/status.h"
#include "base/stfile.h"

#define HEADER_MAX ((uint64_t)100 * 1000 * 1000)

struct hdo_tensors {
    const unsigned char *data; /* the data section */
    hdo_st_tensor *list;       /* owns every name */
    json_t *notes;             /* __metadata__, or NULL */
    hdo_tensor_info *row;
    int n;
    char *owned; /* the file, when we read it */
};

/* ---- element types ---- */

typedef enum element { F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8, BOOL, F8_E4M3, F8_E5M2 } element;

static const struct {
    const char *name;
    element type;
    unsigned bytes;
} types[] = {
    {"F32", F32, 4}, {"F16", F16, 2}, {"BF16", BF16, 2}, {"F64", F64, 8},         {"I64", I64, 8},
    {"I32", I32, 4}, {"I16", I16, 2}, {"I8", I8, 1},     {"U64", U64, 8},         {"U32", U32, 4},
    {"U16", U16, 2}, {"U8", U8, 1},   {"BOOL", BOOL, 1}, {"F8_E4M3", F8_E4M3, 1}, {"F8_E5M2", F8_E5M2, 1},
};
enum { N_TYPES = sizeof types / sizeof types[0] };

static int find_type(const char *name) {
    for (int i = 0; i < N_TYPES; i++)
        if (strcmp(types[i].name, name) == 0) return i;
    return -1;
}

static uint64_t little(const unsigned char *p, unsigned bytes) {
    uint64_t v = 0;
    for (unsigned i = 0; i < bytes; i++) v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static float bits_to_float(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static float half_to_float(uint32_t h) {
    uint32_t exponent = (h >> 10) & 31, fraction = h & 1023;
    float sign = (h >> 15) != 0 ? -1.0f : 1.0f;
    if (exponent == 31) return fraction != 0 ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexpf((float)fraction, -24);
    return sign * ldexpf((float)(fraction + 1024), (int)exponent - 25);
}

/* ---- reading ---- */

/* The header is parsed and judged in base/stfile.h; here it becomes the public view of it. */
hdo_status hdo_tensors_parse(hdo_tensors **out, const void *data, size_t len, hdo_error *e) {
    *out = NULL;
    hdo_tensors *t = calloc(1, sizeof *t);
    if (t == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory reading tensors");
    char *notes = NULL;
    hdo_status st = hdo__st_parse(data, len, len, "not a sound safetensors file", &t->list, &t->n, &notes, e);
    if (st == HDO_OK) {
        t->row = calloc((size_t)t->n + 1, sizeof *t->row);
        t->notes = notes != NULL ? json_loads(notes, 0, NULL) : NULL;
        if (t->row == NULL || (notes != NULL && t->notes == NULL)) {
            st = hdo__fail(e, HDO_E_MEMORY, "out of memory reading tensors");
        }
    }
    free(notes);
    if (st != HDO_OK) {
        hdo_tensors_close(t);
        return st;
    }
    uint64_t start = 8 + little(data, 8);
    t->data = (const unsigned char *)data + start;
    for (int i = 0; i < t->n; i++) {
        const hdo_st_tensor *f = &t->list[i];
        hdo_tensor_info *r = &t->row[i];
        *r = (hdo_tensor_info){.name = f->name, .dtype = f->dtype, .n_dim = f->n_dim};
        memcpy(r->dim, f->dim, sizeof r->dim);
        r->begin = f->off - start;
        r->end = r->begin + f->bytes;
        r->count = f->bytes / hdo__st_dtype_bytes(f->dtype);
    }
    *out = t;
    return HDO_OK;
}

hdo_status hdo_tensors_open(hdo_tensors **out, const char *path, hdo_error *e) {
    char *file;
    size_t len;
    *out = NULL;
    hdo_status st = hdo__file_read(path, SIZE_MAX / 2, &file, &len, e);
    if (st != HDO_OK) {
        if (e != NULL && st == HDO_E_IO) e->code = HDO_E_DATA; /* weights asked for and not there: exit code 3 */
        return st == HDO_E_IO ? HDO_E_DATA : st;
    }
    st = hdo_tensors_parse(out, file, len, e);
    if (st != HDO_OK) {
        free(file);
        hdo__error_prefix(e, "%s", path);
        return st;
    }
    (*out)->owned = file;
    return HDO_OK;
}

void hdo_tensors_close(hdo_tensors *t) {
    if (t == NULL) return;
    json_decref(t->notes);
    free(t->list);
    free(t->row);
    free(t->owned);
    free(t);
}

/* ---- asking ---- */

int hdo_tensors_count(const hdo_tensors *t) {
    return t->n;
}

const hdo_tensor_info *hdo_tensors_at(const hdo_tensors *t, int i) {
    assert(i >= 0 && i < t->n);
    return &t->row[i];
}

int hdo_tensors_find(const hdo_tensors *t, const char *name) {
    for (int i = 0; i < t->n; i++)
        if (strcmp(t->row[i].name, name) == 0) return i;
    return -1;
}

const char *hdo_tensors_note(const hdo_tensors *t, const char *key) {
    return json_string_value(json_object_get(t->notes, key));
}

int hdo_tensors_note_at(const hdo_tensors *t, int i, const char **key, const char **value) {
    json_t *v;
    const char *k;
    json_object_foreach(t->notes, k, v) {
        if (i-- > 0) continue;
        *key = k;
        *value = json_string_value(v);
        return 1;
    }
    return 0;
}

const void *hdo_tensors_bytes(const hdo_tensors *t, int i) {
    return t->data + hdo_tensors_at(t, i)->begin;
}

hdo_status hdo_tensors_read(const hdo_tensors *t, int i, float *out) {
    const hdo_tensor_info *r = hdo_tensors_at(t, i);
    int type = find_type(r->dtype);
    unsigned bytes = types[type].bytes;
    for (uint64_t k = 0; k < r->count; k++) {
        uint64_t v = little(t->data + r->begin + k * bytes, bytes);
        switch (types[type].type) {
        case F32: out[k] = bits_to_float((uint32_t)v); break;
        case BF16: out[k] = bits_to_float((uint32_t)v << 16); break;
        case F16: out[k] = half_to_float((uint32_t)v); break;
        case F64: {
            double d;
            memcpy(&d, &v, sizeof d);
            out[k] = (float)d;
            break;
        }
        case I64: out[k] = (float)(int64_t)v; break;
        case I32: out[k] = (float)(int32_t)(uint32_t)v; break;
        case I16: out[k] = (float)(int16_t)(uint16_t)v; break;
        case I8: out[k] = (float)(int8_t)(uint8_t)v; break;
        case U64:
        case U32:
        case U16:
        case U8:
        case BOOL: out[k] = (float)v; break;
        default: return HDO_E_UNSUPPORTED;
        }
    }
    return HDO_OK;
}

/* ---- writing ---- */

static json_t *describe(const hdo_tensor_out *r, uint64_t begin, uint64_t end) {
    json_t *shape = json_array();
    for (int i = 0; i < r->n_dim; i++) json_array_append_new(shape, json_integer((json_int_t)r->dim[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", shape, "data_offsets", (json_int_t)begin,
                     (json_int_t)end);
}

hdo_status hdo_tensors_format(const hdo_tensor_out *rows, int n, const char *const *notes, void **data, size_t *len,
                              hdo_error *e) {
    *data = NULL;
    *len = 0;
    json_t *header = json_object();
    hdo_status st = HDO_OK;
    uint64_t at = 0;
    if (notes != NULL && notes[0] != NULL) {
        json_t *o = json_object();
        for (int i = 0; notes[i] != NULL && notes[i + 1] != NULL; i += 2)
            json_object_set_new(o, notes[i], json_string(notes[i + 1]));
        json_object_set_new(header, "__metadata__", o);
    }
    for (int i = 0; i < n && st == HDO_OK; i++) {
        uint64_t count = 1;
        for (int k = 0; k < rows[i].n_dim; k++) count *= (uint64_t)rows[i].dim[k];
        if (json_object_get(header, rows[i].name) != NULL)
            st = hdo__fail(e, HDO_E_FAILED, "two tensors are called '%s'", rows[i].name);
        else if (json_object_set_new(header, rows[i].name, describe(&rows[i], at, at + 4 * count)) != 0)
            st = hdo__fail(e, HDO_E_MEMORY, "out of memory writing tensors");
        at += 4 * count;
    }
    char *text = st == HDO_OK ? json_dumps(header, JSON_COMPACT) : NULL;
    json_decref(header);
    if (st == HDO_OK && text == NULL) st = hdo__fail(e, HDO_E_MEMORY, "out of memory writing tensors");
    if (st != HDO_OK) return st;
    size_t used = strlen(text), padded = (used + 7) & ~(size_t)7; /* data on an 8-byte boundary, as others write it */
    unsigned char *p = malloc(8 + padded + (size_t)at);
    if (p == NULL) {
        free(text);
        return hdo__fail(e, HDO_E_MEMORY, "out of memory writing tensors");
    }
    for (unsigned i = 0; i < 8; i++) p[i] = (unsigned char)(padded >> (8 * i));
    memset(p + 8, ' ', padded);
    memcpy(p + 8, text, used);
    free(text);
    unsigned char *q = p + 8 + padded;
    for (int i = 0; i < n; i++) {
        uint64_t count = 1;
        for (int k = 0; k < rows[i].n_dim; k++) count *= (uint64_t)rows[i].dim[k];
        for (uint64_t k = 0; k < count; k++, q += 4) { /* little endian whatever the machine; compiles to a copy */
            uint32_t u;
            memcpy(&u, &rows[i].data[k], sizeof u);
            for (unsigned b = 0; b < 4; b++) q[b] = (unsigned char)(u >> (8 * b));
        }
    }
    *data = p;
    *len = 8 + padded + (size_t)at;
    return HDO_OK;
}

hdo_status hdo_tensors_write(const char *path, const hdo_tensor_out *rows, int n, const char *const *notes,
                             hdo_error *e) {
    void *data;
    size_t len;
    hdo_status st = hdo_tensors_format(rows, n, notes, &data, &len, e);
    if (st == HDO_OK) st = hdo__file_write(path, data, len, e);
    free(data);
    return st;
}
