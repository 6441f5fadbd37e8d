/* SPDX-License-Identifier: Apache-2.0
 *
 * A plug-in is tried before it is used: in a process of its own, which says before every foreign call what it is about
 * to do. If it falls silent, dies or ends, that was the call.
 */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "plugin/plugin.h"

enum { TEXT = 700, SAMPLES = 2, POINTS = 2 };

typedef struct report { /* from the child, always whole: shorter than a pipe's atomic write */
    char what;          /* 's' about to call, 'f' failed, 'k' done */
    char text[TEXT];
} report;

/* ---- the child ---- */

typedef struct trial {
    int fd;
    const char *stage;
    const hdo_plugin_ask *a;
    char message[512];
    int calls, returns; /* a call that comes back twice left another one by longjmp */
} trial;

static void send_report(int fd, char what, const char *text) {
    report r = {.what = what};
    snprintf(r.text, sizeof r.text, "%s", text);
    ssize_t n = write(fd, &r, sizeof r);
    if (n != (ssize_t)sizeof r) _exit(3);
}

static void stage(void *ctx, const char *name) {
    trial *t = ctx;
    t->stage = name;
    send_report(t->fd, 's', name);
}

static _Noreturn void fail(trial *t, const char *fmt, ...) HDO_PRINTF(2, 3);
static _Noreturn void fail(trial *t, const char *fmt, ...) {
    char text[TEXT];
    va_list ap;
    va_start(ap, fmt);
    int n = snprintf(text, sizeof text, "plug-in '%.300s': ", t->a->path);
    vsnprintf(text + n, sizeof text - (size_t)n, fmt, ap);
    va_end(ap);
    send_report(t->fd, 'f', text);
    _exit(0);
}

static hdo_call begin(trial *t, const char *name) {
    stage(t, name);
    t->message[0] = '\0';
    t->calls++;
    return (hdo_call){.struct_size = sizeof(hdo_call),
                      .node = -1,
                      .step = -1,
                      .message = t->message,
                      .message_cap = sizeof t->message};
}

static void end(trial *t, int result) {
    t->message[sizeof t->message - 1] = '\0';
    if (++t->returns != t->calls)
        fail(t, "a callback returned twice: another one was left by longjmp; return a number below 0 instead");
    if (result == 0) return;
    if (t->message[0] != '\0') fail(t, "%s: %s", t->stage, t->message);
    fail(t, "%s returned %d in the trial and gave no sentence", t->stage, result);
}

/* The oracles at x: finite, the same twice, and x as it was. */
static void try_points(trial *t, const hdo_objective_def *d, void *user, const hdo_samples *s, float *x) {
    size_t bytes = d->dim * sizeof(float);
    float *keep = malloc(bytes), *g = malloc(bytes);
    double loss[POINTS] = {0.0};
    if (keep == NULL || g == NULL) fail(t, "out of memory for the trial");
    memcpy(keep, x, bytes);
    for (int k = 0; k < POINTS; k++) {
        hdo_call call = begin(t, d->loss != NULL ? "loss" : "losses");
        end(t,
            d->loss != NULL ? d->loss(user, &call, s, x, &loss[k]) : d->losses(user, &call, s, x, d->dim, 1, &loss[k]));
        if (!isfinite(loss[k]))
            fail(t, "%s gave %f at the starting point; a loss must be finite there", t->stage, loss[k]);
        if (memcmp(keep, x, bytes) != 0) fail(t, "%s wrote to x, which is const", t->stage);
    }
    if (loss[0] != loss[1])
        fail(t, "%s gave %.9g and then %.9g for the same x, samples, seed, node and step; it must be a pure function",
             t->stage, loss[0], loss[1]);
    if (d->gradient != NULL) {
        hdo_call call = begin(t, "gradient");
        end(t, d->gradient(user, &call, s, x, &loss[0], g));
        for (size_t j = 0; j < d->dim; j++)
            if (!isfinite((double)g[j])) fail(t, "gradient gave a number that is not finite (coordinate %zu)", j);
        if (memcmp(keep, x, bytes) != 0) fail(t, "gradient wrote to x, which is const");
    }
    free(keep);
    free(g);
}

static void try_objective(trial *t, const hdo_objective_def *d, void *user) {
    static const int64_t index[SAMPLES] = {0, 0};
    bool own = (d->flags & (unsigned)HDO_WANT_INDICES) != 0 && d->train_count > 0;
    bool formula = (d->flags & (unsigned)(HDO_WANT_DATA | HDO_WANT_INDICES)) == 0;
    hdo_samples s = {.struct_size = sizeof s, .count = own ? SAMPLES : 0, .index = own ? index : NULL, .train = own};
    float *x = calloc(d->dim, sizeof *x);
    if (x == NULL) fail(t, "out of memory for the trial");
    if (d->start != NULL) {
        hdo_call call = begin(t, "start");
        end(t, d->start(user, &call, x));
        for (size_t j = 0; j < d->dim; j++)
            if (!isfinite((double)x[j])) fail(t, "start gave a number that is not finite (coordinate %zu)", j);
    }
    if (own || formula) try_points(t, d, user, &s, x); /* with the configured data it is not tried beyond the start */
    free(x);
}

