/* SPDX-License-Identifier: Apache-2.0 — one writer a run folder. */
#include "record/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/file.h"

enum { PATH_CAP = 4096, TRIES = 100 };

static bool lock_path(const char *dir, char path[PATH_CAP]) {
    return hdo__path_join(path, PATH_CAP, dir, "run.lock");
}

bool hdo__lock_stands(const char *dir, int fd) {
    char path[PATH_CAP];
    struct stat there, ours;
    return lock_path(dir, path) && lstat(path, &there) == 0 && fstat(fd, &ours) == 0 && there.st_ino == ours.st_ino &&
           there.st_dev == ours.st_dev;
}

static hdo_status held(const char *dir, int fd, hdo_error *e) {
    char who[160] = "";
    ssize_t n = pread(fd, who, sizeof who - 1, 0);
    who[n > 0 ? n : 0] = '\0';
    who[strcspn(who, "\n")] = '\0';
    return hdo__fail(e, HDO_E_FAILED,
                     "'%s' is being written by another run%s%s%s; wait until it ends or stop it, then try again", dir,
                     who[0] != '\0' ? " (" : "", who, who[0] != '\0' ? ")" : "");
}

static void sign(int fd) {
    char who[160];
    struct utsname u;
    int n = snprintf(who, sizeof who, "process %ld on %.60s\n", (long)getpid(), uname(&u) == 0 ? u.nodename : "?");
    ssize_t ignored = ftruncate(fd, 0) == 0 ? pwrite(fd, who, (size_t)n, 0) : 0; /* a courtesy */
    (void)ignored;
}

hdo_status hdo__lock_take(const char *dir, int *fd, bool *sure, hdo_error *e) {
    char path[PATH_CAP];
    *fd = -1;
    *sure = true;
    if (!lock_path(dir, path)) return hdo__fail(e, HDO_E_CONFIG, "the folder name '%.100s...' is too long", dir);
    for (int k = 0; k < TRIES; k++) { /* the one before may take its file away between our open and our lock */
        int f = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (f < 0)
            return hdo__fail(e, HDO_E_IO, "cannot write '%s': %s", path,
                             errno == ELOOP ? "it is a symbolic link; remove it" : strerror(errno));
        int got, err;
        while ((got = flock(f, LOCK_EX | LOCK_NB)) != 0 && errno == EINTR) continue;
        err = errno;
        if (got != 0 && err == EWOULDBLOCK) {
            hdo_status st = held(dir, f, e);
            close(f);
            return st;
        }
        *sure = got == 0;
        if (hdo__lock_stands(dir, f)) {
            sign(f);
            *fd = f;
            return HDO_OK;
        }
        close(f);
    }
    return hdo__fail(e, HDO_E_IO, "cannot lock '%s': others come and go too fast", dir);
}

void hdo__lock_drop(const char *dir, int fd) {
    char path[PATH_CAP];
    if (fd < 0) return;
    if (hdo__lock_stands(dir, fd) && lock_path(dir, path)) unlink(path);
    close(fd);
}
