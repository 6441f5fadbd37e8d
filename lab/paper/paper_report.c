/* SPDX-License-Identifier: Apache-2.0
 *
 * What is made of the runs of a case: figures, a table of final figures, the table of claims; and of all cases
 * together: one page, and Markdown between two marks of a file that people write the rest of.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hdo/experimental/file.h"
#include "hdo/experimental/json.h"
#include "lab/report/gnuplot.h"
#include "lab/report/page.h"
#include "lab/paper/paper_internal.h"

enum { PATH_CAP = HDO_PATH_MAX + 64, TEXT_MAX = 4 << 20 };

/* ---- figures ---- */

static hdo_status load_curve(const hdo_paper_case *k, const hdo_paper_figure *fig, int v, const char *x,
                             hdo_curve *out) {
    char dir[HDO_PATH_MAX], reference[HDO_PATH_MAX];
    if (!hdo_paper_dir(k, v, -1, dir, sizeof dir)) return HDO_E_CONFIG;
    if (fig->minus == NULL) return hdo_curve_load(out, dir, x, fig->metric, NULL);
    for (int r = 0; r < k->x->n_variants; r++) {
        if (strcmp(k->x->variant[r].label, fig->minus) != 0) continue;
        if (!hdo_paper_dir(k, r, -1, reference, sizeof reference)) return HDO_E_CONFIG;
        return hdo_curve_difference(out, dir, reference, x, fig->metric, NULL);
    }
    return HDO_E_CONFIG;
}

