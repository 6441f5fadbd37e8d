/* SPDX-License-Identifier: Apache-2.0
 *
 * hdo fleet demo: a NATS server on the loopback and a handful of members, each a process of its own. Some are killed
 * (-9), some of those come back from their checkpoint, others join late; at the end the run is stopped, and what the
 * members left behind is added up. Only processes started here are ended, by their ids.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cmd_fleet.h"
#include "hdo/experimental/file.h"

enum { MEMBERS = 8, ARGS = 32 };
#define PACE "0.004"

typedef struct demo_member {
    char name[8], dir[HDO_PATH_MAX];
    const char *role;
    double start, kill, again; /* when, as a share of the time; 0: never (start: at once) */
    pid_t pid;                 /* 0: does not run */
    int lives;
} demo_member;

typedef struct demo {
    const fleet_demo_options *o;
    char url[64], config[HDO_PATH_MAX], exe[HDO_PATH_MAX];
    pid_t server;
    demo_member m[MEMBERS];
    int killed, joined;
} demo;

static const demo_member plan[MEMBERS] = {
    {.name = "fo1", .role = "fo"},
    {.name = "fo2", .role = "fo", .start = 0.3}, /* back-propagates, and is late */
    {.name = "zo1", .role = "zo"},
    {.name = "zo2", .role = "zo"},
    {.name = "zo3", .role = "zo", .kill = 0.35, .again = 0.55}, /* dies and comes back */
    {.name = "zo4", .role = "zo", .kill = 0.45},                /* dies for good */
    {.name = "zo5", .role = "zo", .kill = 0.5, .again = 0.6},
    {.name = "zo6", .role = "zo", .start = 0.4},
};

/* ---- processes ---- */

static int fail(const char *what, const char *why) {
    hdo_error e = {.code = HDO_E_ENGINE};
    snprintf(e.msg, sizeof e.msg, "%s: %s", what, why);
    return cli_fail(&e);
}

static pid_t start(char *const *argv, const char *log) {
    pid_t pid = fork();
    if (pid != 0) return pid;
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0666), null = open("/dev/null", O_RDONLY);
    if (fd >= 0) {
        dup2(fd, STDOUT_FILENO);
        dup2(fd, STDERR_FILENO);
    }
    if (null >= 0) dup2(null, STDIN_FILENO);
    execvp(argv[0], argv);
    _exit(127);
}

/* Waits up to seconds for it to end by itself, then asks, then insists. */
static void finish(pid_t *pid, double seconds, bool ask) {
    int status;
    if (*pid <= 0) return;
    if (ask) kill(*pid, SIGTERM);
    for (double until = cli_now_s() + seconds; cli_now_s() < until;) {
        if (waitpid(*pid, &status, WNOHANG) != 0) {
            *pid = 0;
            return;
        }
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    }
    if (!ask) {
        finish(pid, 5.0, true);
        return;
    }
    kill(*pid, SIGKILL);
    waitpid(*pid, &status, 0);
    *pid = 0;
}

/* A port of the loopback that is free just now. */
static int free_port(void) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port = 0;
    if (fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && getsockname(fd, (struct sockaddr *)&a, &len) == 0)
        port = ntohs(a.sin_port);
    if (fd >= 0) close(fd);
    return port;
}

static int start_server(demo *d) {
    char port[16], log[HDO_PATH_MAX + 32];
    snprintf(port, sizeof port, "%d", free_port());
    snprintf(d->url, sizeof d->url, "nats://127.0.0.1:%s", port);
    snprintf(log, sizeof log, "%s/server.log", d->o->output);
    char *argv[] = {"nats-server", "-a", "127.0.0.1", "-p", port, NULL};
    d->server = start(argv, log);
    nanosleep(&(struct timespec){.tv_nsec = 300 * 1000 * 1000}, NULL);
    int status;
    if (d->server > 0 && waitpid(d->server, &status, WNOHANG) == 0) return 0;
    d->server = 0;
    return fail("nats-server did not start", "is it installed? (Debian: apt-get install nats-server)");
}

