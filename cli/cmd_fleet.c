/* SPDX-License-Identifier: Apache-2.0 — hdo fleet demo | status | mean | stop | serve-config (docs/fleet.md). */
#include "cmd_fleet.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hdo/experimental/file.h"

enum { MEMBERS_MAX = 1000, SECRET = 32 };

typedef struct args {
    cli_common common;
    fleet_link_options link;
    const char *output, *save, *members, *listen, *tls;
    double seconds, wait_s;
} args;

#define AT(member) offsetof(args, member)
static const cli_option options[] = {
    {"output", 'o', CLI_TEXT, "DIR",
     "demo: folder of the members (default: fleet-demo); serve-config: where the files go", .target = AT(output)},
    {"seconds", 0, CLI_DURATION, "S", "demo: how long it lasts (default 16)", .target = AT(seconds), .lo = 8,
     .hi = 86400, .takes = "a number of seconds from 8 on"},
    {"save", 0, CLI_TEXT, "FILE", "mean, stop: the mean model, as safetensors, collected while the members go on",
     .target = AT(save)},
    {"wait", 0, CLI_DURATION, "S", "status, mean, stop: listen this long for members (default 2)", .target = AT(wait_s),
     .lo = 0.1, .hi = 3600, .takes = "a number of seconds"},
    FLEET_LINK(AT(link)),
    {"members", 0, CLI_TEXT, "A,B,...", "serve-config: the names of the members, or a number of them",
     .target = AT(members)},
    {"listen", 0, CLI_TEXT, "ADDRESS", "serve-config: where the server listens (default 0.0.0.0:4222)",
     .target = AT(listen)},
    {"tls", 0, CLI_TEXT, "DIR", "serve-config: TLS with DIR/ca.pem, DIR/server.pem and DIR/server-key.pem",
     .target = AT(tls)},
    {.name = NULL},
};

static hdo_status look(const args *a, hdo_fleet_view **v, hdo_error *e) {
    hdo_fleet_link link = fleet_link(a->common.word[1], &a->link);
    return hdo_fleet_look(v, &link, a->link.run, a->wait_s, e);
}

/* ---- status ---- */

static void put_row(hdo_json *j, const hdo_fleet_row *r) {
    hdo__json_object(j, NULL);
    hdo__json_text(j, "name", r->name);
    hdo__json_text(j, "class", r->role);
    hdo__json_text(j, "version", r->version);
    hdo__json_int(j, "place", r->place);
    hdo__json_int(j, "nodes", r->nodes);
    hdo__json_int(j, "epoch", r->epoch);
    hdo__json_int(j, "step", r->step);
    hdo__json_real(j, "steps_per_s", r->steps_per_s);
    hdo__json_real(j, "loss", r->loss);
    hdo__json_real(j, "accuracy", r->accuracy);
    hdo__json_int(j, "exchanges", r->exchanges);
    hdo__json_int(j, "expired", r->expired);
    hdo__json_int(j, "far", r->far);
    hdo__json_int(j, "missed", r->missed);
    hdo__json_int(j, "drops", r->drops);
    hdo__json_int(j, "bytes", r->bytes);
    hdo__json_int(j, "memory", r->rss);
    hdo__json_int(j, "hears", r->heard);
    hdo__json_bool(j, "leaving", r->leaving);
    hdo__json_real(j, "silent_s", r->silent_s);
    hdo__json_end(j, '}');
}

static int status_json(const hdo_fleet_view *v) {
    static const char *const reasons[] = {"length", "version", "run",        "configuration", "class",
                                          "epoch",  "sender",  "not_finite", "room"};
    hdo_json j;
    hdo__json_init(&j, true);
    hdo__json_object(&j, NULL);
    hdo__json_int(&j, "schema_version", 1);
    hdo__json_text(&j, "run", hdo_fleet_run(v));
    hdo__json_object(&j, "drops");
    for (size_t k = 0; k < sizeof reasons / sizeof reasons[0]; k++)
        hdo__json_int(&j, reasons[k], hdo_fleet_dropped(v, reasons[k]));
    hdo__json_end(&j, '}');
    hdo__json_array(&j, "members");
    for (int i = 0; i < hdo_fleet_count(v); i++) {
        hdo_fleet_row r;
        hdo_fleet_at(v, i, &r);
        put_row(&j, &r);
    }
    hdo__json_end(&j, ']');
    hdo__json_end(&j, '}');
    return cli_json(&j);
}

