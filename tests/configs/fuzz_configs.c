/* SPDX-License-Identifier: Apache-2.0
 *
 * Random configurations, each tried several ways that must not matter. A number is a configuration (random_config.c).
 *
 *   whole   one thread, the best vector unit
 *   other   two threads, another vector unit (portable or avx2)
 *   parts   stopped or killed in the middle, resumed on another number of threads
 *   cli     every --cli-every'th: the program itself, its exit code and its sentence
 *   mpi     every --mpi-every'th: two ranks
 *
 * All must end alike: the same outcome, fingerprint, rows and trace; or the same refusal, a sentence. Every try is a
 * process of its own: a crash or a hang (20 s of processor time, two minutes of any) is reported and the next number
 * follows. Files must be JSON throughout.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "hdo/experimental/all.h"
#include "random_config.h"

/* Of its own time; and of the clock, which says little on a machine that others use too. */
enum { LIMIT_S = 20, WAIT_S = 900, PATH_LEN = 512 };

typedef struct result { /* what a try tells its parent */
    hdo_status status;
    hdo_stop stop;
    int64_t steps, n;
    char msg[HDO_MSG_MAX];
    char hex[65];
} result;

typedef struct options {
    int64_t from, count, seconds, cli_every, mpi_every;
    const char *hdo;
    bool verbose;
} options;

typedef struct trial {
    uint64_t number;
    const options *o;
    char folder[PATH_LEN], yaml[TEXT_MAX];
    hdo_config *c;
    bool bad;
} trial;

static void complain(trial *t, const char *what, const char *detail) {
    printf("not ok %llu: %s: %s\n", (unsigned long long)t->number, what, detail);
    t->bad = true;
}

static void path_of(const trial *t, const char *name, char path[PATH_LEN + 64]) {
    snprintf(path, PATH_LEN + 64, "%s/%s", t->folder, name);
}

/* ---- one try, in a process of its own ---- */

typedef struct try {
    const char *name; /* its folder */
    int threads;
    const char *simd; /* NULL: the best */
    int64_t cut;      /* -1: to the end; otherwise leave at this step */
    bool kill, resume;
}
try;

static hdo_status work(const trial *t, const try *y, result *out, hdo_error *e) {
    char dir[PATH_LEN + 64];
    hdo_run *r = NULL;
    hdo_status st;
    path_of(t, y->name, dir);
    t->c->threads = y->threads;
    if (y->resume) {
        st = hdo_run_resume_how(&r, dir, &(hdo_resume){.threads = y->threads}, NULL, e);
    } else {
        st = hdo_run_create(&r, t->c, NULL, e);
        if (st == HDO_OK) st = hdo_run_attach_dir(r, dir, false, "fuzz", e);
    }
    out->stop = HDO_RUNNING;
    if (st == HDO_OK && y->cut >= 0) {
        st = hdo_run_advance(r, y->cut, &out->stop, e);
        if (st == HDO_OK && y->kill) {
            st = hdo_run_save(r, e);
            if (st == HDO_OK) st = hdo_run_advance(r, 1, &out->stop, e);
            return st; /* and never comes back */
        }
        if (st == HDO_OK) st = hdo_run_stop(r, e);
    } else {
        while (st == HDO_OK && out->stop == HDO_RUNNING) st = hdo_run_advance(r, 3, &out->stop, e);
    }
    if (st == HDO_OK) st = hdo_run_write_summary(r, e);
    if (st == HDO_OK) {
        hdo_run_info info;
        hdo_run_describe(r, &info);
        out->n = info.n;
        out->steps = hdo_run_step(r);
        hdo_run_fingerprint(r, out->hex);
    }
    hdo_run_destroy(r);
    return st;
}

