/* SPDX-License-Identifier: Apache-2.0 — what figures share: text files, calling gnuplot. */
#ifndef HDO_REPORT_GNUPLOT_H
#define HDO_REPORT_GNUPLOT_H

#include <stdio.h>

#include "hdo/experimental/quote.h"
#include "hdo/experimental/fail.h"

typedef struct hdo_text { /* text that grows in memory and becomes a file */
    char *p;
    size_t len;
    FILE *f; /* NULL: out of memory, said by hdo__text_save */
} hdo_text;
void hdo__text_open(hdo_text *t);
hdo_status hdo__text_save(hdo_text *t, const char *path, hdo_error *e); /* closes and frees */

const char *hdo__gnuplot_name(const char *base);                 /* without the folder */
hdo_status hdo__gnuplot_prepare(const char *base, hdo_error *e); /* the folder of base exists */
void hdo__gnuplot_head(FILE *f, const char *name);               /* first lines of every script */
void hdo__gnuplot_number(FILE *f, double v);                     /* nan if it is not finite */
/* set WHAT "text" noenhanced; nothing for NULL. */
void hdo__gnuplot_set(FILE *f, const char *what, const char *text);
/* Draws once for every format: terminal and output file, then draw. */
void hdo__gnuplot_each(FILE *f, const char *name, unsigned formats, void (*draw)(FILE *f, const void *ctx),
                       const void *ctx);
/* A figure: base.csv with its numbers, base.gp with its script, and (formats != 0) what the script draws. */
typedef struct hdo_gnuplot {
    const void *what; /* handed to both */
    void (*numbers)(FILE *f, const void *what);
    void (*script)(FILE *f, const void *what, const char *name, unsigned formats); /* name: base without its folder */
} hdo_gnuplot;
hdo_status hdo__gnuplot_write(const hdo_gnuplot *g, const char *base, unsigned formats, hdo_error *e);

#endif
