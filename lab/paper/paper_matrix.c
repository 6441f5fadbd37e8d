/* SPDX-License-Identifier: Apache-2.0
 *
 * Which readings reproduce which claims: a table for every experiment, claims and their parts down, readings across.
 */
#include <stdlib.h>
#include <string.h>

#include "hdo/experimental/file.h"
#include "lab/report/page.h"
#include "lab/paper/paper_internal.h"

enum { READINGS = 16 };

typedef struct matrix {
    const hdo_paper_experiment *x;
    const hdo_paper_reading *reading[READINGS];
    hdo_claim_result part[READINGS][HDO_CLAIM_PARTS_MAX];
    bool stale[READINGS];
    int n_readings, n_parts; /* an experiment has the same parts in every reading */
} matrix;

static void fill(matrix *m, const char *root, const hdo_paper_experiment *x) {
    *m = (matrix){.x = x};
    for (int r = 0; hdo_paper_reading_at(r) != NULL && m->n_readings < READINGS; r++) {
        hdo_paper_case k = {.x = x, .reading = hdo_paper_reading_at(r), .root = root};
        char dir[HDO_PATH_MAX];
        if (!hdo__paper_judged(&k, dir, sizeof dir)) continue;
        if (hdo_paper_claims(&k, m->part[m->n_readings], &m->n_parts, NULL) != HDO_OK) continue;
        m->stale[m->n_readings] = hdo__paper_stale(&k);
        m->reading[m->n_readings++] = k.reading;
    }
}

static void put_cell(FILE *f, bool html, bool strong, hdo_verdict v, int lean) {
    static const char *const word[] = {"?", "holds", "no"}, *const style[] = {"undecided", "holds", "fails"};
    const char *text = v != HDO_UNDECIDED || lean == 0 ? word[v] : lean > 0 ? "yes?" : "no?";
    if (html) {
        fprintf(f, "<td class=\"%s\">%s</td>", style[v], text);
    } else {
        fprintf(f, strong ? " **%s** |" : " %s |", text);
    }
}

/* One line: the claim as a whole (part < 0) or a part of it. */
static void put_line(FILE *f, const matrix *m, bool html, int claim, int part) {
    const char *text = part >= 0 ? m->part[0][part].text : hdo_claim_text(claim);
    char number[16] = "";
    if (part < 0) snprintf(number, sizeof number, "%d", claim);
    if (html) {
        fprintf(f, "<tr><td>%s</td><td>%s", number, part < 0 ? "<b>" : "");
        hdo__quote_html(f, text);
        fprintf(f, "%s</td>", part < 0 ? "</b>" : "");
    } else {
        fprintf(f, part < 0 ? "| **%s** | **%s** |" : "| %s | %s |", number, text);
    }
    for (int r = 0; r < m->n_readings; r++) {
        const hdo_claim_result *p = m->part[r];
        if (part >= 0) {
            put_cell(f, html, false, p[part].verdict, p[part].lean);
        } else {
            put_cell(f, html, true, hdo_claim_verdict(p, m->n_parts, claim), 0);
        }
    }
    fputs(html ? "</tr>\n" : "\n", f);
}

static void put_matrix(FILE *f, const matrix *m, bool html) {
    fprintf(f, html ? "<h3>%s</h3>\n<table><tr><th></th><th></th>" : "**%s**\n\n| | |", m->x->title);
    for (int r = 0; r < m->n_readings; r++)
        fprintf(f, html ? "<th>%s%s</th>" : " %s%s |", m->reading[r]->name, m->stale[r] ? " (stale)" : "");
    fputs(html ? "</tr>\n" : "\n|---|---|", f);
    for (int r = 0; r < m->n_readings && !html; r++) fputs("---|", f);
    if (!html) fputs("\n", f);
    for (int c = 1; hdo_claim_text(c) != NULL; c++)
        for (int i = 0, first = 1; i < m->n_parts; i++) {
            if (m->part[0][i].claim != c) continue;
            if (first) put_line(f, m, html, c, -1);
            put_line(f, m, html, c, i);
            first = 0;
        }
    for (int i = 0, first = 1; i < m->n_parts; i++) {
        if (m->part[0][i].claim != 0) continue;
        if (first && html)
            fprintf(f, "<tr><td></td><td colspan=\"%d\">other figures, which count towards no claim</td></tr>\n",
                    1 + m->n_readings);
        put_line(f, m, html, 0, i);
        first = 0;
    }
    fputs(html ? "</table>\n" : "\n", f);
}

void hdo__paper_matrix(FILE *f, const char *root, bool html) {
    matrix *m = malloc(sizeof *m);
    for (int i = 0; m != NULL && hdo_paper_at(i) != NULL; i++) {
        fill(m, root, hdo_paper_at(i));
        if (m->n_readings > 0) put_matrix(f, m, html);
    }
    free(m);
}
