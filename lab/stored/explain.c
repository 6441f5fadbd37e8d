/* SPDX-License-Identifier: Apache-2.0 — what became of a stored run: see <hdo/lab/explain.h>. */
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hdo/experimental/file.h"
#include "hdo/experimental/json.h"
#include "hdo/lab/check.h"
#include "hdo/lab/eval.h"
#include "hdo/lab/explain.h"

enum { SENTENCES_MAX = 24, SENTENCE_MAX = 400 };

typedef struct story {
    json_t *summary; /* NULL: the run has none */
    json_t *rows;    /* array: metrics.jsonl */
    char sentence[SENTENCES_MAX][SENTENCE_MAX];
    int n;
} story;

static void say(story *s, const char *fmt, ...) HDO_PRINTF(2, 3);
static void say(story *s, const char *fmt, ...) {
    if (s->n == SENTENCES_MAX) return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(s->sentence[s->n++], SENTENCE_MAX, fmt, ap);
    va_end(ap);
}

/* A number in a sentence. */
typedef struct number {
    char text[24];
} number;
static number num(double v) {
    number n;
    snprintf(n.text, sizeof n.text, isfinite(v) ? "%.4g" : "not finite", v);
    return n;
}

/* ---- reading ---- */

static double real(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}
static long long whole(const json_t *o, const char *key) {
    return (long long)json_integer_value(json_object_get(o, key));
}
static const char *word(const json_t *o, const char *key) {
    const char *s = json_string_value(json_object_get(o, key));
    return s != NULL ? s : "?";
}

static hdo_status read_rows(story *s, const char *dir, hdo_error *e) {
    char path[HDO_PATH_MAX + 64], *text = NULL, *save = NULL;
    size_t len;
    s->rows = json_array();
    if (!hdo__path_join(path, sizeof path, dir, "metrics.jsonl") || !hdo__path_exists(path)) return HDO_OK;
    hdo_status st = hdo__file_read(path, (size_t)1 << 32, &text, &len, e);
    if (st != HDO_OK) return st;
    for (char *line = strtok_r(text, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save)) {
        json_t *row = json_loads(line, 0, NULL); /* the last line of a killed run may be cut */
        if (row != NULL) json_array_append_new(s->rows, row);
    }
    free(text);
    return HDO_OK;
}

static hdo_status read_run(story *s, const char *dir, hdo_error *e) {
    char path[HDO_PATH_MAX + 64];
    if (!hdo__path_join(path, sizeof path, dir, "config.yaml") || !hdo__path_exists(path))
        return hdo__fail(e, HDO_E_DATA, "'%s' is not a run: it has no config.yaml", dir);
    if (hdo__path_join(path, sizeof path, dir, "summary.json") && hdo__path_exists(path)) {
        s->summary = json_load_file(path, 0, NULL);
        if (s->summary == NULL) return hdo__fail(e, HDO_E_DATA, "'%s' cannot be read as JSON", path);
    }
    return read_rows(s, dir, e);
}

/* ---- sentences ---- */

static const json_t *class_of(const story *s, const char *name) {
    const json_t *list = json_object_get(s->summary, "classes");
    for (size_t k = 0; k < json_array_size(list); k++) {
        const json_t *c = json_array_get(list, k);
        if (strcmp(word(c, "name"), name) == 0) return c;
    }
    return NULL;
}

/* "the smallest of the classes", of a figure per class in the last row with finite losses. */
static void tell_classes(story *s, const json_t *row, const char *when) {
    const json_t *list = json_object_get(s->summary, "classes");
    char text[SENTENCE_MAX] = "";
    size_t used = 0;
    for (size_t k = 0; k < json_array_size(list) && used < sizeof text; k++) {
        char key[128];
        const char *name = word(json_array_get(list, k), "name");
        snprintf(key, sizeof key, "val/loss_%s", name);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %.4g", k > 0 ? ", " : "", name, real(row, key));
    }
    say(s, "%s (step %lld) the mean losses of the classes were: %.300s.", when, whole(row, "step"), text);
}

static const json_t *last_finite(const story *s) {
    for (size_t k = json_array_size(s->rows); k > 0; k--) {
        const json_t *row = json_array_get(s->rows, k - 1);
        if (isfinite(real(row, "val/loss_mean"))) return row;
    }
    return NULL;
}