static void status_text(const hdo_fleet_view *v) {
    cli_style s = cli_style_for(stdout);
    printf("run %s%s%s, %d members\n\n%s%-20s %-8s %5s %9s %9s %9s %10s %8s %7s %8s%s\n", s.bold, hdo_fleet_run(v),
           s.off, hdo_fleet_count(v), s.dim, "member", "class", "place", "step", "steps/s", "loss", "exchanges",
           "dropped", "MB", "memory", s.off);
    for (int i = 0; i < hdo_fleet_count(v); i++) {
        hdo_fleet_row r;
        char loss[32] = "-";
        hdo_fleet_at(v, i, &r);
        if (!isnan(r.loss)) snprintf(loss, sizeof loss, "%.4g", r.loss);
        printf("%-20s %-8s %5d %9lld %9.4g %9s %10lld %8lld %7.1f %5.0f MB%s\n", r.name, r.role, r.place,
               (long long)r.step, r.steps_per_s, loss, (long long)r.exchanges, (long long)r.drops,
               1e-6 * (double)r.bytes, 1e-6 * (double)r.rss, r.leaving ? "  leaving" : "");
    }
}

static int do_status(const args *a) {
    hdo_error e = {0};
    hdo_fleet_view *v = NULL;
    if (look(a, &v, &e) != HDO_OK) return cli_fail(&e);
    int code = 0;
    if (a->common.json) {
        code = status_json(v);
    } else {
        status_text(v);
    }
    hdo_fleet_close(v);
    return code;
}

/* ---- mean, stop ---- */

static int do_end(const args *a, bool stop) {
    hdo_error e = {0};
    hdo_fleet_view *v = NULL;
    int models = 0;
    if (!stop && a->save == NULL) return cli_usage_error("fleet", "where to? hdo fleet mean URL --save FILE");
    hdo_status st = look(a, &v, &e);
    if (st == HDO_OK && hdo_fleet_count(v) == 0) {
        e.code = st = HDO_E_ENGINE;
        snprintf(e.msg, sizeof e.msg, "nobody of run '%s' is on this bus", hdo_fleet_run(v));
    }
    if (st == HDO_OK && a->save != NULL) st = hdo_fleet_save_mean(v, a->save, &models, &e);
    if (st == HDO_OK && a->save != NULL)
        cli_note("%s: the mean of %d models is in %s", hdo_fleet_run(v), models, a->save);
    if (st == HDO_OK && stop) st = hdo_fleet_stop(v, &e);
    if (st == HDO_OK && stop) cli_note("%s: %d members were asked to stop", hdo_fleet_run(v), hdo_fleet_count(v));
    hdo_fleet_close(v);
    return st == HDO_OK ? 0 : cli_fail(&e);
}

/* ---- serve-config ---- */

typedef struct users {
    int n;
    char name[MEMBERS_MAX][32];
    char secret[MEMBERS_MAX + 1][SECRET + 1];
} users;

static int take_names(const char *text, users *u) {
    int64_t n;
    if (cli_int(text, 1, MEMBERS_MAX, &n)) {
        for (u->n = 0; u->n < n; u->n++) snprintf(u->name[u->n], sizeof u->name[0], "m%d", u->n + 1);
        return 0;
    }
    for (const char *p = text; *p != '\0';) {
        size_t len = strcspn(p, ",");
        if (u->n == MEMBERS_MAX || len >= sizeof u->name[0])
            return cli_usage_error("fleet", "too many names, or too long ones: '%s'", text);
        memcpy(u->name[u->n], p, len);
        u->name[u->n][len] = '\0';
        if (!hdo_fleet_name_ok(u->name[u->n]) || strcmp(u->name[u->n], "operator") == 0)
            return cli_usage_error("fleet",
                                   "'%s' cannot be the name of a member: letters, digits, - and _, and not operator",
                                   u->name[u->n]);
        u->n++;
        p += len + (p[len] == ',');
    }
    return 0;
}

/* A file that nobody else may read. */
static int write_secret(const char *dir, const char *name, const char *text) {
    char path[HDO_PATH_MAX + 64];
    if (!hdo__path_join(path, sizeof path, dir, name)) return cli_usage_error("fleet", "the folder's name is too long");
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0 && close(fd) != 0) ok = false;
    if (ok) return 0;
    hdo_error e = {.code = HDO_E_IO};
    snprintf(e.msg, sizeof e.msg, "cannot write '%s': %s", path, strerror(errno));
    return cli_fail(&e);
}

