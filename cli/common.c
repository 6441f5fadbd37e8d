/* SPDX-License-Identifier: Apache-2.0 — messages, colours, numbers, signals: what commands share. */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <time.h>
#include <unistd.h>

#include "cli.h"

/* The process's own state, which is what a command line program is: how to speak, and which signals came. */
static bool g_quiet, g_silent;
static const char *g_colour = "auto";
static volatile sig_atomic_t g_signal, g_checkpoint;
static pid_t g_parent; /* of a worker: ends with it; 0: none */

void cli_set_quiet(bool quiet) {
    g_quiet = quiet;
}
bool cli_quiet(void) {
    return g_quiet;
}
void cli_set_silent(void) {
    g_quiet = g_silent = true;
}
void cli_colour(const char *when) {
    g_colour = when;
}

cli_style cli_style_for(FILE *f) {
    static const cli_style plain = {"", "", "", "", ""},
                           ansi = {"\033[1m", "\033[2m", "\033[31m", "\033[32m", "\033[0m"};
    if (strcmp(g_colour, "always") == 0) return ansi;
    if (strcmp(g_colour, "never") == 0) return plain;
    const char *force = getenv("CLICOLOR_FORCE"), *no = getenv("NO_COLOR"), *term = getenv("TERM");
    if (no != NULL && no[0] != '\0') return plain;
    if (force != NULL && force[0] != '\0' && strcmp(force, "0") != 0) return ansi;
    if (term != NULL && strcmp(term, "dumb") == 0) return plain;
    /* mpirun may give a rank a terminal of its own, whatever its own output goes to; `hdo run --np` tells. */
    int rank, ranks;
    const char *terminal = getenv("HDO_MPI_TERMINAL");
    if (hdo_mpi_launched(&rank, &ranks)) return f == stdout && terminal != NULL && terminal[0] == '1' ? ansi : plain;
    return isatty(fileno(f)) ? ansi : plain;
}

/* What is said on stderr may hold names of others: their control characters do not reach the terminal. */
static void say(const char *text) {
    char line[2 * HDO_MSG_MAX];
    for (size_t n; *text != '\0'; text += n) {
        n = strcspn(text, "\n");
        snprintf(line, sizeof line, "%.*s", n < sizeof line ? (int)n : (int)sizeof line - 1, text);
        hdo__quote_plain(stderr, line);
        if (text[n] == '\n') {
            fputc('\n', stderr);
            n++;
        }
    }
}

static void vsay(const char *fmt, va_list ap) HDO_PRINTF(1, 0);
static void vsay(const char *fmt, va_list ap) {
    char text[2 * HDO_MSG_MAX];
    vsnprintf(text, sizeof text, fmt, ap);
    say(text);
}

int cli_fail(const hdo_error *e) {
    cli_style s = cli_style_for(stderr);
    fflush(stdout);
    if (g_silent && (e->code != HDO_E_ENGINE || e->msg[0] == '\0')) return hdo_status_exit_code(e->code);
    fprintf(stderr, "%shdo: error:%s ", s.red, s.off);
    say(e->msg[0] != '\0' ? e->msg : hdo_status_text(e->code));
    fputc('\n', stderr);
    return hdo_status_exit_code(e->code);
}

int cli_usage_error(const char *command, const char *fmt, ...) {
    cli_style s = cli_style_for(stderr);
    if (g_silent) return EXIT_USAGE;
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "%shdo: error:%s ", s.red, s.off);
    vsay(fmt, ap);
    va_end(ap);
    fprintf(stderr, "\nTry 'hdo %s%s--help'.\n", command, command[0] != '\0' ? " " : "");
    return EXIT_USAGE;
}

int cli_no_command(const char *name) {
    const char *near = cli_nearest_command(name);
    if (near == NULL) return cli_usage_error("", "there is no command '%s'", name);
    return cli_usage_error("", "there is no command '%s'; did you mean '%s'?", name, near);
}