static void tell_why(story *s, const json_t *f, const char *why) {
    number g = num(real(f, "g_norm")), before = num(real(f, "g_norm_before")), lr = num(real(f, "lr"));
    number length = num(real(f, "step_length"));
    const char *name = word(f, "class");
    bool zeroth = strcmp(word(class_of(s, name), "estimator"), "fo") != 0;
    if (strcmp(why, "start") == 0) {
        say(s, "Why: it had not stepped yet; the loss is beyond the limit at the start. Look at the data and at "
               "model.init.");
    } else if (strcmp(why, "overflow") == 0) {
        say(s, "Why: the loss was finite and the estimate was not: a number inside the estimate overflowed. nu, rv and "
               "the size of the model are the places to look.");
    } else if (strcmp(why, "rate") == 0) {
        say(s,
            "Why: its estimate grew from |G| = %s to %s in one step, so each step overshoots and the next is longer. "
            "lr "
            "= %s of class '%s' is above what the curvature there allows (about 2 / L%s). A smaller lr%s cures it.",
            before.text, g.text, lr.text, name, zeroth ? ", less with few random vectors" : "",
            zeroth ? " or a larger rv" : "");
    } else if (strcmp(why, "first-step") == 0) {
        say(s, "Why: its very first step was too long, lr |G| = %s: lr = %s of class '%s' is too large for this start.",
            length.text, lr.text, name);
    } else {
        say(s,
            "Why: one long step, lr |G| = %s, that did not grow out of the one before (|G| was %s, then %s): a batch "
            "or a "
            "draw far from the usual. A larger batch%s or a smaller lr make such steps rare.",
            length.text, before.text, g.text, zeroth ? ", a larger rv" : "");
    }
}

static void tell_first(story *s, const json_t *d, const json_t *f) {
    number lr = num(real(f, "lr")), g = num(real(f, "g_norm")), length = num(real(f, "step_length"));
    number x = num(real(f, "model_norm")), loss = num(real(d, "loss")), limit = num(real(d, "limit"));
    number start = num(real(d, "start_loss"));
    say(s,
        "Node %lld of class '%s' went first, in step %lld: with lr %s and |G| %s its model moved by %s (|x| was %s "
        "when "
        "it was seen).",
        whole(f, "node"), word(f, "class"), whole(f, "step"), lr.text, g.text, length.text, x.text);
    say(s, "It showed in step %lld on node %lld of class '%s': %s (loss %s, limit %s, start %s).", whole(d, "step"),
        whole(d, "node"), word(d, "class"), word(d, "what"), loss.text, limit.text, start.text);
    if (json_is_true(json_object_get(d, "by_averaging")))
        say(s, "That node did not lose itself: it took the model by averaging with node %lld.", whole(f, "node"));
    tell_why(s, f, word(d, "why"));
}

static void tell_divergence(story *s) {
    const json_t *d = json_object_get(s->summary, "divergence"), *f = json_object_get(d, "first");
    say(s, "The run diverged after %lld steps.", whole(s->summary, "steps"));
    if (d != NULL) {
        tell_first(s, d, f);
    } else {
        say(s, "Which node went first is not recorded: the run is asynchronous, or of an earlier version.");
    }
    const char *name;
    json_t *count, *lost = json_object_get(d, "lost");
    json_object_foreach(lost, name, count) {
        say(s, "At the end %lld of the %lld nodes of class '%s' were lost%s.", (long long)json_integer_value(count),
            whole(class_of(s, name), "count"), name,
            strcmp(name, word(f, "class")) != 0 && json_integer_value(count) > 0 ? ": averaging handed it on" : "");
    }
    const json_t *row = last_finite(s);
    if (row != NULL) tell_classes(s, row, "At the last evaluation with finite losses");
}

static void tell_end(story *s) {
    const json_t *final = json_object_get(s->summary, "final"), *first = json_array_get(s->rows, 0);
    double mean = real(final, "val_loss_mean"), start = real(first, "val/loss_mean");
    const char *reason = word(s->summary, "reason");
    say(s, "The run %s after %lld steps.",
        strcmp(reason, "target") == 0    ? "reached its target"
        : strcmp(reason, "timeout") == 0 ? "ran out of time"
        : strcmp(reason, "stopped") == 0 ? "was stopped"
                                         : "completed",
        whole(s->summary, "steps"));
    say(s, "The mean validation loss went from %.4g to %.4g.", start, mean);
    if (mean > start)
        say(s, "That is above the start: the population did not learn, though it did not diverge either.");
    say(s,
        "Over nodes the loss has standard deviation %.3g, from %.4g to %.4g; Gamma, the mean squared distance from the "
        "mean "
        "model, is %.3g.",
        real(final, "val_loss_std"), real(final, "val_loss_min"), real(final, "val_loss_max"), real(final, "gamma"));
    size_t n = json_array_size(s->rows);
    if (n > 0 && json_array_size(json_object_get(s->summary, "classes")) > 1)
        tell_classes(s, json_array_get(s->rows, n - 1), "At the end");
}

