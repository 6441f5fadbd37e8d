/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of src/data share: bytes of a file, the three kinds of data sets in memory (bytes, floats, tokens),
 * rows as readers return them, and one entry point per format. Every reader of untrusted input works on a buffer, so
 * that it can be fuzzed; the function that opens a path only fetches the bytes.
 */
#ifndef HDO_DATA_DATA_IMPL_H
#define HDO_DATA_DATA_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/dataset.h"

#define HDO_CLASS_LABEL_MAX 65535 /* a label beyond this is a damaged file, not a class */
#define HDO_READ_MAX                                                                                                   \
    ((size_t)(SIZE_MAX / 2 < 8ull << 30 ? SIZE_MAX / 2 : 8ull << 30)) /* most memory a reader may take */
#define HDO_DATA_PATH_MAX 4096

/* ---- bytes of a file (blob.c) ---- */
typedef struct hdo_blob {
    const uint8_t *p;
    size_t len;
    bool mapped; /* munmap, else free */
} hdo_blob;

hdo_status hdo__blob_read(hdo_blob *b, const char *path, hdo_error *e); /* a private copy: safe against later changes */
hdo_status hdo__blob_map(hdo_blob *b, const char *path, hdo_error *e);  /* pages shared with other processes */
void hdo__blob_close(hdo_blob *b);
/* If b begins like a gzip file it is replaced by its contents, at most max bytes; `what` names it in messages. */
hdo_status hdo__blob_gunzip(hdo_blob *b, size_t max, const char *what, hdo_error *e);
/* SHA-256 over the lines "<sha256>  <name>\n" of the parts: the fingerprint of a set made of several files. */
void hdo__fingerprint(const char (*sha)[65], const char *const *name, int n, char hex[65]);

/* ---- images as bytes (byteset.c) ---- */
#define HDO_CHUNKS_MAX 5
typedef struct hdo_byteset_spec {
    int64_t count, per_chunk;             /* sample i is row i % per_chunk of chunk i / per_chunk */
    const uint8_t *chunk[HDO_CHUNKS_MAX]; /* first sample of each chunk */
    size_t stride;                        /* bytes from sample to sample */
    int shape[3], classes;
    const int32_t *label;   /* (count); the set takes ownership (free) when creation succeeds */
    const float *mean, *sd; /* (channels) of values scaled to [0, 1]; NULL: leave them in [0, 1] */
    bool augment;           /* random crop with padding 4 and horizontal flip, when asked in gather */
    bool always;            /* the same for every sample in every gather, addressed by seed and sample */
    uint64_t seed;
    hdo_blob blob[HDO_CHUNKS_MAX]; /* memory behind the chunks; ownership passes as with label */
    int n_blobs;
} hdo_byteset_spec;
hdo_status hdo__byteset_create(hdo_dataset **out, const hdo_byteset_spec *s, hdo_error *e);

/* ---- rows of floats (floatset.c) ---- x (count, n_in) and label (count) are owned by the set on success (free). */
hdo_status hdo__floatset_create(hdo_dataset **out, int64_t count, const int shape[3], int classes, float *x,
                                int32_t *label, hdo_error *e);

/* ---- what readers of users' own files return ---- */
typedef struct hdo_table {
    int64_t count;
    int n_in, shape[3], classes;
    uint8_t *bytes;    /* (count, n_in), or NULL */
    float *reals;      /* (count, n_in), or NULL: exactly one of the two */
    int32_t *label;    /* (count) */
    bool plus_minus;   /* labels were -1 and +1 */
    char (*names)[64]; /* (classes) text labels in alphabetical order, or NULL */
    char sha256[65];
} hdo_table;
void hdo__table_clear(hdo_table *r);

/* `like`: the training rows when these are the validation rows (same columns, same labels), or NULL. max_bytes bounds
 * the memory of the result. `what` names the input in messages. On failure *r is empty. */
hdo_status hdo__csv_parse(hdo_table *r, const char *text, size_t len, const hdo_table *like, size_t max_bytes,
                          const char *what, hdo_error *e);
/* The same with the label's column chosen as data.label does: "", "last", a number from 1, or a name of the heading. */
hdo_status hdo__csv_parse_label(hdo_table *r, const char *text, size_t len, const hdo_table *like, const char *label,
                                const char *what, hdo_error *e);
hdo_status hdo__libsvm_parse(hdo_table *r, const char *text, size_t len, const hdo_table *like, size_t max_bytes,
                             const char *what, hdo_error *e);
/* Two files in memory, and their names for messages. */
typedef struct hdo_file_pair {
    const uint8_t *images;
    size_t n_images;
    const uint8_t *labels;
    size_t n_labels;
    const char *what_images, *what_labels;
} hdo_file_pair;
hdo_status hdo__npy_parse(hdo_table *r, const hdo_file_pair *f, hdo_error *e);
hdo_status hdo__idx_parse_pair(hdo_table *r, const hdo_file_pair *f, hdo_error *e);

/* Real labels to class numbers (tabular.c): integers 0 .. HDO_CLASS_LABEL_MAX, or all of -1 and +1. */
hdo_status hdo__labels_from_reals(hdo_table *r, const double *label, const hdo_table *like, const char *what,
                                  hdo_error *e);

