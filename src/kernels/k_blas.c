/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products by a CBLAS library: the only file that includes cblas.h. Parallelism lives above the kernels, so the
 * library is set to one thread; the controls that do this are not part of CBLAS and are weak references here: absent
 * in another library, they are simply not called.
 */
#ifdef HDO_HAVE_BLAS
#include <cblas.h>
#include <stdio.h>
#include <strings.h>

#include "kernels/mm.h"

extern void openblas_set_num_threads(int n) __attribute__((weak));
extern char *openblas_get_config(void) __attribute__((weak));
extern char *openblas_get_corename(void) __attribute__((weak));
extern void bli_thread_set_num_threads(long n) __attribute__((weak)); /* BLIS: a 64-bit integer in every build */

const char *hdo__blas_init(void) {
    static char name[160]; /* written once: the caller is hdo__kernels, under pthread_once */
    if (openblas_set_num_threads != NULL) {
        openblas_set_num_threads(1);
        char version[32] = "OpenBLAS";
        if (openblas_get_config != NULL && sscanf(openblas_get_config(), "OpenBLAS %22s", version + 9) == 1)
            version[8] = ' ';
        snprintf(name, sizeof name, "%s (%s kernels, one thread)", version,
                 openblas_get_corename != NULL ? openblas_get_corename() : "unknown");
    } else if (bli_thread_set_num_threads != NULL) {
        bli_thread_set_num_threads(1);
        snprintf(name, sizeof name, "BLIS (one thread)");
    } else {
        snprintf(name, sizeof name, "CBLAS (threads as the library decides)");
    }
    return name;
}

bool hdo__blas_small(void) {
    if (openblas_get_corename == NULL) return false;
    const char *core = openblas_get_corename();
    return strcasecmp(core, "SkylakeX") == 0 || strcasecmp(core, "Cooperlake") == 0 ||
           strcasecmp(core, "Sapphirerapids") == 0;
}

void hdo__blas_gemm(bool ta, bool tb, int M, int N, int K, float alpha, const float *A, int lda, const float *B,
                    int ldb, float beta, float *C, int ldc) {
    cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, M, N, K, alpha, A, lda,
                B, ldb, beta, C, ldc);
}
#else
typedef int hdo_blas_not_built; /* ISO C wants at least one declaration */
#endif
