/* SPDX-License-Identifier: Apache-2.0
 *
 * Who made the runs of a curve, and whether they are stale: made before a change of the estimator, model or data they
 * use, or with other settings than the experiment has now.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hdo/experimental/file.h"
#include "hdo/lab/verify.h"
#include "lab/report/page.h"
#include "lab/paper/paper_internal.h"

enum { CHANGES_MAX = 8 };

static void add_reason(char *buf, size_t cap, const char *reason) {
    size_t len = strlen(buf);
    if (strstr(buf, reason) == NULL) snprintf(buf + len, cap - len, "%s%s", len > 0 ? "; " : "", reason);
}

/* Where the run was started from (--init, a start of the reading's own) is not told by the tables. */
static bool other_settings(const hdo_paper_case *k, int variant, const char *dir) {
    char path[HDO_PATH_MAX + 64];
    hdo_config *c = malloc(2 * sizeof *c);
    bool other = false;
    if (c == NULL) return false;
    hdo_config *want = c + 1;
    hdo_config_default(c);
    if (hdo__path_join(path, sizeof path, dir, "config.yaml") && hdo_config_load(c, path, NULL) == HDO_OK &&
        hdo_paper_config(k, variant, c->seed, want, NULL) == HDO_OK) {
        memcpy(want->model.weights, c->model.weights, sizeof want->model.weights);
        other = !hdo__same_settings(c, want);
    }
    free(c);
    return other;
}

static void add_run(const hdo_paper_case *k, int variant, const char *dir, hdo_paper_made *out) {
    char path[HDO_PATH_MAX + 64], made[sizeof out->by], reason[256];
    const hdo_revision *change[CHANGES_MAX];
    if (!hdo__path_join(path, sizeof path, dir, "summary.json")) return;
    json_t *o = json_load_file(path, 0, NULL);
    const char *version = json_string_value(json_object_get(o, "version")),
               *commit = json_string_value(json_object_get(o, "commit"));
    snprintf(made, sizeof made, "%s %s", version != NULL ? version : "unknown", commit != NULL ? commit : "version");
    json_decref(o);
    if (out->by[0] == '\0') {
        memcpy(out->by, made, sizeof out->by);
    } else if (strcmp(out->by, made) != 0 && strstr(out->by, " and others") == NULL) {
        size_t len = strlen(out->by);
        snprintf(out->by + len, sizeof out->by - len, " and others");
    }
    int n = hdo_run_changes(dir, change, CHANGES_MAX);
    for (int i = 0; i < n && i < CHANGES_MAX; i++) {
        snprintf(reason, sizeof reason, "%s %s, revision %d: %s", change[i]->kind, change[i]->name, change[i]->number,
                 change[i]->what);
        add_reason(out->stale, sizeof out->stale, reason);
    }
    if (other_settings(k, variant, dir))
        add_reason(out->stale, sizeof out->stale, "made with other settings than the experiment has now");
}

void hdo__paper_made(const hdo_paper_case *k, int variant, hdo_paper_made *out) {
    char dir[HDO_PATH_MAX], **runs = NULL;
    *out = (hdo_paper_made){.by = ""};
    int n = hdo_paper_dir(k, variant, -1, dir, sizeof dir) ? hdo__list_runs(dir, &runs) : 0;
    for (int i = 0; i < n; i++) {
        add_run(k, variant, runs[i], out);
        free(runs[i]);
    }
    free(runs);
}

bool hdo__paper_stale(const hdo_paper_case *k) {
    hdo_paper_made made;
    for (int v = 0; v < k->x->n_variants; v++) {
        hdo__paper_made(k, v, &made);
        if (made.stale[0] != '\0') return true;
    }
    return false;
}
