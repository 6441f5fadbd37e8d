/* SPDX-License-Identifier: Apache-2.0 — what the files about the paper's experiments share. */
#ifndef HDO_STUDY_PAPER_INTERNAL_H
#define HDO_STUDY_PAPER_INTERNAL_H

#include <stdbool.h>
#include <stdio.h>

#include "hdo/lab/paper.h"

/* The folder of a case whose claims have been judged. false: there is none. */
bool hdo__paper_judged(const hdo_paper_case *k, char *dir, size_t cap);

typedef struct hdo_paper_made {
    char by[128];     /* version and commit; empty: no runs */
    char stale[1024]; /* why its runs should be made again; empty: they need not */
} hdo_paper_made;
void hdo__paper_made(const hdo_paper_case *k, int variant, hdo_paper_made *out);
bool hdo__paper_stale(const hdo_paper_case *k); /* one of its curves is */

/* Equal in everything but the number of threads. */
bool hdo__same_settings(const hdo_config *a, const hdo_config *b);

/* Verdicts on every claim and part, for every reading that was run in full: a table for each experiment. */
void hdo__paper_matrix(FILE *f, const char *root, bool html);

#endif
