/* SPDX-License-Identifier: Apache-2.0 — the one reader of command lines, and the options commands share. */
#include "options.h"

#include <string.h>

#include "hdo/experimental/suggest.h"
#include "cli.h"

enum { NAMES_MAX = 128, NAME_CAP = 64 };

#define COMMON(member) offsetof(cli_common, member)
static const struct {
    unsigned bit;
    cli_option row;
} common[] = {
    {CLI_POPULATION,
     {"population", 0, CLI_TEXT, "P", "counts by class, for example 24fo+256zo; classes not named are left out",
      .target = COMMON(population)}},
    {CLI_SET,
     {"set", 0, CLI_LIST, "KEY=VALUE", "any configuration key, repeatable: --set population.zo.rv=64 --set steps=100",
      .target = COMMON(set)}},
    {CLI_PIECEWISE,
     {"allow-piecewise", 0, CLI_FLAG, NULL,
      "complex-step accepts models with kinks: allow_piecewise=true for every class that uses it",
      .target = COMMON(piecewise)}},
    {CLI_THREADS,
     {"threads", 0, CLI_INT, "N", "threads (default: all CPUs this process may use); results do not depend on it",
      .target = COMMON(threads), .lo = 1, .hi = CLI_THREADS_MAX}},
    {CLI_FORCE, {"force", 0, CLI_FLAG, NULL, "replace what is already there", .target = COMMON(force)}},
    {CLI_JSON, {"json", 0, CLI_FLAG, NULL, "one JSON document on standard output", .target = COMMON(json)}},
    {CLI_QUIET, {"quiet", 'q', CLI_FLAG, NULL, "no progress and no notes", .target = COMMON(quiet)}},
    {CLI_COLOUR,
     {"color", 0, CLI_CHOICE, "WHEN", "auto, always or never", .target = COMMON(colour), .words = "auto|always|never"}},
    {0, {"help", 'h', CLI_FLAG, NULL, "this text", .target = 0}}, /* of every command */
};
enum { N_COMMON = (int)(sizeof common / sizeof common[0]) };

const cli_option *cli_option_at(const cli_command *c, int k) {
    for (const cli_option *o = c->options; o != NULL && o->name != NULL; o++) {
        if (k-- == 0) return o;
    }
    for (int i = 0; i < N_COMMON; i++) {
        bool has = i == N_COMMON - 1 || (c->common & common[i].bit) != 0;
        if (has && k-- == 0) return &common[i].row;
    }
    return NULL;
}

/* ---- finding ---- */

static const cli_option *find_letter(const cli_command *c, char letter) {
    const cli_option *o = NULL;
    for (int k = 0; (o = cli_option_at(c, k)) != NULL && o->letter != letter;) k++;
    return o;
}

/* By its name, or by a beginning that is no other's. */
static const cli_option *find_long(const cli_command *c, const char *name, int *matches) {
    const cli_option *found = NULL;
    *matches = 0;
    for (int k = 0; cli_option_at(c, k) != NULL; k++) {
        const cli_option *o = cli_option_at(c, k);
        if (o->kind == CLI_HEADING || strncmp(o->name, name, strlen(name)) != 0) continue;
        if (strcmp(o->name, name) == 0) {
            *matches = 1;
            return o;
        }
        found = o;
        ++*matches;
    }
    return *matches == 1 ? found : NULL;
}

static int unknown(const cli_command *c, const char *name, int matches) {
    const char *names[NAMES_MAX];
    int n = 0;
    if (matches > 1) return cli_usage_error(c->name, "--%s is the beginning of several options; write it out", name);
    for (int k = 0; cli_option_at(c, k) != NULL && n + 1 < NAMES_MAX; k++) {
        if (cli_option_at(c, k)->kind != CLI_HEADING) names[n++] = cli_option_at(c, k)->name;
    }
    names[n] = NULL;
    const char *near = hdo__suggest(name, names);
    return cli_usage_error(c->name, "hdo %s has no option --%s%s%s%s", c->name, name,
                           near != NULL ? "; did you mean --" : "", near != NULL ? near : "", near != NULL ? "?" : "");
}

/* ---- words ---- */

typedef struct reader {
    const cli_command *c;
    int argc, next; /* next: the word to read */
    char **argv;
    void *options;
    bool help;
} reader;

/* An option with the value that was written to it (NULL: none, then the next word is it). */
static int accept(reader *r, const cli_option *o, const char *value) {
    if (o->letter == 'h') {
        r->help = true;
        return 0;
    }
    if (o->arg == NULL && value != NULL)
        return cli_usage_error(r->c->name, "--%s takes no value; got '%s'", o->name, value);
    if (o->arg != NULL && value == NULL) {
        if (r->next >= r->argc) return cli_usage_error(r->c->name, "--%s needs a value: %s", o->name, o->arg);
        value = r->argv[r->next++];
    }
    int k = 0;
    while (cli_option_at(r->c, k) != o) k++;
    ((cli_common *)r->options)->given |= (uint64_t)1 << k;
    return cli_take(r->c, o, value, r->options);
}

