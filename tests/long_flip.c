/* SPDX-License-Identifier: Apache-2.0
 *
 * Bits that flip: in any stored file of a run folder, one random bit at a time. Afterwards a resumed run must end with
 * the parameters and rows of the undisturbed one, or be refused with a sentence; an evaluation must give the figure of
 * the newest checkpoint, or say that it took an older one (and give its figure), or be refused with a sentence.
 *
 *   long_flip [COUNT [SEED]]        prints what happened, by file
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "hdo/lab/eval.h"
#include "hdo/experimental/all.h"

enum { FILES_MAX = 32, STEPS = 12, EVERY = 5, PATH_CAP = 1024 };

typedef struct stored { /* a file of the folder, as it was written */
    char name[256], *data;
    size_t len;
} stored;

typedef struct tally {
    int64_t right, older, refused, wrong;
} tally;

typedef struct bench {
    char dir[PATH_CAP - 300];
    stored file[FILES_MAX];
    tally resume[FILES_MAX], eval[FILES_MAX];
    int n_files;
    char sha[65], *rows; /* of the undisturbed run */
    double loss[2];      /* of the newest checkpoint, and of the one before */
    bool warned;
} bench;

static void die(const char *what, const char *why) {
    fprintf(stderr, "long_flip: %s: %s\n", what, why);
    exit(2);
}

static void path_of(const bench *b, const char *name, char path[PATH_CAP]) {
    snprintf(path, PATH_CAP, "%s/%s", b->dir, name);
}

static int remove_one(const char *path, const struct stat *s, int type, struct FTW *where) {
    (void)s;
    (void)type;
    (void)where;
    return remove(path);
}

/* metrics.jsonl without the times, which end each line. */
static char *rows_of(const bench *b) {
    char path[PATH_CAP], *text, *out;
    size_t len;
    path_of(b, "metrics.jsonl", path);
    if (hdo__file_read(path, 1 << 24, &text, &len, NULL) != HDO_OK) return NULL;
    out = text;
    for (char *line = text; line < text + len;) {
        char *end = strchr(line, '\n'), *time = strstr(line, "\"time\"");
        if (end == NULL) end = text + len - 1;
        size_t keep = time != NULL && time < end ? (size_t)(time - line) : (size_t)(end - line);
        memmove(out, line, keep);
        out += keep;
        *out++ = '\n';
        line = end + 1;
    }
    *out = '\0';
    return text;
}

static void on_log(void *ctx, hdo_log_level level, const char *message) {
    (void)message;
    if (level == HDO_LOG_WARN) ((bench *)ctx)->warned = true;
}

static void finish(hdo_run *r) {
    hdo_error e = {0};
    hdo_stop why = HDO_RUNNING;
    while (why == HDO_RUNNING) {
        if (hdo_run_advance(r, 100, &why, &e) != HDO_OK) die("a run", e.msg);
    }
    if (hdo_run_write_summary(r, &e) != HDO_OK) die("a summary", e.msg);
}

static double evaluate(const char *source, char *note, hdo_error *e) {
    hdo_config *c = malloc(sizeof *c);
    hdo_evaluation v = {.confusion = NULL};
    hdo_eval_options o = {.node = HDO_EVAL_MEAN, .no_confusion = true, .threads = 1};
    double loss = -1.0;
    note[0] = '\0';
    if (hdo_stored_config(source, c, e) == HDO_OK && hdo_evaluate(c, source, &o, &v, e) == HDO_OK) {
        loss = v.loss;
        snprintf(note, 256, "%.255s", v.note);
        hdo_evaluation_clear(&v);
    }
    free(c);
    return loss;
}

/* ---- the run, and its files in memory ---- */