static int start_member(demo *d, demo_member *m) {
    char log[HDO_PATH_MAX + 32];
    snprintf(log, sizeof log, "%s.log", m->dir);
    char *argv[ARGS] = {d->exe,          "node",   "--join",  d->url,     "--config", d->config, "--role",
                        (char *)m->role, "--name", m->name,   "--output", m->dir,     "--pace",  PACE,
                        "--threads",     "1",      "--quiet", NULL};
    m->pid = start(argv, log);
    m->lives++;
    return m->pid > 0 ? 0 : fail("a member could not be started", strerror(errno));
}

/* ---- the course of events ---- */

static int prepare(demo *d) {
    hdo_error e = {0};
    hdo_config *c = malloc(sizeof *c);
    char text[HDO_PATH_MAX];
    static const char *const set[][2] = {{"name", "fleet-demo"},        {"population.zo.estimator", "forward"},
                                         {"population.fo.batch", "16"}, {"population.zo.batch", "16"},
                                         {"population.zo.rv", "16"},    {"population.zo.lr", "0.1"},
                                         {"population.fo.lr", "0.1"},   {"steps", "1000000"},
                                         {"eval.every", "100"},         {"data.val", "1000"},
                                         {"engine", "fleet"},           {"fleet.beat_s", "0.25"},
                                         {"checkpoint.every_s", "1"},   {"checkpoint.keep", "2"}};
    if (c == NULL) return fail("the demonstration", "out of memory");
    hdo_config_default(c);
    hdo_status st = hdo_config_load_bytes(c, "demo", hdo_preset("demo"), strlen(hdo_preset("demo")), &e);
    hdo_config_as_base(c);
    if (st == HDO_OK) st = hdo_config_population(c, "2fo+6zo", &e);
    for (size_t k = 0; k < sizeof set / sizeof set[0] && st == HDO_OK; k++)
        st = hdo_config_set_from(c, set[k][0], set[k][1], HDO_FROM_FLAG, &e);
    char *yaml = st == HDO_OK ? hdo_config_dump(c, false) : NULL;
    free(c);
    if (st == HDO_OK) st = hdo__dir_create(d->o->output, &e);
    snprintf(d->config, sizeof d->config, "%.400s/fleet.yaml", d->o->output);
    if (st == HDO_OK && hdo__path_exists(d->config) && !d->o->force) {
        st = e.code = HDO_E_CONFIG;
        snprintf(e.msg, sizeof e.msg, "'%s' holds a demonstration already: --force makes it anew", d->o->output);
    }
    for (int k = 0; k < MEMBERS && st == HDO_OK; k++) { /* a life of an earlier demonstration is not taken up */
        demo_member *m = &d->m[k];
        *m = plan[k];
        snprintf(m->dir, sizeof m->dir, "%.400s/%s", d->o->output, m->name);
        if (!hdo__path_exists(m->dir)) continue;
        snprintf(text, sizeof text, "%.400s/%s.before.%lld", d->o->output, m->name, (long long)time(NULL));
        if (rename(m->dir, text) != 0) return fail(m->dir, strerror(errno));
    }
    if (st == HDO_OK) st = yaml != NULL ? hdo__file_write(d->config, yaml, strlen(yaml), &e) : HDO_E_MEMORY;
    free(yaml);
    ssize_t len = readlink("/proc/self/exe", d->exe, sizeof d->exe - 1);
    if (st == HDO_OK && len <= 0) return fail("the demonstration", "this program does not find itself");
    return st == HDO_OK ? 0 : cli_fail(&e);
}

static int happen(demo *d, demo_member *m, double before, double now, double s) {
    if (m->start > before && m->start <= now) {
        cli_note("%5.1f s  %s joins late", s, m->name);
        d->joined++;
        return start_member(d, m);
    }
    if (m->kill > before && m->kill <= now && m->pid > 0) {
        int status;
        cli_note("%5.1f s  %s is killed (-9)", s, m->name);
        kill(m->pid, SIGKILL);
        waitpid(m->pid, &status, 0);
        m->pid = 0;
        d->killed++;
    }
    if (m->again > before && m->again <= now) {
        cli_note("%5.1f s  %s comes back from its checkpoint", s, m->name);
        return start_member(d, m);
    }
    return 0;
}

