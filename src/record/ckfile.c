/* SPDX-License-Identifier: Apache-2.0 — checkpoint files: planned, sealed, opened and verified. */
#include "record/ckfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"

#define HEAD_MAX ((uint64_t)16 << 20) /* ours are a few kilobytes */
static const char hash_key[] = "\"sha256\": \"";
enum { DIGITS = 64, BLOCK = 1 << 16 };

/* All len bytes, in as many calls as it takes. */
static bool move_at(int fd, bool out, char *p, size_t len, uint64_t off) {
    while (len > 0) {
        ssize_t n = out ? pwrite(fd, p, len, (off_t)off) : pread(fd, p, len, (off_t)off);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        p += n;
        off += (uint64_t)n;
        len -= (size_t)n;
    }
    return true;
}

bool hdo__read_at(int fd, void *buf, size_t len, uint64_t off) {
    return move_at(fd, false, buf, len, off);
}

bool hdo__write_at(int fd, const void *buf, size_t len, uint64_t off) {
    return move_at(fd, true, (char *)(uintptr_t)buf, len, off); /* pwrite only reads */
}

/* ---- names ---- */

void hdo__ckfile_path(const char *dir, int64_t step, char path[HDO_CKFILE_PATH_MAX]) {
    snprintf(path, HDO_CKFILE_PATH_MAX, "%s/checkpoints/step-%09lld.safetensors", dir, (long long)step);
}

static int newest_first(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

int hdo__ckfile_list(const char *dir, int64_t **steps) {
    char path[HDO_CKFILE_PATH_MAX];
    int n = 0, cap = 0;
    *steps = NULL;
    snprintf(path, sizeof path, "%s/checkpoints", dir);
    DIR *d = opendir(path);
    for (struct dirent *ent; d != NULL && (ent = readdir(d)) != NULL;) {
        long long s;
        int end = 0;
        if (sscanf(ent->d_name, "step-%lld.safetensors%n", &s, &end) != 1 || end == 0 || ent->d_name[end] != '\0')
            continue;
        if (n == cap) {
            cap = cap > 0 ? 2 * cap : 16;
            int64_t *more = realloc(*steps, (size_t)cap * sizeof *more);
            if (more == NULL) break;
            *steps = more;
        }
        (*steps)[n++] = s;
    }
    if (d != NULL) closedir(d);
    if (n > 1) qsort(*steps, (size_t)n, sizeof **steps, newest_first);
    return n;
}

/* ---- the head ---- */

/* Where the digits of the hash stand in a head; NULL: nowhere. */
static char *digits_of(char *head, size_t len) {
    const size_t key = sizeof hash_key - 1;
    for (size_t i = 8; i + key + DIGITS < len; i++) {
        if (memcmp(head + i, hash_key, key) == 0) return head + i + key;
    }
    return NULL;
}

static void seal_of(const hdo_sha256 *head, const unsigned char rows[32], char hex[65]) {
    hdo_sha256 all = *head;
    unsigned char digest[32];
    hdo__sha256_update(&all, rows, 32);
    hdo__sha256_final(&all, digest);
    hdo__sha256_hex(digest, hex);
}

hdo_status hdo__ckfile_plan(hdo_st_tensor *t, int n, const char *state, const char *config, hdo_st_head *out,
                            hdo_error *e) {
    char zeros[DIGITS + 1], version[16];
    memset(zeros, '0', DIGITS);
    zeros[DIGITS] = '\0';
    snprintf(version, sizeof version, "%d", HDO_CKFILE_VERSION);
    hdo_json j;
    hdo__json_init(&j, false);
    hdo__json_object(&j, NULL);
    hdo__json_text(&j, "format", "hdo-checkpoint");
    hdo__json_text(&j, "version", version);
    hdo__json_text(&j, "sha256", zeros);
    hdo__json_text(&j, "state", state);
    hdo__json_text(&j, "config", config);
    hdo__json_end(&j, '}');
    hdo_status st =
        j.failed ? hdo__fail(e, HDO_E_MEMORY, "out of memory for a checkpoint") : hdo__st_plan(t, n, j.text, out, e);
    hdo__json_clear(&j);
    return st;
}

void hdo__ckfile_seal(char *head, size_t head_len, const unsigned char rows[32]) {
    hdo_sha256 sha;
    char hex[65];
    hdo__sha256_init(&sha);
    hdo__sha256_update(&sha, head, head_len);
    seal_of(&sha, rows, hex);
    memcpy(digits_of(head, head_len), hex, DIGITS);
}

/* The whole head, as it is; *len bytes. */
static hdo_status read_head(int fd, const char *path, char **head, size_t *len, uint64_t *file_len, hdo_error *e) {
    struct stat sb;
    unsigned char size[8];
    *head = NULL;
    if (fstat(fd, &sb) != 0 || !hdo__read_at(fd, size, sizeof size, 0))
        return hdo__fail(e, HDO_E_DATA, "%s is damaged: too short to be a checkpoint", path);
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--) n = n << 8 | size[i];
    *file_len = (uint64_t)sb.st_size;
    if (n > HEAD_MAX || n + 8 > *file_len)
        return hdo__fail(e, HDO_E_DATA, "%s is damaged: truncated, or not a checkpoint", path);
    *len = (size_t)n + 8;
    *head = malloc(*len);
    if (*head == NULL) return hdo__fail(e, HDO_E_MEMORY, "%s: out of memory", path);
    if (hdo__read_at(fd, *head, *len, 0)) return HDO_OK;
    free(*head);
    *head = NULL;
    return hdo__fail(e, HDO_E_DATA, "%s is damaged: its head cannot be read", path);
}

