/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products by a CBLAS library, loaded when the first kernel is asked for: linked, it would be two thirds of the
 * time that `hdo version` takes, and a machine without it could not start the program. Parallelism lives above the
 * kernels, so the library is set to one thread; the controls that do this are not part of CBLAS.
 *
 * HDO_BLAS in the environment names another library file, or is "none".
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "hdo/config.h"
#include "kernels/kernels.h"
#include "kernels/mm.h"

enum { LIBRARY_BYTES = 448 << 20 };                    /* OpenBLAS with 2 threads hangs with 300 MB and not with 450 */
enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 }; /* of the CBLAS standard */
typedef void (*sgemm_fn)(int order, int ta, int tb, int M, int N, int K, float alpha, const float *A, int lda,
                         const float *B, int ldb, float beta, float *C, int ldc);

static sgemm_fn sgemm; /* written once: the caller of hdo__blas_open is hdo__kernels, under pthread_once */
static bool small_products;

/* ISO C has no cast from an object to a function. */
#define LOOK_UP(so, fn, name)                                                                                          \
    do {                                                                                                               \
        void *symbol_ = dlsym(so, name);                                                                               \
        memcpy(&(fn), &symbol_, sizeof(fn));                                                                           \
    } while (0)

static void introduce(void *so, const char *file, char *name, size_t cap) {
    void (*openblas_threads)(int n);
    void (*blis_threads)(long n); /* a 64-bit integer in every build */
    char *(*config)(void);
    char *(*core)(void);
    LOOK_UP(so, openblas_threads, "openblas_set_num_threads");
    LOOK_UP(so, blis_threads, "bli_thread_set_num_threads");
    LOOK_UP(so, config, "openblas_get_config");
    LOOK_UP(so, core, "openblas_get_corename");
    char version[32] = "OpenBLAS";
    if (openblas_threads != NULL) {
        openblas_threads(1);
        if (config != NULL && sscanf(config(), "OpenBLAS %22s", version + 9) == 1) version[8] = ' ';
        const char *kernels = core != NULL ? core() : "unknown";
        snprintf(name, cap, "%s (%s kernels, one thread)", version, kernels);
        small_products = strcasecmp(kernels, "SkylakeX") == 0 || strcasecmp(kernels, "Cooperlake") == 0 ||
                         strcasecmp(kernels, "Sapphirerapids") == 0;
    } else if (blis_threads != NULL) {
        blis_threads(1);
        snprintf(name, cap, "BLIS (one thread)");
    } else {
        snprintf(name, cap, "%s (threads as the library decides)", file);
    }
}

/* OpenBLAS takes hundreds of megabytes of address space when it is loaded, and where it gets none it waits for ever. */
hdo_status hdo__kernels_check(int which, hdo_error *e) {
    const char *asked = getenv("HDO_BLAS");
    struct rlimit limit;
    bool none = asked != NULL ? strcmp(asked, "none") == 0 : strcmp(HDO_BLAS, "none") == 0;
    if (which == HDO_KERNELS_REF || none || sgemm != NULL || getrlimit(RLIMIT_AS, &limit) != 0 ||
        limit.rlim_cur == RLIM_INFINITY)
        return HDO_OK;
    void *probe = mmap(NULL, LIBRARY_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (probe != MAP_FAILED) {
        munmap(probe, LIBRARY_BYTES);
        return HDO_OK;
    }
    return hdo__fail(e, HDO_E_MEMORY,
                     "this process may use %.0f MB of address space (ulimit -v), but a BLAS library takes up to %d MB "
                     "of it; raise the limit, or do without one (HDO_BLAS=none in the environment)",
                     (double)limit.rlim_cur / 1048576.0, LIBRARY_BYTES >> 20);
}

bool hdo__blas_open(char *name, size_t cap) {
    const char *asked = getenv("HDO_BLAS");
    const char *file[] = {HDO_BLAS, NULL, NULL};
    if (strcmp(HDO_BLAS, "auto") == 0) file[0] = "libopenblas.so.0", file[1] = "libblis.so.4";
    if (asked != NULL && asked[0] != '\0') file[0] = asked, file[1] = NULL;
    for (int i = 0; file[i] != NULL && strcmp(file[i], "none") != 0; i++) {
        void *so = dlopen(file[i], RTLD_NOW | RTLD_LOCAL); /* never closed: it has threads and tables of its own */
        if (so == NULL) continue;
        LOOK_UP(so, sgemm, "cblas_sgemm");
        if (sgemm == NULL) continue;
        introduce(so, file[i], name, cap);
        return true;
    }
    return false;
}

bool hdo__blas_small(void) {
    return small_products;
}

void hdo__blas_gemm(bool ta, bool tb, int M, int N, int K, float alpha, const float *A, int lda, const float *B,
                    int ldb, float beta, float *C, int ldc) {
    sgemm(ROW_MAJOR, ta ? TRANS : NO_TRANS, tb ? TRANS : NO_TRANS, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc);
}
