/* SPDX-License-Identifier: Apache-2.0
 *
 * The container of checkpoints and weights: safetensors. 8 bytes length (little endian), a JSON header that names every
 * tensor with dtype, shape and byte range, then the data. Strict: no overlap, no holes, no duplicate names, nothing out
 * of bounds. The header can be planned before any data exists, so several writers can fill one file at fixed offsets.
 */
#ifndef HDO_BASE_STFILE_H
#define HDO_BASE_STFILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { HDO_ST_NAME_MAX = 128, HDO_ST_DIMS_MAX = 8 };

typedef struct hdo_st_tensor {
    char name[HDO_ST_NAME_MAX];
    char dtype[8]; /* F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32 U16 U8 BOOL F8_E4M3 F8_E5M2 */
    int n_dim;
    int64_t dim[HDO_ST_DIMS_MAX];
    uint64_t off; /* from the start of the file */
    uint64_t bytes;
} hdo_st_tensor;

/* Bytes of one element, 0 for an unknown dtype. */
size_t hdo__st_dtype_bytes(const char *dtype);

/* The first bytes of a file. */
typedef struct hdo_st_head {
    char *bytes; /* free it */
    size_t len;
    uint64_t file_len; /* of the whole file */
} hdo_st_head;
/* Lays the tensors out one after the other (fills off and bytes) and makes the head. metadata: JSON object of strings,
 * or NULL. */
hdo_status hdo__st_plan(hdo_st_tensor *t, int n, const char *metadata, hdo_st_head *out, hdo_error *e);

/* What a header says. */
typedef struct hdo_st_list {
    hdo_st_tensor *t; /* (n) in file order */
    int n;
    char *metadata; /* the __metadata__ object as JSON, or NULL */
} hdo_st_list;
void hdo__st_clear(hdo_st_list *l);

/* Parses the head of a file of file_len bytes; buf holds its first len bytes (at least the whole header). name is for
 * messages. */
hdo_status hdo__st_parse(const void *buf, size_t len, uint64_t file_len, const char *name, hdo_st_list *out,
                         hdo_error *e);

/* Opens a file, reads and parses its header. */
hdo_status hdo__st_open(const char *path, int *fd, hdo_st_list *out, hdo_error *e);

HDO_LAB const hdo_st_tensor *hdo__st_find(const hdo_st_list *l, const char *name); /* NULL: not there */

#endif
