/* SPDX-License-Identifier: Apache-2.0 — what figures share: text files, calling gnuplot. */
#include "lab/report/gnuplot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "hdo/experimental/file.h"
#include "hdo/experimental/json.h"
#include "hdo/experimental/spawn.h"
#include "hdo/experimental/config.h"
#include "hdo/lab/report.h"

void hdo__text_open(hdo_text *t) {
    *t = (hdo_text){0};
    t->f = open_memstream(&t->p, &t->len);
}

hdo_status hdo__text_save(hdo_text *t, const char *path, hdo_error *e) {
    if (t->f == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for '%s'", path);
    bool bad = ferror(t->f) != 0;
    fclose(t->f);
    hdo_status st =
        bad ? hdo__fail(e, HDO_E_MEMORY, "out of memory for '%s'", path) : hdo__file_write(path, t->p, t->len, e);
    free(t->p);
    return st;
}

const char *hdo__gnuplot_name(const char *base) {
    const char *slash = strrchr(base, '/');
    return slash != NULL ? slash + 1 : base;
}

hdo_status hdo__gnuplot_prepare(const char *base, hdo_error *e) {
    char path[HDO_PATH_MAX];
    if (strlen(base) >= HDO_PATH_MAX - 8) return hdo__fail(e, HDO_E_CONFIG, "the name '%.100s...' is too long", base);
    const char *slash = strrchr(base, '/');
    if (slash == NULL || slash == base) return HDO_OK;
    snprintf(path, sizeof path, "%.*s", (int)(slash - base), base);
    return hdo__dir_create(path, e);
}

void hdo__gnuplot_head(FILE *f, const char *name) {
    fputs("# gnuplot ", f);
    hdo__quote_plain(f, name);
    fputs(".gp draws this figure again, in this folder\n"
          "set encoding utf8\nset datafile separator ','\nset datafile missing 'nan'\nset datafile commentschars ''\n",
          f);
}

void hdo__gnuplot_number(FILE *f, double v) {
    char buf[32];
    hdo__real_text(v, buf);
    fputs(isfinite(v) ? buf : "nan", f);
}

void hdo__gnuplot_set(FILE *f, const char *what, const char *text) {
    if (text == NULL) return;
    fprintf(f, "set %s ", what);
    hdo__quote_gnuplot(f, text);
    fputs(" noenhanced\n", f);
}

void hdo__gnuplot_each(FILE *f, const char *name, unsigned formats, void (*draw)(FILE *f, const void *ctx),
                       const void *ctx) {
    static const struct {
        unsigned bit;
        const char *terminal, *ext;
    } out[] = {{HDO_FORMAT_SVG, "svg size 720,480 dynamic font 'sans,14' background rgb 'white'", ".svg"},
               {HDO_FORMAT_PNG, "pngcairo size 1080,720 font 'sans,18'", ".png"},
               {HDO_FORMAT_PDF, "pdfcairo size 15cm,10cm font 'sans,12'", ".pdf"}};
    for (size_t i = 0; i < sizeof out / sizeof out[0]; i++) {
        if ((formats & out[i].bit) == 0) continue;
        fprintf(f, "set terminal %s\nset output ", out[i].terminal);
        hdo__quote_gnuplot_file(f, name, out[i].ext);
        fputc('\n', f);
        draw(f, ctx);
    }
}

/* Runs base.gp in its folder. */
static hdo_status call(const char *base, hdo_error *e) {
    const char *slash = strrchr(base, '/');
    char script[HDO_PATH_MAX + 8], dir[HDO_PATH_MAX + 8];
    snprintf(script, sizeof script, "./%s.gp", hdo__gnuplot_name(base)); /* never an option */
    snprintf(dir, sizeof dir, "%.*s",
             slash == base   ? 1
             : slash != NULL ? (int)(slash - base)
                             : 1,
             slash != NULL ? base : ".");
    const char *const argv[] = {"gnuplot", script, NULL};
    int code = hdo__spawn(&(hdo_spawn){.argv = argv, .dir = dir});
    if (code == 0) return HDO_OK;
    if (code == 127) {
        return hdo__fail(
            e, HDO_E_FAILED,
            "gnuplot is not installed (Debian: apt-get install gnuplot-nox); '%s.gp' and '%s.csv' are written", base,
            base);
    }
    return hdo__fail(e, HDO_E_FAILED, "gnuplot could not draw '%s.gp'; run it by hand to see why", base);
}

hdo_status hdo__gnuplot_write(const hdo_gnuplot *g, const char *base, unsigned formats, hdo_error *e) {
    char path[HDO_PATH_MAX + 8];
    hdo_text t;
    hdo_status st = hdo__gnuplot_prepare(base, e);
    if (st != HDO_OK) return st;
    hdo__text_open(&t);
    if (t.f != NULL) g->numbers(t.f, g->what);
    snprintf(path, sizeof path, "%s.csv", base);
    st = hdo__text_save(&t, path, e);
    if (st != HDO_OK) return st;
    hdo__text_open(&t);
    if (t.f != NULL) g->script(t.f, g->what, hdo__gnuplot_name(base), formats);
    snprintf(path, sizeof path, "%s.gp", base);
    st = hdo__text_save(&t, path, e);
    return st == HDO_OK && formats != 0 ? call(base, e) : st;
}
