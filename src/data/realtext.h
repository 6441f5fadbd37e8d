/* SPDX-License-Identifier: Apache-2.0 — decimal numbers inside a text that has no terminator, in no locale. */
#ifndef HDO_DATA_REALTEXT_H
#define HDO_DATA_REALTEXT_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* Reads [+-]digits[.digits][e[+-]digits] at *p, not beyond end. Advances *p over it. False, *p untouched, when there is
 * no number. Within 3 units in the last place of the double, 10 beyond 1e66: inputs are stored as float. */
static inline bool hdo__real_scan(const char **p, const char *end, double *out) {
    static const double ten[23] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                   1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const char *s = *p;
    bool minus = false, any = false;
    if (s < end && (*s == '+' || *s == '-')) minus = *s++ == '-';
    uint64_t m = 0;
    int exp10 = 0;
    for (; s < end && *s >= '0' && *s <= '9'; s++, any = true) {
        if (m < 1000000000000000000u) {
            m = 10 * m + (uint64_t)(*s - '0');
        } else if (exp10 < 100000) {
            exp10++;
        }
    }
    if (s < end && *s == '.') {
        s++;
        for (; s < end && *s >= '0' && *s <= '9'; s++, any = true) {
            if (m < 1000000000000000000u && exp10 > -100000) {
                m = 10 * m + (uint64_t)(*s - '0');
                exp10--;
            }
        }
    }
    if (!any) return false;
    if (s < end && (*s == 'e' || *s == 'E')) {
        const char *t = s + 1;
        bool neg = false, digits = false;
        if (t < end && (*t == '+' || *t == '-')) neg = *t++ == '-';
        int x = 0;
        for (; t < end && *t >= '0' && *t <= '9'; t++, digits = true) {
            if (x < 100000) x = 10 * x + (*t - '0');
        }
        if (digits) {
            exp10 += neg ? -x : x;
            s = t;
        }
    }
    double v = (double)m;
    if (m != 0) {
        if (exp10 >= 0 && exp10 <= 22) {
            v *= ten[exp10];
        } else if (exp10 < 0 && exp10 >= -22) {
            v /= ten[-exp10];
        } else { /* in steps that are powers exactly; beyond 400 it is 0 or infinite anyway */
            int left = exp10 < -400 ? -400 : exp10 > 400 ? 400 : exp10;
            for (; left > 0; left -= left > 22 ? 22 : left) v *= ten[left > 22 ? 22 : left];
            for (; left < 0; left += left < -22 ? 22 : -left) v /= ten[left < -22 ? 22 : -left];
        }
    }
    *out = minus ? -v : v;
    *p = s;
    return true;
}

#endif
