/* SPDX-License-Identifier: Apache-2.0 — folders of seeds. */
#include "seeds.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hdo/lab/eval.h"

enum { PATH_CAP = HDO_PATH_MAX + 64 };

static bool has(const char *dir, const char *name) {
    char path[PATH_CAP];
    return snprintf(path, sizeof path, "%s/%s", dir, name) < (int)sizeof path && access(path, F_OK) == 0;
}

static bool failed(hdo_error *e, hdo_status code, const char *what, const char *dir) {
    e->code = code;
    snprintf(e->msg, sizeof e->msg, "%s '%.400s'", what, dir);
    return false;
}

/* seed-N, a folder name; -1: it is not one. */
static int64_t seed_of(const char *name) {
    int64_t seed;
    return strncmp(name, "seed-", 5) == 0 && cli_int(name + 5, 0, INT64_MAX, &seed) ? seed : -1;
}

bool cli_seeds_folder(const char *dir) {
    bool any = false;
    DIR *d = has(dir, "config.yaml") ? NULL : opendir(dir);
    for (struct dirent *f; d != NULL && !any && (f = readdir(d)) != NULL;) any = seed_of(f->d_name) >= 0;
    if (d != NULL) closedir(d);
    return any;
}

bool cli_seeds_add(cli_seed_set *s, const char *dir, int64_t seed, hdo_error *e) {
    int at = 0;
    while (at < s->n && s->seed[at] < seed) at++;
    if (at < s->n && s->seed[at] == seed) return true;
    if (s->n == s->cap) {
        int cap = s->cap > 0 ? 2 * s->cap : 16;
        int64_t *seeds = realloc(s->seed, (size_t)cap * sizeof *seeds);
        if (seeds != NULL) s->seed = seeds;
        cli_job *jobs = realloc(s->job, (size_t)cap * sizeof *jobs);
        if (jobs != NULL) s->job = jobs;
        if (seeds == NULL || jobs == NULL) return failed(e, HDO_E_MEMORY, "out of memory for the seeds of", dir);
        s->cap = cap;
    }
    memmove(s->seed + at + 1, s->seed + at, (size_t)(s->n - at) * sizeof *s->seed);
    memmove(s->job + at + 1, s->job + at, (size_t)(s->n - at) * sizeof *s->job);
    s->n++;
    s->seed[at] = seed;
    cli_job *j = &s->job[at];
    *j = (cli_job){.cost = 0.0};
    snprintf(j->label, sizeof j->label, "seed %lld", (long long)seed);
    if (snprintf(j->dir, sizeof j->dir, "%s/seed-%lld", dir, (long long)seed) >= (int)sizeof j->dir)
        return failed(e, HDO_E_CONFIG, "the folder name is too long:", dir);
    return true;
}

/* The range of seeds.txt; false: there is none that makes sense. */
static bool noted(const char *dir, int64_t *first, int64_t *last) {
    char path[PATH_CAP], range[64];
    long long count = 0;
    snprintf(path, sizeof path, "%s/seeds.txt", dir);
    FILE *f = fopen(path, "re");
    bool ok = f != NULL && fscanf(f, "seeds %63[0-9-], %9lld runs", range, &count) == 2 &&
              cli_seed_range(range, first, last) && count == *last - *first + 1;
    if (f != NULL) fclose(f);
    return ok;
}

bool cli_seeds_find(const char *dir, cli_seed_set *s, hdo_config *c, hdo_error *e) {
    bool ok = true, known = false;
    int64_t first, last;
    DIR *d = opendir(dir);
    for (struct dirent *f; d != NULL && ok && (f = readdir(d)) != NULL;) {
        if (seed_of(f->d_name) >= 0) ok = cli_seeds_add(s, dir, seed_of(f->d_name), e);
    }
    if (d != NULL) closedir(d);
    if (ok && noted(dir, &first, &last)) {
        for (int64_t seed = first; seed <= last && ok; seed++) ok = cli_seeds_add(s, dir, seed, e);
    } else if (ok) {
        cli_warn("seeds.txt is missing or damaged: only the seeds that have a folder go on");
    }
    for (int k = 0; k < s->n && ok; k++) {
        s->job[k].resume = has(s->job[k].dir, "config.yaml");
        if (!known && s->job[k].resume) known = hdo_stored_config(s->job[k].dir, c, e) == HDO_OK;
    }
    if (ok && !known && e->msg[0] == '\0') failed(e, HDO_E_DATA, "no run has begun yet in", dir);
    return ok && known;
}

bool cli_seeds_note(const char *dir, const cli_seed_set *s, hdo_error *e) {
    char path[PATH_CAP], tmp[PATH_CAP + 32], *slash;
    if (snprintf(path, sizeof path, "%s/", dir) >= (int)sizeof path - 32)
        return failed(e, HDO_E_CONFIG, "the folder name is too long:", dir);
    for (slash = path + 1; (slash = strchr(slash, '/')) != NULL; slash++) { /* the folder, with its parents */
        *slash = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST) return failed(e, HDO_E_IO, "cannot create the folder", path);
        *slash = '/';
    }
    int64_t first = s->seed[0], last = s->seed[s->n - 1];
    if (last - first + 1 != s->n) return true; /* with gaps: the folders themselves say which there are */
    snprintf(path, sizeof path, "%s/seeds.txt", dir);
    snprintf(tmp, sizeof tmp, "%s.tmp.%ld", path, (long)getpid());
    unlink(tmp);
    FILE *f = fopen(tmp, "wxe");
    bool ok = f != NULL && fprintf(f, "seeds %lld-%lld, %d runs\n", (long long)first, (long long)last, s->n) > 0 &&
              fflush(f) == 0 && fsync(fileno(f)) == 0;
    if (f != NULL) ok = fclose(f) == 0 && ok;
    ok = ok && rename(tmp, path) == 0;
    if (ok) return true;
    unlink(tmp);
    return failed(e, HDO_E_IO, "cannot write", path);
}

void cli_seeds_clear(cli_seed_set *s) {
    free(s->seed);
    free(s->job);
}
