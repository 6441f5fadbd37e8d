/* SPDX-License-Identifier: Apache-2.0
 *
 * The launcher owns the end of its job. It reads the standard error of mpirun: sentences go on to ours (the first error
 * only: others are echoes of it), signs of life of rank 0 (HDO_MPI_ALIVE) are kept. When there is none for the deadline
 * and a little, or when a rank has said why it failed and mpirun does not end, the launcher ends mpirun and whatever is
 * left of it on this machine. Ranks on other machines end by themselves, at their own deadline.
 *
 * What is left are descendants of this process: it is the subreaper of its orphans. Nobody else's process is touched.
 */
#define _GNU_SOURCE
#include "watch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "cli.h"

enum { POLL_MS = 50, LINE = 4096, PROCESSES_MAX = 8192, BEFORE_MAX = 64 };
#define STILL_S 0.5  /* a longer look is our own standing still and counts as this */
#define SPEAK_S 3.0  /* beyond the deadline: the ranks, which know more, speak first */
#define START_S 1.5  /* likewise, while there are none */
#define GRACE_S 2.0  /* from a broken job to a SIGKILL */
#define ORDER_S 10.0 /* from another error: Open MPI takes more than 2 s to clear up after ranks that have ended */
#define TERM_S 1.0   /* from our SIGTERM to a SIGKILL */
#define ORPHAN_S 0.5 /* for the ranks of an mpirun that is gone */
#define REPEAT_S 1.0 /* between two requests to stop: an mpirun that is only starting may lose one */

static volatile sig_atomic_t g_stop, g_stops, g_save;
static struct { /* children this process had already, which are not ours to end */
    pid_t pid[BEFORE_MAX];
    int n;
} g_before;

typedef struct watch {
    const cli_watch *w;
    cli_end end;
    double silent_s, ending_s; /* since the last sign of life; since the job was given up, -1: it was not */
    bool alive;                /* rank 0 has been heard of */
    bool orderly;              /* an error that all ranks know of: they leave together, however long that takes */
    int told;                  /* how many stops were passed on */
    double asked_s;            /* since the ranks were asked to stop, for the last time; -1: they were not */
    char line[LINE];
    size_t len;
} watch;

static void on_signal(int sig) {
    if (sig == SIGUSR1) {
        g_save = 1;
    } else {
        g_stop = sig;
        g_stops = g_stops + 1;
    }
}

/* ---- processes ---- */

typedef struct process {
    pid_t pid, parent;
    bool ours;
} process;

static bool read_process(const char *name, process *p) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%.20s/stat", name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0) close(fd);
    if (n <= 0) return false;
    text[n] = '\0';
    const char *after = strrchr(text, ')'); /* the name before it may hold anything */
    char state;
    int parent;
    if (after == NULL || sscanf(after + 1, " %c %d", &state, &parent) != 2 || state == 'Z') return false;
    *p = (process){.pid = (pid_t)atoi(name), .parent = (pid_t)parent};
    return true;
}

static bool was_before(pid_t pid) {
    bool yes = false;
    for (int i = 0; i < g_before.n; i++) yes = yes || g_before.pid[i] == pid;
    return yes;
}

/* Descendants of this process that came after cli_watch_prepare; sig 0 only counts them. */
static int signal_descendants(int sig) {
    static process all[PROCESSES_MAX];
    int n = 0, found = 0;
    DIR *d = opendir("/proc");
    for (struct dirent *e; d != NULL && n < PROCESSES_MAX && (e = readdir(d)) != NULL;)
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && read_process(e->d_name, &all[n])) n++;
    if (d != NULL) closedir(d);
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < n; i++) {
            bool child = all[i].parent == getpid() && !was_before(all[i].pid);
            for (int k = 0; k < n && !child; k++) child = all[k].ours && all[k].pid == all[i].parent;
            if (!child || all[i].ours) continue;
            all[i].ours = more = true;
            found++;
            if (sig != 0) kill(all[i].pid, sig);
        }
    }
    return found;
}

static void note_children(void) {
    process p;
    DIR *d = opendir("/proc");
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        if (e->d_name[0] < '1' || e->d_name[0] > '9' || !read_process(e->d_name, &p) || p.parent != getpid()) continue;
        if (g_before.n < BEFORE_MAX) g_before.pid[g_before.n++] = p.pid;
    }
    if (d != NULL) closedir(d);
}

void cli_watch_prepare(void) {
    struct sigaction act = {.sa_handler = on_signal};
    sigemptyset(&act.sa_mask);
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    sigaction(SIGUSR1, &act, NULL);
    note_children();
#ifdef __linux__
    prctl(PR_SET_CHILD_SUBREAPER, 1);
#endif
}

void cli_watch_child(pid_t launcher) {
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGUSR1, SIG_DFL);
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGTERM);
#endif
    if (getppid() != launcher) _exit(128 + SIGTERM);
}

/* ---- what mpirun says ---- */

