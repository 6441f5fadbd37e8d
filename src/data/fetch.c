/* SPDX-License-Identifier: Apache-2.0
 *
 * Obtaining data sets: import from a folder, or run the helper `hdo-data-get` (which alone talks to the network) and
 * import what it brought. One process works at a time; the others wait at the lock and then find the set in place.
 */
#define _GNU_SOURCE /* dladdr */
#include <dlfcn.h>
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "data/data_impl.h"
#include "data/store.h"

#define HELPER "hdo-data-get"
#ifndef HDO_LIBEXEC_FROM_LIB
#define HDO_LIBEXEC_FROM_LIB "../libexec/hdo"
#endif

extern char **environ;

/* The helper in the folder `near`, which is relative to that of the file `from`. */
static bool helper_near(const char *from, const char *near, char *path, size_t cap) {
    const char *slash = strrchr(from, '/');
    if (slash == NULL) return false;
    int len = snprintf(path, cap, "%.*s/%s/%s", (int)(slash - from), from, near, HELPER);
    return len > 0 && (size_t)len < cap && access(path, X_OK) == 0;
}

/* $HDO_LIBEXEC_DIR; around the running program (build tree); where the library's installation has it. */
static hdo_status find_helper(char *path, size_t cap, hdo_error *e) {
    const char *own = getenv("HDO_LIBEXEC_DIR");
    if (own != NULL && own[0] != '\0') {
        if (hdo__path_join(path, cap, own, HELPER) && access(path, X_OK) == 0) return HDO_OK;
        return hdo__fail(e, HDO_E_FAILED, "HDO_LIBEXEC_DIR is '%s' and has no program '%s'", own, HELPER);
    }
    static const char *const near[] = {"../tools", "../../tools", "../libexec/hdo", ".", NULL};
    char exe[HDO_DATA_PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = '\0';
    for (const char *const *d = near; *d != NULL; d++) {
        if (helper_near(exe, *d, path, cap)) return HDO_OK;
    }
    Dl_info me;
    if (dladdr((const void *)near, &me) != 0 && me.dli_fname != NULL &&
        helper_near(me.dli_fname, HDO_LIBEXEC_FROM_LIB, path, cap)) {
        return HDO_OK;
    }
    return hdo__fail(e, HDO_E_FAILED, "the helper program '%s' is not installed; set HDO_LIBEXEC_DIR to its folder",
                     HELPER);
}

static hdo_status run_helper(const char *name, const char *dest, const hdo_data_get_options *o, hdo_error *e) {
    char helper[HDO_DATA_PATH_MAX], via[64];
    hdo_status st = find_helper(helper, sizeof helper, e);
    if (st != HDO_OK) return st;
    const char *argv[8];
    int n = 0;
    argv[n++] = HELPER;
    if (o->via != NULL) {
        snprintf(via, sizeof via, "--via=%s", o->via);
        argv[n++] = via;
    }
    if (o->quiet) argv[n++] = "--quiet";
    argv[n++] = "--";
    argv[n++] = name;
    argv[n++] = dest;
    argv[n] = NULL;
    pid_t pid;
    int err = posix_spawn(&pid, helper, NULL, NULL, (char *const *)(uintptr_t)argv, environ);
    if (err != 0) return hdo__fail(e, HDO_E_FAILED, "cannot start '%s': %s", helper, strerror(err));
    int status;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) return hdo__fail(e, HDO_E_FAILED, "lost track of '%s': %s", helper, strerror(errno));
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return HDO_OK;
    if (WIFSIGNALED(status)) return hdo__fail(e, HDO_E_FAILED, "obtaining %s was interrupted", name);
    if (WEXITSTATUS(status) == 2) return hdo__fail(e, HDO_E_CONFIG, "'%s' does not understand the request", helper);
    return hdo__fail(e, HDO_E_DATA,
                     "could not obtain %s (reason above); with the files at hand: 'hdo data import FOLDER'", name);
}

