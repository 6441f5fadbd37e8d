/* SPDX-License-Identifier: Apache-2.0 — hdo new: a project for an objective, an estimator or data of one's own. */
#include "cmd_new.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"

typedef struct args {
    cli_common common;
    const char *output;
} args;

static const cli_option options[] = {
    {"output", 'o', CLI_TEXT, "DIR", "the folder to make (default: the name)", .target = offsetof(args, output)},
    {.name = NULL},
};

/* As tables are named: <hdo/objective.h>; a letter first, because it becomes a file name. */
static bool can_name(const char *name) {
    static const char more[] = "abcdefghijklmnopqrstuvwxyz0123456789-_";
    size_t len = strlen(name);
    return len > 0 && len < HDO_NAME_MAX && name[0] >= 'a' && name[0] <= 'z' && strspn(name, more) == len;
}

#define FOR_ALL "all" /* the folder of what every project has */

static bool is_known(const char *kind) {
    for (const cli_template *t = cli_templates; t->kind != NULL; t++) {
        if (strcmp(t->kind, kind) == 0) return strcmp(kind, FOR_ALL) != 0;
    }
    return false;
}

/* text with every `mark` replaced by name. */
static void put(FILE *f, const char *text, const char *mark, const char *name) {
    for (const char *at; (at = strstr(text, mark)) != NULL; text = at + strlen(mark))
        fprintf(f, "%.*s%s", (int)(at - text), text, name);
    fputs(text, f);
}

static int write_file(const char *dir, const cli_template *t, const char *name) {
    char path[2 * HDO_PATH_MAX];
    const char *at = strstr(t->file, "NAME");
    int head = at != NULL ? (int)(at - t->file) : (int)strlen(t->file);
    snprintf(path, sizeof path, "%s/%.*s%s%s", dir, head, t->file, at != NULL ? name : "", at != NULL ? at + 4 : "");
    FILE *f = fopen(path, "w");
    if (f != NULL) put(f, t->text, "@NAME@", name);
    if (f != NULL && fclose(f) == 0) return 0;
    hdo_error e = {.code = HDO_E_IO};
    snprintf(e.msg, sizeof e.msg, "cannot write '%.200s': %s", path, strerror(errno));
    return cli_fail(&e);
}

static int run_new(int argc, char **argv) {
    args a = {0};
    int code = cli_parse(&cmd_new, argc, argv, &a);
    if (code >= 0) return code;
    const char *kind = a.common.word[0], *name = a.common.word[1];
    const char *dir = a.output != NULL ? a.output : name;
    if (!is_known(kind)) return cli_usage_error("new", "'%s' is none of objective, estimator, data", kind);
    if (!can_name(name))
        return cli_usage_error("new", "'%s' cannot be a name: up to 31 of a-z, 0-9, '-' and '_', a letter first", name);
    if (strlen(dir) >= HDO_PATH_MAX) return cli_usage_error("new", "the folder name '%.60s...' is too long", dir);
    if (mkdir(dir, 0777) != 0) {
        hdo_error e = {.code = HDO_E_IO};
        snprintf(e.msg, sizeof e.msg, "cannot make the folder '%.200s': %s%s", dir, strerror(errno),
                 errno == EEXIST ? "; give another with -o" : "");
        return cli_fail(&e);
    }
    code = 0;
    for (const cli_template *t = cli_templates; t->kind != NULL && code == 0; t++) {
        if (strcmp(t->kind, kind) == 0 || strcmp(t->kind, FOR_ALL) == 0) code = write_file(dir, t, name);
    }
    if (code == 0) printf("made %s: make -C %s test\n", dir, dir);
    return code;
}

const cli_command cmd_new = {
    .name = "new",
    .summary = "a project for an objective, an estimator or data of your own",
    .run = run_new,
    .usage = "objective|estimator|data NAME [-o DIR]",
    .about = "Makes a folder with a plug-in in C that works as it is, its test, a configuration that uses it and a "
             "Makefile that builds with the hdo that pkg-config finds. Then change it to yours.",
    .options = options,
    .common = CLI_TALK,
    .notes = "A name is up to 31 of a-z, 0-9, '-' and '_', a letter first. What may be in a plug-in, and how to do "
             "without one: docs/api.md.",
    .examples = "hdo new objective bowl && make -C bowl test run",
    .exit_codes = "0 made, 1 the folder is there already or cannot be written, 2 usage.",
    .least = 2,
    .most = 2,
    .missing = "what, and how is it to be called? For example: hdo new objective bowl",
    .size = sizeof(args),
};
