/* SPDX-License-Identifier: Apache-2.0 — atomic files and folders. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_CAP = 4096 };

static hdo_status write_all(int fd, const char *p, size_t len) {
    while (len > 0) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return HDO_E_IO;
        p += n;
        len -= (size_t)n;
    }
    return HDO_OK;
}

void hdo__dir_sync_of(const char *path) {
    char dir[PATH_CAP];
    snprintf(dir, sizeof dir, "%s", path);
    char *slash = strrchr(dir, '/');
    if (slash == NULL) {
        snprintf(dir, sizeof dir, ".");
    } else {
        slash[slash == dir ? 1 : 0] = '\0';
    }
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    (void)fsync(fd);
    close(fd);
}

int hdo__file_create(const char *path) {
    unlink(path); /* of a killed process that had our number, or somebody's link */
    return open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
}

hdo_status hdo__file_write(const char *path, const void *data, size_t len, hdo_error *e) {
    char tmp[PATH_CAP];
    int n = snprintf(tmp, sizeof tmp, "%s.tmp.%ld", path, (long)getpid());
    if (n < 0 || (size_t)n >= sizeof tmp) return hdo__fail(e, HDO_E_IO, "the path '%.200s...' is too long", path);
    int fd = hdo__file_create(tmp);
    if (fd < 0) return hdo__fail(e, HDO_E_IO, "cannot write '%s': %s", path, strerror(errno));
    bool ok = write_all(fd, data, len) == HDO_OK && fsync(fd) == 0;
    int err = errno;
    if (close(fd) != 0 && ok) {
        ok = false;
        err = errno;
    }
    if (ok && rename(tmp, path) != 0) {
        ok = false;
        err = errno;
    }
    if (!ok) {
        unlink(tmp);
        return hdo__fail(e, HDO_E_IO, "writing '%s' failed: %s", path, strerror(err));
    }
    hdo__dir_sync_of(path);
    return HDO_OK;
}

hdo_status hdo__file_read(const char *path, size_t max, char **data, size_t *len, hdo_error *e) {
    *data = NULL;
    *len = 0;
    FILE *f = fopen(path, "rb");
    if (f == NULL) return hdo__fail(e, HDO_E_IO, "cannot read '%s': %s", path, strerror(errno));
    size_t cap = 65536, have = 0;
    char *buf = malloc(cap + 1);
    while (buf != NULL) {
        size_t n = fread(buf + have, 1, cap - have, f);
        have += n;
        if (n == 0 || have > max) break;
        if (have == cap) {
            cap *= 2;
            char *more = realloc(buf, cap + 1);
            if (more == NULL) free(buf);
            buf = more;
        }
    }
    int bad = ferror(f), err = errno;
    fclose(f);
    if (buf == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory while reading '%s'", path);
    if (bad || have > max) {
        free(buf);
        if (bad) return hdo__fail(e, HDO_E_IO, "reading '%s' failed: %s", path, strerror(err));
        return hdo__fail(e, HDO_E_IO, "'%s' is larger than %zu bytes", path, max);
    }
    buf[have] = '\0';
    *data = buf;
    *len = have;
    return HDO_OK;
}

hdo_status hdo__dir_create(const char *path, hdo_error *e) {
    char p[PATH_CAP];
    int n = snprintf(p, sizeof p, "%s", path);
    if (n <= 0 || (size_t)n >= sizeof p)
        return hdo__fail(e, HDO_E_IO, "the folder name '%.200s' is empty or too long", path);
    for (char *s = p + 1;; s++) {
        if (*s != '/' && *s != '\0') continue;
        char c = *s;
        *s = '\0';
        if (mkdir(p, 0777) != 0 && errno != EEXIST) {
            return hdo__fail(e, HDO_E_IO, "cannot create the folder '%s': %s", path, strerror(errno));
        }
        if (c == '\0') break;
        *s = c;
    }
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) {
        return hdo__fail(e, HDO_E_IO, "cannot create the folder '%s': a file of that name is in the way", path);
    }
    return HDO_OK;
}

bool hdo__random_hex(char *hex, size_t digits) {
    unsigned char bytes[64];
    size_t n = digits / 2 < sizeof bytes ? digits / 2 : sizeof bytes;
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    bool ok = fd >= 0 && read(fd, bytes, n) == (ssize_t)n;
    if (fd >= 0) close(fd);
    for (size_t i = 0; i < n && ok; i++) snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
    return ok;
}

bool hdo__path_exists(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0;
}

bool hdo__path_join(char *buf, size_t cap, const char *dir, const char *name) {
    int n = snprintf(buf, cap, "%s/%s", dir, name);
    return n > 0 && (size_t)n < cap;
}
