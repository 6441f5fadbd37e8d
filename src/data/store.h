/* SPDX-License-Identifier: Apache-2.0
 *
 * Where downloaded data live, and what they must hash to. A data set is one folder; it appears by rename, complete and
 * checked, or not at all. Beside its files stands STAMP, written after the checksums were found right: name, size and
 * modification time of every file. While these still fit, opening trusts the stamp instead of reading every byte
 * again; `hdo data verify` always reads every byte.
 */
#ifndef HDO_DATA_STORE_H
#define HDO_DATA_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "hdo/experimental/data.h"

#define HDO_STORE_FILES_MAX 6
#define HDO_STAMP_NAME "STAMP"

typedef struct hdo_store_file {
    const char *name;
    int64_t bytes;
    const char *sha256;
} hdo_store_file;

typedef struct hdo_store_set {
    const char *name;
    int n_files;
    hdo_store_file file[HDO_STORE_FILES_MAX];
} hdo_store_set;

extern const hdo_store_set hdo__store_sets[];           /* ends with name == NULL */
const hdo_store_set *hdo__store_find(const char *name); /* NULL: not a data set of files */

/* $HDO_DATA_DIR, else $XDG_CACHE_HOME/hdo/data, else $HOME/.cache/hdo/data. */
hdo_status hdo__store_dir(char *buf, size_t cap, hdo_error *e);
hdo_status hdo__store_path(const hdo_store_set *set, char *buf, size_t cap, hdo_error *e);

/* Looks at names, sizes and the stamp; reads no contents. */
hdo_data_state hdo__store_state(const hdo_store_set *set, const char *dir);

/* Reads every byte of the set in dir. HDO_E_DATA with the first file that is wrong. Writes the stamp when all is right
 * (and the folder can be written). */
hdo_status hdo__store_verify(const hdo_store_set *set, const char *dir, hdo_error *e);

/* What a run calls: the folder of the set, present and verified (by stamp or, without one, by reading), or HDO_E_DATA
 * with the command that helps. */
hdo_status hdo__store_require(const hdo_store_set *set, char *dir, size_t cap, hdo_error *e);

/* The folder of the configuration (data.path), or of the store. */
hdo_status hdo__store_folder(const hdo_store_set *set, const char *own, char *dir, size_t cap, hdo_error *e);

/* Lock of one data set: at most one process changes it at a time. Blocks; *fd < 0 on failure. */
hdo_status hdo__store_lock(const char *root, const char *name, int *fd, hdo_error *e);
void hdo__store_unlock(int fd);

/* A fresh folder beside the sets, on the same file system; leftovers of killed processes go first (hold the lock). */
hdo_status hdo__store_scratch(const char *root, const char *name, char *dir, size_t cap, hdo_error *e);
void hdo__store_remove(const char *dir); /* a folder of files and folders, two levels deep */

/* Checks and (for CIFAR-10 sheets) converts the files found under `from` into `to`, a scratch folder. (store_import.c)
 * set NULL: found out from the file names; *found receives it. to NULL: only that. */
hdo_status hdo__store_collect(const hdo_store_set *set, const char *from, const char *to, const hdo_store_set **found,
                              hdo_error *e);
/* scratch becomes the set's folder; an old one is removed. Hold the lock. */
hdo_status hdo__store_commit(const hdo_store_set *set, const char *root, const char *scratch, hdo_error *e);

#endif
