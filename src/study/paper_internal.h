/* SPDX-License-Identifier: Apache-2.0 — what the files about the paper's experiments share. */
#ifndef HDO_STUDY_PAPER_INTERNAL_H
#define HDO_STUDY_PAPER_INTERNAL_H

#include <stdbool.h>
#include <stdio.h>

#include "hdo/paper.h"

/* The folder of a case whose claims have been judged. false: there is none. */
bool hdo__paper_judged(const hdo_paper_case *k, char *dir, size_t cap);

/* Verdicts on every claim and part, for every reading that was run in full: a table for each experiment. */
void hdo__paper_matrix(FILE *f, const char *root, bool html);

#endif