/* Waits; false, with a complaint, unless the process ended by itself. */
static bool ended(trial *t, pid_t pid, const char *name, int *code) {
    int status;
    char text[96];
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    if (WIFEXITED(status)) {
        *code = WEXITSTATUS(status);
        return true;
    }
    int sig = WTERMSIG(status);
    bool hung = sig == SIGALRM || sig == SIGXCPU;
    snprintf(text, sizeof text, hung ? "hung for %d s" : "died of signal %d",
             sig == SIGALRM   ? WAIT_S
             : sig == SIGXCPU ? LIMIT_S
                              : sig);
    complain(t, name, text);
    return false;
}

/* The machine may have other things to do. */
static void limit_time(void) {
    alarm(WAIT_S);
    setrlimit(RLIMIT_CPU, &(struct rlimit){LIMIT_S, LIMIT_S + 1});
}

static bool attempt(trial *t, const try *y, result *out) {
    int ends[2], code = 0;
    memset(out, 0, sizeof *out);
    fflush(NULL);
    if (pipe(ends) != 0) abort();
    pid_t pid = fork();
    if (pid < 0) abort();
    if (pid == 0) {
        hdo_error e = {0};
        limit_time();
        if (y->simd != NULL) setenv("HDO_SIMD", y->simd, 1);
        out->status = work(t, y, out, &e);
        memcpy(out->msg, e.msg, sizeof out->msg);
        ssize_t n = write(ends[1], out, sizeof *out);
        _exit(n == (ssize_t)sizeof *out ? 0 : 99);
    }
    close(ends[1]);
    ssize_t got = read(ends[0], out, sizeof *out);
    close(ends[0]);
    if (!ended(t, pid, y->name, &code)) return false;
    if (code != 0 || got != (ssize_t)sizeof *out) {
        complain(t, y->name, "ended without a result (a sanitizer's report stands above)");
        return false;
    }
    if (out->status != HDO_OK && (out->msg[0] == '\0' || strchr(out->msg, '\n') != NULL)) {
        complain(t, y->name, out->msg[0] == '\0' ? "refused without a sentence" : "the sentence has a line break");
        return false;
    }
    return true;
}

/* ---- what must be equal ---- */

static char *slurp(const trial *t, const char *name, const char *file) {
    char path[2 * PATH_LEN];
    snprintf(path, sizeof path, "%s/%s/%s", t->folder, name, file);
    FILE *f = fopen(path, "rb");
    if (f == NULL) return NULL;
    char *text = NULL;
    size_t len = 0, cap = 0, got;
    do {
        if (len + 65536 + 1 > cap) {
            cap = 2 * cap + 131072;
            text = realloc(text, cap);
            if (text == NULL) abort();
        }
        got = fread(text + len, 1, cap - len - 1, f);
        len += got;
    } while (got > 0);
    fclose(f);
    text[len] = '\0';
    return text;
}

/* Every line one object; what depends on the clock is cut off. */
static char *rows_of(trial *t, const char *name, const char *file) {
    char *text = slurp(t, name, file), *to = text;
    for (char *line = text; line != NULL && *line != '\0';) {
        char *end = line + strcspn(line, "\n"), *clock;
        json_t *j = json_loadb(line, (size_t)(end - line), JSON_REJECT_DUPLICATES, NULL);
        if (j == NULL) complain(t, name, "a row is no JSON");
        json_decref(j);
        char *next = *end == '\n' ? end + 1 : end;
        *end = '\0';
        if ((clock = strstr(line, ", \"time\": {")) != NULL) *clock = '\0';
        size_t n = strlen(line);
        memmove(to, line, n);
        to[n] = '\n';
        to += n + 1;
        line = next;
    }
    if (text != NULL) *to = '\0';
    return text;
}

static void compare_rows(trial *t, const char *name, const char *file) {
    char *a = rows_of(t, "whole", file), *b = rows_of(t, name, file), what[64];
    snprintf(what, sizeof what, "%s differs", file);
    if ((a == NULL) != (b == NULL) || (a != NULL && strcmp(a, b) != 0)) complain(t, name, what);
    free(a);
    free(b);
}