static int play(demo *d) {
    double start_s = cli_now_s(), before = 0.0, now = 0.0;
    int code = 0;
    for (int k = 0; k < MEMBERS && code == 0; k++) {
        if (d->m[k].start <= 0.0) code = start_member(d, &d->m[k]);
    }
    cli_note("  0.0 s  %d members start, a server at %s", MEMBERS - 2, d->url);
    while (now < 1.0 && code == 0 && cli_signal() == 0) {
        nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
        double s = cli_now_s() - start_s;
        now = s / d->o->seconds;
        for (int k = 0; k < MEMBERS && code == 0; k++) code = happen(d, &d->m[k], before, now, s);
        before = now;
    }
    return code;
}

/* The mean model while all go on, then the end. */
static int stop(const demo *d) {
    hdo_error e = {0};
    hdo_fleet_view *v = NULL;
    char path[HDO_PATH_MAX + 32];
    int models = 0;
    snprintf(path, sizeof path, "%s/mean.safetensors", d->o->output);
    hdo_fleet_link link = {.url = d->url};
    hdo_status st = hdo_fleet_look(&v, &link, "fleet-demo", 1.0, &e);
    if (st == HDO_OK) st = hdo_fleet_save_mean(v, path, &models, &e);
    if (st == HDO_OK) cli_note("         the mean of %d models: %s", models, path);
    if (st == HDO_OK) st = hdo_fleet_stop(v, &e);
    hdo_fleet_close(v);
    return st == HDO_OK ? 0 : cli_fail(&e);
}

/* ---- the result ---- */

static int report(const demo *d) {
    hdo_error e = {0};
    hdo_fleet_sums s;
    const char *dir[MEMBERS];
    for (int k = 0; k < MEMBERS; k++) dir[k] = d->m[k].dir;
    if (hdo_fleet_add_up(dir, MEMBERS, &s, &e) != HDO_OK) return cli_fail(&e);
    if (!d->o->json) {
        printf("members %d (%d left at the end), killed %d, joined late %d\n", MEMBERS, s.members, d->killed,
               d->joined);
        printf("steps %lld, exchanges %lld, given up %lld, %.1f MB sent\n", (long long)s.steps, (long long)s.exchanges,
               (long long)s.expired, 1e-6 * (double)s.bytes);
        printf("mean loss %.4g; drift of the mean by exchanges %.2g a coordinate (%.1g of what was moved)\n", s.loss,
               s.drift, s.drift_relative);
        return 0;
    }
    hdo_json j;
    hdo__json_init(&j, true);
    hdo__json_object(&j, NULL);
    hdo__json_int(&j, "schema_version", 1);
    hdo__json_int(&j, "members", MEMBERS);
    hdo__json_int(&j, "left", s.members);
    hdo__json_int(&j, "killed", d->killed);
    hdo__json_int(&j, "joined", d->joined);
    hdo__json_int(&j, "steps", s.steps);
    hdo__json_int(&j, "exchanges", s.exchanges);
    hdo__json_int(&j, "expired", s.expired);
    hdo__json_int(&j, "bytes", s.bytes);
    hdo__json_real(&j, "drift", s.drift);
    hdo__json_real(&j, "drift_relative", s.drift_relative);
    hdo__json_real(&j, "loss", s.loss);
    hdo__json_text(&j, "dir", d->o->output);
    hdo__json_end(&j, '}');
    return cli_json(&j);
}

int fleet_demo(const fleet_demo_options *o) {
    demo *d = calloc(1, sizeof *d);
    if (d == NULL) return fail("the demonstration", "out of memory");
    d->o = o;
    cli_catch_signals();
    int code = strlen(o->output) < 400 ? prepare(d) : cli_usage_error("fleet", "the folder's name is too long");
    if (code == 0) code = start_server(d);
    if (code == 0) code = play(d);
    if (code == 0 && cli_signal() == 0) code = stop(d);
    for (int k = 0; k < MEMBERS; k++) finish(&d->m[k].pid, 10.0, code != 0 || cli_signal() != 0);
    finish(&d->server, 5.0, true);
    if (code == 0) code = cli_signal() != 0 ? EXIT_SIGINT : report(d);
    free(d);
    return code;
}
