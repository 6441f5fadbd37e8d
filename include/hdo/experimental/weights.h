/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors in files: the safetensors format (an 8-byte little-endian length, a JSON header, then the data), read and
 * written without trust in the file. A reader refuses a header that is not exactly right: unknown element types, shapes
 * that do not match their bytes, offsets out of bounds, overlaps, holes, duplicate names.
 *
 * Experimental: may change or vanish in any version.
 */
#ifndef HDO_EXPERIMENTAL_WEIGHTS_H
#define HDO_EXPERIMENTAL_WEIGHTS_H

#include <stddef.h>
#include <stdint.h>

#include "hdo/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HDO_TENSOR_DIMS 8

typedef struct hdo_tensor_info {
    const char *name;
    const char *dtype; /* "F32", "F16", "BF16", "F64", "I64", ... */
    int n_dim;
    int64_t dim[HDO_TENSOR_DIMS];
    uint64_t count;      /* elements */
    uint64_t begin, end; /* bytes in the data section */
} hdo_tensor_info;

typedef struct hdo_tensors hdo_tensors;

/* Reads a whole file. HDO_E_DATA with a sentence when it is not a sound safetensors file. */
HDO_API hdo_status hdo_tensors_open(hdo_tensors **out, const char *path, hdo_error *e);
/* The same on bytes in memory, which are borrowed until close. */
HDO_API hdo_status hdo_tensors_parse(hdo_tensors **out, const void *data, size_t len, hdo_error *e);
HDO_API void hdo_tensors_close(hdo_tensors *t); /* NULL is fine */

HDO_API int hdo_tensors_count(const hdo_tensors *t);
HDO_API const hdo_tensor_info *hdo_tensors_at(const hdo_tensors *t, int i);  /* in the order of the data */
HDO_API int hdo_tensors_find(const hdo_tensors *t, const char *name);        /* -1: not there */
HDO_API const char *hdo_tensors_note(const hdo_tensors *t, const char *key); /* a string of __metadata__, or NULL */
/* Walks __metadata__: key and value of string i; false when there is none. */
HDO_API int hdo_tensors_note_at(const hdo_tensors *t, int i, const char **key, const char **value);

/* Elements of tensor i as float. Reads F32, F64, F16, BF16 and the integer types; HDO_E_UNSUPPORTED for the rest. */
HDO_API hdo_status hdo_tensors_read(const hdo_tensors *t, int i, float *out);
/* The raw bytes of tensor i, (end - begin). */
HDO_API const void *hdo_tensors_bytes(const hdo_tensors *t, int i);

typedef struct hdo_tensor_out { /* one F32 tensor to write */
    const char *name;
    int n_dim;
    int64_t dim[HDO_TENSOR_DIMS];
    const float *data;
} hdo_tensor_out;

/* Writes the file whole or not at all (temporary name, fsync, rename). notes: key, value, key, value, ..., NULL; or
 * NULL. Tensors keep their order. */
HDO_API hdo_status hdo_tensors_write(const char *path, const hdo_tensor_out *rows, int n, const char *const *notes,
                                     hdo_error *e);
/* The same into memory; free(*data). */
HDO_API hdo_status hdo_tensors_format(const hdo_tensor_out *rows, int n, const char *const *notes, void **data,
                                      size_t *len, hdo_error *e);

#ifdef __cplusplus
}
#endif

#endif
