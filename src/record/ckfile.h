/* SPDX-License-Identifier: Apache-2.0
 *
 * The file of a checkpoint, format 3: one safetensors file that holds everything.
 *
 *   head     length, then JSON: __metadata__ {format, version, sha256, state, config}, then the tensors' places
 *   tensors  params (n, d + n_buf), batches (n, 1), momentum (n, d), away, clock, weighted
 *
 * sha256 is over the head, with its own 64 digits as zeros, followed by the hash of the rows: SHA-256 over the SHA-256
 * of every row, tensor by tensor, in node order, so that ranks can make it in parts. So it covers every byte of the
 * file. The file is written under another name and renamed: it is whole or absent.
 */
#ifndef HDO_RECORD_CKFILE_H
#define HDO_RECORD_CKFILE_H

#include <stdbool.h>

#include "base/sha256.h"
#include "base/stfile.h"
#include "hdo/experimental/config.h"

enum { HDO_CKFILE_VERSION = 3, HDO_CKFILE_PATH_MAX = HDO_PATH_MAX + 96 };

typedef struct hdo_ckfile { /* an open checkpoint */
    int fd;
    hdo_st_list list; /* its tensors */
    char *state;      /* JSON (ckstate.h) */
    char *config;     /* YAML: the whole configuration of the run */
    char sha256[65];
    hdo_sha256 head; /* over the head */
    char path[HDO_CKFILE_PATH_MAX];
} hdo_ckfile;

/* Opens and parses the head. HDO_E_UNSUPPORTED: an older format. */
hdo_status hdo__ckfile_open(hdo_ckfile *f, const char *path, hdo_error *e);
HDO_LAB void hdo__ckfile_close(hdo_ckfile *f);
/* Is `rows`, the hash of all rows, what the file was sealed with? HDO_E_DATA and a sentence if not. */
hdo_status hdo__ckfile_check(const hdo_ckfile *f, const unsigned char rows[32], hdo_error *e);
/* Reads all rows of the open file and checks them. */
hdo_status hdo__ckfile_verify(const hdo_ckfile *f, hdo_error *e);

/* Plans the head of a new file: as hdo__st_plan. The digits of the hash are zeros until it is sealed. */
hdo_status hdo__ckfile_plan(hdo_st_tensor *t, int n, const char *state, const char *config, hdo_st_head *out,
                            hdo_error *e);
void hdo__ckfile_seal(char *head, size_t head_len, const unsigned char rows[32]);

/* All bytes, whatever signals do; false on failure or at the end of the file. */
HDO_LAB bool hdo__read_at(int fd, void *buf, size_t len, uint64_t off);
bool hdo__write_at(int fd, const void *buf, size_t len, uint64_t off);

/* checkpoints/step-N.safetensors of a run folder. */
void hdo__ckfile_path(const char *dir, int64_t step, char path[HDO_CKFILE_PATH_MAX]);
/* The steps of the checkpoints in dir, newest first, whatever the order of the folder: how many; free(*steps). */
int hdo__ckfile_list(const char *dir, int64_t **steps);
HDO_LAB bool hdo__ckfile_is(const char *path); /* a checkpoint, whole or not, rather than weights? */
/* Opens and verifies. */
HDO_LAB hdo_status hdo__ckfile_open_whole(hdo_ckfile *f, const char *path, hdo_error *e);
/* Opens the newest checkpoint of dir that is whole. `note` (may be NULL) receives a sentence about those that are not.
 * HDO_E_DATA: there is none. */
HDO_LAB hdo_status hdo__ckfile_open_newest(hdo_ckfile *f, const char *dir, char *note, size_t note_cap, hdo_error *e);

#endif