static void take_files(bench *b, const char *under) {
    char path[PATH_CAP];
    path_of(b, under, path);
    DIR *d = opendir(path);
    if (d == NULL) die(path, strerror(errno));
    for (struct dirent *f; (f = readdir(d)) != NULL;) {
        stored *s = &b->file[b->n_files];
        struct stat info;
        snprintf(s->name, sizeof s->name, "%.20s%s%.200s", under, under[0] != '\0' ? "/" : "", f->d_name);
        path_of(b, s->name, path);
        if (stat(path, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0) continue;
        if (b->n_files == FILES_MAX - 1) die(path, "too many files");
        hdo_error e = {0};
        if (hdo__file_read(path, 1 << 24, &s->data, &s->len, &e) != HDO_OK) die(path, e.msg);
        b->n_files++;
    }
    closedir(d);
}

static void put_back(const bench *b) {
    char path[PATH_CAP];
    nftw(b->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    path_of(b, "checkpoints", path);
    if (hdo__dir_create(path, NULL) != HDO_OK) die(path, "cannot be made");
    for (int k = 0; k < b->n_files; k++) {
        path_of(b, b->file[k].name, path);
        FILE *f = fopen(path, "wb");
        if (f == NULL || fwrite(b->file[k].data, 1, b->file[k].len, f) != b->file[k].len || fclose(f) != 0)
            die(path, strerror(errno));
    }
}

static void make_run(bench *b) {
    static const char *const sets[][2] = {
        {"model", "logistic"},        {"data.train", "60"},         {"data.val", "30"},
        {"eval.every", "4"},          {"eval.trace", "true"},       {"threads", "1"},
        {"data.features", "4"},       {"data.classes", "3"},        {"population.fo.momentum", "0.5"},
        {"population.fo.batch", "4"}, {"population.zo.batch", "4"}, {"checkpoint.keep", "3"}};
    hdo_error e = {0};
    hdo_config *c = malloc(sizeof *c);
    hdo_run *r = NULL;
    char text[16], path[PATH_CAP], note[256];
    hdo_config_default(c);
    hdo_status st = hdo_config_population(c, "2fo+2zo", &e);
    for (size_t k = 0; k < sizeof sets / sizeof sets[0] && st == HDO_OK; k++)
        st = hdo_config_set_from(c, sets[k][0], sets[k][1], HDO_FROM_FLAG, &e);
    snprintf(text, sizeof text, "%d", STEPS);
    if (st == HDO_OK) st = hdo_config_set_from(c, "steps", text, HDO_FROM_FLAG, &e);
    snprintf(text, sizeof text, "%d", EVERY);
    if (st == HDO_OK) st = hdo_config_set_from(c, "checkpoint.every", text, HDO_FROM_FLAG, &e);
    if (st == HDO_OK) st = hdo_run_create(&r, c, NULL, &e);
    if (st == HDO_OK) st = hdo_run_attach_dir(r, b->dir, false, "long_flip", &e);
    if (st != HDO_OK) die("the run", e.msg);
    finish(r);
    hdo_run_fingerprint(r, b->sha);
    hdo_run_destroy(r);
    free(c);
    b->rows = rows_of(b);
    path_of(b, "summary.json", path); /* as it looks when it was stopped after step 10, with rows behind */
    unlink(path);
    snprintf(path, sizeof path, "%s/checkpoints/step-%09d.safetensors", b->dir, STEPS);
    unlink(path);
    b->loss[0] = evaluate(b->dir, note, &e);
    snprintf(path, sizeof path, "%s/checkpoints/step-%09d.safetensors", b->dir, EVERY);
    b->loss[1] = evaluate(path, note, &e);
    if (b->loss[0] < 0.0 || b->loss[1] < 0.0) die("evaluation", e.msg);
    take_files(b, "");
    take_files(b, "checkpoints");
}

/* ---- one flip ---- */

static bool try_resume(bench *b, tally *t, char *said, size_t cap) {
    hdo_error e = {0};
    hdo_run *r = NULL;
    hdo_hooks hooks = {.ctx = b, .log = on_log};
    char sha[65];
    b->warned = false;
    if (hdo_run_resume_how(&r, b->dir, NULL, &hooks, &e) != HDO_OK) {
        bool sentence = strlen(e.msg) > 10;
        ++*(sentence ? &t->refused : &t->wrong);
        snprintf(said, cap, "%s", sentence ? "" : "refused without a sentence");
        return sentence;
    }
    finish(r);
    hdo_run_fingerprint(r, sha);
    hdo_run_destroy(r);
    char *rows = rows_of(b);
    bool same = strcmp(sha, b->sha) == 0 && rows != NULL && strcmp(rows, b->rows) == 0;
    free(rows);
    ++*(!same ? &t->wrong : b->warned ? &t->older : &t->right);
    snprintf(said, cap, "%s", same ? "" : "resumed to other parameters or rows");
    return same;
}

static bool try_eval(const bench *b, tally *t, char *said, size_t cap) {
    hdo_error e = {0};
    char note[256];
    double loss = evaluate(b->dir, note, &e);
    bool refused = loss < 0.0 && strlen(e.msg) > 10, right = loss == b->loss[0],
         older = loss == b->loss[1] && note[0] != '\0';
    ++*(right ? &t->right : older ? &t->older : refused ? &t->refused : &t->wrong);
    snprintf(said, cap, "%s", right || older || refused ? "" : "evaluated to another figure");
    return right || older || refused;
}

static bool flip(bench *b, uint64_t seed, uint64_t i) {
    char path[PATH_CAP], said[128];
    uint64_t pick = seed * 0x9E3779B97F4A7C15u + i * 0xBF58476D1CE4E5B9u, a, at;
    pick ^= pick >> 31; /* splitmix: a choice that can be made again from (seed, i) */
    pick *= 0x94D049BB133111EBu;
    pick ^= pick >> 29;
    a = pick % (uint64_t)b->n_files;
    stored *s = &b->file[a];
    at = (pick >> 20) % (8 * s->len);
    put_back(b);
    path_of(b, s->name, path);
    const int bit = 1 << (at % 8);
    s->data[at / 8] = (char)(s->data[at / 8] ^ bit);
    FILE *f = fopen(path, "wb");
    if (f == NULL || fwrite(s->data, 1, s->len, f) != s->len || fclose(f) != 0) die(path, strerror(errno));
    s->data[at / 8] = (char)(s->data[at / 8] ^ bit);
    bool ok = try_eval(b, &b->eval[a], said, sizeof said);
    if (ok) ok = try_resume(b, &b->resume[a], said, sizeof said);
    if (!ok) printf("# flip %" PRIu64 ": bit %" PRIu64 " of %s: %s\n", i, at, s->name, said);
    return ok;
}

int main(int argc, char **argv) {
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 10000, seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    bench *b = calloc(1, sizeof *b);
    char base[64];
    snprintf(base, sizeof base, "%s/hdo-flip-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (b == NULL || mkdtemp(base) == NULL) die("a folder", strerror(errno));
    snprintf(b->dir, sizeof b->dir, "%s/run", base);
    make_run(b);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < count; i++) wrong += flip(b, seed, i) ? 0 : 1;
    printf("# %-44s %28s   %28s\n", "file", "resume: right older refused", "eval: right older refused");
    for (int k = 0; k < b->n_files; k++) {
        const tally *r = &b->resume[k], *v = &b->eval[k];
        printf("# %-44s %14" PRId64 " %6" PRId64 " %6" PRId64 "   %14" PRId64 " %6" PRId64 " %6" PRId64 "\n",
               b->file[k].name, r->right, r->older, r->refused, v->right, v->older, v->refused);
        free(b->file[k].data);
    }
    printf("1..1\n%s 1 - %" PRIu64 " flips, %" PRIu64 " wrong\n", wrong == 0 ? "ok" : "not ok", count, wrong);
    nftw(base, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(b->rows);
    free(b);
    return wrong == 0 ? 0 : 1;
}
