/* SPDX-License-Identifier: Apache-2.0
 *
 * Figures through gnuplot: data in a .csv, drawing in a .gp beside it, so that anyone can restyle a figure without us.
 * Colours are Okabe and Ito's set (readable by colour-blind people); lines also differ in dash and point, for grey
 * print.
 */
#include <errno.h>
#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "hdo/config.h"
#include "hdo/report.h"
#include "report/gnuplot.h"

extern char **environ;

static const char *const colours[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                      "#E69F00", "#56B4E9", "#000000", "#F0E442"};
enum { N_COLOURS = 8 };

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

/* Names inside quotes of gnuplot: no quotes. */
void hdo__gnuplot_label(FILE *f, const char *s) {
    for (; *s != '\0'; s++) fputc(*s == '"' || *s == '\'' ? ' ' : *s, f);
}

void hdo__csv_label(FILE *f, const char *s) {
    for (; *s != '\0'; s++) fputc(*s == '"' || *s == '\'' || *s == ',' ? ' ' : *s, f);
}

static void put_number(FILE *f, double v) {
    char buf[32];
    hdo__real_text(v, buf);
    fputs(isfinite(v) ? buf : "nan", f);
}

/* One block per curve, separated by two blank lines: gnuplot's `index`. */
static void put_csv(FILE *f, const hdo_figure *fig) {
    for (int k = 0; k < fig->n_curves; k++) {
        const hdo_curve *c = &fig->curves[k];
        if (k > 0) fputs("\n\n", f);
        fputs("label,x,mean,se,low,high,runs\n", f);
        for (int i = 0; i < c->n_points; i++) {
            hdo__csv_label(f, c->label);
            const double v[] = {c->x[i], c->mean[i], c->se[i], c->mean[i] - c->se[i], c->mean[i] + c->se[i]};
            for (size_t j = 0; j < sizeof v / sizeof v[0]; j++) {
                fputc(',', f);
                put_number(f, v[j]);
            }
            fprintf(f, ",%d\n", c->n_runs);
        }
    }
}

static void put_curves(FILE *f, const hdo_figure *fig, const char *csv, bool bands) {
    fputs("plot ", f);
    for (int k = 0; k < fig->n_curves; k++) {
        const char *colour = colours[k % N_COLOURS];
        if (k > 0) fputs(", \\\n     ", f);
        if (bands && fig->curves[k].n_runs > 1) {
            fprintf(f,
                    "'%s' index %d skip 1 using 2:5:6 with filledcurves fc rgb '%s' fs transparent solid 0.2 noborder "
                    "notitle, \\\n     ",
                    csv, k, colour);
        }
        fprintf(f, "'%s' index %d skip 1 using 2:3 with lines lw 2 dt %d lc rgb '%s' title '", csv, k, k % 5 + 1,
                colour);
        hdo__gnuplot_label(f, fig->curves[k].label);
        fputs("'", f);
    }
    fputs("\n", f);
}

static void put_frame(FILE *f, const hdo_figure *fig) {
    fputs("set datafile separator ','\nset datafile missing 'nan'\nset key top right\nset border 3\nset tics "
          "nomirror\nset grid lc rgb '#dddddd'\n",
          f);
    if (fig->title != NULL) {
        fputs("set title '", f);
        hdo__gnuplot_label(f, fig->title);
        fputs("' noenhanced\n", f);
    }
    fputs("set xlabel '", f);
    hdo__gnuplot_label(f, fig->x_label);
    fputs("' noenhanced\nset ylabel '", f);
    hdo__gnuplot_label(f, fig->y_label);
    fputs("' noenhanced\nset key noenhanced\n", f);
    if (fig->log_x) fputs("set logscale x\n", f);
    if (fig->log_y) fputs("set logscale y\n", f);
    if (fig->y_max > 0.0) {
        fputs("set yrange [*:", f);
        put_number(f, fig->y_max);
        fputs("]\n", f);
    }
}

