/* SPDX-License-Identifier: Apache-2.0 — pieces of a self-contained HTML page. */
#ifndef HDO_REPORT_PAGE_H
#define HDO_REPORT_PAGE_H

#include <stdio.h>

#include "hdo/experimental/quote.h"
#include "hdo/experimental/fail.h"
#include "hdo/lab/report.h"

void hdo__page_begin(FILE *f, const char *title);
void hdo__page_end(FILE *f);
/* The SVG file inline; nothing when it is not there. */
void hdo__page_svg(FILE *f, const char *path);
/* A text file in a box that opens on a click. */
void hdo__page_file(FILE *f, const char *title, const char *path);

typedef struct hdo_group_figures { /* final figures of a group of runs */
    int runs, finished, diverged;
    double steps, loss, loss_se, acc, acc_se, mu, gamma, wall_s;
    double forward, backward, jvp, cost, bytes;
    char model[32];
    char first[1024]; /* folder of the first run */
} hdo_group_figures;
/* The runs of dir: itself, or the folders in it that hold metrics.jsonl, sorted by name. Their number; the caller frees
 * the names and the list (curves.c). */
int hdo__list_runs(const char *dir, char ***out);
/* From the summaries of a run folder or of the runs in a folder. */
hdo_status hdo__group_read(const char *dir, hdo_group_figures *out, hdo_error *e);

#endif