static char *copy_text(const json_t *o, const char *key) {
    const char *s = json_string_value(json_object_get(o, key));
    return s != NULL ? strdup(s) : NULL;
}

/* Takes state, configuration and hash out of the metadata. */
static hdo_status take_metadata(hdo_ckfile *f, const char *metadata, hdo_error *e) {
    json_t *o = metadata != NULL ? json_loads(metadata, 0, NULL) : NULL;
    const char *format = json_string_value(json_object_get(o, "format"));
    const char *version = json_string_value(json_object_get(o, "version"));
    const char *hash = json_string_value(json_object_get(o, "sha256"));
    hdo_status st = HDO_OK;
    if (format == NULL || strcmp(format, "hdo-checkpoint") != 0) {
        st = hdo__fail(e, HDO_E_DATA, "%s is not a checkpoint", f->path);
    } else if (version == NULL || strtol(version, NULL, 10) != HDO_CKFILE_VERSION) {
        st =
            hdo__fail(e, HDO_E_UNSUPPORTED,
                      "the checkpoint '%s' has format %s, and this version of hdo reads format %d only; resume it with "
                      "the version that wrote it, or start again with --force",
                      f->path, version != NULL ? version : "2 or older", HDO_CKFILE_VERSION);
    } else {
        f->state = copy_text(o, "state");
        f->config = copy_text(o, "config");
        if (hash == NULL || strlen(hash) != DIGITS || f->state == NULL || f->config == NULL)
            st = hdo__fail(e, HDO_E_DATA, "%s is damaged: its state, configuration or checksum is missing", f->path);
        else
            memcpy(f->sha256, hash, DIGITS + 1);
    }
    json_decref(o);
    return st;
}

hdo_status hdo__ckfile_open(hdo_ckfile *f, const char *path, hdo_error *e) {
    char *head;
    size_t len = 0;
    uint64_t file_len = 0;
    *f = (hdo_ckfile){.fd = -1};
    if (snprintf(f->path, sizeof f->path, "%s", path) >= (int)sizeof f->path)
        return hdo__fail(e, HDO_E_DATA, "the path '%.200s...' is too long", path);
    f->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (f->fd < 0) return hdo__fail(e, HDO_E_DATA, "cannot read '%s': %s", path, strerror(errno));
    hdo_status st = read_head(f->fd, path, &head, &len, &file_len, e);
    if (st == HDO_OK) {
        st = hdo__st_parse(head, len, file_len, path, &f->list, e);
        if (st == HDO_E_DATA) hdo__error_prefix(e, "the checkpoint is damaged");
        if (st == HDO_OK) st = take_metadata(f, f->list.metadata, e);
        char *digits = digits_of(head, len);
        if (digits != NULL) memset(digits, '0', DIGITS);
        hdo__sha256_init(&f->head);
        hdo__sha256_update(&f->head, head, len);
    }
    free(head);
    if (st != HDO_OK) hdo__ckfile_close(f);
    return st;
}

