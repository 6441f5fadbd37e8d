/* SPDX-License-Identifier: Apache-2.0 — bytes of a file: read, mapped, or inflated; and their fingerprints. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef HDO_HAVE_ZLIB
#include <zlib.h>
#endif

#include "base/sha256.h"
#include "data/data_impl.h"

static hdo_status open_regular(const char *path, int *fd, size_t *len, hdo_error *e) {
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0) return hdo__fail(e, HDO_E_DATA, "cannot read '%s': %s", path, strerror(errno));
    struct stat st;
    if (fstat(*fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(*fd);
        return hdo__fail(e, HDO_E_DATA, "'%s' is not a regular file", path);
    }
    if (st.st_size < 0 || (uint64_t)st.st_size > HDO_READ_MAX) {
        close(*fd);
        return hdo__fail(e, HDO_E_DATA, "'%s' is larger than %zu bytes", path, HDO_READ_MAX);
    }
    *len = (size_t)st.st_size;
    return HDO_OK;
}

hdo_status hdo__blob_read(hdo_blob *b, const char *path, hdo_error *e) {
    *b = (hdo_blob){0};
    int fd;
    size_t len = 0;
    hdo_status st = open_regular(path, &fd, &len, e);
    if (st != HDO_OK) return st;
    uint8_t *p = malloc(len + 1); /* one more: a text parser may rely on a final NUL */
    size_t have = 0;
    if (p == NULL) {
        st = hdo__fail(e, HDO_E_MEMORY, "out of memory: '%s' has %zu bytes", path, len);
        goto out;
    }
    while (have < len) {
        ssize_t n = read(fd, p + have, len - have);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            st = hdo__fail(e, HDO_E_IO, "reading '%s' failed: %s", path, strerror(errno));
            goto out;
        }
        if (n == 0) break; /* it shrank meanwhile; the parser will judge what is left */
        have += (size_t)n;
    }
    p[have] = 0;
    *b = (hdo_blob){.p = p, .len = have};
    p = NULL;
out:
    free(p);
    close(fd);
    return st;
}

hdo_status hdo__blob_map(hdo_blob *b, const char *path, hdo_error *e) {
    *b = (hdo_blob){0};
    int fd;
    size_t len = 0;
    hdo_status st = open_regular(path, &fd, &len, e);
    if (st != HDO_OK) return st;
    if (len > 0) {
        void *p = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED) {
            close(fd);
            return hdo__blob_read(b, path, e); /* a file system without mmap */
        }
        *b = (hdo_blob){.p = p, .len = len, .mapped = true};
    }
    close(fd);
    return HDO_OK;
}

void hdo__blob_close(hdo_blob *b) {
    if (b->p != NULL) {
        if (b->mapped) {
            munmap((void *)(uintptr_t)b->p, b->len);
        } else {
            free((void *)(uintptr_t)b->p);
        }
    }
    *b = (hdo_blob){0};
}

#ifdef HDO_HAVE_ZLIB
static hdo_status inflate_all(const hdo_blob *b, size_t max, hdo_blob *out, const char *what, hdo_error *e) {
    z_stream z = {0};
    if (inflateInit2(&z, 16 + MAX_WBITS) != Z_OK) return hdo__fail(e, HDO_E_MEMORY, "out of memory for zlib");
    size_t cap = b->len < max / 8 ? 8 * b->len + 4096 : max, have = 0, fed = 0;
    if (cap > max) cap = max;
    uint8_t *p = malloc(cap + 1);
    hdo_status st = HDO_OK;
    int rc = Z_OK;
    while (p != NULL && rc == Z_OK) {
        if (z.avail_in == 0 && fed < b->len) {
            size_t n = b->len - fed < UINT_MAX / 2 ? b->len - fed : UINT_MAX / 2;
            z.next_in = (Bytef *)(uintptr_t)(b->p + fed);
            z.avail_in = (uInt)n;
            fed += n;
        }
        if (have == cap) {
            if (cap >= max) break;
            cap = cap < max / 2 ? 2 * cap : max;
            uint8_t *more = realloc(p, cap + 1);
            if (more == NULL) free(p);
            p = more;
            continue;
        }
        size_t room = cap - have < UINT_MAX / 2 ? cap - have : UINT_MAX / 2;
        z.next_out = p + have;
        z.avail_out = (uInt)room;
        rc = inflate(&z, Z_NO_FLUSH);
        have += room - z.avail_out;
        if (rc == Z_BUF_ERROR && (z.avail_in > 0 || fed < b->len || z.avail_out == 0)) rc = Z_OK;
    }
    bool rest = z.avail_in > 0 || fed < b->len;
    inflateEnd(&z);
    if (p == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory while inflating '%s'", what);
    if (rc == Z_OK) {
        st = hdo__fail(e, HDO_E_DATA, "'%s' holds more than %zu bytes when inflated", what, max);
    } else if (rc == Z_BUF_ERROR) {
        st = hdo__fail(e, HDO_E_DATA, "'%s' is cut short: the gzip stream has no end", what);
    } else if (rc != Z_STREAM_END) {
        st = hdo__fail(e, HDO_E_DATA, "'%s' is damaged: the gzip stream does not inflate", what);
    } else if (rest) {
        st = hdo__fail(e, HDO_E_DATA, "'%s' has bytes after the end of its gzip stream", what);
    }
    if (st != HDO_OK) {
        free(p);
        return st;
    }
    p[have] = 0;
    *out = (hdo_blob){.p = p, .len = have};
    return HDO_OK;
}
#endif

hdo_status hdo__blob_gunzip(hdo_blob *b, size_t max, const char *what, hdo_error *e) {
    if (b->len < 2 || b->p[0] != 0x1f || b->p[1] != 0x8b) return HDO_OK;
#ifdef HDO_HAVE_ZLIB
    hdo_blob out;
    hdo_status st = inflate_all(b, max, &out, what, e);
    if (st != HDO_OK) return st;
    hdo__blob_close(b);
    *b = out;
    return HDO_OK;
#else
    (void)max;
    return hdo__fail(e, HDO_E_UNSUPPORTED, "'%s' is compressed and this build has no zlib; run 'gunzip' on it first",
                     what);
#endif
}

void hdo__fingerprint(const char (*sha)[65], const char *const *name, int n, char hex[65]) {
    hdo_sha256 c;
    unsigned char digest[32];
    hdo__sha256_init(&c);
    for (int i = 0; i < n; i++) {
        hdo__sha256_update(&c, sha[i], 64);
        hdo__sha256_update(&c, "  ", 2);
        hdo__sha256_update(&c, name[i], strlen(name[i]));
        hdo__sha256_update(&c, "\n", 1);
    }
    hdo__sha256_final(&c, digest);
    hdo__sha256_hex(digest, hex);
}