static int read_long(reader *r, const char *word) {
    char name[NAME_CAP];
    size_t len = strcspn(word, "=");
    int matches = 0;
    snprintf(name, sizeof name, "%.*s", len < sizeof name ? (int)len : NAME_CAP - 1, word);
    const cli_option *o = find_long(r->c, name, &matches);
    if (o == NULL) return unknown(r->c, name, matches);
    return accept(r, o, word[len] == '=' ? word + len + 1 : NULL);
}

/* -q, -oDIR, -o DIR, -qo DIR */
static int read_short(reader *r, const char *word) {
    int code = 0;
    for (; *word != '\0' && code == 0 && !r->help; word++) {
        const cli_option *o = find_letter(r->c, *word);
        if (o == NULL) return cli_usage_error(r->c->name, "hdo %s has no option -%c", r->c->name, *word);
        if (o->arg != NULL) return accept(r, o, word[1] != '\0' ? word + 1 : NULL);
        code = accept(r, o, NULL);
    }
    return code;
}

static int check_words(const cli_command *c, const cli_common *o) {
    if (o->n_words < c->least) return cli_usage_error(c->name, "%s", c->missing);
    if (c->most < 0 || o->n_words <= c->most) return -1;
    if (c->single == NULL)
        return cli_usage_error(c->name, "hdo %s does not know what to do with '%s'", c->name, o->word[c->most]);
    return cli_usage_error(c->name, "%s, but got '%s' too", c->single, o->word[c->most]);
}

/* Is the option among those in the verb's usage? What concerns talking always is. */
static bool verb_has(const cli_verb *v, const cli_option *o) {
    char flag[NAME_CAP];
    const char *usage = v->usage != NULL ? v->usage : "";
    if (strcmp(o->name, "quiet") == 0 || strcmp(o->name, "color") == 0 || strcmp(usage, "[OPTIONS]") == 0) return true;
    if (o->letter != 0) {
        snprintf(flag, sizeof flag, "[-%c", o->letter);
    } else {
        snprintf(flag, sizeof flag, "[--%s", o->name);
    }
    const char *at = strstr(usage, flag);
    return at != NULL && strchr(" ]", at[strlen(flag)]) != NULL;
}

/* The verb that word 0 names: -1 to go on, or the exit code: there is none, or it lacks an option given. */
static int find_verb(const cli_command *c, cli_common *o) {
    const char *names[NAMES_MAX], *word = o->word[0];
    int n = 0;
    for (; c->verbs[n].name != NULL && strcmp(c->verbs[n].name, word) != 0; n++) names[n] = c->verbs[n].name;
    names[n] = NULL;
    if (c->verbs[n].name == NULL) {
        const char *near = hdo__suggest(word, names);
        return cli_usage_error(c->name, "hdo %s does not know '%s'%s%s%s", c->name, word,
                               near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
                               near != NULL ? "'?" : "");
    }
    for (int k = 0; cli_option_at(c, k) != NULL; k++) {
        const cli_option *row = cli_option_at(c, k);
        if ((o->given >> k & 1) == 0 || verb_has(&c->verbs[n], row)) continue;
        return cli_usage_error(c->name, "--%s does not go with hdo %s %s", row->name, c->name, word);
    }
    o->verb = n;
    return -1;
}

int cli_parse(const cli_command *c, int argc, char **argv, void *options) {
    cli_common *o = options;
    reader r = {c, argc, 1, argv, options, false};
    bool ended = false;
    o->word = argv + 1;
    o->n_words = 0;
    while (r.next < argc) {
        char *word = argv[r.next++];
        int code = 0;
        if (ended || word[0] != '-' || word[1] == '\0') {
            o->word[o->n_words++] = word; /* never ahead of what is read */
        } else if (strcmp(word, "--") == 0) {
            ended = true;
        } else {
            code = word[1] == '-' ? read_long(&r, word + 2) : read_short(&r, word + 1);
        }
        if (code != 0) return code;
        if (r.help) {
            cli_help(c);
            return 0;
        }
    }
    if (o->quiet) cli_set_quiet(true);
    if (o->colour != NULL) cli_colour(o->colour);
    int code = check_words(c, o);
    return code < 0 && c->verbs != NULL && o->n_words > 0 ? find_verb(c, o) : code;
}

/* ---- names ---- */

const cli_command *cli_find(const char *name) {
    for (const cli_command *const *c = cli_commands; *c != NULL; c++) {
        if (strcmp((*c)->name, name) == 0) return *c;
    }
    return NULL;
}

const char *cli_nearest_command(const char *name) {
    const char *names[NAMES_MAX];
    int n = 0;
    for (; cli_commands[n] != NULL && n + 1 < NAMES_MAX; n++) names[n] = cli_commands[n]->name;
    names[n] = NULL;
    return hdo__suggest(name, names);
}

const char *cli_nearest_preset(const char *name) {
    return hdo__suggest(name, hdo_preset_names());
}