/* Opens csv, libsvm, npy, idx by path (custom.c): hold-out, scaling, limits. */
bool hdo__validation_set(const hdo_data_config *c); /* data.validation says something; 0: a config made by hand */
hdo_status hdo__custom_open(const hdo_data_config *c, hdo_dataset **train, hdo_dataset **val, hdo_error *e);

/* ---- IDX (idx.c) ---- */
typedef struct hdo_idx {
    int n_dim;
    int64_t dim[4];
    const uint8_t *data; /* inside the buffer */
    size_t bytes;
} hdo_idx;
hdo_status hdo__idx_parse(hdo_idx *out, const uint8_t *buf, size_t len, const char *what, hdo_error *e);
hdo_status hdo__mnist_open(const hdo_data_config *c, hdo_dataset **train, hdo_dataset **val, hdo_error *e);

/* ---- CIFAR-10 (cifar.c, cifar_png.c) ---- */
enum { HDO_CIFAR_ROW = 3073, HDO_CIFAR_BATCH = 10000 };
extern const char *const hdo__cifar_names[10];
/* Checks one binary batch: whole rows, labels 0 .. 9. Copies the labels (len / 3073) when label is not NULL. */
/* Mean and deviation of every channel under HDO_SCALING_*; false: values stay in [0, 1]. */
bool hdo__cifar_scaling(int scaling, float mean[3], float sd[3]);
hdo_status hdo__cifar_check(const uint8_t *buf, size_t len, int32_t *label, const char *what, hdo_error *e);
hdo_status hdo__cifar_open(const hdo_data_config *c, hdo_dataset **train, hdo_dataset **val, hdo_error *e);
/* "[6, 9, 9, ...]" to exactly n labels. */
hdo_status hdo__cifar_labels_parse(const char *text, size_t len, uint8_t *label, size_t n, const char *what,
                                   hdo_error *e);
/* PNG sheet (row i = image i, column p = pixel p) with `rows` images and their labels to rows * 3073 bytes at out. */
hdo_status hdo__cifar_sheet_decode(const uint8_t *png, size_t len, const uint8_t *label, int rows, uint8_t *out,
                                   const char *what, hdo_error *e);

/* ---- Brackets (brackets.c, brackets_jsonl.c) ---- */
enum { HDO_TOK_START, HDO_TOK_STOP, HDO_TOK_PAD, HDO_TOK_UNK, HDO_TOK_OPEN, HDO_TOK_CLOSE, HDO_TOK_COUNT };
enum { HDO_BRACKETS_LONGEST = 256, HDO_BRACKETS_TRAIN = 100, HDO_BRACKETS_VAL = 10 };
typedef struct hdo_tokens {
    int64_t count;
    int positions;
    uint8_t *token; /* (count, positions) */
    uint8_t *label; /* (count) 1 correct, 0 incorrect */
} hdo_tokens;
void hdo__tokens_clear(hdo_tokens *t);
/* Takes over t on success. */
hdo_status hdo__tokenset_create(hdo_dataset **out, hdo_tokens *t, hdo_error *e);
typedef struct hdo_brackets {
    uint64_t seed;
    int positions;
    bool authors; /* the authors' law, and label 0 for correct */
} hdo_brackets;
hdo_status hdo__brackets_make(hdo_tokens *t, const hdo_brackets *how, bool val, hdo_error *e);
/* Lines {"input": "( ( ) )", "label": "correct"}. */
hdo_status hdo__brackets_parse(hdo_tokens *t, const char *text, size_t len, int positions, const char *what,
                               hdo_error *e);
hdo_status hdo__brackets_open(const hdo_data_config *c, hdo_dataset **train, hdo_dataset **val, hdo_error *e);
/* A uniform random balanced string of n pairs, by the cycle lemma; draws depend on s only. open[i] is true for '('. */
void hdo__brackets_balanced(hdo_stream s, int n_pairs, bool *open);
/* (A)B with the pairs of A uniform over what fits, A and B likewise: the authors' law. */
void hdo__brackets_recursive(hdo_stream s, int n_pairs, bool *open);

/* ---- quarter turns (turned.c) ---- replaces *ds, which must hold square images, by its turned version. */
hdo_status hdo__turned_wrap(hdo_dataset **ds, const char *name, hdo_error *e);

/* ---- Gaussian mixtures (synth.c) ---- */
hdo_status hdo__synth_open(const hdo_data_config *c, hdo_dataset **train, hdo_dataset **val, hdo_error *e);
double hdo__synth_bayes_error(int64_t classes, int64_t features, double separation);
/* Class means (classes, features) as the generator uses them. */
hdo_status hdo__synth_means(const hdo_data_config *c, double *mean, hdo_error *e);

/* ---- the registry (open.c) ---- */
typedef struct hdo_data_entry {
    const char *name; /* NULL ends the list */
    hdo_status (*open)(const hdo_data_config *c, hdo_dataset **train, hdo_dataset **val, hdo_error *e);
    int state; /* hdo_data_state: BUILT_IN, OWN, or ABSENT for sets in the store */
    const char *about;
} hdo_data_entry;
extern const hdo_data_entry hdo__data_entries[];
const hdo_data_entry *hdo__data_find(const char *name); /* NULL: unknown */

#endif
