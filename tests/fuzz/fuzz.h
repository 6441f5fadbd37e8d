/* SPDX-License-Identifier: Apache-2.0
 *
 * What the fuzz targets share. Any bytes may be refused, but only with a sentence; what is accepted must be consistent.
 * tools/run-fuzz builds and runs them.
 */
#ifndef HDO_TESTS_FUZZ_H
#define HDO_TESTS_FUZZ_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hdo/status.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void require(bool ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

/* A refusal says why. */
static inline void require_sentence(hdo_status st, const hdo_error *e) {
    require(st == HDO_OK || (e->code == st && e->msg[0] != '\0'), "failed without a sentence");
}

/* The input as a string; free it. */
static inline char *text_of(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    if (text == NULL) abort();
    if (size > 0) memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

#ifdef _GNU_SOURCE
/* A folder of this process, removed when it ends. */
static char fuzz_dir[] = "/tmp/hdo-fuzz-XXXXXX";

static inline void remove_fuzz_dir(void) {
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", fuzz_dir);
    if (system(command) != 0) fprintf(stderr, "%s is left\n", fuzz_dir);
}

static inline const char *make_fuzz_dir(void) {
    require(mkdtemp(fuzz_dir) != NULL && atexit(remove_fuzz_dir) == 0, "no folder");
    return fuzz_dir;
}

/* The input as a file that is in no folder: its name. */
static inline const char *file_of(const uint8_t *data, size_t size) {
    static char path[64];
    static int fd = -1;
    if (fd < 0) fd = memfd_create("fuzz", 0);
    if (fd < 0 || ftruncate(fd, 0) != 0 || pwrite(fd, data, size, 0) != (ssize_t)size) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return path;
}
#endif

#ifdef HDO_DATA_DATA_IMPL_H
/* A table: every number finite, every label a class. */
static inline void check_rows(const hdo_table *r) {
    require(r->count > 0 && r->n_in > 0 && r->classes > 0, "accepted, but empty");
    require((r->bytes != NULL) != (r->reals != NULL), "accepted, but neither bytes nor reals");
    require(r->n_in == r->shape[0] * r->shape[1] * r->shape[2], "shape and n_in differ");
    for (int64_t i = 0; i < r->count; i++) require(r->label[i] >= 0 && r->label[i] < r->classes, "label out of range");
    double sum = 0;
    for (int64_t i = 0; i < r->count * r->n_in; i++) sum += r->bytes != NULL ? r->bytes[i] : (double)r->reals[i];
    require(sum == sum, "a number that is none");
}
#endif

#endif