/* What rows_of has left of a line, whole again. */
static json_t *line_object(const char *line, size_t len) {
    char *text = malloc(len + 2);
    if (text == NULL) abort();
    memcpy(text, line, len);
    bool cut = len > 0 && line[len - 1] != '}';
    text[len] = '}';
    json_t *j = json_loadb(text, len + (cut ? 1 : 0), 0, NULL);
    free(text);
    return j;
}

/* Validation figures of one row, beside the largest of its losses; the rest of a row must be the same. */
static bool close_enough(const json_t *a, const json_t *b) {
    double scale = 1.0 + fabs(json_number_value(json_object_get(a, "val/loss_max")));
    const char *key;
    json_t *v;
    if (json_object_size(a) != json_object_size(b)) return false;
    json_object_foreach((json_t *)(uintptr_t)a, key, v) {
        const json_t *w = json_object_get(b, key);
        bool figure = strncmp(key, "val/", 4) == 0 && json_is_number(v) && json_is_number(w);
        if (figure ? !(fabs(json_number_value(v) - json_number_value(w)) <= 1e-4 * scale) : !json_equal(v, w))
            return false;
    }
    return true;
}

/* A loss has other last digits when another number of models is evaluated at once, as on ranks (docs/cluster.md). */
static void compare_figures(trial *t, const char *name) {
    char *a = rows_of(t, "whole", "metrics.jsonl"), *b = rows_of(t, name, "metrics.jsonl");
    bool same = a != NULL && b != NULL;
    for (char *p = a, *q = b; same && (*p != '\0' || *q != '\0');) {
        size_t m = strcspn(p, "\n"), n = strcspn(q, "\n");
        json_t *v = line_object(p, m), *w = line_object(q, n);
        same = v != NULL && w != NULL && close_enough(v, w);
        json_decref(v);
        json_decref(w);
        p += m + 1;
        q += n + 1;
    }
    if (!same) complain(t, name, "metrics.jsonl has other figures");
    free(a);
    free(b);
}

static void compare(trial *t, const char *name, const result *whole, const result *r) {
    char text[3 * HDO_MSG_MAX];
    if (r->status != whole->status || strcmp(r->msg, whole->msg) != 0) {
        snprintf(text, sizeof text, "'%s' (%d), but as a whole '%s' (%d)", r->msg, (int)r->status, whole->msg,
                 (int)whole->status);
        complain(t, name, text);
    } else if (r->status == HDO_OK) {
        if (r->stop != whole->stop || r->steps != whole->steps) complain(t, name, "another outcome");
        if (strcmp(r->hex, whole->hex) != 0) complain(t, name, "another fingerprint");
        compare_rows(t, name, "metrics.jsonl");
        compare_rows(t, name, "trace.jsonl");
    }
}

static void check_summary(trial *t, const char *name, const result *whole) {
    char *text = slurp(t, name, "summary.json");
    json_t *j = text != NULL ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    const char *sha = json_string_value(json_object_get(j, "params_sha256"));
    const char *why = json_string_value(json_object_get(j, "reason"));
    if (sha == NULL || strcmp(sha, whole->hex) != 0) complain(t, name, "summary.json: another fingerprint");
    if (why == NULL || strcmp(why, hdo_stop_name(whole->stop)) != 0) complain(t, name, "summary.json: another outcome");
    json_decref(j);
    free(text);
}

/* ---- the program itself ---- */

