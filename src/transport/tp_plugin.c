/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds and loads the shared object with the MPI transport. Open MPI and MPICH are different libraries with the same
 * names, so there is one object for each, and the one that fits the launcher of this process is taken:
 *
 *   HDO_MPI=openmpi|mpich, if set;   OMPI_COMM_WORLD_SIZE -> openmpi;   MPI_LOCALNRANKS or PMI_SIZE -> mpich;
 *   started by nobody: the first that is there, as a job of one rank.
 *
 * Places: $HDO_PLUGIN_PATH (one folder), and beside libhdo.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hdo/experimental/all.h"
#include "transport/transport.h"

static const char *const flavours[] = {"openmpi", "mpich"};

/* Whose mpirun started this process, if that is certain: Slurm sets PMI_SIZE for either. */
static const char *launcher(void) {
    if (getenv("OMPI_COMM_WORLD_SIZE") != NULL) return "openmpi";
    return getenv("MPI_LOCALNRANKS") != NULL ? "mpich" : NULL;
}

static const char *wanted(void) {
    const char *own = getenv("HDO_MPI");
    if (own != NULL && own[0] != '\0') return own;
    return launcher() == NULL && getenv("PMI_SIZE") != NULL ? "mpich" : launcher();
}

static bool try_dir(const char *dir, size_t dir_len, const char *flavour, char *path, size_t cap) {
    int n = snprintf(path, cap, "%.*s/libhdo-mpi-%s.so", (int)dir_len, dir, flavour);
    return n > 0 && (size_t)n < cap && access(path, R_OK) == 0;
}

static bool find(const char *flavour, char *path, size_t cap) {
    const char *env = getenv("HDO_PLUGIN_PATH");
    if (env != NULL && env[0] != '\0' && try_dir(env, strlen(env), flavour, path, cap)) return true;
    Dl_info me;
    if (dladdr((const void *)flavours, &me) != 0 && me.dli_fname != NULL) {
        const char *slash = strrchr(me.dli_fname, '/');
        if (slash != NULL && try_dir(me.dli_fname, (size_t)(slash - me.dli_fname), flavour, path, cap)) return true;
    }
    return false;
}

bool hdo_mpi_launched(int *rank, int *ranks) {
    static const char *const names[][2] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, {"PMI_RANK", "PMI_SIZE"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *r = getenv(names[i][0]), *n = getenv(names[i][1]);
        if (r == NULL || n == NULL) continue;
        *rank = atoi(r);
        *ranks = atoi(n);
        return true;
    }
    *rank = 0;
    *ranks = 1;
    return false;
}

const char *hdo_mpi_flavour(void) {
    char path[HDO_PATH_MAX];
    const char *want = wanted();
    for (size_t i = 0; i < sizeof flavours / sizeof flavours[0]; i++) {
        if ((want == NULL || strcmp(want, flavours[i]) == 0) && find(flavours[i], path, sizeof path))
            return flavours[i];
    }
    return NULL;
}

/* Every process believes to be rank 0 of 1 then; only the launcher's first one speaks. */
static hdo_status refuse_mixture(int rank, hdo_error *e, const char *fmt, ...) {
    char text[HDO_MSG_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return hdo__fail(e, HDO_E_ENGINE, "%s", rank == 0 ? text : "");
}

hdo_status hdo__mpi_create(hdo_transport **out, const hdo_transport_setup *s, hdo_error *e) {
    char path[HDO_PATH_MAX];
    const char *want = wanted(), *flavour = hdo_mpi_flavour();
    int rank, ranks;
    bool launched = hdo_mpi_launched(&rank, &ranks);
    *out = NULL;
    if (want != NULL && strcmp(want, flavours[0]) != 0 && strcmp(want, flavours[1]) != 0) {
        return hdo__fail(e, HDO_E_CONFIG, "HDO_MPI is '%s', but must be openmpi or mpich", want);
    }
    if (launcher() != NULL && strcmp(want, launcher()) != 0) { /* MPI_Init of one under the other need not return */
        return refuse_mixture(rank, e,
                              "these ranks were started by the mpirun of %s, but HDO_MPI is %s: unset it, or use the "
                              "mpirun of %s",
                              launcher(), want, want);
    }
    if (flavour == NULL) {
        return hdo__fail(e, HDO_E_UNSUPPORTED,
                         "engine mpi needs libhdo-mpi-%s.so, which is neither in $HDO_PLUGIN_PATH nor beside libhdo; "
                         "install %s and build hdo again",
                         want != NULL ? want : "openmpi",
                         want != NULL && strcmp(want, "mpich") == 0 ? "MPICH (libmpich-dev)"
                                                                    : "Open MPI (libopenmpi-dev)");
    }
    find(flavour, path, sizeof path);
    /* global: the parts that Open MPI loads later look for symbols of libmpi. Never closed: MPI cannot be restarted. */
    void *so = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (so == NULL) return hdo__fail(e, HDO_E_ENGINE, "'%s' cannot be loaded: %s", path, dlerror());
    void *symbol = dlsym(so, HDO_TRANSPORT_SYMBOL);
    if (symbol == NULL) return hdo__fail(e, HDO_E_ENGINE, "'%s' is not a plug-in of hdo", path);
    hdo_transport_open_fn open_fn;
    memcpy(&open_fn, &symbol, sizeof open_fn); /* ISO C has no cast from an object to a function */
    hdo_transport_setup setup = *s;
    setup.rank = rank;
    hdo_status st = open_fn(HDO_TRANSPORT_ABI, hdo_version(), &setup, out, e);
    if (st != HDO_OK || !launched || (*out)->ranks == ranks) return st;
    st = refuse_mixture(rank, e,
                        "the launcher started %d ranks, but the library of %s sees %d: it belongs to another MPI "
                        "(HDO_MPI chooses openmpi or mpich)",
                        ranks, flavour, (*out)->ranks);
    (*out)->ops->destroy(*out);
    *out = NULL;
    return st;
}