void hdo__ckfile_close(hdo_ckfile *f) {
    if (f->fd >= 0) close(f->fd);
    hdo__st_clear(&f->list);
    free(f->state);
    free(f->config);
    f->fd = -1;
    f->state = f->config = NULL;
}

/* ---- the rows ---- */

hdo_status hdo__ckfile_check(const hdo_ckfile *f, const unsigned char rows[32], hdo_error *e) {
    char hex[65];
    seal_of(&f->head, rows, hex);
    if (strcmp(hex, f->sha256) == 0) return HDO_OK;
    return hdo__fail(e, HDO_E_DATA, "%s is damaged: its contents do not match its checksum", f->path);
}

/* Adds the hash of one row to `all`. */
static bool hash_row(int fd, uint64_t off, uint64_t bytes, char *block, hdo_sha256 *all) {
    hdo_sha256 one;
    unsigned char digest[32];
    hdo__sha256_init(&one);
    for (uint64_t at = 0; at < bytes;) {
        size_t n = bytes - at < BLOCK ? (size_t)(bytes - at) : BLOCK;
        if (!hdo__read_at(fd, block, n, off + at)) return false;
        hdo__sha256_update(&one, block, n);
        at += n;
    }
    hdo__sha256_final(&one, digest);
    hdo__sha256_update(all, digest, sizeof digest);
    return true;
}

hdo_status hdo__ckfile_verify(const hdo_ckfile *f, hdo_error *e) {
    hdo_sha256 all;
    unsigned char digest[32];
    char *block = malloc(BLOCK);
    if (block == NULL) return hdo__fail(e, HDO_E_MEMORY, "%s: out of memory", f->path);
    bool ok = true;
    hdo__sha256_init(&all);
    for (int k = 0; k < f->list.n; k++) { /* a tensor (n, len) has a row for every node, one of (len) is one row */
        const hdo_st_tensor *t = &f->list.t[k];
        int64_t rows = t->n_dim == 2 ? t->dim[0] : 1;
        for (int64_t i = 0; i < rows && ok; i++) {
            uint64_t bytes = t->bytes / (uint64_t)rows;
            ok = hash_row(f->fd, t->off + (uint64_t)i * bytes, bytes, block, &all);
        }
    }
    free(block);
    if (!ok) return hdo__fail(e, HDO_E_DATA, "%s is damaged: it cannot be read to its end", f->path);
    hdo__sha256_final(&all, digest);
    return hdo__ckfile_check(f, digest, e);
}

hdo_status hdo__ckfile_open_whole(hdo_ckfile *f, const char *path, hdo_error *e) {
    hdo_status st = hdo__ckfile_open(f, path, e);
    if (st == HDO_OK) st = hdo__ckfile_verify(f, e);
    if (st != HDO_OK) hdo__ckfile_close(f);
    return st;
}

hdo_status hdo__ckfile_open_newest(hdo_ckfile *f, const char *dir, char *note, size_t note_cap, hdo_error *e) {
    char path[HDO_CKFILE_PATH_MAX];
    int64_t *steps;
    int n = hdo__ckfile_list(dir, &steps);
    hdo_error why = {0};
    hdo_status st = HDO_E_DATA;
    if (note != NULL) note[0] = '\0';
    for (int i = 0; i < n && st == HDO_E_DATA; i++) {
        hdo__ckfile_path(dir, steps[i], path);
        st = hdo__ckfile_open_whole(f, path, &why);
        if (st == HDO_E_DATA && note != NULL && note[0] == '\0')
            snprintf(note, note_cap, "%s; an older checkpoint is used", why.msg);
    }
    free(steps);
    if (st == HDO_OK) return HDO_OK;
    if (n > 0) return hdo__fail(e, st, "%s", why.msg);
    return hdo__fail(e, HDO_E_DATA, "'%s' has no checkpoint: a run that diverged at once keeps none", dir);
}

bool hdo__ckfile_is(const char *path) {
    hdo_st_list l;
    int fd;
    if (hdo__st_open(path, &fd, &l, NULL) != HDO_OK) return false;
    bool yes = hdo__st_find(&l, "params") != NULL && hdo__st_find(&l, "batches") != NULL;
    close(fd);
    hdo__st_clear(&l);
    return yes;
}
