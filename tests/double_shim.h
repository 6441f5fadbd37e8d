/* SPDX-License-Identifier: Apache-2.0
 *
 * Forced into every source of the double build of the engine (-include): the same code with `float` meaning double, so
 * that derivatives can be checked against central differences to nine digits instead of three. The system headers come
 * first and are done with; only our own code sees the word change. Storage in float is a decision of the library, not
 * of the formulas: nothing else differs. Only plain C sources are built this way (no vector kernels, no generators).
 */
#ifndef HDO_TESTS_DOUBLE_SHIM_H
#define HDO_TESTS_DOUBLE_SHIM_H

#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#undef HDO_HAVE_AVX2_BUILD /* one target: plain C */
#undef HDO_HAVE_AVX512_BUILD

#define float double
#define sqrtf sqrt
#define expf exp
#define logf log
#define fabsf fabs
#define erff erf

#endif
