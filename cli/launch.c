/* SPDX-License-Identifier: Apache-2.0
 *
 * hdo run --engine mpi --np N: starts mpirun with the right flags and stands between it and the terminal.
 *
 * mpirun answers Ctrl-C by killing the ranks within a second, which is no time to save. So it runs in a process group
 * of its own, out of reach of the terminal, and the first Ctrl-C (or SIGTERM) becomes a SIGUSR1, which both Open MPI
 * and MPICH hand on to the ranks. To a rank SIGUSR1 means "save"; if the file named by HDO_MPI_STOP exists, "save and
 * stop".
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"

enum { ARGS_MAX = 512, EXIT_ENGINE = 5 };

static volatile sig_atomic_t g_stop, g_stops, g_save;

static void on_signal(int sig) {
    if (sig == SIGUSR1) {
        g_save = 1;
    } else {
        g_stop = sig;
        g_stops = g_stops + 1;
    }
}

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

/* Waits for mpirun, passing on what the terminal says. */
static int guard(pid_t pid, const char *stop_file) {
    int status, told = 0;
    for (;;) {
        pid_t got = waitpid(pid, &status, 0);
        if (got == pid) return status;
        if (got < 0 && errno != EINTR) return -1;
        if (g_save) {
            g_save = 0;
            kill(pid, SIGUSR1);
        }
        if (g_stops == 1 && told == 0) {
            told = 1;
            int fd = open(stop_file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
            if (fd >= 0) close(fd);
            kill(pid, SIGUSR1);
            cli_note("hdo: stopping after this step; once more to end at once");
        } else if (g_stops > 1) {
            kill(pid, told++ > 1 ? SIGKILL : SIGTERM);
        }
    }
}

static int verdict(int status, const cli_launch *l) {
    if (g_stops > 0) return 128 + (int)g_stop;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + SIGKILL;
    bool asked = code == 128 + SIGINT || code == 128 + SIGTERM; /* of a rank, not of us: it has saved and stopped all */
    if (asked || (code < 128 && code != SIGKILL)) return code;
    fprintf(stderr, "hdo: error: a rank was killed, and with it the job");
    if (l->dir != NULL) {
        fputs("; if it saved a checkpoint, hdo run --resume ", stderr);
        hdo__quote_shell(stderr, l->dir);
        fputs(" --engine mpi --np N continues from it", stderr);
    }
    fputc('\n', stderr);
    return EXIT_ENGINE;
}

int cli_launch_mpi(const cli_launch *l, int argc, char **argv) {
    char self[4096], stop_file[256];
    args a;
    const char *flavour = hdo_mpi_flavour(), *tmp = getenv("TMPDIR");
    if (flavour == NULL) {
        hdo_error e = {.code = HDO_E_UNSUPPORTED};
        snprintf(e.msg, sizeof e.msg, "engine mpi is not built in: install Open MPI or MPICH and build hdo again");
        return cli_fail(&e);
    }
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    self[len > 0 ? len : 0] = '\0';
    snprintf(stop_file, sizeof stop_file, "%.200s/hdo-stop-%ld", tmp != NULL ? tmp : "/tmp", (long)getpid());
    setenv("HDO_MPI_STOP", stop_file, 1);
    unlink(stop_file);
    bool open_mpi = strcmp(flavour, "openmpi") == 0;
    build(&a, open_mpi, l, len > 0 ? self : "hdo", argc, argv);
    struct sigaction act = {.sa_handler = on_signal};
    sigemptyset(&act.sa_mask);
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    sigaction(SIGUSR1, &act, NULL);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGINT, SIG_DFL);
        signal(SIGTERM, SIG_DFL);
        signal(SIGUSR1, SIG_DFL);
        run_child(&a, open_mpi, flavour);
    }
    int status = pid > 0 ? guard(pid, stop_file) : -1;
    unlink(stop_file);
    if (status < 0) {
        fprintf(stderr, "hdo: error: mpirun could not be started: %s\n", strerror(errno));
        return EXIT_ENGINE;
    }
    return verdict(status, l);
}
