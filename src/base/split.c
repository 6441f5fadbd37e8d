/* SPDX-License-Identifier: Apache-2.0 — idle coordinates: ranges of them, and tensors stored in two parts. */
#include "base/split.h"

#include <string.h>

size_t hdo__outside_some(hdo_ranges r, size_t *off, size_t end, size_t most) {
    for (int k = 0; k < r.n && *off < end; k++) {
        if (r.at[k].hi <= *off) continue;
        if (*off < r.at[k].lo) {
            if (r.at[k].lo < end) end = r.at[k].lo;
            break;
        }
        *off = r.at[k].hi;
    }
    if (*off >= end) return 0;
    return end - *off < most ? end - *off : most;
}

bool hdo__all_inside(hdo_ranges r, size_t off, size_t len) {
    for (int k = 0; k < r.n; k++)
        if (r.at[k].lo <= off && off + len <= r.at[k].hi) return true;
    return false;
}

size_t hdo__count_outside(hdo_ranges r, size_t lo, size_t hi) {
    size_t sum = 0;
    for (size_t off = lo, n; (n = hdo__outside(r, &off, hi, hi - lo)) > 0; off += n) sum += n;
    return sum;
}

void hdo__ranges_clear(hdo_ranges r, size_t lo, size_t hi, float *x) {
    for (int k = 0; k < r.n; k++) {
        size_t from = r.at[k].lo > lo ? r.at[k].lo : lo, to = r.at[k].hi < hi ? r.at[k].hi : hi;
        if (from < to) memset(x + from, 0, (to - from) * sizeof(float));
    }
}

/* The place in the stored tensor of tap t of filter f. */
typedef struct places {
    size_t live, taps, all_live;
} places;

static size_t place(const places *p, const hdo_split *s, size_t f, int ky, int kx, size_t *idle) {
    int y = ky - s->y, x = kx - s->x;
    if (y >= 0 && y < s->h && x >= 0 && x < s->w) return f * p->live + (size_t)(y * s->w + x);
    return p->all_live + f * (p->taps - p->live) + (*idle)++;
}

static void copy(const hdo_split *s, size_t len, const float *from, float *to, bool store) {
    if (s->kh == 0) {
        memcpy(to, from, len * sizeof(float));
        return;
    }
    places p = {.live = (size_t)(s->h * s->w), .taps = (size_t)(s->kh * s->kw)};
    size_t filters = len / p.taps;
    p.all_live = filters * p.live;
    for (size_t f = 0; f < filters; f++) {
        size_t idle = 0;
        for (int t = 0; t < s->kh * s->kw; t++) {
            size_t plain = f * p.taps + (size_t)t, stored = place(&p, s, f, t / s->kw, t % s->kw, &idle);
            if (store)
                to[stored] = from[plain];
            else
                to[plain] = from[stored];
        }
    }
}

void hdo__split_store(const hdo_split *s, size_t len, const float *plain, float *stored) {
    copy(s, len, plain, stored, true);
}

void hdo__split_plain(const hdo_split *s, size_t len, const float *stored, float *plain) {
    copy(s, len, stored, plain, false);
}
