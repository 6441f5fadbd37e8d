/* SPDX-License-Identifier: Apache-2.0
 *
 * Benchmarks that need processes of their own: how long the program takes to start, what a run costs around its steps,
 * and the same steps on one rank and on two. Child processes are this program; what they print goes nowhere.
 */
#define _GNU_SOURCE
#include "hdo/experimental/spawn.h"
#include "cmd_bench.h"

#include <ftw.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STARTS = 40, ARGS = 32 };

typedef struct usage {
    double wall_s, cpu_s;
    size_t peak_bytes;
    int code;
} usage;

/* Runs this program with the arguments (NULL-terminated) and waits for it. */
static usage run_self(const char *const *args) {
    char *argv[ARGS] = {(char *)(uintptr_t) "hdo"};
    for (int k = 0; args[k] != NULL && k + 2 < ARGS; k++) argv[k + 1] = (char *)(uintptr_t)args[k];
    usage u = {.code = -1};
    double t0 = cli_now_s();
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0) return u;
    if (pid == 0) {
        int nowhere = open("/dev/null", O_RDWR);
        for (int fd = 0; fd < 3; fd++) dup2(nowhere, fd);
        execv("/proc/self/exe", argv);
        _exit(127);
    }
    int status = 0;
    struct rusage r;
    if (wait4(pid, &status, 0, &r) != pid) return u;
    u.wall_s = cli_now_s() - t0;
    u.cpu_s =
        (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) + 1e-6 * (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
    u.peak_bytes = (size_t)r.ru_maxrss * 1024;
    u.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return u;
}

static hdo_bench_row row_of(const char *name, const char *shape, int ranks) {
    hdo_bench_row row = {.threads = 1,
                         .ranks = ranks,
                         .calls = 1,
                         .unit = "",
                         .limit = "",
                         .fraction = (double)NAN,
                         .busy = (double)NAN};
    snprintf(row.name, sizeof row.name, "%s", name);
    snprintf(row.shape, sizeof row.shape, "%s", shape);
    return row;
}

static void start_case(const bench_out *out, const char *name, const char *shape, const char *const *args) {
    double wall[STARTS], cpu[STARTS];
    hdo_bench_row row = row_of(name, shape, 1);
    for (int k = -1; k < STARTS; k++) { /* the first brings the files into memory */
        usage u = run_self(args);
        if (u.code != 0) {
            cli_note("%s skipped: 'hdo %s' ended with code %d", name, args[0], u.code);
            return;
        }
        row.peak_bytes = u.peak_bytes;
        if (k < 0) continue;
        wall[k] = u.wall_s;
        cpu[k] = u.cpu_s;
    }
    hdo_bench_stats c = hdo_bench_summarise(cpu, STARTS);
    row.s = out->cpu ? c : hdo_bench_summarise(wall, STARTS);
    row.cpu_s = c.median;
    bench_put(out, &row);
}

/* The number behind "key": in the file; NaN if it is not there. */
static double number_in(const char *path, const char *key) {
    char text[16384], quoted[64];
    FILE *f = fopen(path, "r");
    if (f == NULL) return (double)NAN;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(text, quoted);
    return at != NULL ? strtod(at + strlen(quoted), NULL) : (double)NAN;
}

/* Seconds of the steps of e2 without its evaluations, one thread a rank. */
static void ranks_case(const bench_out *out, const char *dir) {
    enum { STEPS = 100 };
    double alone = 0.0;
    char summary[512];
    snprintf(summary, sizeof summary, "%s/summary.json", dir);
    if (hdo_mpi_flavour() == NULL) {
        cli_note("ranks/e2 skipped: no MPI plug-in");
        return;
    }
    for (int ranks = 1; ranks <= 2; ranks++) {
        const char *const args[] = {"run",
                                    "e2",
                                    "--engine",
                                    "mpi",
                                    "--np",
                                    ranks == 1 ? "1" : "2",
                                    "--threads",
                                    "1",
                                    "--set",
                                    "steps=100",
                                    "--eval-every",
                                    "0",
                                    "--force",
                                    "-q",
                                    "-o",
                                    dir,
                                    NULL};
        hdo_bench_row row = row_of("ranks/e2/step", "280 nodes, d 7850, one thread a rank", ranks);
        double t[3];
        for (int k = 0; k < 3; k++) {
            if (run_self(args).code != 0) {
                cli_note("ranks/e2 skipped: the run on %d ranks failed (is mnist here, and mpirun?)", ranks);
                return;
            }
            t[k] = number_in(summary, "step_s") / STEPS;
        }
        row.s = hdo_bench_summarise(t, 3);
        row.cpu_s = (double)NAN;
        if (ranks == 1) alone = row.s.median;
        row.unit = "x";
        row.rate = alone / row.s.median;
        row.limit = "ranks";
        row.fraction = row.rate / ranks;
        bench_put(out, &row);
    }
}

static const char *const names[] = {"start/version", "start/run", "ranks/e2"};
enum { QUICK = 2 }; /* the first ones */

const char *bench_process_name(int i, bool *quick) {
    if (i < 0 || i >= (int)(sizeof names / sizeof names[0])) return NULL;
    *quick = i < QUICK;
    return names[i];
}

static bool wanted(const char *name, int i) {
    return name == NULL ? i < QUICK : hdo_bench_selects(name, names[i]);
}

bool bench_process_has(const char *name) {
    bool any = false;
    for (int i = 0; i < (int)(sizeof names / sizeof names[0]); i++) any = any || wanted(name, i);
    return any;
}

static int remove_one(const char *path, const struct stat *s, int type, struct FTW *where) {
    (void)s;
    (void)type;
    (void)where;
    return remove(path);
}

void bench_process_run(const bench_out *out, const char *name) {
    if (!bench_process_has(name)) return;
    const char *tmp = getenv("TMPDIR");
    char dir[256], run[300];
    snprintf(dir, sizeof dir, "%s/hdo-bench-XXXXXX", tmp != NULL && tmp[0] != '\0' ? tmp : "/tmp");
    if (mkdtemp(dir) == NULL) {
        cli_note("no folder for temporary files: %s", dir);
        return;
    }
    snprintf(run, sizeof run, "%s/run", dir);
    const char *const version[] = {"version", NULL};
    const char *const little[] = {"run", "theory-fleet", "--set", "steps=1", "--force", "-q", "-o", run, NULL};
    if (wanted(name, 0)) start_case(out, names[0], "whole process", version);
    if (wanted(name, 1)) start_case(out, names[1], "whole process, 32 nodes, one step", little);
    if (wanted(name, 2)) ranks_case(out, run);
    if (nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0) cli_note("'%s' could not be removed", dir);
}
