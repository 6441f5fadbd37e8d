/* SPDX-License-Identifier: Apache-2.0
 *
 * The configuration in a run folder. The last line of config.yaml is a comment with the SHA-256 of all lines before, so
 * a damaged or edited file is never taken for the run's; then the newest whole checkpoint, which holds the
 * configuration too, speaks for it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/sha256.h"
#include "record/ckfile.h"
#include "record/record.h"

static const char mark[] = "# sha256 ";
enum { CONFIG_MAX_BYTES = 1 << 22, DIGITS = 64, MARK_LEN = sizeof mark - 1, TAIL = MARK_LEN + DIGITS + 1 };

char *hdo__stored_config_text(const hdo_config *c) {
    char hex[65], *yaml = hdo_config_dump(c, false);
    size_t len = yaml != NULL ? strlen(yaml) : 0;
    char *text = yaml != NULL ? realloc(yaml, len + TAIL + 1) : NULL;
    if (text == NULL) {
        free(yaml);
        return NULL;
    }
    hdo__sha256_bytes(text, len, hex);
    snprintf(text + len, TAIL + 1, "%s%s\n", mark, hex);
    return text;
}

static bool as_written(const char *text, size_t len) {
    char hex[65];
    if (len < TAIL || memcmp(text + len - TAIL, mark, MARK_LEN) != 0 || text[len - 1] != '\n') return false;
    hdo__sha256_bytes(text, len - TAIL, hex);
    return memcmp(text + len - 1 - DIGITS, hex, DIGITS) == 0;
}

bool hdo__stored_config_sealed(const char *dir) {
    char path[HDO_PATH_MAX + 64], *text = NULL;
    size_t len = 0;
    bool sealed = hdo__path_join(path, sizeof path, dir, "config.yaml") &&
                  hdo__file_read(path, CONFIG_MAX_BYTES, &text, &len, NULL) == HDO_OK && strstr(text, mark) != NULL;
    free(text);
    return sealed;
}

static hdo_status from_checkpoint(const char *dir, hdo_config *c, hdo_error *e) {
    hdo_ckfile f;
    hdo_status st = hdo__ckfile_open_newest(&f, dir, NULL, 0, e);
    if (st != HDO_OK) return st;
    hdo_config_default(c);
    st = hdo_config_load_bytes(c, f.path, f.config, strlen(f.config), e);
    hdo_config_as_base(c);
    hdo__ckfile_close(&f);
    return st;
}

hdo_status hdo__stored_config_load(const char *dir, hdo_config *c, char *note, size_t note_cap, hdo_error *e) {
    char path[HDO_PATH_MAX + 64], *text = NULL;
    size_t len = 0;
    hdo_error why = {0};
    if (note != NULL) note[0] = '\0';
    if (!hdo__path_join(path, sizeof path, dir, "config.yaml") || strlen(dir) >= HDO_PATH_MAX - 64)
        return hdo__fail(e, HDO_E_CONFIG, "the folder name '%.100s...' is too long", dir);
    bool read = hdo__file_read(path, CONFIG_MAX_BYTES, &text, &len, &why) == HDO_OK,
         whole = read && as_written(text, len);
    hdo_config_default(c);
    hdo_status st = whole ? hdo_config_load_bytes(c, path, text, len, e) : HDO_E_DATA;
    free(text);
    hdo_config_as_base(c);
    if (whole) return st;
    st = from_checkpoint(dir, c, &why);
    if (st == HDO_OK && note != NULL)
        snprintf(note, note_cap, "'%s' is not as the run wrote it; the configuration in its newest checkpoint is used",
                 path);
    if (st == HDO_OK || st == HDO_E_UNSUPPORTED || st == HDO_E_MEMORY)
        return st == HDO_OK ? st : hdo__fail(e, st, "%s", why.msg);
    if (!read) return hdo__fail(e, HDO_E_CONFIG, "'%s' is not a run: it has no config.yaml that can be read", dir);
    return hdo__fail(e, HDO_E_DATA,
                     "'%s' was damaged or edited after the run wrote it (or an older version of hdo wrote it), and no "
                     "whole checkpoint holds the configuration; start again: hdo run %s -o FOLDER",
                     path, path);
}

/* A copy of c in which everything that does not touch the past has one value. */
static char *past_of(const hdo_config *c) {
    hdo_config *p = malloc(2 * sizeof *p);
    if (p == NULL) return NULL;
    hdo_config *zero = p + 1;
    hdo_config_default(zero);
    *p = *c;
    bool by_length = c->mixing.average.id == HDO_AVERAGE_AUTO; /* does anything follow from the number of steps? */
    for (int k = 0; k < c->n_classes; k++) {
        int schedule = c->population[k].schedule.id, lr = c->population[k].lr.id;
        by_length = by_length || schedule == HDO_SCHEDULE_COSINE || schedule == HDO_SCHEDULE_COSINE_AUTHORS ||
                    lr == HDO_LR_THEOREM || lr == HDO_LR_AUTO;
    }
    if (!by_length) p->steps = zero->steps;
    p->threads = zero->threads;
    p->engine = zero->engine;
    p->eval.every = zero->eval.every;
    p->checkpoint = zero->checkpoint;
    p->stop = zero->stop;
    p->mpi = zero->mpi;
    char *text = hdo_config_dump(p, false);
    free(p);
    return text;
}

bool hdo__config_same_past(const hdo_config *a, const hdo_config *b) {
    char *x = past_of(a), *y = past_of(b);
    bool same = x != NULL && y != NULL && strcmp(x, y) == 0 && a->mpi.async == b->mpi.async;
    free(x);
    free(y);
    return same;
}
