/* SPDX-License-Identifier: Apache-2.0 — a process for each run: starting them, hearing from them, time left. */
#include "pool.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "drive.h"
#include "hdo/lab/predict.h"

enum { WORKERS_MAX = 256, POLL_MS = 200 };
#define TELL_S 0.5 /* a process tells its step this often */

typedef struct message { /* below PIPE_BUF bytes: arrives whole */
    int64_t step, total;
    bool last;
    hdo_stop why;
    hdo_row row;
} message;

typedef struct worker {
    pid_t pid; /* 0: free */
    int fd, job;
    double share, start_s; /* part of its job that is done */
    bool heard;
} worker;

typedef struct state {
    const cli_pool *p;
    cli_job *jobs;
    int n, next, busy, ended, slots, threads, code;
    double cost, done_cost, start_s, shown_s;
    double before;        /* cost that was done before this command: says nothing about its speed */
    bool tty, live, told; /* told: jobs know of the signal */
    worker w[WORKERS_MAX];
} state;

/* ---- in the process of a job ---- */

typedef struct teller {
    int fd;
    int64_t until;
    double last_s;
} teller;

static void on_log(void *ctx, hdo_log_level level, const char *text) {
    (void)ctx;
    if (level >= HDO_LOG_WARN) cli_warn(text);
}

static bool tell(int fd, const hdo_run *r, int64_t until, bool last, hdo_stop why) {
    const hdo_config *c = hdo_run_config(r);
    message m = {.step = hdo_run_step(r), .total = until > 0 ? until : c->steps + c->warmup, .last = last, .why = why};
    if (hdo_run_last_row(r) != NULL) m.row = *hdo_run_last_row(r);
    return write(fd, &m, sizeof m) == (ssize_t)sizeof m;
}

static void on_step(void *ctx, const hdo_run *r) {
    teller *t = ctx;
    double now = cli_now_s();
    if (now - t->last_s < TELL_S) return;
    t->last_s = now;
    tell(t->fd, r, t->until, false, HDO_RUNNING);
}

/* A stored run is taken up or the job fails: nothing here removes one, unless `force` says so. */
static hdo_status open_run(const state *s, int k, hdo_run **r, hdo_error *e) {
    const cli_job *job = &s->jobs[k];
    hdo_hooks hooks = {.log = on_log, .asked = cli_asked, .hurry = cli_hurry, .tune = hdo_auto_tune};
    hdo_resume how = {.threads = s->threads, .n_set = s->p->n_set, .set = s->p->set};
    if (job->resume) return hdo_run_resume_how(r, job->dir, &how, &hooks, e);
    hdo_config *c = malloc(sizeof *c);
    if (c == NULL) return HDO_E_MEMORY;
    hdo_status st = s->p->config(s->p->ctx, k, c, e);
    c->threads = s->threads;
    if (st == HDO_OK) st = hdo_run_create(r, c, &hooks, e);
    if (st == HDO_OK) st = hdo_run_attach_dir(*r, job->dir, job->force, s->p->command_line, e);
    free(c);
    return st;
}

static int run_job(const state *s, int k, int fd) {
    hdo_error e = {0};
    hdo_run *r = NULL;
    hdo_stop why = HDO_RUNNING;
    teller t = {fd, s->jobs[k].until, cli_now_s()};
    hdo_status st = open_run(s, k, &r, &e);
    if (st == HDO_OK) hdo_run_limit_time(r, s->p->max_time_s);
    if (st == HDO_OK) st = cli_drive(r, s->jobs[k].until, on_step, &t, &why, &e);
    if (st == HDO_OK) st = why == HDO_RUNNING ? hdo_run_save(r, &e) : hdo_run_write_summary(r, &e);
    int code = st != HDO_OK ? cli_fail(&e) : cli_stop_code(why);
    if (st == HDO_OK && why != HDO_STOPPED && !tell(fd, r, t.until, true, why)) code = 1;
    hdo_run_destroy(r);
    return code;
}

/* ---- in the parent ---- */

static bool start(state *s, int slot) {
    int fds[2], k = s->next;
    if (pipe(fds) != 0) return false;
    fflush(NULL);
    pid_t parent = getpid(), pid = fork();
    if (pid < 0) {
        close(fds[0]);
        close(fds[1]);
        return false;
    }
    if (pid == 0) {
        close(fds[0]);
        for (int i = 0; i < s->slots; i++) {
            if (s->w[i].pid != 0) close(s->w[i].fd);
        }
        cli_set_quiet(true);
        setpgid(0, 0); /* Ctrl-C reaches the parent alone, which passes it on once */
        cli_end_with_parent(parent);
        _exit(run_job(s, k, fds[1]));
    }
    close(fds[1]);
    s->w[slot] = (worker){.pid = pid, .fd = fds[0], .job = k, .start_s = cli_now_s()};
    s->next++;
    s->busy++;
    return true;
}

static double cost_of(const cli_job *j) {
    return j->cost > 0.0 ? j->cost : 1.0;
}