static hdo_status draw(const hdo_paper_case *k, const hdo_paper_figure *fig, const char *x, unsigned formats,
                       hdo_error *e) {
    char dir[HDO_PATH_MAX], base[PATH_CAP + 64], title[160];
    int n = 0;
    hdo_curve *c = calloc((size_t)k->x->n_variants, sizeof *c);
    if (c == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for a figure");
    for (int v = 0; v < k->x->n_variants; v++) {
        if (load_curve(k, fig, v, x, &c[n]) != HDO_OK) continue;
        snprintf(c[n].label, sizeof c[n].label, "%s", k->x->variant[v].label);
        n++;
    }
    const char *start = ""; /* E3 is about fine-tuning: say from where */
    if (strcmp(k->x->id, "e3") == 0)
        start = k->reading->start != NULL ? "quarter turns learnt here, not ImageNet"
                : k->weights != NULL      ? hdo__gnuplot_name(k->weights)
                                          : "random start, not ImageNet";
    snprintf(title, sizeof title, "%s (%s%s%s%s)", k->x->title, k->reading->name, k->quick ? ", quick" : "",
             start[0] != '\0' ? "; " : "", start);
    hdo_figure f = {.title = title, .x_label = hdo_axis_label(x), .log_y = fig->log_y, .curves = c, .n_curves = n};
    f.y_label = fig->minus != NULL ? fig->title : hdo_axis_label(fig->metric);
    if (!fig->log_y && fig->minus == NULL) f.y_max = hdo_figure_clip(c, n);
    if (fig->minus != NULL) f.y_max = 0.05; /* the interesting part: a few hundredths */
    hdo_status st = HDO_OK;
    if (n > 0 && hdo_paper_dir(k, -1, -1, dir, sizeof dir)) {
        snprintf(base, sizeof base, "%s/figures/%s-%s", dir, k->x->id, fig->name);
        st = strlen(base) < HDO_PATH_MAX ? hdo_figure_write(&f, base, formats, e)
                                         : hdo__fail(e, HDO_E_CONFIG, "the name '%.100s...' is too long", base);
    }
    for (int i = 0; i < n; i++) hdo_curve_clear(&c[i]);
    free(c);
    return st;
}

hdo_status hdo_paper_figures(const hdo_paper_case *k, const char *x, unsigned formats, hdo_error *e) {
    hdo_status st = HDO_OK;
    for (int i = 0; i < HDO_PAPER_FIGURES && k->x->figure[i].name != NULL && st == HDO_OK; i++) {
        st = draw(k, &k->x->figure[i], x, formats, e);
    }
    return st;
}

/* ---- tables ---- */

static void put_number(FILE *f, double v, int digits) {
    if (isfinite(v)) {
        fprintf(f, "%.*g", digits, v);
    } else {
        fputs("-", f);
    }
}

/* Which rows are older than a change, and than which; rows with the same reason together. */
static void put_stale(FILE *f, const hdo_paper_case *k) {
    int n = k->x->n_variants;
    bool any = false;
    hdo_paper_made *made = n > 0 ? calloc((size_t)n, sizeof *made) : NULL;
    for (int v = 0; v < n && made != NULL; v++) hdo__paper_made(k, v, &made[v]);
    for (int v = 0; v < n && made != NULL; v++) {
        if (made[v].stale[0] == '\0') continue;
        fprintf(f, "%s- stale: `%s`", any ? "" : "\n", k->x->variant[v].label);
        any = true;
        for (int w = v + 1; w < n; w++) {
            if (strcmp(made[w].stale, made[v].stale) != 0) continue;
            fprintf(f, ", `%s`", k->x->variant[w].label);
            made[w].stale[0] = '\0'; /* said */
        }
        fprintf(f, ": %s\n", made[v].stale);
    }
    free(made);
}

/* One seed has no spread. */
static void put_mean(FILE *f, double mean, double se, int n, const char *plus_minus) {
    put_number(f, mean, 4);
    if (n < 2 || !isfinite(mean) || !isfinite(se)) return;
    fputs(plus_minus, f);
    put_number(f, se, 1);
}

static void put_runs(FILE *f, const hdo_paper_case *k) {
    fputs("| population | seeds | outcome | final loss | accuracy | mean model | run time (s) | "
          "made by |\n|---|---|---|---|---|---|---|---|\n",
          f);
    for (int v = 0; v < k->x->n_variants; v++) {
        char dir[HDO_PATH_MAX];
        hdo_group_figures g;
        if (!hdo_paper_dir(k, v, -1, dir, sizeof dir) || hdo__group_read(dir, &g, NULL) != HDO_OK) continue;
        fprintf(f, "| %s | %d | ", k->x->variant[v].label, g.runs);
        if (g.diverged > 0) fprintf(f, "%d diverged", g.diverged);
        if (g.diverged > 0 && g.diverged < g.finished) fputs(", ", f);
        if (g.diverged < g.finished) fprintf(f, "%d completed", g.finished - g.diverged);
        fputs(" | ", f);
        put_number(f, g.loss, 4);
        if (isfinite(g.loss_se)) fprintf(f, " +- %.2g", g.loss_se);
        fputs(" | ", f);
        put_number(f, g.acc, 4);
        fputs(" | ", f);
        put_number(f, g.mu, 4);
        hdo_paper_made made;
        hdo__paper_made(k, v, &made);
        fprintf(f, " | %.0f | %s%s |\n", g.wall_s, made.by, made.stale[0] != '\0' ? ", **stale**" : "");
    }
    put_stale(f, k);
}

/* "validation loss: 0.38 +- 0.01 against 0.41 +- 0.02" */
static void put_sides(FILE *f, const hdo_claim_result *r, const char *give_or_take) {
    fprintf(f, "%s: ", r->quantity);
    put_mean(f, r->d.a, r->d.a_se, r->d.n_a, give_or_take);
    fputs(" against ", f);
    put_mean(f, r->d.b, r->d.b_se, r->d.n_b, give_or_take);
}

static void put_claims(FILE *f, const hdo_claim_result *r, int n) {
    fputs("| claim | part | verdict | numbers (mean +- standard error over seeds) |\n|---|---|---|---|\n", f);
    for (int i = 0; i < n; i++) {
        const hdo_difference *d = &r[i].d;
        char number[16] = "-"; /* not one of the paper's claims */
        if (r[i].claim > 0) snprintf(number, sizeof number, "%d", r[i].claim);
        fprintf(f, "| %s | %s | %s | ", number, r[i].text, hdo_verdict_text(r[i].verdict));
        if (d->n_a > 0) {
            put_sides(f, &r[i], " +- ");
            fputs("; difference ", f);
            put_number(f, d->diff, 2);
            if (isfinite(d->low)) fprintf(f, " [%.2g, %.2g]", d->low, d->high);
            fputs(r[i].note[0] != '\0' ? "; " : "", f);
        }
        fprintf(f, "%s |\n", r[i].note);
    }
}

static char *claims_json(const hdo_paper_case *k, const hdo_claim_result *r, int n) {
    hdo_json j;
    hdo__json_begin(&j, true, 1);
    hdo__json_text(&j, "experiment", k->x->id);
    hdo__json_text(&j, "reading", k->reading->name);
    hdo__json_bool(&j, "quick", k->quick);
    hdo__json_array(&j, "parts");
    for (int i = 0; i < n; i++) {
        const hdo_difference *d = &r[i].d;
        hdo__json_object(&j, NULL);
        hdo__json_int(&j, "claim", r[i].claim);
        hdo__json_text(&j, "text", r[i].text);
        hdo__json_text(&j, "quantity", r[i].quantity);
        hdo__json_text(&j, "verdict", hdo_verdict_text(r[i].verdict));
        HDO_JSON_INTS(&j, {"lean", r[i].lean}, {"n", d->n_a});
        HDO_JSON_REALS(&j, {"a", d->a}, {"a_se", d->a_se}, {"b", d->b}, {"b_se", d->b_se}, {"low", d->low},
                       {"high", d->high}, {"t", d->t});
        hdo__json_text(&j, "note", r[i].note);
        hdo__json_end(&j, '}');
    }
    hdo__json_end(&j, ']');
    return hdo__json_finish(&j);
}

static hdo_status save(const char *dir, const char *name, hdo_text *t, hdo_error *e) {
    char path[PATH_CAP];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return hdo__text_save(t, path, e);
}

hdo_status hdo_paper_tables(const hdo_paper_case *k, hdo_error *e) {
    char dir[HDO_PATH_MAX], path[PATH_CAP];
    hdo_claim_result r[HDO_CLAIM_PARTS_MAX];
    int n = 0;
    hdo_text t;
    if (!hdo_paper_dir(k, -1, -1, dir, sizeof dir))
        return hdo__fail(e, HDO_E_CONFIG, "the folder name '%.100s...' is too long", k->root);
    hdo_status st = hdo__dir_create(dir, e);
    if (st == HDO_OK) st = hdo_paper_claims(k, r, &n, e);
    if (st != HDO_OK) return st;
    hdo__text_open(&t);
    if (t.f != NULL) put_claims(t.f, r, n);
    st = save(dir, "claims.md", &t, e);
    if (st != HDO_OK) return st;
    hdo__text_open(&t);
    if (t.f != NULL) put_runs(t.f, k);
    st = save(dir, "runs.md", &t, e);
    if (st != HDO_OK) return st;
    char *json = claims_json(k, r, n);
    if (json == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the claims");
    snprintf(path, sizeof path, "%s/claims.json", dir);
    st = hdo__file_write(path, json, strlen(json), e);
    free(json);
    return st;
}

/* ---- everything together ---- */

typedef void (*case_fn)(FILE *f, const hdo_paper_case *k, const char *dir);

bool hdo__paper_judged(const hdo_paper_case *k, char *dir, size_t cap) {
    char path[PATH_CAP];
    if (!hdo_paper_dir(k, -1, -1, dir, cap)) return false;
    snprintf(path, sizeof path, "%s/claims.json", dir);
    return hdo__path_exists(path);
}

/* Every case that has been run, in the order of the tables. */
static int each_case(const char *root, FILE *f, case_fn fn) {
    int found = 0;
    for (int i = 0; hdo_paper_at(i) != NULL; i++) {
        for (int q = 0; q < 2; q++) {
            for (int r = 0; hdo_paper_reading_at(r) != NULL; r++) {
                hdo_paper_case k = {
                    .x = hdo_paper_at(i), .reading = hdo_paper_reading_at(r), .quick = q == 1, .root = root};
                char dir[HDO_PATH_MAX];
                if (!hdo__paper_judged(&k, dir, sizeof dir)) continue;
                found++;
                if (fn != NULL) fn(f, &k, dir);
            }
        }
    }
    return found;
}

/* What was judged by other rules, or is stale since, says so. */
static void judge_again(FILE *f, const hdo_paper_case *k, const char *dir) {
    hdo_error ignored; /* the tables that are there are shown */
    (void)f;
    (void)dir;
    (void)hdo_paper_tables(k, &ignored);
}

static void put_file(FILE *f, const char *dir, const char *name) {
    char path[PATH_CAP], *text;
    size_t len;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (hdo__file_read(path, TEXT_MAX, &text, &len, NULL) != HDO_OK) return;
    fwrite(text, 1, len, f);
    free(text);
}

static void put_case_markdown(FILE *f, const hdo_paper_case *k, const char *dir) {
    fprintf(f, "### %s, reading `%s`%s\n\n", k->x->title, k->reading->name, k->quick ? ", quick" : "");
    fprintf(f, "%s; %s. `hdo paper %s%s%s%s`\n\n", k->x->about, k->reading->about, k->x->id,
            strcmp(k->reading->name, "text") != 0 ? " --reading " : "",
            strcmp(k->reading->name, "text") != 0 ? k->reading->name : "", k->quick ? " --quick" : "");
    for (int i = 0; i < HDO_PAPER_FIGURES && k->x->figure[i].name != NULL && !k->quick; i++) {
        fprintf(f, "![%s](figures/%s-%s-%s.svg)\n", k->x->figure[i].title, k->x->id, k->reading->name,
                k->x->figure[i].name);
    }
    fputs("\n", f);
    put_file(f, dir, "runs.md");
    fputs("\n", f);
    put_file(f, dir, "claims.md");
    fputs("\n", f);
}

static void put_markdown(FILE *f, const char *root) {
    fputs("Verdicts at 95 % confidence over seeds for every reading run in full: *holds*, *no* (does not hold), *?* "
          "(undecided; *yes?* and *no?*: undecided, but the means are as claimed, or the other way). A claim (bold) "
          "holds if all its parts do; lines behind the last claim are other figures, which "
          "count towards none. Rows made before a change of the estimator, the model or the settings they use are "
          "*stale*.\n\n",
          f);
    hdo__paper_matrix(f, root, false);
    each_case(root, f, put_case_markdown);
}

static void put_case_html(FILE *f, const hdo_paper_case *k, const char *dir) {
    hdo_claim_result r[HDO_CLAIM_PARTS_MAX];
    char path[PATH_CAP + 32];
    int n = 0;
    fprintf(f, "<h2 id=\"%s-%s%s\">%s</h2>\n<p>%s; reading <b>%s</b>: %s%s</p>\n<div class=\"figures\">\n", k->x->id,
            k->reading->name, k->quick ? "-quick" : "", k->x->title, k->x->about, k->reading->name, k->reading->about,
            k->quick ? ". Quick: too short to judge claims." : ".");
    for (int i = 0; i < HDO_PAPER_FIGURES && k->x->figure[i].name != NULL; i++) {
        snprintf(path, sizeof path, "%s/figures/%s-%s.svg", dir, k->x->id, k->x->figure[i].name);
        hdo__page_svg(f, path);
    }
    fputs("</div>\n", f);
    if (hdo_paper_claims(k, r, &n, NULL) == HDO_OK) {
        fputs("<table><tr><th>claim</th><th>part</th><th>verdict</th><th>numbers</th></tr>\n", f);
        for (int i = 0; i < n; i++) {
            const hdo_difference *d = &r[i].d;
            fprintf(f, "<tr><td>%d</td><td>%s</td><td class=\"%s\">%s</td><td>", r[i].claim, r[i].text,
                    r[i].verdict == HDO_HOLDS   ? "holds"
                    : r[i].verdict == HDO_FAILS ? "fails"
                                                : "undecided",
                    hdo_verdict_text(r[i].verdict));
            if (d->n_a > 0) {
                put_sides(f, &r[i], " &plusmn; ");
                fputs(", t = ", f);
                put_number(f, d->t, 2);
                fputs(". ", f);
            }
            hdo__quote_html(f, r[i].note);
            fputs("</td></tr>\n", f);
        }
        fputs("</table>\n", f);
    }
    snprintf(path, sizeof path, "%s/runs.md", dir);
    hdo__page_file(f, "final figures", path);
    hdo_group_figures g;
    char sub[HDO_PATH_MAX];
    if (hdo_paper_dir(k, k->x->n_variants - 1, -1, sub, sizeof sub) && hdo__group_read(sub, &g, NULL) == HDO_OK) {
        snprintf(path, sizeof path, "%.500s/config.yaml", g.first);
        hdo__page_file(f, "configuration", path);
    }
}

static void put_contents(FILE *f, const hdo_paper_case *k, const char *dir) {
    (void)dir;
    fprintf(f, "<li><a href=\"#%s-%s%s\">%s, %s%s</a></li>\n", k->x->id, k->reading->name, k->quick ? "-quick" : "",
            k->x->title, k->reading->name, k->quick ? ", quick" : "");
}

static hdo_status copy_figures(const char *root, const char *to, hdo_error *e) {
    hdo_status st = hdo__dir_create(to, e);
    for (int i = 0; hdo_paper_at(i) != NULL && st == HDO_OK; i++) {
        for (int r = 0; hdo_paper_reading_at(r) != NULL && st == HDO_OK; r++) {
            hdo_paper_case k = {.x = hdo_paper_at(i), .reading = hdo_paper_reading_at(r), .root = root};
            char dir[HDO_PATH_MAX], from[PATH_CAP + 32], path[PATH_CAP + 32], *text;
            size_t len;
            if (!hdo_paper_dir(&k, -1, -1, dir, sizeof dir)) continue;
            for (int j = 0; j < HDO_PAPER_FIGURES && k.x->figure[j].name != NULL && st == HDO_OK; j++) {
                snprintf(from, sizeof from, "%s/figures/%s-%s.svg", dir, k.x->id, k.x->figure[j].name);
                if (hdo__file_read(from, TEXT_MAX, &text, &len, NULL) != HDO_OK) continue;
                snprintf(path, sizeof path, "%s/%s-%s-%s.svg", to, k.x->id, k.reading->name, k.x->figure[j].name);
                st = hdo__file_write(path, text, len, e);
                free(text);
            }
        }
    }
    return st;
}

/* Puts the text between the marks of the file; a file without marks gets them at its end, a new file is only they. */
static hdo_status write_between(const char *path, const char *part, hdo_error *e) {
    static const char from[] = "<!-- results -->\n", to[] = "<!-- end of results -->";
    char *old = NULL;
    size_t len = 0;
    if (hdo__path_exists(path)) {
        hdo_status st = hdo__file_read(path, TEXT_MAX, &old, &len, e);
        if (st != HDO_OK) return st;
    }
    const char *a = old != NULL ? strstr(old, from) : NULL, *b = a != NULL ? strstr(a, to) : NULL;
    hdo_text t;
    hdo__text_open(&t);
    if (t.f != NULL) {
        size_t before = b != NULL ? (size_t)(a - old) : len;
        if (old != NULL) fwrite(old, 1, before, t.f);
        fprintf(t.f, "%s\n%s%s%s", from, part, to, b != NULL ? b + strlen(to) : "\n");
    }
    free(old);
    return hdo__text_save(&t, path, e);
}

hdo_status hdo_paper_report(const char *root, const char *html, const char *markdown, const char *svg_dir,
                            hdo_error *e) {
    hdo_status st = HDO_OK;
    if (each_case(root, NULL, NULL) == 0) {
        return hdo__fail(e, HDO_E_DATA, "'%s' holds no finished experiment; run one first: hdo paper e2 --quick", root);
    }
    each_case(root, NULL, judge_again);
    if (html != NULL) {
        hdo_text t;
        st = hdo__gnuplot_prepare(html, e);
        if (st != HDO_OK) return st;
        hdo__text_open(&t);
        if (t.f != NULL) {
            hdo__page_begin(t.f, "Hybrid decentralised optimisation: the paper's experiments");
            fputs("<ul>\n", t.f);
            each_case(root, t.f, put_contents);
            fputs("</ul>\n<p>Verdicts are at 95 % confidence over seeds (Student, seeds compared in pairs), each part "
                  "by itself; yes? and no?: undecided, but the means are as claimed, or the other way. A claim (bold) "
                  "holds if all its parts do.</p>\n",
                  t.f);
            hdo__paper_matrix(t.f, root, true);
            each_case(root, t.f, put_case_html);
            hdo__page_end(t.f);
        }
        st = hdo__text_save(&t, html, e);
    }
    if (st == HDO_OK && markdown != NULL) {
        hdo_text t;
        hdo__text_open(&t);
        if (t.f == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for '%s'", markdown);
        put_markdown(t.f, root);
        fclose(t.f);
        st = t.p != NULL ? write_between(markdown, t.p, e)
                         : hdo__fail(e, HDO_E_MEMORY, "out of memory for '%s'", markdown);
        free(t.p);
    }
    if (st == HDO_OK && svg_dir != NULL) st = copy_figures(root, svg_dir, e);
    return st;
}