static void check_program(trial *t, const char *name, bool mpi, const result *whole) {
    char config[PATH_LEN + 64], dir[PATH_LEN + 64], err[PATH_LEN + 64];
    int code = 0;
    path_of(t, "config.yaml", config);
    path_of(t, name, dir);
    path_of(t, "stderr", err);
    FILE *f = fopen(config, "w");
    if (f == NULL || fputs(t->yaml, f) < 0 || fclose(f) != 0) abort();
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) abort();
    if (pid == 0) {
        limit_time();
        int to = open(err, O_WRONLY | O_CREAT | O_TRUNC, 0600), null = open("/dev/null", O_WRONLY);
        dup2(null, 1);
        dup2(to, 2);
        if (mpi) {
            execl(t->o->hdo, "hdo", "run", config, "-q", "-o", dir, "--engine", "mpi", "--np", "2", (char *)NULL);
        } else {
            execl(t->o->hdo, "hdo", "run", config, "-q", "-o", dir, (char *)NULL);
        }
        _exit(98);
    }
    if (!ended(t, pid, name, &code)) return;
    int want = whole->status != HDO_OK ? hdo_status_exit_code(whole->status) : whole->stop == HDO_DIVERGED ? 4 : 0;
    char text[128], *said = slurp(t, ".", "stderr");
    if (code != want) {
        snprintf(text, sizeof text, "exit code %d, expected %d: %.60s", code, want, said != NULL ? said : "");
        complain(t, name, text);
    } else if (whole->status == HDO_OK) {
        check_summary(t, name, whole);
        if (mpi && t->c->kernels.id != HDO_KERNELS_REF) {
            compare_figures(t, name);
        } else {
            compare_rows(t, name, "metrics.jsonl");
        }
    } else if (said == NULL || strncmp(said, "hdo: error: ", 12) != 0) {
        complain(t, name, "refused without 'hdo: error:'");
    }
    free(said);
}

/* ---- a configuration ---- */

static int remove_tree(const char *path) {
    char command[PATH_LEN + 32]; /* the name is ours: mkdtemp's */
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    return system(command);
}

static void try_parts(trial *t, const result *whole) {
    rnd r = {t->number ^ UINT64_C(0xabcdef)};
    result first, second;
    bool stop_known = whole->stop == HDO_DIVERGED || whole->stop == HDO_TARGET;
    int64_t last = whole->steps - (stop_known ? 1 : 0); /* whoever ended by himself has nothing to resume */
    if (last < 0) return;
    try a = {.name = "parts", .threads = 1 + rnd_below(&r, 2), .cut = rnd_below(&r, (int)last + 1)};
    a.kill = rnd_below(&r, 2) == 0;
    if (!attempt(t, &a, &first)) return;
    if (first.status != HDO_OK) {
        compare(t, "parts", whole, &first);
        return;
    }
    try b = {.name = "parts", .threads = 3 - a.threads, .cut = -1, .resume = true};
    if (attempt(t, &b, &second)) compare(t, "parts", whole, &second);
}

static void try_all(trial *t, result *whole) {
    try a = {.name = "whole", .threads = 1, .cut = -1};
    /* Without instructions for it a multiply-add takes thirty times as long. */
    bool portable = t->number % (t->c->kernels.id == HDO_KERNELS_REF ? 2 : 8) == 0;
    try b = {.name = "other", .threads = 2, .cut = -1, .simd = portable ? "portable" : "avx2"};
    result other;
    if (!attempt(t, &a, whole)) return;
    if (attempt(t, &b, &other)) compare(t, "other", whole, &other);
    if (whole->status == HDO_OK) {
        check_summary(t, "whole", whole);
        try_parts(t, whole);
    }
    int64_t k = (int64_t)t->number, cli = t->o->cli_every, mpi = t->o->mpi_every;
    if (t->o->hdo != NULL && cli > 0 && k % cli == 0) check_program(t, "cli", false, whole);
    if (t->o->hdo != NULL && mpi > 0 && k % mpi == 0 && whole->status == HDO_OK && whole->n > 1)
        check_program(t, "mpi", true, whole);
}

