/* SPDX-License-Identifier: Apache-2.0
 *
 * Does the compiler, with our flags, keep arrays apart that live at the same time? gcc 12 at -O3 without
 * -fstack-reuse=none does not (gcc bug 90348, known of versions 7 to 14): it cuts the loop over i at 8 (-fsplit-loops)
 * and reuses in the second half the address of `in` that it made for the first (-fivopts). Between the two stands the
 * end of the life of `in`, so `in` and `b` get one place. Attention (simd_attn.c) was wrong from the ninth row on for
 * this reason: its sums shared a place with the operands of a multiply-add.
 */
#include <stdio.h>

#ifdef __clang__
#define APART __attribute__((noinline))
#else
#define APART __attribute__((noipa))
#endif

APART static void fill(char *p) {
    for (int i = 0; i < 64; i++) p[i] = 1;
}

APART static int sum(const char *p) {
    int s = 0;
    for (int i = 0; i < 64; i++) s += p[i];
    return s;
}

static inline __attribute__((always_inline)) void scratch(void) {
    char b[64];
    fill(b);
}

APART static int zeros(int n) {
    int s = 0;
    for (int i = 0; i < n; i++) {
        char in[64];
        for (int j = 0; j < 64; j++) {
            in[j] = 0;
            if (i >= 8)
                scratch();
            else
                __asm__ volatile("");
        }
        s += sum(in);
    }
    return s;
}

int main(void) {
    if (zeros(16) == 0) return 0;
    fputs("this compiler lets two live arrays share one place; build with -fstack-reuse=none\n", stderr);
    return 1;
}