void cli_note(const char *fmt, ...) {
    if (g_quiet) return;
    va_list ap;
    va_start(ap, fmt);
    vsay(fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
}

void cli_warn(const char *text) {
    cli_style s = cli_style_for(stderr);
    if (g_silent) return;
    fprintf(stderr, "%shdo: warning:%s ", s.bold, s.off);
    say(text);
    fputc('\n', stderr);
}

int cli_json(hdo_json *j) {
    hdo_error e = {.code = HDO_E_MEMORY};
    if (j->failed) {
        hdo__json_clear(j);
        return cli_fail(&e);
    }
    puts(j->text);
    hdo__json_clear(j);
    return 0;
}

int cli_finish(int code) {
    if (fflush(stdout) != 0 || ferror(stdout)) {
        if (errno == EPIPE) return code; /* hdo ... | head: the reader has seen enough */
        fprintf(stderr, "hdo: error: writing to standard output failed: %s\n", strerror(errno));
        return code != 0 ? code : 1;
    }
    return code;
}

bool cli_int(const char *text, int64_t lo, int64_t hi, int64_t *out) {
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || v < lo || v > hi) return false;
    *out = v;
    return true;
}

bool cli_seed_range(const char *text, int64_t *first, int64_t *last) {
    char head[32];
    const char *dash = strchr(text, '-');
    size_t len = dash != NULL ? (size_t)(dash - text) : strlen(text);
    if (len == 0 || len >= sizeof head) return false;
    memcpy(head, text, len);
    head[len] = '\0';
    return cli_int(head, 0, INT64_MAX, first) && cli_int(dash != NULL ? dash + 1 : head, *first, INT64_MAX, last) &&
           *last - *first < 100000;
}

int cli_print(char *text, const char *end) {
    hdo_error e = {HDO_E_MEMORY, "out of memory"};
    if (text == NULL) return cli_fail(&e);
    fputs(text, stdout);
    fputs(end, stdout);
    free(text);
    return 0;
}

void cli_join(int argc, char **argv, char buf[CLI_LINE_MAX]) {
    FILE *f =
        fmemopen(buf, CLI_LINE_MAX, "w"); /* what does not fit is cut: for people, and to be pasted into a shell */
    buf[0] = '\0';
    if (f == NULL) return;
    fputs("hdo", f);
    for (int i = 0; i < argc; i++) {
        fputc(' ', f);
        hdo__quote_shell(f, argv[i]);
    }
    fclose(f);
    buf[CLI_LINE_MAX - 1] = '\0';
}

double cli_now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void on_signal(int sig) {
    if (sig == SIGUSR1) {
        g_checkpoint = 1;
        return;
    }
    if (g_signal != 0) _exit(128 + sig);
    g_signal = sig;
}

void cli_catch_signals(void) {
    struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    sigaction(SIGUSR1, &a, NULL);
}

int cli_signal(void) {
    return (int)g_signal;
}

void cli_end_with_parent(pid_t parent) {
    g_parent = parent;
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* between two steps getppid is asked too: the parent may be gone already */
#endif
}

bool cli_take_checkpoint(void) {
    bool asked = g_checkpoint != 0;
    g_checkpoint = 0;
    return asked;
}

unsigned cli_asked(void *ctx) {
    (void)ctx;
    if (g_parent != 0 && g_signal == 0 && getppid() != g_parent) g_signal = SIGTERM; /* nobody waits for us any more */
    unsigned asked = g_signal != 0 ? HDO_ASK_STOP : 0;
    if (!cli_take_checkpoint()) return asked;
    const char *stop = getenv("HDO_MPI_STOP");
    return asked | (stop != NULL && access(stop, F_OK) == 0 ? HDO_ASK_STOP : HDO_ASK_SAVE);
}

bool cli_hurry(void *ctx) {
    (void)ctx;
    if (g_signal != 0 || g_checkpoint == 0) return g_signal != 0;
    const char *stop = getenv("HDO_MPI_STOP");
    return stop != NULL && access(stop, F_OK) == 0;
}
