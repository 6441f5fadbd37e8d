/* SPDX-License-Identifier: Apache-2.0 — files of lines with a running hash. */
#include "base/linelog.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Hashes at most `most` bytes of fd from its start; returns how many there were, -1 on failure. */
static int64_t hash_start(int fd, int64_t most, hdo_sha256 *sha) {
    char block[1 << 16];
    int64_t at = 0;
    while (at < most) {
        size_t want = most - at < (int64_t)sizeof block ? (size_t)(most - at) : sizeof block;
        ssize_t n = pread(fd, block, want, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -1;
        if (n == 0) break;
        hdo__sha256_update(sha, block, (size_t)n);
        at += n;
    }
    return at;
}

static void hex_of(const hdo_sha256 *sha, char hex[65]) {
    hdo_sha256 copy = *sha;
    unsigned char digest[32];
    hdo__sha256_final(&copy, digest);
    hdo__sha256_hex(digest, hex);
}

hdo_status hdo__linelog_open(hdo_linelog *l, const char *path, hdo_error *e) {
    *l = (hdo_linelog){.fd = -1, .last_step = -1};
    if (snprintf(l->path, sizeof l->path, "%s", path) >= (int)sizeof l->path)
        return hdo__fail(e, HDO_E_IO, "the path '%.200s...' is too long", path);
    l->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (l->fd < 0)
        return hdo__fail(e, HDO_E_IO, "cannot write '%s': %s", path,
                         errno == ELOOP ? "it is a symbolic link; remove it" : strerror(errno));
    hdo__sha256_init(&l->sha);
    l->bytes = hash_start(l->fd, INT64_MAX, &l->sha);
    if (l->bytes >= 0) return HDO_OK;
    hdo__fail(e, HDO_E_IO, "cannot read '%s': %s", path, strerror(errno));
    hdo__linelog_close(l);
    return HDO_E_IO;
}

hdo_status hdo__linelog_put(hdo_linelog *l, int64_t step, const char *line, size_t len, hdo_error *e) {
    ssize_t n = write(l->fd, line, len); /* in one piece: a killed run loses at most the line in flight */
    if (n != (ssize_t)len)
        return hdo__fail(e, HDO_E_IO, "writing '%s' failed: %s", l->path, n < 0 ? strerror(errno) : "the disk is full");
    l->before = l->sha;
    l->bytes_before = l->bytes;
    l->last_step = step;
    l->bytes += (int64_t)len;
    hdo__sha256_update(&l->sha, line, len);
    return HDO_OK;
}

hdo_status hdo__linelog_mark(hdo_linelog *l, int64_t except, hdo_linemark *out, hdo_error *e) {
    bool without = except >= 0 && l->last_step == except;
    out->bytes = without ? l->bytes_before : l->bytes;
    hex_of(without ? &l->before : &l->sha, out->sha256);
    if (fsync(l->fd) != 0) return hdo__fail(e, HDO_E_IO, "writing '%s' failed: %s", l->path, strerror(errno));
    return HDO_OK;
}

void hdo__linelog_close(hdo_linelog *l) {
    if (l->fd >= 0) close(l->fd);
    l->fd = -1;
}

hdo_status hdo__linemark_check(const char *path, const hdo_linemark *mark, hdo_error *e) {
    if (mark->bytes == 0) return HDO_OK;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return hdo__fail(e, HDO_E_DATA, "cannot read '%s': %s", path, strerror(errno));
    hdo_sha256 sha;
    char hex[65];
    hdo__sha256_init(&sha);
    int64_t n = hash_start(fd, mark->bytes, &sha);
    close(fd);
    hex_of(&sha, hex);
    if (n == mark->bytes && strcmp(hex, mark->sha256) == 0) return HDO_OK;
    return hdo__fail(e, HDO_E_DATA, "'%s' is damaged: %s", path,
                     n == mark->bytes ? "its first rows are not those the run wrote" : "rows are missing at its end");
}

hdo_status hdo__linemark_cut(const char *path, const hdo_linemark *mark, hdo_error *e) {
    int fd = open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && mark->bytes == 0) return HDO_OK;
    bool ok = fd >= 0 && ftruncate(fd, (off_t)mark->bytes) == 0;
    int err = errno;
    if (fd >= 0) close(fd);
    return ok ? HDO_OK : hdo__fail(e, HDO_E_IO, "cannot shorten '%s': %s", path, strerror(err));
}
