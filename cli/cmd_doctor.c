/* SPDX-License-Identifier: Apache-2.0 — hdo doctor: this build and this machine. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

/* Is there a program of that name on the PATH? */
static bool on_path(const char *program) {
    const char *path = getenv("PATH");
    char file[4096];
    while (path != NULL && *path != '\0') {
        size_t len = strcspn(path, ":");
        int n = snprintf(file, sizeof file, "%.*s/%s", (int)len, path, program);
        if (n > 0 && (size_t)n < sizeof file && access(file, X_OK) == 0) return true;
        path += len;
        if (*path == ':') path++;
    }
    return false;
}

static const struct {
    const char *program, *gives, *install;
} programs[] = {
    {"gnuplot", "figures (hdo plot, hdo demo)", "apt-get install gnuplot-nox"},
    {"npm", "hdo data get mnist, cifar10", "apt-get install npm"},
    {"mpirun", "runs on a cluster", "apt-get install openmpi-bin"},
};

static int run_doctor(int argc, char **argv) {
    cli_common o = {0};
    int code = cli_parse(&cmd_doctor, argc, argv, &o);
    if (code >= 0) return code;
    hdo_feature f[32];
    int n = hdo_feature_list(f, 32);
    cli_style s = cli_style_for(stdout);
    printf("hdo %s, built from %s\n", hdo_version(), hdo_commit());
    for (int i = 0; i < n; i++) {
        printf("  %s%-8s%s %-14s %s%s%s\n", f[i].present ? s.green : s.red, f[i].present ? "ok" : "missing", s.off,
               f[i].name, f[i].detail, f[i].gives[0] != '\0' ? " - " : "", f[i].gives);
    }
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        bool here = on_path(programs[i].program);
        printf("  %s%-8s%s %-14s %s%s%s\n", here ? s.green : s.red, here ? "ok" : "missing", s.off, programs[i].program,
               programs[i].gives, here ? "" : "; install with: ", here ? "" : programs[i].install);
    }
    return 0;
}

const cli_command cmd_doctor = {
    .name = "doctor",
    .summary = "what is here, what is missing, and what it would give",
    .run = run_doctor,
    .usage = "",
    .about = "Says what this build and this machine offer, what is missing, and what it would give.",
    .common = CLI_COLOUR,
    .size = sizeof(cli_common),
};
