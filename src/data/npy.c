/* SPDX-License-Identifier: Apache-2.0
 *
 * NumPy arrays (.npy, versions 1 to 3): a pair of inputs and labels.
 *
 *   inputs  uint8, float32 or float64; (N, F), (N, H, W), (N, C, H, W) or (N, H, W, C). Four dimensions are read as
 *           (N, H, W, C) when the last is 1, 3 or 4 and the second is not.
 *   labels  any integer type, (N) or (N, 1), values 0 .. 65535.
 *
 * Little-endian and C order only: anything else is one line of Python away, and the message says so.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/data_impl.h"

typedef struct array {
    char kind; /* 'u', 'i', 'f' */
    int size;  /* bytes of an element */
    int n_dim;
    int64_t dim[4];
    const uint8_t *data;
    size_t count; /* elements */
} array;

/* The text after 'key': in the header dictionary, or NULL. */
static const char *value_of(const char *head, const char *key) {
    const char *p = strstr(head, key);
    if (p == NULL) return NULL;
    p += strlen(key);
    while (*p == ' ') p++;
    if (*p != ':') return NULL;
    p++;
    while (*p == ' ') p++;
    return p;
}

static hdo_status read_shape(const char *p, array *a, const char *what, hdo_error *e) {
    if (p == NULL || *p != '(') return hdo__fail(e, HDO_E_DATA, "'%s' has no shape in its header", what);
    p++;
    a->count = 1;
    for (;;) {
        while (*p == ' ' || *p == ',') p++;
        if (*p == ')') break;
        int64_t d = 0;
        if (*p < '0' || *p > '9') return hdo__fail(e, HDO_E_DATA, "'%s' has a shape that is no list of numbers", what);
        for (; *p >= '0' && *p <= '9'; p++) {
            d = 10 * d + (*p - '0');
            if (d > INT32_MAX) return hdo__fail(e, HDO_E_DATA, "'%s' has a dimension above 2147483647", what);
        }
        if (a->n_dim == 4 || d == 0) {
            return hdo__fail(e, HDO_E_DATA, "'%s' has %s", what, d == 0 ? "no elements" : "more than 4 dimensions");
        }
        a->dim[a->n_dim++] = d;
        if (a->count > HDO_READ_MAX / (size_t)d)
            return hdo__fail(e, HDO_E_DATA, "'%s' says it is larger than 8 GiB", what);
        a->count *= (size_t)d;
    }
    if (a->n_dim == 0) return hdo__fail(e, HDO_E_DATA, "'%s' holds a single number, not an array", what);
    return HDO_OK;
}

static hdo_status parse(array *a, const uint8_t *buf, size_t len, const char *what, hdo_error *e) {
    *a = (array){0};
    if (len < 10 || memcmp(buf, "\x93NUMPY", 6) != 0) return hdo__fail(e, HDO_E_DATA, "'%s' is not a .npy file", what);
    const bool v1 = buf[6] == 1;
    if (buf[6] < 1 || buf[6] > 3)
        return hdo__fail(e, HDO_E_DATA, "'%s' has .npy version %u; 1 to 3 are read", what, buf[6]);
    const size_t start = v1 ? 10 : 12;
    size_t n = (size_t)buf[8] | (size_t)buf[9] << 8;
    if (!v1 && len >= 12) n |= (size_t)buf[10] << 16 | (size_t)buf[11] << 24;
    char head[1024];
    if (len < start || n > len - start) return hdo__fail(e, HDO_E_DATA, "'%s' is cut short inside its header", what);
    if (n >= sizeof head)
        return hdo__fail(e, HDO_E_DATA, "'%s' has a header of %zu bytes; plain arrays need 128", what, n);
    memcpy(head, buf + start, n);
    head[n] = '\0';
    const char *d = value_of(head, "'descr'"), *order = value_of(head, "'fortran_order'");
    if (d == NULL || order == NULL || d[0] != '\'' || strlen(d) < 5 || d[4] != '\'') {
        return hdo__fail(e, HDO_E_DATA, "'%s' is no plain array of numbers (records and long types are not read)",
                         what);
    }
    if (d[1] == '>')
        return hdo__fail(e, HDO_E_DATA, "'%s' is big-endian: save it with a.astype(a.dtype.newbyteorder('<'))", what);
    if (strncmp(order, "False", 5) != 0) {
        return hdo__fail(e, HDO_E_DATA, "'%s' is in Fortran order: save it with numpy.ascontiguousarray", what);
    }
    a->kind = d[2];
    a->size = d[3] - '0';
    const bool whole =
        (a->kind == 'u' || a->kind == 'i') && (a->size == 1 || a->size == 2 || a->size == 4 || a->size == 8);
    if (!whole && !(a->kind == 'f' && (a->size == 4 || a->size == 8))) {
        return hdo__fail(e, HDO_E_DATA, "'%s' has element type '%.3s'; integers, float32 and float64 are read", what,
                         d + 1);
    }
    hdo_status st = read_shape(value_of(head, "'shape'"), a, what, e);
    if (st != HDO_OK) return st;
    a->data = buf + start + n;
    size_t have = len - start - n;
    if (have / (size_t)a->size != a->count || have % (size_t)a->size != 0) {
        return hdo__fail(e, HDO_E_DATA, "'%s' is %s: its header promises %zu elements of %d bytes, there are %zu bytes",
                         what, have / (size_t)a->size < a->count ? "cut short" : "too long", a->count, a->size, have);
    }
    return HDO_OK;
}

