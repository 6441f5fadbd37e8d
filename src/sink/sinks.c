/* SPDX-License-Identifier: Apache-2.0 — the registry of the optional sinks of a run folder: opened and removed
 * together.
 */
#include <dirent.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "sink/sink.h"

static const hdo_sink_kind *const kinds[] = {&hdo__sink_csv, &hdo__sink_tensorboard};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

hdo_status hdo__sinks_open(hdo_sink **sinks, int *n, int max, const char *dir, const hdo_config *c, int64_t last_step,
                           hdo_error *e) {
    int wanted = 0;
    for (int k = 0; k < N_KINDS; k++) wanted += kinds[k]->wanted(c);
    if (*n + wanted > max) return hdo__fail(e, HDO_E_FAILED, "a run writes to at most %d places", max);
    hdo_status st = HDO_OK;
    for (int k = 0; k < N_KINDS && st == HDO_OK; k++) {
        if (!kinds[k]->wanted(c)) continue;
        st = kinds[k]->open(&sinks[*n], dir, c, last_step, e);
        if (st == HDO_OK) ++*n;
    }
    return st;
}

/* A name that ends in a dot is a beginning. */
static bool ours(const char *file) {
    for (int k = 0; k < N_KINDS; k++) {
        const char *name = kinds[k]->files;
        size_t len = strlen(name);
        if (name[len - 1] == '.' ? strncmp(file, name, len) == 0 : strcmp(file, name) == 0) return true;
    }
    return false;
}

void hdo__sinks_remove(const char *dir) {
    char path[HDO_PATH_MAX + 512];
    DIR *d = opendir(dir);
    if (d == NULL) return;
    for (struct dirent *f = readdir(d); f != NULL; f = readdir(d))
        if (ours(f->d_name) && hdo__path_join(path, sizeof path, dir, f->d_name)) unlink(path);
    closedir(d);
}
