/* SPDX-License-Identifier: Apache-2.0 — the kernel tables of this build that this machine can run. */
#ifndef HDO_TESTS_KERNEL_TABLES_H
#define HDO_TESTS_KERNEL_TABLES_H

#include <string.h>

#include "base/simd.h"
#include "kernels/mm.h"

static const hdo_mm_simd *const tables[] = {
    &hdo__mm_portable,
#ifdef HDO_HAVE_AVX2_BUILD
    &hdo__mm_avx2,
#endif
};

static size_t table_count(void) {
    return strcmp(hdo__simd()->name, "portable") == 0 ? 1 : sizeof tables / sizeof tables[0];
}

#endif