static void tell_unfinished(story *s) {
    size_t n = json_array_size(s->rows);
    say(s, "The run has no summary: it is still going on, or it was killed; `hdo run --resume` continues it.");
    if (n > 0) {
        const json_t *row = json_array_get(s->rows, n - 1);
        say(s, "Its last row is of step %lld, with a mean validation loss of %.4g.", whole(row, "step"),
            real(row, "val/loss_mean"));
    }
}

/* The rates `hdo check` would allow the class that went first. */
static hdo_status tell_rates(story *s, const char *dir, hdo_error *e) {
    const char *name = word(json_object_get(json_object_get(s->summary, "divergence"), "first"), "class");
    hdo_config *c = malloc(sizeof *c);
    hdo_check_result *r = malloc(sizeof *r);
    hdo_check_options o = hdo_check_default();
    o.time_s = 0.3;
    hdo_status st = c != NULL && r != NULL ? hdo_stored_config(dir, c, e) : hdo__fail(e, HDO_E_MEMORY, "out of memory");
    if (st == HDO_OK) st = hdo_check(c, &o, r, e);
    for (int k = 0; st == HDO_OK && k < r->n_classes; k++) {
        const hdo_check_class *k_ = &r->cls[k];
        if (strcmp(name, "?") != 0 && strcmp(k_->name, name) != 0) continue;
        if (!isfinite(k_->lr_best)) continue;
        say(s,
            "At the start `hdo check` allows a lone node of class '%s' an lr of %.2g to %.2g, and finds no descent "
            "above %.2g; "
            "the run has %.3g%s.",
            k_->name, 0.1 * k_->lr_best, k_->lr_best, k_->lr_max, k_->lr,
            k_->lr > k_->lr_max    ? ": far too large"
            : k_->lr > k_->lr_best ? ": too large"
                                   : ", which is within");
    }
    free(c);
    free(r);
    return st;
}

/* ---- texts ---- */

static char *as_text(const story *s) {
    char *text = malloc((size_t)s->n * (SENTENCE_MAX + 1) + 1);
    size_t used = 0;
    if (text == NULL) return NULL;
    text[0] = '\0';
    for (int i = 0; i < s->n; i++) used += (size_t)snprintf(text + used, SENTENCE_MAX + 2, "%s\n", s->sentence[i]);
    return text;
}

static char *as_json(const story *s, const char *dir) {
    hdo_json j;
    hdo__json_begin(&j, true, 1);
    hdo__json_text(&j, "dir", dir);
    hdo__json_text(&j, "outcome", s->summary != NULL ? word(s->summary, "outcome") : "unfinished");
    hdo__json_array(&j, "sentences");
    for (int i = 0; i < s->n; i++) hdo__json_text(&j, NULL, s->sentence[i]);
    hdo__json_end(&j, ']');
    static const char *const parts[] = {"divergence", "final"};
    for (size_t k = 0; k < 2; k++) {
        char *part = json_dumps(json_object_get(s->summary, parts[k]), 0);
        hdo__json_raw(&j, parts[k], part != NULL ? part : "null");
        free(part);
    }
    return hdo__json_finish(&j);
}

hdo_status hdo_explain(const char *dir, bool json, bool check, char **text, hdo_error *e) {
    *text = NULL;
    story *s = calloc(1, sizeof *s);
    if (s == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory");
    hdo_status st = read_run(s, dir, e);
    bool diverged = st == HDO_OK && s->summary != NULL && strcmp(word(s->summary, "outcome"), "diverged") == 0;
    if (diverged) {
        tell_divergence(s);
    } else if (st == HDO_OK && s->summary != NULL) {
        tell_end(s);
    } else if (st == HDO_OK) {
        tell_unfinished(s);
    }
    if (st == HDO_OK && check) st = tell_rates(s, dir, e);
    if (st == HDO_OK) {
        *text = json ? as_json(s, dir) : as_text(s);
        if (*text == NULL) st = hdo__fail(e, HDO_E_MEMORY, "out of memory");
    }
    json_decref(s->summary);
    json_decref(s->rows);
    free(s);
    return st;
}