static int64_t whole_at(const array *a, size_t i) {
    const uint8_t *p = a->data + i * (size_t)a->size;
    uint64_t v = 0;
    for (int b = a->size - 1; b >= 0; b--) v = v << 8 | p[b];
    if (a->kind == 'i' && a->size < 8 && v >> (8 * a->size - 1) != 0) v |= ~(uint64_t)0 << (8 * a->size);
    if (a->kind == 'u' && v > INT64_MAX) return INT64_MAX;
    int64_t s;
    memcpy(&s, &v, sizeof s);
    return s;
}

static double real_at(const array *a, size_t i) {
    if (a->size == 4) {
        float f;
        memcpy(&f, a->data + 4 * i, sizeof f);
        return (double)f;
    }
    double d;
    memcpy(&d, a->data + 8 * i, sizeof d);
    return d;
}

static hdo_status read_labels(hdo_table *r, const array *y, const char *what, hdo_error *e) {
    if (y->kind == 'f' || y->n_dim > 2 || (y->n_dim == 2 && y->dim[1] != 1)) {
        return hdo__fail(e, HDO_E_DATA, "'%s' must hold labels: one whole number a sample", what);
    }
    if (y->dim[0] != r->count) {
        return hdo__fail(e, HDO_E_DATA, "'%s' has %lld labels for %lld samples", what, (long long)y->dim[0],
                         (long long)r->count);
    }
    r->label = malloc((size_t)r->count * sizeof *r->label);
    if (r->label == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for '%s'", what);
    for (int64_t i = 0; i < r->count; i++) {
        int64_t v = whole_at(y, (size_t)i);
        if (v < 0 || v > HDO_CLASS_LABEL_MAX) {
            return hdo__fail(e, HDO_E_DATA, "'%s': label %lld of sample %lld is outside 0 .. 65535", what, (long long)v,
                             (long long)i);
        }
        r->label[i] = (int32_t)v;
        if (v >= r->classes) r->classes = (int)v + 1;
    }
    return HDO_OK;
}

static hdo_status read_inputs(hdo_table *r, const array *x, const char *what, hdo_error *e) {
    if (x->kind == 'i' || (x->kind == 'u' && x->size != 1)) {
        return hdo__fail(e, HDO_E_DATA, "'%s' holds integers of %d bytes; inputs are uint8, float32 or float64", what,
                         x->size);
    }
    if (x->n_dim < 2) return hdo__fail(e, HDO_E_DATA, "'%s' has 1 dimension; inputs need 2 to 4 (samples first)", what);
    if (x->count / (size_t)x->dim[0] > 1 << 24)
        return hdo__fail(e, HDO_E_DATA, "'%s' has more than 2^24 numbers a sample", what);
    const int64_t *d = x->dim;
    const bool last = x->n_dim == 4 && (d[3] == 1 || d[3] == 3 || d[3] == 4) && d[1] != 1 && d[1] != 3 && d[1] != 4;
    int *s = r->shape;
    s[0] = s[1] = 1;
    if (x->n_dim == 2) s[2] = (int)d[1];
    if (x->n_dim == 3) s[1] = (int)d[1], s[2] = (int)d[2];
    if (x->n_dim == 4) {
        s[0] = (int)(last ? d[3] : d[1]);
        s[1] = (int)(last ? d[1] : d[2]);
        s[2] = (int)(last ? d[2] : d[3]);
    }
    r->count = d[0];
    r->n_in = s[0] * s[1] * s[2];
    const size_t plane = (size_t)s[1] * (size_t)s[2], channels = (size_t)s[0];
    void *mem = malloc(x->count * (x->kind == 'u' ? 1 : sizeof(float)));
    if (mem == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for '%s'", what);
    if (x->kind == 'u') {
        r->bytes = mem;
    } else {
        r->reals = mem;
    }
    for (size_t i = 0; i < x->count; i++) {
        size_t to = i;
        if (last) { /* (n, pixel, channel) to (n, channel, pixel) */
            size_t c = i % channels, px = i / channels % plane, n = i / channels / plane;
            to = (n * channels + c) * plane + px;
        }
        if (x->kind == 'u') {
            r->bytes[to] = x->data[i];
            continue;
        }
        double v = real_at(x, i);
        if (!isfinite((float)v)) {
            return hdo__fail(e, HDO_E_DATA, "'%s' has an element that is not a finite number (sample %zu)", what,
                             i / (size_t)r->n_in);
        }
        r->reals[to] = (float)v;
    }
    return HDO_OK;
}

hdo_status hdo__npy_parse(hdo_table *r, const hdo_file_pair *f, hdo_error *e) {
    *r = (hdo_table){0};
    array x, y;
    hdo_status st = parse(&x, f->images, f->n_images, f->what_images, e);
    if (st == HDO_OK) st = parse(&y, f->labels, f->n_labels, f->what_labels, e);
    if (st == HDO_OK) st = read_inputs(r, &x, f->what_images, e);
    if (st == HDO_OK) st = read_labels(r, &y, f->what_labels, e);
    if (st != HDO_OK) hdo__table_clear(r);
    return st;
}
