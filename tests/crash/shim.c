/* SPDX-License-Identifier: Apache-2.0
 *
 * A library for LD_PRELOAD that lets the k-th call that touches a folder fail or kill the process. The driver (walk)
 * tries every k.
 *
 *   HDO_CRASH_ROOT   absolute folder; only paths below it, and files opened there, count
 *   HDO_CRASH_COUNT  file of 8 bytes, shared by all processes of a command: how many calls there were
 *   HDO_CRASH_AT     k, from 1; 0 or absent: only count
 *   HDO_CRASH_HOW    eio, enospc: the call fails;  kill: SIGKILL instead of the call;  torn: half a write, then SIGKILL
 *
 * Calls: open, openat, write, pwrite, fsync, rename, unlink, ftruncate, mkdir.
 */
#define _GNU_SOURCE
#undef _FILE_OFFSET_BITS /* both names of every call are defined here */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#pragma GCC visibility push(default) /* the project hides by default */

enum { FDS = 4096 };
static atomic_bool ours[FDS]; /* opened below the root */
static _Atomic uint64_t *count;
static const char *root;
static uint64_t at;
static enum { FAIL_EIO, FAIL_ENOSPC, KILL, TORN } how;

__attribute__((constructor)) static void start(void) {
    const char *file = getenv("HDO_CRASH_COUNT"), *k = getenv("HDO_CRASH_AT"), *h = getenv("HDO_CRASH_HOW");
    root = getenv("HDO_CRASH_ROOT");
    at = k != NULL ? strtoull(k, NULL, 10) : 0;
    how = h == NULL || strcmp(h, "eio") == 0 ? FAIL_EIO
          : strcmp(h, "enospc") == 0         ? FAIL_ENOSPC
          : strcmp(h, "torn") == 0           ? TORN
                                             : KILL;
    int fd = file != NULL ? (int)syscall(SYS_openat, AT_FDCWD, file, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *p = mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p != MAP_FAILED) count = p;
    close(fd);
}

static bool below_root(const char *path) {
    return root != NULL && path != NULL && strncmp(path, root, strlen(root)) == 0;
}

/* True: this call is to fail, errno is set. Does not return if it is to kill. `half`: what a torn write still does. */
static bool struck(int fd, const void *buf, size_t len) {
    if (count == NULL || atomic_fetch_add(count, 1) + 1 != at) return false;
    if (how == TORN && buf != NULL && len > 1) (void)!syscall(SYS_write, fd, buf, len / 2);
    if (how == KILL || how == TORN) raise(SIGKILL);
    errno = how == FAIL_ENOSPC ? ENOSPC : EIO;
    return true;
}

static bool is_ours(int fd) {
    return fd >= 0 && fd < FDS && ours[fd];
}

static int opened(int dir, const char *path, int flags, mode_t mode) {
    bool mine = below_root(path);
    if (mine && struck(-1, NULL, 0)) return -1;
    int fd = (int)syscall(SYS_openat, dir, path, flags, mode);
    if (fd >= 0 && fd < FDS) ours[fd] = mine;
    return fd;
}

#define MODE(mode, flags)                                                                                              \
    mode_t mode = 0;                                                                                                   \
    if (((flags) & (O_CREAT | O_TMPFILE)) != 0) {                                                                      \
        va_list ap;                                                                                                    \
        va_start(ap, flags);                                                                                           \
        mode = va_arg(ap, mode_t);                                                                                     \
        va_end(ap);                                                                                                    \
    }

int open(const char *path, int flags, ...) {
    MODE(mode, flags)
    return opened(AT_FDCWD, path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    MODE(mode, flags)
    return opened(AT_FDCWD, path, flags, mode);
}
int openat(int dir, const char *path, int flags, ...) {
    MODE(mode, flags)
    return opened(dir, path, flags, mode);
}
int openat64(int dir, const char *path, int flags, ...) {
    MODE(mode, flags)
    return opened(dir, path, flags, mode);
}

ssize_t write(int fd, const void *buf, size_t n) {
    if (is_ours(fd) && struck(fd, buf, n)) return -1;
    return syscall(SYS_write, fd, buf, n);
}

static ssize_t written_at(int fd, const void *buf, size_t n, off_t off) {
    if (is_ours(fd) && struck(-1, NULL, 0)) return -1;
    return syscall(SYS_pwrite64, fd, buf, n, off);
}
ssize_t pwrite(int fd, const void *buf, size_t n, off_t off) {
    return written_at(fd, buf, n, off);
}
ssize_t pwrite64(int fd, const void *buf, size_t n, off_t off) {
    return written_at(fd, buf, n, off);
}

int fsync(int fd) {
    if (is_ours(fd) && struck(-1, NULL, 0)) return -1;
    return (int)syscall(SYS_fsync, fd);
}

int ftruncate(int fd, off_t len) {
    if (is_ours(fd) && struck(-1, NULL, 0)) return -1;
    return (int)syscall(SYS_ftruncate, fd, len);
}
int ftruncate64(int fd, off_t len) {
    return ftruncate(fd, len);
}

int rename(const char *from, const char *to) {
    if (below_root(to) && struck(-1, NULL, 0)) return -1;
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int unlink(const char *path) {
    if (below_root(path) && struck(-1, NULL, 0)) return -1;
    return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

int mkdir(const char *path, mode_t mode) {
    if (below_root(path) && struck(-1, NULL, 0)) return -1;
    return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}
