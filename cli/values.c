/* SPDX-License-Identifier: Apache-2.0 — values of options: read, held against their bounds, put where they belong. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "options.h"

static bool is_one_of(const char *words, const char *text) {
    size_t len = strlen(text);
    for (const char *w = words; w != NULL && *w != '\0';) {
        size_t n = strcspn(w, "|");
        if (n == len && strncmp(w, text, n) == 0) return true;
        w += n + (w[n] == '|');
    }
    return false;
}

static bool real(const cli_option *o, const char *text, double *out) {
    char *end;
    double v = strtod(text, &end);
    if (end == text) return false;
    if (o->kind == CLI_DURATION && *end != '\0' && end[1] == '\0') {
        double unit = *end == 's' ? 1.0 : *end == 'm' ? 60.0 : *end == 'h' ? 3600.0 : 0.0;
        v *= unit;
        end += unit > 0.0;
    }
    if (*end != '\0' || !isfinite(v) || v < o->lo || v > o->hi) return false;
    *out = v;
    return true;
}

static bool whole(const cli_option *o, const char *text, int64_t *out) {
    int64_t v;
    if (!cli_int(text, INT64_MIN, INT64_MAX, &v) || (double)v < o->lo || (double)v > o->hi) return false;
    *out = v;
    return true;
}

/* What the option takes, in words: from its kind and bounds where its row does not say it. */
static void describe(const cli_option *o, char *buf, size_t cap) {
    const char *unit = o->kind == CLI_DURATION ? " seconds (15m and 2h are understood)" : "";
    if (o->takes != NULL) {
        snprintf(buf, cap, "takes %s", o->takes);
    } else if (o->kind == CLI_CHOICE) {
        snprintf(buf, cap, "takes one of %s", o->words);
    } else if (o->kind == CLI_SEEDS) {
        snprintf(buf, cap, "takes A-B with A <= B, for example 0-4");
    } else if (o->hi >= 9e18) {
        snprintf(buf, cap, "must be %s%s", o->lo > 0.0 ? "more than 0" : "0 or more", unit);
    } else if (o->lo == CLI_POSITIVE) {
        snprintf(buf, cap, "must be more than 0, at most %.10g%s", o->hi, unit);
    } else {
        snprintf(buf, cap, "must be %g to %.10g%s", o->lo, o->hi, unit);
    }
}

/* "--np takes a number of ranks; got 'x'" */
static int refuse(const cli_command *c, const cli_option *o, const char *text) {
    char what[160];
    describe(o, what, sizeof what);
    return cli_usage_error(c->name, "--%s %s; got '%s'", o->name, what, text);
}

static int add(const cli_command *c, cli_list *list, const char *text) {
    if (list->n == CLI_LIST_MAX)
        return cli_usage_error(c->name, "too many settings on the command line (%d at most); write a file",
                               CLI_LIST_MAX);
    list->item[list->n++] = (char *)(uintptr_t)text;
    return 0;
}

/* --max-steps 100 is --set steps=100: one mechanism, a few short names. The text lives as long as the process. */
static int add_key(const cli_command *c, cli_list *list, const char *key, const char *value) {
    size_t cap = strlen(key) + strlen(value) + 2;
    char *text = malloc(cap);
    if (text == NULL) return cli_usage_error(c->name, "out of memory");
    snprintf(text, cap, "%s=%s", key, value);
    return add(c, list, text);
}

int cli_take(const cli_command *c, const cli_option *o, const char *text, void *options) {
    char *at = (char *)options + o->target;
    int64_t v = 0;
    bool ok = true;
    switch (o->kind) {
    case CLI_FLAG: *(bool *)at = true; break;
    case CLI_INT: ok = is_one_of(o->words, text) || whole(o, text, (int64_t *)(void *)at); break;
    case CLI_INT32:
        ok = whole(o, text, &v);
        if (ok) *(int *)(void *)at = (int)v;
        break;
    case CLI_REAL:
    case CLI_DURATION: ok = real(o, text, (double *)(void *)at); break;
    case CLI_CHOICE: ok = is_one_of(o->words, text); /* fall through */
    case CLI_TEXT: *(const char **)(void *)at = text; break;
    case CLI_LIST: return add(c, (cli_list *)(void *)at, text);
    case CLI_SEEDS: {
        cli_seeds *s = (cli_seeds *)(void *)at;
        ok = cli_seed_range(text, &s->first, &s->last);
        break;
    }
    case CLI_KEY: return add_key(c, (cli_list *)(void *)at, o->key, text != NULL ? text : "true");
    case CLI_HEADING: break;
    }
    return ok ? 0 : refuse(c, o, text);
}
