/* SPDX-License-Identifier: Apache-2.0 — another program, started without a shell. */
#include "base/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

/* Between fork and exec, in a process that may have threads: nothing but system calls. */
static void become(const hdo_spawn *s, int out) {
    if (s->dir != NULL && chdir(s->dir) != 0) _exit(126);
    if (out >= 0 && dup2(out, STDOUT_FILENO) < 0) _exit(126);
    if (s->quiet) {
        int nowhere = open("/dev/null", O_WRONLY);
        if (nowhere >= 0) dup2(nowhere, STDERR_FILENO);
    }
    execvp(s->argv[0], (char *const *)(uintptr_t)s->argv);
    _exit(127);
}

static void take_output(const hdo_spawn *s, int fd) {
    char rest[512] = "";
    size_t len = 0;
    for (;;) {
        bool room = len + 1 < s->cap;
        ssize_t n = read(fd, room ? s->out + len : rest, room ? s->cap - 1 - len : sizeof rest);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        if (room) len += (size_t)n;
    }
    s->out[len] = '\0';
}

int hdo__spawn(const hdo_spawn *s) {
    int fd[2] = {-1, -1}, status = 0;
    if (s->out != NULL && pipe(fd) != 0) return -1;
    if (s->out != NULL) fcntl(fd[0], F_SETFD, FD_CLOEXEC);
    pid_t pid = fork();
    if (pid == 0) become(s, fd[1]);
    if (fd[1] >= 0) close(fd[1]);
    if (pid > 0 && s->out != NULL) take_output(s, fd[0]);
    if (fd[0] >= 0) close(fd[0]);
    if (pid < 0) return -1;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) return -1;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : WIFSIGNALED(status) ? 128 + WTERMSIG(status) : -1;
}
