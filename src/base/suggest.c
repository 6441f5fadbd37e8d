/* SPDX-License-Identifier: Apache-2.0 — the nearest of some words. */
#include "hdo/experimental/suggest.h"

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum { WORD_MAX = 64 }; /* longer words are not mistyped names */

/* Plain Levenshtein distance, letters compared without case: `LR` is `lr`. One row of the table suffices. */
static size_t edit_distance(const char *a, size_t na, const char *b, size_t nb) {
    size_t row[WORD_MAX];
    for (size_t j = 0; j <= nb; j++) row[j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t corner = row[0];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            bool same = tolower((unsigned char)a[i - 1]) == tolower((unsigned char)b[j - 1]);
            size_t best = corner + (same ? 0 : 1);
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            corner = row[j];
            row[j] = best;
        }
    }
    return row[nb];
}

const char *hdo__suggest(const char *word, const char *const *candidates) {
    size_t n = strlen(word), best = n / 3 > 2 ? n / 3 : 2;
    const char *found = NULL;
    if (n == 0 || n >= WORD_MAX || candidates == NULL) return NULL;
    if (best >= n) best = n - 1; /* something of the word must remain */
    for (size_t i = 0; candidates[i] != NULL; i++) {
        size_t len = strlen(candidates[i]);
        if (len >= WORD_MAX) continue;
        size_t d = edit_distance(word, n, candidates[i], len);
        if (d >= len || d > best || (found != NULL && d == best)) continue;
        best = d;
        found = candidates[i];
    }
    return found;
}