static void show(state *s, bool force) {
    double now = cli_now_s(), done = s->done_cost;
    if (cli_quiet() || s->n < 2 || (!force && now - s->shown_s < (s->tty ? 0.2 : 10.0))) return;
    for (int k = 0; k < s->slots; k++) {
        if (s->w[k].pid != 0) done += s->w[k].share * cost_of(&s->jobs[s->w[k].job]);
    }
    char eta[32];
    double spent = now - s->start_s;
    double fresh = done - s->before;
    cli_clock_text(fresh > 0.0 ? spent / fresh * (s->cost - done) : 0.0, eta);
    char name[80], ended[48], busy[32], share[32], when[48];
    snprintf(name, sizeof name, "%.70s: ", s->p->label);
    snprintf(ended, sizeof ended, "%d of %d runs done", s->ended, s->n);
    snprintf(busy, sizeof busy, ", %d running", s->busy);
    snprintf(share, sizeof share, ", %d%%", (int)(100.0 * done / s->cost));
    snprintf(when, sizeof when, "  eta %s", fresh > 0.0 ? eta : "?");
    const cli_piece line[] = {{name, 4}, {ended, 0}, {busy, 3}, {share, 1}, {when, 2}};
    cli_line(s->tty, line, (int)(sizeof line / sizeof line[0]));
    s->shown_s = now;
    s->live = s->tty;
}

static void clear_line(state *s) {
    if (s->live) fprintf(stderr, "\r\033[K");
    fflush(stderr);
    s->live = false;
}

static void end_job(state *s, worker *w) {
    cli_job *job = &s->jobs[w->job];
    int status = 0;
    while (waitpid(w->pid, &status, 0) < 0 && errno == EINTR) continue;
    job->code = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_WORKER_KILLED;
    job->seconds = cli_now_s() - w->start_s;
    if (job->code != 0 && job->code != EXIT_DIVERGED) job->done = false;
    if (!job->done && job->code == 0) job->code = 1; /* ended well, but nothing was heard of it */
    if (job->code != 0 && (s->code == 0 || s->code == EXIT_DIVERGED)) s->code = job->code;
    close(w->fd);
    w->pid = 0;
    s->busy--;
    s->ended++;
    s->done_cost += cost_of(job);
    clear_line(s);
    if (WIFSIGNALED(status)) {
        fprintf(stderr,
                "hdo: error: the process of '%s' was killed by signal %d (%s); its run is in %s and goes on with "
                "--resume\n",
                job->label, WTERMSIG(status), strsignal(WTERMSIG(status)), job->dir);
    }
    if (s->p->ended != NULL) s->p->ended(s->p->ctx, w->job, job);
}

/* One message, or the end of the pipe: the process is done. */
static void hear(state *s, worker *w) {
    message m;
    ssize_t len = read(w->fd, &m, sizeof m);
    if (len < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (len != (ssize_t)sizeof m) {
        end_job(s, w);
        return;
    }
    if (!w->heard)
        s->before +=
            s->jobs[w->job].resume && m.total > 0 ? (double)m.step / (double)m.total * cost_of(&s->jobs[w->job]) : 0.0;
    w->heard = true;
    w->share = m.total > 0 ? (double)m.step / (double)m.total : 1.0;
    if (m.last) {
        cli_job *job = &s->jobs[w->job];
        job->done = true;
        job->why = m.why;
        job->row = m.row;
    }
}

static void listen_to_all(state *s) {
    struct pollfd f[WORKERS_MAX];
    int who[WORKERS_MAX], n = 0;
    for (int k = 0; k < s->slots; k++) {
        if (s->w[k].pid == 0) continue;
        f[n] = (struct pollfd){.fd = s->w[k].fd, .events = POLLIN};
        who[n++] = k;
    }
    int ready = poll(f, (nfds_t)n, POLL_MS);
    for (int i = 0; i < n && ready > 0; i++) {
        if ((f[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0) hear(s, &s->w[who[i]]);
    }
}

/* Starts the next job in a free slot. False: there is none to start, or it could not be started. */
static bool start_next(state *s) {
    int k = 0;
    while (k < s->slots && s->w[k].pid != 0) k++;
    bool go = cli_signal() == 0 && (s->code == 0 || s->code == EXIT_DIVERGED);
    if (k >= s->slots || s->next >= s->n || !go) return false;
    if (start(s, k)) return true;
    fprintf(stderr, "hdo: error: cannot start a process for '%s': %s\n", s->jobs[s->next].label, strerror(errno));
    s->code = 1;
    return false;
}

/* Hands a signal on to the jobs, once: a second would end them at once. */
static void pass_signal(state *s) {
    if (cli_signal() == 0 || s->told) return;
    clear_line(s);
    cli_note("stopping: %d runs save themselves", s->busy);
    for (int i = 0; i < s->slots; i++) {
        if (s->w[i].pid != 0) kill(s->w[i].pid, cli_signal());
    }
    s->told = true;
}

int cli_pool_run(const cli_pool *p, cli_job *jobs, int n) {
    state *s = calloc(1, sizeof *s);
    if (s == NULL) return 1;
    const char *term = getenv("TERM");
    *s = (state){.p = p, .jobs = jobs, .n = n, .start_s = cli_now_s(), .slots = p->workers};
    s->tty = isatty(STDERR_FILENO) && (term == NULL || strcmp(term, "dumb") != 0);
    s->shown_s = s->start_s;
    if (s->slots < 1) s->slots = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (s->slots > WORKERS_MAX) s->slots = WORKERS_MAX;
    if (s->slots < 1) s->slots = 1;
    s->threads = n > 0 && n < s->slots ? s->slots / n : 1;
    for (int k = 0; k < n; k++) s->cost += cost_of(&jobs[k]);
    while (s->next < n || s->busy > 0) {
        if (start_next(s)) continue;
        if (s->busy == 0) break;
        pass_signal(s);
        listen_to_all(s);
        show(s, false);
    }
    clear_line(s);
    int code = cli_signal() != 0 ? 128 + cli_signal() : s->code;
    free(s);
    return code;
}
