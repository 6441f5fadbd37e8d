/* SPDX-License-Identifier: Apache-2.0 — the folder of data sets: names, checksums, stamps, locks. See store.h. */
#include "data/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/sha256.h"
#include "data/data_impl.h"

/* MNIST: the canonical files, uncompressed. CIFAR-10: the official binary version. */
const hdo_store_set hdo__store_sets[] = {
    {"mnist",
     4,
     {{"train-images-idx3-ubyte", 47040016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"},
      {"train-labels-idx1-ubyte", 60008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"},
      {"t10k-images-idx3-ubyte", 7840016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"},
      {"t10k-labels-idx1-ubyte", 10008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"}}},
    {"cifar10",
     6,
     {{"data_batch_1.bin", 30730000, "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"},
      {"data_batch_2.bin", 30730000, "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"},
      {"data_batch_3.bin", 30730000, "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"},
      {"data_batch_4.bin", 30730000, "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"},
      {"data_batch_5.bin", 30730000, "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"},
      {"test_batch.bin", 30730000, "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"}}},
    {NULL, 0, {{0}}}};

const hdo_store_set *hdo__store_find(const char *name) {
    for (const hdo_store_set *s = hdo__store_sets; s->name != NULL; s++) {
        if (strcmp(s->name, name) == 0) return s;
    }
    return NULL;
}

static const char *env(const char *key) { /* empty counts as unset, as the XDG specification asks */
    const char *v = getenv(key);
    return v != NULL && v[0] != '\0' ? v : NULL;
}

hdo_status hdo__store_dir(char *buf, size_t cap, hdo_error *e) {
    const char *own = env("HDO_DATA_DIR"), *xdg = env("XDG_CACHE_HOME"), *home = env("HOME");
    int n;
    if (own != NULL) {
        n = snprintf(buf, cap, "%s", own);
    } else if (xdg != NULL && xdg[0] == '/') {
        n = snprintf(buf, cap, "%s/hdo/data", xdg);
    } else if (home != NULL) {
        n = snprintf(buf, cap, "%s/.cache/hdo/data", home);
    } else {
        if (cap > 0) buf[0] = '\0';
        return hdo__fail(e, HDO_E_CONFIG, "no place for data: set HDO_DATA_DIR (HOME is not set either)");
    }
    if (n < 0 || (size_t)n >= cap)
        return hdo__fail(e, HDO_E_CONFIG, "the data folder's name '%.200s...' is too long", buf);
    return HDO_OK;
}

hdo_status hdo__store_path(const hdo_store_set *set, char *buf, size_t cap, hdo_error *e) {
    char root[HDO_DATA_PATH_MAX];
    hdo_status st = hdo__store_dir(root, sizeof root, e);
    if (st != HDO_OK) return st;
    if (!hdo__path_join(buf, cap, root, set->name))
        return hdo__fail(e, HDO_E_CONFIG, "the data folder's name is too long");
    return HDO_OK;
}

/* ---- the stamp ---- */

enum { STAMP_CAP = 2048 };

/* What a right stamp of the files as they are now would say. False when a file is missing or has a wrong size. */
static bool stamp_text(const hdo_store_set *set, const char *dir, char text[STAMP_CAP]) {
    int at = snprintf(text, STAMP_CAP, "hdo-data 1 %s\n", set->name);
    for (int k = 0; k < set->n_files; k++) {
        const hdo_store_file *f = &set->file[k];
        char path[HDO_DATA_PATH_MAX];
        struct stat st;
        if (!hdo__path_join(path, sizeof path, dir, f->name) || stat(path, &st) != 0 || !S_ISREG(st.st_mode) ||
            st.st_size != f->bytes) {
            return false;
        }
        at += snprintf(text + at, STAMP_CAP - (size_t)at, "%s %lld %lld.%09ld %s\n", f->sha256, (long long)st.st_size,
                       (long long)st.st_mtim.tv_sec, (long)st.st_mtim.tv_nsec, f->name);
    }
    return true;
}

static void stamp_write(const hdo_store_set *set, const char *dir) {
    char text[STAMP_CAP], path[HDO_DATA_PATH_MAX];
    if (!stamp_text(set, dir, text) || !hdo__path_join(path, sizeof path, dir, HDO_STAMP_NAME)) return;
    (void)hdo__file_write(path, text, strlen(text), NULL); /* a read-only folder has no stamp: slower, not wrong */
}

hdo_data_state hdo__store_state(const hdo_store_set *set, const char *dir) {
    char want[STAMP_CAP], path[HDO_DATA_PATH_MAX];
    struct stat st;
    if (stat(dir, &st) != 0 || !S_ISDIR(st.st_mode)) return HDO_DATA_ABSENT;
    if (!stamp_text(set, dir, want)) return HDO_DATA_DAMAGED;
    char *have = NULL;
    size_t len = 0;
    hdo_data_state state = HDO_DATA_UNCHECKED;
    if (hdo__path_join(path, sizeof path, dir, HDO_STAMP_NAME) &&
        hdo__file_read(path, STAMP_CAP, &have, &len, NULL) == HDO_OK && len == strlen(want) &&
        memcmp(have, want, len) == 0) {
        state = HDO_DATA_READY;
    }
    free(have);
    return state;
}

hdo_status hdo__store_verify(const hdo_store_set *set, const char *dir, hdo_error *e) {
    for (int k = 0; k < set->n_files; k++) {
        const hdo_store_file *f = &set->file[k];
        char path[HDO_DATA_PATH_MAX], hex[65], stamp[HDO_DATA_PATH_MAX];
        struct stat st;
        if (!hdo__path_join(path, sizeof path, dir, f->name) || stat(path, &st) != 0) {
            return hdo__fail(e, HDO_E_DATA, "%s: the file '%s/%s' is missing; 'hdo data get %s' obtains it", set->name,
                             dir, f->name, set->name);
        }
        hdo_status s = HDO_OK;
        if (st.st_size == f->bytes) s = hdo__sha256_file(path, hex, e);
        if (s != HDO_OK) return s;
        if (st.st_size == f->bytes && strcmp(hex, f->sha256) == 0) continue;
        if (hdo__path_join(stamp, sizeof stamp, dir, HDO_STAMP_NAME)) unlink(stamp);
        if (st.st_size != f->bytes) {
            return hdo__fail(e, HDO_E_DATA,
                             "%s: '%s' has %lld bytes instead of %lld; 'hdo data get %s' obtains it again", set->name,
                             path, (long long)st.st_size, (long long)f->bytes, set->name);
        }
        return hdo__fail(e, HDO_E_DATA, "%s: '%s' has SHA-256 %s instead of %s; 'hdo data get %s' obtains it again",
                         set->name, path, hex, f->sha256, set->name);
    }
    stamp_write(set, dir);
    return HDO_OK;
}

hdo_status hdo__store_require(const hdo_store_set *set, char *dir, size_t cap, hdo_error *e) {
    hdo_status st = hdo__store_path(set, dir, cap, e);
    if (st != HDO_OK) return st;
    switch (hdo__store_state(set, dir)) {
    case HDO_DATA_READY: return HDO_OK;
    case HDO_DATA_ABSENT:
        return hdo__fail(e, HDO_E_DATA, "the data set %s is not in '%s': run 'hdo data get %s'", set->name, dir,
                         set->name);
    default: return hdo__store_verify(set, dir, e);
    }
}

hdo_status hdo__store_folder(const hdo_store_set *set, const char *own, char *dir, size_t cap, hdo_error *e) {
    snprintf(dir, cap, "%s", own);
    return own[0] == '\0' ? hdo__store_require(set, dir, cap, e) : HDO_OK;
}

/* ---- changing it ---- */

hdo_status hdo__store_lock(const char *root, const char *name, int *fd, hdo_error *e) {
    char path[HDO_DATA_PATH_MAX];
    *fd = -1;
    int n = snprintf(path, sizeof path, "%s/.%s.lock", root, name);
    if (n < 0 || (size_t)n >= sizeof path) return hdo__fail(e, HDO_E_IO, "the data folder's name is too long");
    int f = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (f < 0) return hdo__fail(e, HDO_E_IO, "cannot write in the data folder '%s': %s", root, strerror(errno));
    struct flock lk = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    while (fcntl(f, F_SETLKW, &lk) != 0) { /* the system drops it when a process ends, however it ends */
        if (errno == EINTR) continue;
        int err = errno;
        close(f);
        return hdo__fail(e, HDO_E_IO, "cannot lock '%s': %s", path, strerror(err));
    }
    *fd = f;
    return HDO_OK;
}

void hdo__store_unlock(int fd) {
    if (fd >= 0) close(fd);
}

static void remove_tree(const char *path, int depth) {
    struct stat st;
    if (lstat(path, &st) != 0) return;
    if (!S_ISDIR(st.st_mode)) {
        unlink(path);
        return;
    }
    DIR *d = depth > 0 ? opendir(path) : NULL;
    if (d != NULL) {
        for (struct dirent *f; (f = readdir(d)) != NULL;) {
            char sub[HDO_DATA_PATH_MAX];
            if (strcmp(f->d_name, ".") == 0 || strcmp(f->d_name, "..") == 0) continue;
            if (hdo__path_join(sub, sizeof sub, path, f->d_name)) remove_tree(sub, depth - 1);
        }
        closedir(d);
    }
    rmdir(path);
}

void hdo__store_remove(const char *dir) {
    remove_tree(dir, 3);
}

hdo_status hdo__store_scratch(const char *root, const char *name, char *dir, size_t cap, hdo_error *e) {
    char prefix[64];
    int len = snprintf(prefix, sizeof prefix, ".%s.tmp.", name);
    DIR *d = opendir(root);
    if (d != NULL) { /* we hold the lock: whoever made these is gone */
        for (struct dirent *f; (f = readdir(d)) != NULL;) {
            char old[HDO_DATA_PATH_MAX];
            if (strncmp(f->d_name, prefix, (size_t)len) != 0) continue;
            if (hdo__path_join(old, sizeof old, root, f->d_name)) hdo__store_remove(old);
        }
        closedir(d);
    }
    int n = snprintf(dir, cap, "%s/%sXXXXXX", root, prefix);
    if (n < 0 || (size_t)n >= cap) return hdo__fail(e, HDO_E_IO, "the data folder's name is too long");
    if (mkdtemp(dir) == NULL) return hdo__fail(e, HDO_E_IO, "cannot make a folder in '%s': %s", root, strerror(errno));
    return HDO_OK;
}

hdo_status hdo__store_commit(const hdo_store_set *set, const char *root, const char *scratch, hdo_error *e) {
    char final[HDO_DATA_PATH_MAX], old[HDO_DATA_PATH_MAX];
    int n = snprintf(old, sizeof old, "%s/.%s.tmp.old", root, set->name);
    if (n < 0 || (size_t)n >= sizeof old || !hdo__path_join(final, sizeof final, root, set->name)) {
        return hdo__fail(e, HDO_E_IO, "the data folder's name is too long");
    }
    chmod(scratch, 0755); /* mkdtemp made it private */
    stamp_write(set, scratch);
    hdo__store_remove(old);
    if (hdo__path_exists(final) && rename(final, old) != 0) {
        return hdo__fail(e, HDO_E_IO, "cannot replace '%s': %s", final, strerror(errno));
    }
    if (rename(scratch, final) != 0) {
        int err = errno;
        (void)rename(old, final);
        return hdo__fail(e, HDO_E_IO, "cannot put '%s' in place: %s", final, strerror(err));
    }
    hdo__store_remove(old);
    return HDO_OK;
}