static int write_files(const args *a, const users *u, const char *config) {
    char text[256], name[64];
    hdo_error e = {0};
    if (hdo__dir_create(a->output, &e) != HDO_OK) return cli_fail(&e);
    int code = write_secret(a->output, "server.conf", config);
    for (int k = 0; k <= u->n && code == 0; k++) {
        const char *user = k < u->n ? u->name[k] : "operator";
        snprintf(text, sizeof text, "user %s\npassword %s\n", user, u->secret[k]);
        snprintf(name, sizeof name, "%s.user", user);
        code = write_secret(a->output, name, text);
    }
    if (code == 0)
        cli_note("%s: server.conf for nats-server -c, and NAME.user for hdo node --credentials, of %d members and the "
                 "operator (who may stop the run)",
                 a->output, u->n);
    return code;
}

static int do_serve_config(const args *a) {
    if (a->members == NULL) return cli_usage_error("fleet", "who? hdo fleet serve-config --members a,b,c -o DIR");
    if (a->output == NULL) return cli_usage_error("fleet", "where to? There are passwords in it: -o DIR");
    const char *run = a->link.run != NULL ? a->link.run : "run";
    if (!hdo_fleet_name_ok(run)) return cli_usage_error("fleet", "'%s' cannot be the name of a run", run);
    users *u = calloc(1, sizeof *u);
    const char **name = calloc(2 * (MEMBERS_MAX + 1), sizeof *name);
    if (u == NULL || name == NULL) return cli_print(NULL, "");
    const char **secret = name + MEMBERS_MAX + 1;
    int code = take_names(a->members, u);
    for (int k = 0; k <= u->n && code == 0; k++) {
        if (!hdo__random_hex(u->secret[k], SECRET))
            code = cli_usage_error("fleet", "no random numbers from the system");
        name[k] = u->name[k < u->n ? k : 0];
        secret[k] = u->secret[k];
    }
    char *config = code == 0 ? hdo_fleet_server_config(run, name, secret, u->n,
                                                       a->listen != NULL ? a->listen : "0.0.0.0:4222", a->tls)
                             : NULL;
    if (code == 0) code = config != NULL ? write_files(a, u, config) : cli_print(NULL, "");
    free(config);
    free(name);
    free(u);
    return code;
}

/* ---- the command ---- */

enum { DEMO, STATUS, MEAN, STOP, SERVE };
#define LINK "[--run NAME] [--wait S] [--credentials FILE] [--tls-ca FILE] [--tls-cert FILE] [--tls-key FILE]"
static const cli_verb verbs[] = {{"demo", "[-o DIR] [--seconds S] [--force] [--json]",
                                  "a server and a handful of members on this machine; some die, some join late"},
                                 {"status", "URL [--json] " LINK, "who is there, class, speed, loss, exchanges, drops"},
                                 {"mean", "URL [--save FILE] " LINK, "the mean model, while the run goes on"},
                                 {"stop", "URL [--save FILE] " LINK, "ends the run, after saving its mean model"},
                                 {"serve-config",
                                  "[--members A,B,...] [-o DIR] [--run NAME] [--tls DIR] [--listen ADDRESS]",
                                  "a server configuration with users and permissions"},
                                 {.name = NULL}};

static int run_fleet(int argc, char **argv) {
    args a = {.seconds = 16.0, .wait_s = 2.0};
    int code = cli_parse(&cmd_fleet, argc, argv, &a);
    if (code >= 0) return code;
    bool outside = a.common.verb == STATUS || a.common.verb == MEAN || a.common.verb == STOP;
    if (outside && a.common.n_words != 2)
        return cli_usage_error("fleet", "where is the bus? hdo fleet %s URL, for example nats://host:4222",
                               a.common.word[0]);
    if (!outside && a.common.n_words != 1)
        return cli_usage_error("fleet", "hdo fleet %s takes options only", a.common.word[0]);
    switch (a.common.verb) {
    case DEMO:
        return fleet_demo(&(fleet_demo_options){.output = a.output != NULL ? a.output : "fleet-demo",
                                                .seconds = a.seconds,
                                                .json = a.common.json,
                                                .force = a.common.force});
    case STATUS: return do_status(&a);
    case MEAN: return do_end(&a, false);
    case STOP: return do_end(&a, true);
    default: return do_serve_config(&a);
    }
}

const cli_command cmd_fleet = {
    .name = "fleet",
    .summary = "a run whose members come and go: demonstration, status, end, server",
    .run = run_fleet,
    .verbs = verbs,
    .about = "A fleet is a run over a message bus (NATS); its members are started with hdo node.",
    .options = options,
    .common = CLI_FORCE | CLI_JSON | CLI_TALK,
    .examples = "hdo fleet demo -o fleet-demo\nhdo fleet status nats://lab:4222\n"
                "hdo fleet stop nats://lab:4222 --save model.safetensors",
    .least = 1,
    .most = 2,
    .missing = "what? hdo fleet demo, status URL, mean URL, stop URL or serve-config",
    .size = sizeof(args),
};