void hdo__gnuplot_each(FILE *f, const char *name, unsigned formats, void (*draw)(FILE *f, const void *ctx),
                       const void *ctx) {
    static const struct {
        unsigned bit;
        const char *terminal, *ext;
    } out[] = {{HDO_FORMAT_SVG, "svg size 720,480 dynamic font 'sans,14' background rgb 'white'", "svg"},
               {HDO_FORMAT_PNG, "pngcairo size 1080,720 font 'sans,18'", "png"},
               {HDO_FORMAT_PDF, "pdfcairo size 15cm,10cm font 'sans,12'", "pdf"}};
    for (size_t i = 0; i < sizeof out / sizeof out[0]; i++) {
        if ((formats & out[i].bit) == 0) continue;
        fprintf(f, "set terminal %s\nset output '%s.%s'\n", out[i].terminal, name, out[i].ext);
        draw(f, ctx);
    }
}

typedef struct curves_ctx {
    const hdo_figure *fig;
    const char *csv;
} curves_ctx;
static void draw_curves(FILE *f, const void *ctx) {
    const curves_ctx *c = ctx;
    put_curves(f, c->fig, c->csv, true);
}

static void put_gp(FILE *f, const hdo_figure *fig, const char *base, unsigned formats) {
    const char *name = hdo__gnuplot_name(base);
    char csv[HDO_PATH_MAX];
    snprintf(csv, sizeof csv, "%s.csv", name);
    fprintf(f, "# gnuplot %s.gp draws this figure again, in this folder\n", name);
    put_frame(f, fig);
    curves_ctx ctx = {fig, csv};
    hdo__gnuplot_each(f, name, formats, draw_curves, &ctx);
}

const char *hdo__gnuplot_name(const char *base) {
    const char *slash = strrchr(base, '/');
    return slash != NULL ? slash + 1 : base;
}

/* Runs gnuplot on a script in the folder of base. */
hdo_status hdo__gnuplot_call(const char *base, hdo_error *e) {
    const char *slash = strrchr(base, '/');
    char script[HDO_PATH_MAX + 8], dir[HDO_PATH_MAX + 8];
    snprintf(script, sizeof script, "%s.gp", slash != NULL ? slash + 1 : base);
    snprintf(dir, sizeof dir, "%.*s", slash != NULL ? (int)(slash - base) : 1, slash != NULL ? base : ".");
    /* A shell only to change the folder: spawn cannot do that portably. */
    char *argv[] = {(char *)"sh", (char *)"-c", (char *)"cd \"$1\" && exec gnuplot \"$2\"", (char *)"sh", dir,
                    script,       NULL};
    pid_t pid;
    int rc = posix_spawnp(&pid, "sh", NULL, NULL, argv, environ), status = 0;
    if (rc != 0) return hdo__fail(e, HDO_E_FAILED, "cannot start gnuplot: %s", strerror(rc));
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return HDO_OK;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
        return hdo__fail(
            e, HDO_E_FAILED,
            "gnuplot is not installed (Debian: apt-get install gnuplot-nox); '%s.gp' and '%s.csv' are written", base,
            base);
    }
    return hdo__fail(e, HDO_E_FAILED, "gnuplot could not draw '%s.gp'; run it by hand to see why", base);
}

hdo_status hdo__gnuplot_prepare(const char *base, hdo_error *e) {
    char path[HDO_PATH_MAX];
    if (strlen(base) >= HDO_PATH_MAX - 8) return hdo__fail(e, HDO_E_CONFIG, "the name '%.100s...' is too long", base);
    const char *slash = strrchr(base, '/');
    if (slash == NULL || slash == base) return HDO_OK;
    snprintf(path, sizeof path, "%.*s", (int)(slash - base), base);
    return hdo__dir_create(path, e);
}

