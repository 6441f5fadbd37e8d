/* SPDX-License-Identifier: Apache-2.0
 *
 * Self-contained HTML: style, tables and figures in one file, nothing from the network, readable without scripts.
 * Figures are gnuplot's SVG, put into the page as they are.
 */
#include "lab/report/page.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hdo/experimental/file.h"
#include "hdo/experimental/config.h"
#include "lab/report/gnuplot.h"

enum { SVG_MAX = 16 << 20, FILE_MAX = 1 << 20 };

void hdo__page_begin(FILE *f, const char *title) {
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
          "content=\"width=device-width, initial-scale=1\">\n<title>",
          f);
    hdo__quote_html(f, title);
    fputs("</title>\n<style>\n"
          "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 "
          "1rem;color:#222;background:#fff}\n"
          "h1,h2,h3{line-height:1.2}table{border-collapse:collapse;margin:1rem 0;font-size:.9em}\n"
          "th,td{border-bottom:1px solid #ddd;padding:.25rem .6rem;text-align:left;vertical-align:top}\n"
          "td.n{text-align:right;font-variant-numeric:tabular-nums}.figures{display:flex;flex-wrap:wrap;gap:1rem}\n"
          ".figures svg{flex:1 1 "
          "26rem;height:auto;max-width:100%}pre{background:#f6f6f6;padding:.6rem;overflow:auto;font-size:.8em}\n"
          ".holds{color:#00664b;font-weight:600}.fails{color:#a23b00;font-weight:600}.undecided{color:#555}\n"
          "</style></head><body>\n<h1>",
          f);
    hdo__quote_html(f, title);
    fputs("</h1>\n", f);
}

void hdo__page_end(FILE *f) {
    fputs("</body></html>\n", f);
}

void hdo__page_svg(FILE *f, const char *path) {
    char *text;
    size_t len;
    if (hdo__file_read(path, SVG_MAX, &text, &len, NULL) != HDO_OK) return;
    const char *svg = strstr(text, "<svg"); /* without the XML declaration and the document type */
    if (svg != NULL) fputs(svg, f);
    free(text);
}

void hdo__page_file(FILE *f, const char *title, const char *path) {
    char *text;
    size_t len;
    if (hdo__file_read(path, FILE_MAX, &text, &len, NULL) != HDO_OK) return;
    fputs("<details><summary>", f);
    hdo__quote_html(f, title);
    fputs("</summary><pre>", f);
    hdo__quote_html(f, text);
    fputs("</pre></details>\n", f);
    free(text);
}

/* ---- final figures of a group ---- */