static void take_line(watch *s, bool whole) {
    s->line[s->len] = '\0';
    if (strstr(s->line, HDO_MPI_ALIVE) != NULL) {
        s->alive = true;
        s->silent_s = 0.0;
        if (s->ending_s > 0.0 && s->orderly) s->ending_s = 0.0;
        s->len = 0;
        return;
    }
    bool error = strstr(s->line, "hdo: error:") != NULL;
    if (!s->end.ended && !(error && s->end.said)) fprintf(stderr, whole ? "%s\n" : "%s", s->line);
    fflush(stderr);
    if (error && s->ending_s < 0.0) {
        s->ending_s = 0.0;
        s->orderly = strstr(s->line, "mpi.deadline_s") == NULL;
    }
    s->end.said = s->end.said || error;
    s->len = 0;
}

/* False: there will be no more. */
static bool take_errors(watch *s) {
    char text[LINE];
    ssize_t n;
    while ((n = read(s->w->errors, text, sizeof text)) > 0) {
        for (ssize_t i = 0; i < n; i++) {
            if (text[i] == '\n') {
                take_line(s, true);
            } else {
                if (s->len + 1 == sizeof s->line) take_line(s, false);
                s->line[s->len++] = text[i];
            }
        }
    }
    return n < 0 && (errno == EAGAIN || errno == EINTR);
}

/* ---- the end ---- */

/* mpirun does not know yet that it is over. A stopped process hears SIGTERM only when it goes on. */
static void give_up(watch *s) {
    s->end.ended = true;
    s->orderly = false;
    s->ending_s = GRACE_S - TERM_S;
    kill(s->w->pid, SIGTERM);
    kill(s->w->pid, SIGCONT);
}

/* The ranks take any number of requests for one. */
static void ask_again(watch *s, double slice) {
    s->asked_s += slice;
    if (s->asked_s < REPEAT_S) return;
    s->asked_s = 0.0;
    kill(s->w->pid, SIGUSR1);
}

static void ask_to_stop(watch *s, double slice) {
    if (g_save) {
        g_save = 0;
        if (s->alive) kill(s->w->pid, SIGUSR1);
    }
    if (s->asked_s >= 0.0 && s->ending_s < 0.0) ask_again(s, slice);
    if (g_stops == 0 || s->told >= g_stops) return;
    if (s->told++ == 0 && s->alive) {
        int fd = open(s->w->stop_file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd >= 0) close(fd);
        kill(s->w->pid, SIGUSR1);
        s->asked_s = 0.0;
        cli_note("hdo: stopping after this step; once more to end at once");
    } else if (s->ending_s < 0.0) {
        cli_note(s->alive ? "hdo: ending at once" : "hdo: ending before the first rank has come up: nothing is saved");
        give_up(s);
    }
}

/* A failure that mpirun knows of ends by itself, or is killed: asked once more, Open MPI would crash. */
static void end_job(watch *s, double slice) {
    s->ending_s += slice;
    if (s->ending_s < (s->orderly ? ORDER_S : GRACE_S)) return;
    s->end.ended = true;
    signal_descendants(SIGKILL);
}

static void check_silence(watch *s, double slice) {
    s->silent_s += slice;
    if (s->ending_s >= 0.0 || s->silent_s < s->w->deadline_s + (s->alive ? SPEAK_S : START_S)) return;
    if (s->alive) {
        fprintf(stderr,
                "hdo: error: no sign of life from rank 0 for %g s (mpi.deadline_s): it, mpirun or the network between "
                "them stands still\n",
                s->w->deadline_s);
    } else {
        fprintf(stderr,
                "hdo: error: no rank has started within %g s (mpi.deadline_s): is every machine of the job up, and can "
                "it be reached without a password?\n",
                s->w->deadline_s);
    }
    s->end.said = true;
    give_up(s);
}

/* mpirun is gone; nothing of it may stay. */
static void clear_up(watch *s) {
    bool killed = s->end.ended || WIFSIGNALED(s->end.status);
    for (double waited = killed ? ORPHAN_S : 0.0; waited < 20.0; waited += 1e-3 * POLL_MS) {
        while (waitpid(-1, NULL, WNOHANG) > 0) {}
        take_errors(s);
        if (signal_descendants(waited >= ORPHAN_S ? SIGKILL : 0) == 0) break;
        poll(NULL, 0, POLL_MS);
    }
    take_errors(s);
    if (s->len > 0) take_line(s, false);
}

cli_end cli_watch_job(const cli_watch *w) {
    watch s = {.w = w, .end = {.status = -1}, .ending_s = -1.0, .asked_s = -1.0};
    fcntl(w->errors, F_SETFL, fcntl(w->errors, F_GETFL) | O_NONBLOCK);
    struct pollfd in = {.fd = w->errors, .events = POLLIN};
    for (double looked = cli_now_s();;) {
        poll(&in, 1, POLL_MS);
        if (!take_errors(&s)) in.fd = -1;
        pid_t got = waitpid(w->pid, &s.end.status, WNOHANG);
        if (got == w->pid || (got < 0 && errno != EINTR)) break;
        double now = cli_now_s(), slice = now - looked < STILL_S ? now - looked : STILL_S;
        looked = now;
        ask_to_stop(&s, slice);
        check_silence(&s, slice);
        if (s.ending_s >= 0.0) end_job(&s, slice);
    }
    clear_up(&s);
    close(w->errors);
    s.end.signal = g_stops > 0 ? (int)g_stop : 0;
    return s.end;
}