static void try_dataset(trial *t, const hdo_dataset_def *d, void *user) {
    float *in = calloc((size_t)d->n_in, sizeof *in);
    if (in == NULL) fail(t, "out of memory for the trial");
    for (int train = 0; train < 2; train++) {
        int32_t label = -1;
        int64_t first = 0;
        hdo_call call = begin(t, "gather");
        end(t, d->gather(user, &call, train, 1, &first, d->vocab > 0 ? NULL : in,
                         d->vocab > 0 ? (int32_t *)(void *)in : NULL, &label));
        if (label < 0 || label >= d->classes)
            fail(t, "gather gave label %d, but there are %d classes", (int)label, d->classes);
    }
    free(in);
}

static _Noreturn void child(int fd, const hdo_plugin_ask *a) {
    trial t = {.fd = fd, .a = a};
    hdo_error e = {.msg = ""};
    hdo_plugin_use *u = NULL;
    hdo_config *c = calloc(1, sizeof *c);
    if (c == NULL) fail(&t, "out of memory for the trial");
    hdo_config_default(c);
    if (hdo__plugin_open(&u, a, stage, &t, &e) != HDO_OK) {
        send_report(fd, 'f', e.msg);
        _exit(0);
    }
    hdo_status st = HDO_OK;
    if (a->part == (int)HDO_OWN_OBJECTIVE) st = hdo_config_use_objective(c, u->parts.objective, NULL, &e);
    if (a->part == (int)HDO_OWN_DATASET) st = hdo_config_use_dataset(c, u->parts.dataset, NULL, &e);
    if (st != HDO_OK) fail(&t, "%s", e.msg); /* the table makes no sense */
    if (a->part == (int)HDO_OWN_OBJECTIVE) try_objective(&t, &c->own->table[0]->def.objective, u->parts.user);
    if (a->part == (int)HDO_OWN_DATASET) try_dataset(&t, &c->own->table[0]->def.dataset, u->parts.user);
    send_report(fd, 'k', "");
    _exit(0);
}

/* ---- the parent ---- */

/* Reads one report before the deadline: 1; 0: the other end closed; -1: time is over. */
static int next_report(int fd, double until, report *r) {
    size_t got = 0;
    while (got < sizeof *r) {
        double left = until - hdo__now_s();
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int ready = left > 0.0 ? poll(&p, 1, (int)(1000.0 * left) + 1) : 0;
        if (ready == 0) return -1;
        if (ready < 0 && errno != EINTR) return 0;
        if (ready < 0) continue;
        ssize_t n = read(fd, (char *)r + got, sizeof *r - got);
        if (n == 0 || (n < 0 && errno != EINTR)) return 0;
        if (n > 0) got += (size_t)n;
    }
    r->text[sizeof r->text - 1] = '\0';
    return 1;
}

static hdo_status verdict(const hdo_plugin_ask *a, int fd, pid_t pid, hdo_error *e) {
    report r;
    char at[64] = "loading";
    double until = hdo__now_s() + a->trial_s;
    int status = 0, got;
    while ((got = next_report(fd, until, &r)) == 1 && r.what == 's') snprintf(at, sizeof at, "%.60s", r.text);
    if (got <= 0) kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    if (got == 1) return r.what == 'k' ? HDO_OK : hdo__fail(e, HDO_E_UNSUPPORTED, "%s", r.text);
    if (got < 0)
        return hdo__fail(e, HDO_E_UNSUPPORTED,
                         "plug-in '%s': %s has not returned within %g s; mend it, or give it more time (model.trial_s)",
                         a->path, at, a->trial_s);
    if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
        return hdo__fail(e, HDO_E_UNSUPPORTED, "plug-in '%s' crashed in %s: %s", a->path, at,
                         strsignal(WTERMSIG(status)));
    return hdo__fail(e, HDO_E_UNSUPPORTED,
                     "plug-in '%s': %s ended the process instead of returning; return a number below 0 and a sentence",
                     a->path, at);
}

hdo_status hdo__plugin_trial(const hdo_plugin_ask *a, hdo_error *e) {
    int fd[2];
    if (pipe(fd) != 0) return hdo__fail(e, HDO_E_IO, "no pipe for the trial of '%s': %s", a->path, strerror(errno));
    pid_t pid = fork();
    if (pid == 0) {
        close(fd[0]);
        child(fd[1], a);
    }
    close(fd[1]);
    hdo_status st = pid > 0 ? verdict(a, fd[0], pid, e)
                            : hdo__fail(e, HDO_E_IO, "no process for the trial of '%s': %s", a->path, strerror(errno));
    close(fd[0]);
    return st;
}