static double number(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

typedef struct sums {
    double loss, loss2, acc, acc2, n;
} sums;

static void add_run(const json_t *o, hdo_group_figures *g, sums *s) {
    const char *outcome = json_string_value(json_object_get(o, "outcome")),
               *model = json_string_value(json_object_get(o, "model"));
    const json_t *final = json_object_get(o, "final"), *oracle = json_object_get(o, "oracle");
    g->finished += outcome != NULL && strcmp(outcome, "stopped") != 0;
    g->diverged += outcome != NULL && strcmp(outcome, "diverged") == 0;
    if (model != NULL) snprintf(g->model, sizeof g->model, "%s", model);
    g->steps = fmax(g->steps, number(o, "steps"));
    double wall = number(json_object_get(o, "time"), "wall_s"), loss = number(final, "val_loss_mean");
    if (isfinite(wall)) g->wall_s += wall;
    g->forward += number(oracle, "forward");
    g->backward += number(oracle, "backward");
    g->jvp += number(oracle, "jvp");
    g->cost += number(oracle, "cost");
    g->bytes += number(o, "bytes_exchanged");
    if (!isfinite(loss) || (outcome != NULL && strcmp(outcome, "diverged") == 0)) return; /* no final figures */
    double acc = number(final, "val_acc_mean");
    s->loss += loss;
    s->loss2 += loss * loss;
    s->acc += acc;
    s->acc2 += acc * acc;
    s->n += 1.0;
    g->mu += number(final, "val_loss_mu");
    g->gamma += number(final, "gamma");
}

static double error_of(double sum, double sum2, double n) {
    double var = n > 1.0 ? (sum2 - sum * sum / n) / (n - 1.0) : (double)NAN; /* one run: no idea of the spread */
    return var < 0.0 ? 0.0 : sqrt(var / n);
}

static bool add_folder(const char *dir, hdo_group_figures *g, sums *s) {
    char path[2 * HDO_PATH_MAX];
    if (!hdo__path_join(path, sizeof path, dir, "metrics.jsonl") || !hdo__path_exists(path)) return false;
    if (g->runs++ == 0 || strcmp(dir, g->first) < 0) snprintf(g->first, sizeof g->first, "%s", dir);
    hdo__path_join(path, sizeof path, dir, "summary.json");
    json_t *o = json_load_file(path, 0, NULL);
    if (o != NULL) add_run(o, g, s);
    json_decref(o);
    return true;
}

hdo_status hdo__group_read(const char *dir, hdo_group_figures *g, hdo_error *e) {
    sums s = {0};
    *g = (hdo_group_figures){0};
    if (!add_folder(dir, g, &s)) {
        DIR *d = opendir(dir);
        for (struct dirent *ent; d != NULL && (ent = readdir(d)) != NULL;) {
            char sub[2 * HDO_PATH_MAX];
            if (ent->d_name[0] != '.' && hdo__path_join(sub, sizeof sub, dir, ent->d_name)) add_folder(sub, g, &s);
        }
        if (d != NULL) closedir(d);
    }
    if (g->runs == 0)
        return hdo__fail(e, HDO_E_DATA, "'%s' is not a run: it has no metrics.jsonl, nor has any folder in it", dir);
    g->loss = s.loss / s.n;
    g->loss_se = error_of(s.loss, s.loss2, s.n);
    g->acc = s.acc / s.n;
    g->acc_se = error_of(s.acc, s.acc2, s.n);
    g->mu /= s.n;
    g->gamma /= s.n;
    return HDO_OK;
}

/* ---- the page of runs ---- */

static void put_cell(FILE *f, const char *format, double v) {
    fputs("<td class=\"n\">", f);
    if (isfinite(v)) {
        fprintf(f, format, v);
    } else {
        fputs("&ndash;", f);
    }
    fputs("</td>", f);
}

/* "completed", "diverged", "2 completed, 1 diverged" */
static void put_outcome(FILE *f, const hdo_group_figures *g) {
    const int count[] = {g->finished - g->diverged, g->diverged, g->runs - g->finished};
    static const char *const word[] = {"completed", "diverged", "running or stopped"};
    bool any = false;
    for (int i = 0; i < 3; i++) {
        if (count[i] == 0) continue;
        fputs(any ? ", " : "", f);
        if (count[i] < g->runs) fprintf(f, "%d ", count[i]);
        fputs(word[i], f);
        any = true;
    }
}

static void put_table(FILE *f, const char *const *dirs, const hdo_group_figures *g, int n) {
    fputs("<h2>Final "
          "figures</h2>\n<table><tr><th>runs</th><th>seeds</th><th>outcome</th><th>steps</th><th>mean "
          "model</th><th>nodes</th><th>&plusmn;</th>"
          "<th>accuracy</th><th>consensus</th><th>cost</th><th>forward</th><th>backward</th>"
          "<th>MB</th><th>time (s)</th></tr>\n",
          f);
    for (int k = 0; k < n; k++) {
        fputs("<tr><td>", f);
        hdo__quote_html(f, dirs[k]);
        fprintf(f, "</td><td class=\"n\">%d</td><td>", g[k].runs);
        put_outcome(f, &g[k]);
        fputs("</td>", f);
        put_cell(f, "%.0f", g[k].steps);
        put_cell(f, "%.4f", g[k].mu);
        put_cell(f, "%.4f", g[k].loss);
        put_cell(f, "%.4f", g[k].loss_se);
        put_cell(f, "%.2f %%", 100.0 * g[k].acc);
        put_cell(f, "%.3g", g[k].gamma);
        put_cell(f, "%.3g", g[k].cost);
        put_cell(f, "%.3g", g[k].forward);
        put_cell(f, "%.3g", g[k].backward);
        put_cell(f, "%.1f", g[k].bytes / 1e6);
        put_cell(f, "%.1f", g[k].wall_s);
        fputs("</tr>\n", f);
    }
    fputs("</table>\n", f);
}

/* One metric of all groups; a group that does not have it is left out. */
static bool draw(const char *const *dirs, int n, const char *x, const char *y, bool log_y, const char *base) {
    hdo_curve *c = calloc((size_t)n, sizeof *c);
    int have = 0;
    for (int k = 0; k < n && c != NULL; k++) {
        if (hdo_curve_load(&c[have], dirs[k], x, y, NULL) != HDO_OK) continue;
        bool any = c[have].n_diverged > 0;
        for (int i = 0; i < c[have].n_points; i++) any = any || isfinite(c[have].mean[i]);
        if (any) {
            have++;
        } else {
            hdo_curve_clear(&c[have]);
        }
    }
    hdo_figure fig = {
        .x_label = hdo_axis_label(x), .y_label = hdo_axis_label(y), .log_y = log_y, .curves = c, .n_curves = have};
    if (!log_y) fig.y_max = hdo_figure_clip(c, have);
    bool ok = have > 0 && hdo_figure_write(&fig, base, HDO_FORMAT_SVG, NULL) == HDO_OK;
    for (int k = 0; k < have; k++) hdo_curve_clear(&c[k]);
    free(c);
    return ok;
}

static void put_figures(FILE *f, const char *const *dirs, int n, const char *x) {
    static const struct {
        const char *metric;
        bool log_y;
    } what[] = {{"val/loss_mean", false}, {"val/acc_mean", false}, {"val/loss_std", true}, {"consensus/gamma", true}};
    static const char *const ext[] = {"svg", "csv", "gp"};
    char folder[] = "/tmp/hdo-report-XXXXXX", base[64], path[80];
    if (mkdtemp(folder) == NULL) return;
    bool any = false;
    fputs("<div class=\"figures\">\n", f);
    for (size_t i = 0; i < sizeof what / sizeof what[0]; i++) {
        snprintf(base, sizeof base, "%s/f", folder);
        if (draw(dirs, n, x, what[i].metric, what[i].log_y, base)) {
            snprintf(path, sizeof path, "%s.svg", base);
            hdo__page_svg(f, path);
            any = true;
        }
        for (size_t k = 0; k < 3; k++) {
            snprintf(path, sizeof path, "%s.%s", base, ext[k]);
            unlink(path);
        }
    }
    rmdir(folder);
    fputs(any ? "</div>\n" : "</div><p>No figures: gnuplot is not installed, or the runs have no curves.</p>\n", f);
}

hdo_status hdo_report_write(const char *const *dirs, int n, const char *title, const char *x, const char *path,
                            hdo_error *e) {
    hdo_group_figures *g = calloc((size_t)n, sizeof *g);
    hdo_status st = g == NULL ? hdo__fail(e, HDO_E_MEMORY, "out of memory") : hdo__gnuplot_prepare(path, e);
    for (int k = 0; k < n && st == HDO_OK; k++) st = hdo__group_read(dirs[k], &g[k], e);
    if (st == HDO_OK) {
        hdo_text t;
        hdo__text_open(&t);
        if (t.f != NULL) {
            hdo__page_begin(t.f, title);
            put_figures(t.f, dirs, n, x);
            put_table(t.f, dirs, g, n);
            fputs("<h2>Configurations</h2>\n", t.f);
            for (int k = 0; k < n; k++) {
                char file[HDO_PATH_MAX * 2 + 32];
                snprintf(file, sizeof file, "%s/config.yaml", g[k].first);
                hdo__page_file(t.f, dirs[k], file);
                snprintf(file, sizeof file, "%s/manifest.json", g[k].first);
                hdo__page_file(t.f, "manifest", file);
            }
            hdo__page_end(t.f);
        }
        st = hdo__text_save(&t, path, e);
    }
    free(g);
    return st;
}