hdo_status hdo_figure_write(const hdo_figure *f, const char *base, unsigned formats, hdo_error *e) {
    char path[HDO_PATH_MAX + 8];
    hdo_text t;
    hdo_status st = hdo__gnuplot_prepare(base, e);
    if (st != HDO_OK) return st;
    hdo__text_open(&t);
    if (t.f != NULL) put_csv(t.f, f);
    snprintf(path, sizeof path, "%s.csv", base);
    st = hdo__text_save(&t, path, e);
    if (st != HDO_OK) return st;
    hdo__text_open(&t);
    if (t.f != NULL) put_gp(t.f, f, base, formats);
    snprintf(path, sizeof path, "%s.gp", base);
    st = hdo__text_save(&t, path, e);
    return st == HDO_OK && formats != 0 ? hdo__gnuplot_call(base, e) : st;
}

double hdo_figure_clip(const hdo_curve *curves, int n) {
    double start = 0.0, top = 0.0;
    for (int k = 0; k < n; k++) {
        for (int i = 0; i < curves[k].n_points; i++) {
            double y = curves[k].mean[i];
            if (!isfinite(y)) continue;
            if (i == 0) start = fmax(start, y);
            top = fmax(top, y);
        }
    }
    return start > 0.0 && top > 1.0 && top > 2.0 * start ? 1.5 * start : 0.0; /* up to 1: accuracies, which rise */
}

const char *hdo_axis_label(const char *metric) {
    static const char *const names[][2] = {{"step", "steps"},
                                           {"interactions", "interactions (pairs that averaged)"},
                                           {"parallel_time", "parallel time"},
                                           {"oracle/forward", "forward passes, all nodes"},
                                           {"oracle/backward", "gradients by reverse mode, all nodes"},
                                           {"oracle/jvp", "forward-mode derivatives, all nodes"},
                                           {"oracle/cost", "cost: weighted passes, all nodes"},
                                           {"cost", "cost: weighted passes, all nodes"},
                                           {"bytes_exchanged", "bytes exchanged"},
                                           {"sim_time", "simulated time (s)"},
                                           {"time/wall", "time (s)"},
                                           {"val/loss_mean", "validation loss, mean over nodes"},
                                           {"val/acc_mean", "validation accuracy, mean over nodes"},
                                           {"val/loss_std", "standard deviation of the loss over nodes"},
                                           {"val/loss_mu", "validation loss of the mean model"},
                                           {"consensus/gamma", "consensus distance"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(names[i][0], metric) == 0) return names[i][1];
    }
    return metric;
}

/* gnuplot reads data and script from one temporary file, given as inline blocks. */
char *hdo_figure_text(const hdo_figure *f, int width, int height) {
    char name[] = "/tmp/hdo-figure-XXXXXX";
    int fd = mkstemp(name);
    if (fd < 0) return NULL;
    FILE *s = fdopen(fd, "w");
    if (s == NULL) {
        close(fd);
        unlink(name);
        return NULL;
    }
    fputs("$data << END\n", s);
    put_csv(s, f);
    fputs("END\n", s);
    put_frame(s, f);
    fprintf(s, "unset grid\nset terminal dumb size %d,%d\n", width, height);
    fputs("plot ", s);
    for (int k = 0; k < f->n_curves; k++) {
        fprintf(s, "%s$data index %d skip 1 using 2:3 with lines title '", k > 0 ? ", " : "", k);
        hdo__gnuplot_label(s, f->curves[k].label);
        fputs("'", s);
    }
    fputs("\n", s);
    bool ok = fclose(s) == 0;
    char command[128];
    snprintf(command, sizeof command, "gnuplot %s 2>/dev/null", name);
    FILE *p = ok ? popen(command, "r") : NULL;
    char *out = NULL;
    if (p != NULL) {
        size_t cap = (size_t)width * (size_t)height * 4 + 4096;
        out = malloc(cap + 1);
        size_t n = out != NULL ? fread(out, 1, cap, p) : 0;
        if (out != NULL) out[n] = '\0';
        if (pclose(p) != 0) {
            free(out);
            out = NULL;
        }
    }
    unlink(name);
    return out;
}
