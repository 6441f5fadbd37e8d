/* SPDX-License-Identifier: Apache-2.0
 *
 * hdo run --engine mpi --np N: starts mpirun with the right flags and stands between it and the terminal.
 *
 * mpirun answers Ctrl-C by killing the ranks within a second, which is no time to save. So it runs in a process group
 * of its own, out of reach of the terminal, and the first Ctrl-C (or SIGTERM) becomes a SIGUSR1, which both Open MPI
 * and MPICH hand on to the ranks. To a rank SIGUSR1 means "save"; if the file named by HDO_MPI_STOP exists, "save and
 * stop". cli/watch.c looks after the job until nothing of it is left.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"
#include "watch.h"

enum { ARGS_MAX = 512, EXIT_ENGINE = 5 };

extern char **environ;

typedef struct args {
    char *v[ARGS_MAX];
    int n;
} args;

static void put(args *a, const char *text) {
    if (a->n + 1 < ARGS_MAX) a->v[a->n++] = (char *)(uintptr_t)text;
    a->v[a->n] = NULL;
}

static void build(args *a, bool open_mpi, const cli_launch *l, const char *self, int argc, char **argv) {
    static char np[16], names[ARGS_MAX / 4][64];
    snprintf(np, sizeof np, "%lld", (long long)l->np);
    a->n = 0;
    put(a, open_mpi ? "mpirun.openmpi" : "mpiexec.mpich");
    if (open_mpi) {
        put(a, "-q");        /* its notes about exit codes and signals would come on top of ours */
        put(a, "--bind-to"); /* by default two ranks are bound to a core each, with all their threads */
        put(a, "none");
        if (l->np > sysconf(_SC_NPROCESSORS_ONLN) && l->hostfile == NULL) put(a, "--oversubscribe");
        int k = 0; /* our variables must reach ranks on other machines too */
        for (char **v = environ; *v != NULL && k < ARGS_MAX / 4; v++) {
            const char *eq = strchr(*v, '=');
            if (strncmp(*v, "HDO_", 4) != 0 || eq == NULL || (size_t)(eq - *v) >= sizeof names[0]) continue;
            snprintf(names[k], sizeof names[0], "%.*s", (int)(eq - *v), *v);
            put(a, "-x");
            put(a, names[k++]);
        }
    }
    if (l->hostfile != NULL) {
        put(a, open_mpi ? "--hostfile" : "-f");
        put(a, l->hostfile);
    }
    put(a, "-n");
    put(a, np);
    put(a, self);
    for (int i = 0; i < argc; i++) put(a, argv[i]);
}

static void run_child(args *a, bool open_mpi, const char *flavour) {
    setpgid(0, 0);
    int null = open("/dev/null", O_RDONLY); /* a background group must not read the terminal */
    if (null >= 0) dup2(null, STDIN_FILENO);
    setenv("HDO_MPI", flavour, 1);
    /* Containers without /sys: UCX and hwloc complain on standard output, in the middle of --json. */
    setenv("UCX_LOG_LEVEL", "fatal", 0);
    setenv("HWLOC_HIDE_ERRORS", "2", 0);
    if (geteuid() == 0) { /* whoever runs hdo as root has decided that already */
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
    }
    execvp(a->v[0], a->v);
    a->v[0] = (char *)(uintptr_t)(open_mpi ? "mpirun" : "mpiexec.hydra");
    execvp(a->v[0], a->v);
    fprintf(stderr, "hdo: error: engine mpi needs the launcher of %s (%s), which is not in the PATH: %s\n", flavour,
            a->v[0], strerror(errno));
    _exit(EXIT_ENGINE);
}

/* Codes a rank ends with after it has said why, or that need no sentence. */
static bool explained(int code, bool said) {
    if (code == 0 || code == EXIT_DIVERGED) return true;
    bool asked = code == EXIT_SIGINT || code == EXIT_SIGTERM; /* of a rank, not of us: it has saved and stopped all */
    return asked || (said && code >= 1 && code <= 6);
}

static int verdict(const cli_end *end, const cli_launch *l) {
    if (end->signal != 0) return 128 + end->signal;
    int code = WIFEXITED(end->status) ? WEXITSTATUS(end->status) : 128 + SIGKILL;
    if (!end->ended && explained(code, end->said)) return code;
    if (!end->said) {
        const char *what = code == SIGKILL || code >= 128 ? "a rank or mpirun was killed, and with it the job"
                                                          : "mpirun has broken off the job";
        fprintf(stderr, "hdo: error: %s", what);
        if (l->dir != NULL) {
            fputs("; if it saved a checkpoint, hdo run --resume ", stderr);
            hdo__quote_shell(stderr, l->dir);
            fputs(" --engine mpi --np N continues from it", stderr);
        }
        fputc('\n', stderr);
    }
    return EXIT_ENGINE;
}

/* mpirun as a child, with a pipe on its standard error. */
static pid_t start(args *a, bool open_mpi, const char *flavour, int *errors) {
    int pipe_fd[2];
    if (pipe2(pipe_fd, O_CLOEXEC) != 0) return -1;
    cli_watch_prepare();
    fflush(NULL);
    pid_t launcher = getpid(), pid = fork();
    if (pid == 0) {
        cli_watch_child(launcher);
        dup2(pipe_fd[1], STDERR_FILENO);
        run_child(a, open_mpi, flavour);
    }
    close(pipe_fd[1]);
    *errors = pipe_fd[0];
    return pid;
}

int cli_launch_mpi(const cli_launch *l, int argc, char **argv) {
    char self[4096], stop_dir[256], stop_file[288];
    args a;
    const char *flavour = hdo_mpi_flavour(), *tmp = getenv("TMPDIR");
    if (flavour == NULL) {
        hdo_error e = {.code = HDO_E_UNSUPPORTED};
        snprintf(e.msg, sizeof e.msg, "engine mpi is not built in: install Open MPI or MPICH and build hdo again");
        return cli_fail(&e);
    }
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    self[len > 0 ? len : 0] = '\0';
    /* In a folder of its own that nobody else may write: a name in a common folder could be there before us. */
    snprintf(stop_dir, sizeof stop_dir, "%.200s/hdo-stop-XXXXXX", tmp != NULL && tmp[0] != '\0' ? tmp : "/tmp");
    if (mkdtemp(stop_dir) == NULL) {
        fprintf(stderr, "hdo: error: no folder for the stop file, '%s': %s\n", stop_dir, strerror(errno));
        return 1;
    }
    snprintf(stop_file, sizeof stop_file, "%s/stop", stop_dir);
    setenv("HDO_MPI_STOP", stop_file, 1);
    setenv("HDO_MPI_BEAT", "1", 1);
    setenv("HDO_MPI_TERMINAL", isatty(STDOUT_FILENO) ? "1" : "0", 1);
    bool open_mpi = strcmp(flavour, "openmpi") == 0;
    build(&a, open_mpi, l, len > 0 ? self : "hdo", argc, argv);
    cli_watch w = {.deadline_s = l->deadline_s, .stop_file = stop_file};
    w.pid = start(&a, open_mpi, flavour, &w.errors);
    if (w.pid < 0) {
        fprintf(stderr, "hdo: error: mpirun could not be started: %s\n", strerror(errno));
        rmdir(stop_dir);
        return EXIT_ENGINE;
    }
    cli_end end = cli_watch_job(&w);
    unlink(stop_file);
    rmdir(stop_dir);
    return verdict(&end, l);
}