/* 1: accepted, 0: refused, -1: something is wrong */
static int one(uint64_t number, const char *files, const options *o) {
    static hdo_config c;
    trial t = {.number = number, .o = o, .c = &c};
    result whole = {0};
    hdo_error e = {0};
    snprintf(t.folder, sizeof t.folder, "%s/run-XXXXXX", files);
    if (mkdtemp(t.folder) == NULL) abort();
    random_config(number, files, t.yaml);
    hdo_config_default(&c);
    hdo_status st = hdo_config_load_bytes(&c, "fuzz", t.yaml, strlen(t.yaml), &e);
    if (st == HDO_OK) {
        try_all(&t, &whole);
    } else {
        whole.status = st;
        memcpy(whole.msg, e.msg, sizeof whole.msg);
        if (e.msg[0] == '\0') complain(&t, "load", "refused without a sentence");
    }
    if (o->verbose) {
        printf("%llu: %s\n", (unsigned long long)number,
               whole.status != HDO_OK ? whole.msg : hdo_stop_name(whole.stop));
    }
    if (t.bad) printf("%s\n", t.yaml);
    remove_tree(t.folder);
    return t.bad ? -1 : whole.status == HDO_OK;
}

static int usage(int code) {
    fputs("Usage: fuzz_configs [--from N] [--count N] [--seconds S] [--print N] [--hdo PROGRAM] [--cli-every K]\n"
          "                    [--mpi-every K] [-v]\n\n"
          "Tries configurations N, N+1, ... several ways that must agree. --from N --count 1 -v replays one.\n",
          code == 0 ? stdout : stderr);
    return code;
}

/* Threads that spin while they wait take four times the processor time here; OpenMP reads this before main. */
static void wait_passively(char **argv) {
    if (getenv("OMP_WAIT_POLICY") != NULL) return;
    setenv("OMP_WAIT_POLICY", "passive", 1);
    execv("/proc/self/exe", argv);
}

int main(int argc, char **argv) {
    wait_passively(argv);
    static const struct option longs[] = {{"from", required_argument, NULL, 'f'},
                                          {"count", required_argument, NULL, 'n'},
                                          {"seconds", required_argument, NULL, 's'},
                                          {"print", required_argument, NULL, 'p'},
                                          {"hdo", required_argument, NULL, 'x'},
                                          {"cli-every", required_argument, NULL, 'c'},
                                          {"mpi-every", required_argument, NULL, 'm'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    options o = {.count = 100, .seconds = INT64_MAX, .cli_every = 25};
    int64_t print = -1;
    for (int k; (k = getopt_long(argc, argv, "hv", longs, NULL)) != -1;) {
        switch (k) {
        case 'f': o.from = atoll(optarg); break;
        case 'n': o.count = atoll(optarg); break;
        case 's': o.seconds = atoll(optarg); break;
        case 'p': print = atoll(optarg); break;
        case 'x': o.hdo = optarg; break;
        case 'c': o.cli_every = atoll(optarg); break;
        case 'm': o.mpi_every = atoll(optarg); break;
        case 'v': o.verbose = true; break;
        case 'h': return usage(0);
        default: return usage(2);
        }
    }
    /* In memory where that is possible: thousands of checkpoints are forced to the disk otherwise. */
    char text[TEXT_MAX], files[64];
    snprintf(files, sizeof files, "%s/hdo-configs-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (print >= 0) {
        random_config((uint64_t)print, "FILES", text);
        fputs(text, stdout);
        return 0;
    }
    if (mkdtemp(files) == NULL || !random_files(files)) abort();
    int64_t accepted = 0, refused = 0, wrong = 0;
    time_t start = time(NULL);
    for (int64_t k = 0; k < o.count && time(NULL) - start < o.seconds; k++) {
        int got = one((uint64_t)(o.from + k), files, &o);
        *(got > 0 ? &accepted : got == 0 ? &refused : &wrong) += 1;
        if ((k + 1) % 500 == 0) printf("# %lld tried, %lld wrong\n", (long long)(k + 1), (long long)wrong);
        fflush(stdout);
    }
    remove_tree(files);
    printf("%lld configurations: %lld run, %lld refused, %lld wrong (%lld s)\n",
           (long long)(accepted + refused + wrong), (long long)accepted, (long long)refused, (long long)wrong,
           (long long)(time(NULL) - start));
    return wrong == 0 && accepted > 0 ? 0 : 1;
}
