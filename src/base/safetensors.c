/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of tensors for users (hdo/weights.h): numbers of any type in, float out. The container itself, headers and
 * their rules, is base/stfile.c's. All of it works on bytes in memory (tests/fuzz/fuzz_safetensors.c feeds it whatever
 * comes); files are read and written through base/file.h.
 */
#include "hdo/experimental/weights.h"

#include <assert.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/stfile.h"

struct hdo_tensors {
    const unsigned char *data; /* the data section */
    hdo_st_list list;          /* owns every name */
    json_t *notes;             /* __metadata__, or NULL */
    hdo_tensor_info *row;      /* (list.n) */
    char *owned;               /* the file, when we read it */
};

/* ---- element types ---- */

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
    hdo_status st = hdo__st_parse(data, len, len, "not a sound safetensors file", &t->list, e);
    if (st == HDO_OK) {
        const char *notes = t->list.metadata;
        t->row = calloc((size_t)t->list.n + 1, sizeof *t->row);
        t->notes = notes != NULL ? json_loads(notes, 0, NULL) : NULL;
        if (t->row == NULL || (notes != NULL && t->notes == NULL))
            st = hdo__fail(e, HDO_E_MEMORY, "out of memory reading tensors");
    }
    if (st != HDO_OK) {
        hdo_tensors_close(t);
        return st;
    }
    uint64_t start = 8 + little(data, 8);
    t->data = (const unsigned char *)data + start;
    for (int i = 0; i < t->list.n; i++) {
        const hdo_st_tensor *f = &t->list.t[i];
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
    hdo__st_clear(&t->list);
    free(t->row);
    free(t->owned);
    free(t);
}

/* ---- asking ---- */

int hdo_tensors_count(const hdo_tensors *t) {
    return t->list.n;
}

const hdo_tensor_info *hdo_tensors_at(const hdo_tensors *t, int i) {
    assert(i >= 0 && i < t->list.n);
    return &t->row[i];
}

int hdo_tensors_find(const hdo_tensors *t, const char *name) {
    for (int i = 0; i < t->list.n; i++)
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

typedef float (*convert_fn)(uint64_t bits);

static float from_f32(uint64_t v) {
    return bits_to_float((uint32_t)v);
}
static float from_bf16(uint64_t v) {
    return bits_to_float((uint32_t)v << 16);
}
static float from_f16(uint64_t v) {
    return half_to_float((uint32_t)v);
}
static float from_f64(uint64_t v) {
    double d;
    memcpy(&d, &v, sizeof d);
    return (float)d;
}
static float from_i64(uint64_t v) {
    return (float)(int64_t)v;
}
static float from_i32(uint64_t v) {
    return (float)(int32_t)(uint32_t)v;
}
static float from_i16(uint64_t v) {
    return (float)(int16_t)(uint16_t)v;
}
static float from_i8(uint64_t v) {
    return (float)(int8_t)(uint8_t)v;
}
static float from_unsigned(uint64_t v) {
    return (float)v;
}

static convert_fn converter(const char *dtype) {
    static const struct {
        const char *name;
        convert_fn fn;
    } table[] = {{"F32", from_f32},      {"F16", from_f16},      {"BF16", from_bf16},    {"F64", from_f64},
                 {"I64", from_i64},      {"I32", from_i32},      {"I16", from_i16},      {"I8", from_i8},
                 {"U64", from_unsigned}, {"U32", from_unsigned}, {"U16", from_unsigned}, {"U8", from_unsigned},
                 {"BOOL", from_unsigned}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcmp(table[i].name, dtype) == 0) return table[i].fn;
    return NULL;
}

hdo_status hdo_tensors_read(const hdo_tensors *t, int i, float *out) {
    const hdo_tensor_info *r = hdo_tensors_at(t, i);
    unsigned bytes = (unsigned)hdo__st_dtype_bytes(r->dtype);
    convert_fn convert = converter(r->dtype);
    if (convert == NULL) return HDO_E_UNSUPPORTED;
    for (uint64_t k = 0; k < r->count; k++) out[k] = convert(little(t->data + r->begin + k * bytes, bytes));
    return HDO_OK;
}

/* ---- writing ---- */

/* key, value, key, value, ..., NULL as a JSON object; NULL: out of memory, said in e. */
static char *notes_json(const char *const *notes, hdo_error *e) {
    hdo_json j;
    hdo__json_init(&j, false);
    hdo__json_object(&j, NULL);
    for (int i = 0; notes[i] != NULL && notes[i + 1] != NULL; i += 2) hdo__json_text(&j, notes[i], notes[i + 1]);
    char *text = hdo__json_finish(&j);
    if (text == NULL) hdo__fail(e, HDO_E_MEMORY, "out of memory writing tensors");
    return text;
}

static hdo_status describe(const hdo_tensor_out *rows, int i, hdo_st_tensor *t, hdo_error *e) {
    const hdo_tensor_out *r = &rows[i];
    if (strlen(r->name) >= sizeof t->name)
        return hdo__fail(e, HDO_E_FAILED, "the name '%.60s...' is too long for a tensor: at most %zu letters", r->name,
                         sizeof t->name - 1);
    for (int k = 0; k < i; k++)
        if (strcmp(rows[k].name, r->name) == 0)
            return hdo__fail(e, HDO_E_FAILED, "two tensors are called '%s'", r->name);
    *t = (hdo_st_tensor){.dtype = "F32", .n_dim = r->n_dim};
    memcpy(t->name, r->name, strlen(r->name) + 1);
    memcpy(t->dim, r->dim, sizeof t->dim);
    return HDO_OK;
}

/* Little endian whatever the machine; compiles to a copy. */
static void put_floats(unsigned char *q, const float *x, uint64_t n) {
    for (uint64_t k = 0; k < n; k++, q += 4) {
        uint32_t u;
        memcpy(&u, &x[k], sizeof u);
        for (unsigned b = 0; b < 4; b++) q[b] = (unsigned char)(u >> (8 * b));
    }
}

hdo_status hdo_tensors_format(const hdo_tensor_out *rows, int n, const char *const *notes, void **data, size_t *len,
                              hdo_error *e) {
    char *metadata = NULL;
    hdo_st_head head = {0};
    unsigned char *p = NULL;
    hdo_st_tensor *t = calloc((size_t)n + 1, sizeof *t);
    hdo_status st = t != NULL ? HDO_OK : hdo__fail(e, HDO_E_MEMORY, "out of memory writing tensors");
    *data = NULL;
    *len = 0;
    if (st == HDO_OK && notes != NULL && notes[0] != NULL) {
        metadata = notes_json(notes, e);
        if (metadata == NULL) st = HDO_E_MEMORY;
    }
    for (int i = 0; i < n && st == HDO_OK; i++) st = describe(rows, i, &t[i], e);
    if (st == HDO_OK) st = hdo__st_plan(t, n, metadata, &head, e);
    if (st == HDO_OK) p = malloc(head.file_len);
    if (st == HDO_OK && p == NULL) st = hdo__fail(e, HDO_E_MEMORY, "out of memory writing tensors");
    if (st == HDO_OK) {
        memcpy(p, head.bytes, head.len);
        for (int i = 0; i < n; i++) put_floats(p + t[i].off, rows[i].data, t[i].bytes / 4);
        *data = p;
        *len = head.file_len;
    }
    free(metadata);
    free(head.bytes);
    free(t);
    return st;
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