/* Fills the set from a folder, or from what the helper brings when from is NULL. */
static hdo_status replace(const hdo_store_set *set, const char *root, const char *from, const hdo_data_get_options *o,
                          hdo_error *e) {
    char scratch[HDO_DATA_PATH_MAX], in[HDO_DATA_PATH_MAX], out[HDO_DATA_PATH_MAX];
    const hdo_store_set *found;
    hdo_status st = hdo__store_scratch(root, set->name, scratch, sizeof scratch, e);
    if (st != HDO_OK) return st;
    if (!hdo__path_join(in, sizeof in, scratch, "in") || !hdo__path_join(out, sizeof out, scratch, "out")) {
        st = hdo__fail(e, HDO_E_IO, "the data folder's name is too long");
        goto out;
    }
    st = hdo__dir_create(out, e);
    if (st == HDO_OK && from == NULL) st = run_helper(set->name, in, o, e);
    if (st == HDO_OK) st = hdo__store_collect(set, from != NULL ? from : in, out, &found, e);
    if (st == HDO_OK) st = hdo__store_commit(set, root, out, e);
out:
    hdo__store_remove(scratch);
    return st;
}

static hdo_status obtain(const hdo_store_set *set, const char *from, const hdo_data_get_options *o, hdo_error *e) {
    char root[HDO_DATA_PATH_MAX], dir[HDO_DATA_PATH_MAX];
    hdo_status st = hdo__store_dir(root, sizeof root, e);
    if (st == HDO_OK) st = hdo__store_path(set, dir, sizeof dir, e);
    if (st != HDO_OK) return st;
    if (!o->force && hdo__store_state(set, dir) == HDO_DATA_READY) return HDO_OK;
    if (o->offline) {
        st = hdo__store_require(set, dir, sizeof dir, e);
        if (st != HDO_OK) hdo__error_prefix(e, "--offline");
        return st;
    }
    st = hdo__dir_create(root, e);
    int lock = -1;
    if (st == HDO_OK) st = hdo__store_lock(root, set->name, &lock, e);
    if (st != HDO_OK) return st;
    /* Somebody else may have done it while we waited; and complete files only need their checksums compared. */
    const hdo_data_state now = hdo__store_state(set, dir);
    const bool good =
        now == HDO_DATA_READY || (now == HDO_DATA_UNCHECKED && hdo__store_verify(set, dir, NULL) == HDO_OK);
    if (o->force || !good) st = replace(set, root, from, o, e);
    hdo__store_unlock(lock);
    return st;
}

hdo_status hdo_data_import(const char *name, const char *from, bool force, hdo_data_info *out, hdo_error *e) {
    const hdo_store_set *set = NULL, *found = NULL;
    if (name != NULL) {
        set = hdo__store_find(name);
        if (set == NULL)
            return hdo__fail(e, HDO_E_CONFIG, "'%s' is not a data set of files (mnist and cifar10 are)", name);
    }
    hdo_status st = hdo__store_collect(set, from, NULL, &found, e);
    if (st != HDO_OK) return st;
    const hdo_data_get_options o = {.force = force};
    st = obtain(found, from, &o, e);
    if (st == HDO_OK && out != NULL) st = hdo_data_find(found->name, out, e);
    return st;
}

hdo_status hdo_data_get(const char *name, const hdo_data_get_options *o, hdo_data_info *out, hdo_error *e) {
    const hdo_data_get_options none = {0};
    if (o == NULL) o = &none;
    hdo_data_info info;
    hdo_status st = hdo_data_find(name, &info, e);
    if (st != HDO_OK) return st;
    if (info.state == HDO_DATA_OWN) {
        return hdo__fail(e, HDO_E_CONFIG,
                         "%s reads your own files: give their place as data.path, nothing is to be got", name);
    }
    if (info.state != HDO_DATA_BUILT_IN) {
        st = obtain(hdo__store_find(name), o->from, o, e);
        if (st == HDO_OK) st = hdo_data_find(name, &info, e);
    }
    if (st == HDO_OK && out != NULL) *out = info;
    return st;
}
