/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints: everything a run needs to go on as if it had never stopped.
 *
 *   checkpoints/step-000000500.safetensors   params (n, d + n_buf), momentum (n, d), batches (n), g2 (n), away, clock,
 * weighted checkpoints/step-000000500.json          step, counters, rates, and the SHA-256 of the tensors
 *
 * The tensor file is written first, under a temporary name, then the small state file: a checkpoint exists when its
 * state file does, and that one appears whole. Rows have fixed places in the file, so every rank of a cluster can write
 * its own. The hash is over the hashes of the rows, in node order, so that it can be made in parts too.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/sha256.h"
#include "base/stfile.h"
#include "run/run_internal.h"

enum { SCHEMA_VERSION = 3, TENSORS_MAX = 7, PATH_CAP = HDO_PATH_MAX + 96 };

typedef struct piece { /* one tensor of the file and where it lives in memory */
    const char *name, *dtype;
    void *data;
    size_t row_bytes, stride; /* bytes of a row in the file, and from row to row in memory */
    bool per_node;            /* a row per node (local ones only in memory), or one for the run */
} piece;

static int pieces_of(hdo_run *r, piece *p) {
    size_t len = (r->objective->d + r->objective->n_buf) * sizeof(float), ld = r->rows.ld * sizeof(float);
    int n = 0;
    p[n++] = (piece){"params", "F32", r->rows.X, len, ld, true};
    p[n++] = (piece){"batches", "I64", r->batches, sizeof(int64_t), sizeof(int64_t), true};
    p[n++] = (piece){"g2", "F64", &r->result[r->rows.first].g2, sizeof(double), sizeof *r->result, true};
    if (r->momentum != NULL)
        p[n++] = (piece){"momentum", "F32", r->momentum, r->objective->d * sizeof(float), ld, true};
    if (r->churn.active) p[n++] = (piece){"away", "U8", r->churn.away, (size_t)r->mixer.n, 0, false};
    if (r->clock_s != NULL) p[n++] = (piece){"clock", "F64", r->clock_s, (size_t)r->mixer.n * sizeof(double), 0, false};
    if (r->y != NULL) p[n++] = (piece){"weighted", "F32", r->y, len, 0, false};
    return n;
}

static void describe(const hdo_run *r, const piece *p, int n, hdo_st_tensor *t) {
    for (int i = 0; i < n; i++) {
        size_t item = hdo__st_dtype_bytes(p[i].dtype);
        t[i] = (hdo_st_tensor){.n_dim = 0};
        snprintf(t[i].name, sizeof t[i].name, "%s", p[i].name);
        snprintf(t[i].dtype, sizeof t[i].dtype, "%s", p[i].dtype);
        if (p[i].per_node) t[i].dim[t[i].n_dim++] = r->mixer.n;
        t[i].dim[t[i].n_dim++] = (int64_t)(p[i].row_bytes / item);
    }
}

/* ---- moving rows ---- */

static bool move_bytes(int fd, void *buf, size_t len, uint64_t off, bool writing) {
    for (char *p = buf; len > 0;) {
        ssize_t n = writing ? pwrite(fd, p, len, (off_t)off) : pread(fd, p, len, (off_t)off);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        p += n;
        off += (uint64_t)n;
        len -= (size_t)n;
    }
    return true;
}

static bool move_piece(const hdo_run *r, int fd, const piece *p, uint64_t off, bool writing) {
    if (!p->per_node)
        return (writing && r->transport->rank != 0) || move_bytes(fd, p->data, p->row_bytes, off, writing);
    if (p->stride == p->row_bytes) {
        return move_bytes(fd, p->data, p->row_bytes * (size_t)r->rows.count,
                          off + (uint64_t)r->rows.first * p->row_bytes, writing);
    }
    char block[1 << 16]; /* short rows travel together: a million nodes are not a million calls */
    const int together = p->row_bytes < sizeof block ? (int)(sizeof block / p->row_bytes) : 1;
    bool ok = true;
    for (int i = 0; i < r->rows.count && ok; i += together) {
        const int n = r->rows.count - i < together ? r->rows.count - i : together;
        char *row = (char *)p->data + (size_t)i * p->stride, *via = n > 1 ? block : row;
        const uint64_t at = off + (uint64_t)(r->rows.first + i) * p->row_bytes;
        for (int k = 0; k < n && n > 1 && writing; k++)
            memcpy(block + (size_t)k * p->row_bytes, row + (size_t)k * p->stride, p->row_bytes);
        ok = move_bytes(fd, via, (size_t)n * p->row_bytes, at, writing);
        for (int k = 0; k < n && n > 1 && !writing; k++)
            memcpy(row + (size_t)k * p->stride, block + (size_t)k * p->row_bytes, p->row_bytes);
    }
    return ok;
}

typedef struct hash_ctx {
    const hdo_run *r;
    const piece *p;
} hash_ctx;

/* This rank's rows of one piece. */
static void hash_piece(void *ctx, void *v, size_t first, size_t count) {
    const hash_ctx *c = ctx;
    (void)first;
    (void)count;
    int rows = c->p->per_node ? c->r->rows.count : c->r->transport->rank == 0 ? 1 : 0;
    for (int i = 0; i < rows; i++) {
        hdo_sha256 one;
        unsigned char digest[32];
        hdo__sha256_init(&one);
        hdo__sha256_update(&one, (const char *)c->p->data + (size_t)i * c->p->stride, c->p->row_bytes);
        hdo__sha256_final(&one, digest);
        hdo__sha256_update(v, digest, sizeof digest);
    }
}

/* SHA-256 over the hashes of all pieces' rows, in node order; made by all ranks in turn. */
static hdo_status hash_state(hdo_run *r, const piece *p, int n, char hex[65], hdo_error *e) {
    hdo_sha256 all;
    unsigned char digest[32];
    hdo_status st = HDO_OK;
    hdo__sha256_init(&all);
    for (int k = 0; k < n && st == HDO_OK; k++) {
        hash_ctx c = {r, &p[k]};
        st = r->transport->ops->relay(r->transport, &all, sizeof all, 1, hash_piece, &c, e);
    }
    hdo__sha256_final(&all, digest);
    hdo__sha256_hex(digest, hex);
    return st;
}

/* ---- names ---- */

static void checkpoint_path(const char *dir, int64_t step, const char *ext, char *buf) {
    snprintf(buf, PATH_CAP, "%s/checkpoints/step-%09lld.%s", dir, (long long)step, ext);
}

/* Steps of the checkpoints in dir, newest first; at most cap. */
static int list_steps(const char *dir, int64_t *step, int cap) {
    char path[PATH_CAP];
    snprintf(path, sizeof path, "%s/checkpoints", dir);
    DIR *d = opendir(path);
    int n = 0;
    if (d == NULL) return 0;
    for (struct dirent *ent; (ent = readdir(d)) != NULL;) {
        long long s;
        int end = 0;
        if (sscanf(ent->d_name, "step-%lld.json%n", &s, &end) != 1 || end == 0 || ent->d_name[end] != '\0') continue;
        int at = n < cap ? n++ : cap - 1;
        while (at > 0 && step[at - 1] < s) {
            step[at] = step[at - 1];
            at--;
        }
        if (at < cap) step[at] = s;
    }
    closedir(d);
    return n;
}

/* Removes all checkpoints of dir but the newest `keep`. */
static void prune(const char *dir, int keep) {
    enum { MANY = 4096 };
    int64_t *step = malloc(MANY * sizeof *step);
    int n = step != NULL ? list_steps(dir, step, MANY) : 0;
    for (int i = keep; i < n; i++) {
        char path[PATH_CAP];
        checkpoint_path(dir, step[i], "json", path); /* the state file first: without it there is no checkpoint */
        unlink(path);
        checkpoint_path(dir, step[i], "safetensors", path);
        unlink(path);
    }
    free(step);
}

void hdo__checkpoints_remove(const char *dir) {
    prune(dir, 0);
}

/* ---- writing ---- */

static hdo_status write_tensors(hdo_run *r, const piece *p, int n, hdo_error *e) {
    char path[PATH_CAP], tmp[PATH_CAP + 16], *head;
    size_t head_len;
    uint64_t file_len;
    hdo_st_tensor t[TENSORS_MAX];
    describe(r, p, n, t);
    hdo_status st = hdo__st_plan(t, n, "{\"format\": \"hdo-checkpoint\"}", &head, &head_len, &file_len, e);
    if (st != HDO_OK) return st;
    checkpoint_path(r->dir, r->step, "safetensors", path);
    snprintf(tmp, sizeof tmp, "%s.tmp.%lld", path, (long long)r->writer);
    bool root = r->transport->rank == 0; /* all ranks write into the one file, rank 0 all that is not rows */
    int fd = open(tmp, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    bool ok = fd >= 0 && (!root || (ftruncate(fd, (off_t)file_len) == 0 && move_bytes(fd, head, head_len, 0, true)));
    for (int k = 0; k < n && ok; k++) ok = move_piece(r, fd, &p[k], t[k].off, true);
    ok = ok && fsync(fd) == 0;
    int err = errno;
    if (fd >= 0 && close(fd) != 0 && ok) {
        ok = false;
        err = errno;
    }
    free(head);
    if (!ok) hdo__fail(e, HDO_E_IO, "writing the checkpoint '%s' failed: %s", path, strerror(err));
    st = hdo__run_settle(r, ok ? HDO_OK : HDO_E_IO, e);
    if (st == HDO_OK && root && rename(tmp, path) != 0) {
        st = hdo__fail(e, HDO_E_IO, "writing the checkpoint '%s' failed: %s", path, strerror(errno));
    }
    if (st != HDO_OK && root) unlink(tmp);
    return st;
}

static hdo_status write_state(hdo_run *r, const char *hex, hdo_error *e) {
    char path[PATH_CAP];
    hdo_json j;
    hdo__json_init(&j, true);
    hdo__json_object(&j, NULL);
    hdo__json_int(&j, "schema_version", SCHEMA_VERSION);
    hdo__json_int(&j, "step", r->step);
    hdo__json_int(&j, "n", r->mixer.n);
    hdo__json_int(&j, "d", (int64_t)r->objective->d);
    hdo__json_text(&j, "state_sha256", hex);
    hdo__json_int(&j, "interactions", r->interactions);
    hdo__json_int(&j, "bytes", r->bytes);
    hdo__json_int(&j, "forward", r->forward);
    hdo__json_int(&j, "backward", r->backward);
    hdo__json_int(&j, "jvp", r->jvp);
    hdo__json_int(&j, "cost", r->cost);
    hdo__json_real(&j, "start_loss", r->start_loss);
    hdo__json_real(&j, "train_loss", r->train_loss);
    hdo__json_real(&j, "mg", r->mg);
    hdo__json_real(&j, "wall_s", hdo__now_s() - r->start_s);
    hdo__json_real(&j, "step_s", r->step_s);
    hdo__json_real(&j, "eval_s", r->eval_s);
    hdo__json_array(&j, "lr");
    for (int k = 0; k < r->n_classes; k++) hdo__json_real(&j, NULL, r->classes[k].schedule.lr);
    hdo__json_end(&j, ']');
    hdo__json_array(&j, "noise");
    for (int k = 0; k < r->n_classes; k++) hdo__json_real(&j, NULL, r->classes[k].noise);
    hdo__json_end(&j, ']');
    hdo__json_end(&j, '}');
    checkpoint_path(r->dir, r->step, "json", path);
    hdo_status st = j.failed ? hdo__fail(e, HDO_E_MEMORY, "out of memory for a checkpoint")
                             : hdo__file_write(path, j.text, j.len, e);
    hdo__json_clear(&j);
    return st;
}

hdo_status hdo_run_save(hdo_run *r, hdo_error *e) {
    char path[PATH_CAP], hex[65];
    piece p[TENSORS_MAX];
    if (r->dir[0] == '\0') return hdo__fail(e, HDO_E_CONFIG, "a checkpoint needs a run folder");
    snprintf(path, sizeof path, "%s/checkpoints", r->dir);
    bool root = r->transport->rank == 0;
    hdo_status st = hdo__run_settle(r, root ? hdo__dir_create(path, e) : HDO_OK, e);
    if (st != HDO_OK) return st;
    int n = pieces_of(r, p);
    st = hash_state(r, p, n, hex, e);
    if (st == HDO_OK) st = write_tensors(r, p, n, e);
    if (st == HDO_OK && root) st = write_state(r, hex, e);
    if (!r->transport->broken) st = hdo__run_settle(r, st, e);
    if (st == HDO_OK && root) prune(r->dir, (int)r->config.checkpoint.keep);
    r->saved_step = st == HDO_OK ? r->step : r->saved_step;
    r->saved_s = hdo__now_s();
    return st;
}

/* ---- reading ---- */

static int64_t get_int(const json_t *o, const char *key) {
    return (int64_t)json_integer_value(json_object_get(o, key));
}
/* What was not finite is stored as null, and is NaN again. */
static double get_real(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    return json_is_null(v) ? (double)NAN : json_number_value(v);
}

static hdo_status check_format(const json_t *o, const char *path, hdo_error *e) {
    if (get_int(o, "schema_version") == SCHEMA_VERSION) return HDO_OK;
    return hdo__fail(e, HDO_E_DATA, "the checkpoint '%s' has format %lld; this version reads %d", path,
                     (long long)get_int(o, "schema_version"), SCHEMA_VERSION);
}

hdo_status hdo__checkpoint_format(const char *tensors_path, hdo_error *e) {
    char path[PATH_CAP];
    const char *dot = strrchr(tensors_path, '.');
    snprintf(path, sizeof path, "%.*s.json", dot != NULL ? (int)(dot - tensors_path) : 0, tensors_path);
    json_t *o = json_load_file(path, 0, NULL);
    hdo_status st = o != NULL ? check_format(o, path, e) : HDO_OK; /* a copy of the tensors alone */
    json_decref(o);
    return st;
}

static hdo_status read_state(hdo_run *r, const char *path, char hex[65], hdo_error *e) {
    json_error_t je;
    json_t *o = json_load_file(path, JSON_REJECT_DUPLICATES, &je);
    const char *sha = json_string_value(json_object_get(o, "state_sha256"));
    const json_t *lr = json_object_get(o, "lr"), *noise = json_object_get(o, "noise");
    hdo_status st = HDO_OK;
    if (o == NULL) {
        st = hdo__fail(e, HDO_E_DATA, "the checkpoint '%s' cannot be read: %s", path, je.text);
    } else if ((st = check_format(o, path, e)) != HDO_OK) {
        /* said */
    } else if (get_int(o, "n") != r->mixer.n || get_int(o, "d") != (int64_t)r->objective->d || sha == NULL ||
               strlen(sha) != 64 || (int)json_array_size(lr) != r->n_classes ||
               (int)json_array_size(noise) != r->n_classes) {
        st = hdo__fail(e, HDO_E_DATA,
                       "the checkpoint '%s' is of %lld nodes with d = %lld, but the run has %d with d = %zu", path,
                       (long long)get_int(o, "n"), (long long)get_int(o, "d"), r->mixer.n, r->objective->d);
    } else {
        memcpy(hex, sha, 65);
        r->step = get_int(o, "step");
        r->interactions = get_int(o, "interactions");
        r->bytes = get_int(o, "bytes");
        r->forward = get_int(o, "forward");
        r->backward = get_int(o, "backward");
        r->jvp = get_int(o, "jvp");
        r->cost = get_int(o, "cost");
        r->start_loss = get_real(o, "start_loss");
        r->train_loss = get_real(o, "train_loss");
        r->mg = get_real(o, "mg");
        r->start_s = hdo__now_s() - get_real(o, "wall_s");
        r->step_s = get_real(o, "step_s");
        r->eval_s = get_real(o, "eval_s");
        for (int k = 0; k < r->n_classes; k++) {
            r->classes[k].schedule.lr = json_number_value(json_array_get(lr, (size_t)k));
            r->classes[k].noise = json_number_value(json_array_get(noise, (size_t)k));
            r->lr[k] = r->step > 0 ? hdo__schedule_lr(&r->classes[k].schedule, r->step - 1) : 0.0;
        }
    }
    json_decref(o);
    return st;
}

static hdo_status read_tensors(hdo_run *r, const char *path, const char *want, hdo_error *e) {
    piece p[TENSORS_MAX];
    hdo_st_tensor expected[TENSORS_MAX], *t;
    int n = pieces_of(r, p), n_file, fd;
    char hex[65];
    describe(r, p, n, expected);
    hdo_status st = hdo__run_settle(r, hdo__st_open(path, &fd, &t, &n_file, NULL, e), e);
    if (st != HDO_OK) return st;
    for (int k = 0; k < n && st == HDO_OK; k++) {
        const hdo_st_tensor *f = hdo__st_find(t, n_file, p[k].name);
        if (f == NULL || strcmp(f->dtype, expected[k].dtype) != 0 || f->n_dim != expected[k].n_dim ||
            memcmp(f->dim, expected[k].dim, (size_t)f->n_dim * sizeof f->dim[0]) != 0) {
            st = hdo__fail(e, HDO_E_DATA, "%s: tensor '%s' is missing or of another shape than this run's", path,
                           p[k].name);
        } else if (!move_piece(r, fd, &p[k], f->off, false)) {
            st = hdo__fail(e, HDO_E_DATA, "%s: reading tensor '%s' failed", path, p[k].name);
        }
    }
    close(fd);
    free(t);
    st = hdo__run_settle(r, st, e);
    if (st == HDO_OK) st = hash_state(r, p, n, hex, e);
    if (st != HDO_OK) return st;
    if (strcmp(hex, want) != 0) {
        return hdo__fail(e, HDO_E_DATA,
                         "%s is damaged: its contents do not match the checksum stored with it; delete it to "
                         "fall back to the checkpoint before",
                         path);
    }
    return HDO_OK;
}

/* Cuts metrics.jsonl (or the trace) after the last line that belongs to the past of step: rows of later steps, and a
 * row of the step itself when it will be evaluated again, are dropped. */
static hdo_status trim_lines(const char *path, int64_t step, bool keep_same, hdo_error *e) {
    char *text;
    size_t len, keep = 0;
    if (!hdo__path_exists(path)) return HDO_OK;
    hdo_status st = hdo__file_read(path, (size_t)1 << 32, &text, &len, e);
    if (st != HDO_OK) return st;
    while (keep < len) {
        char *end = memchr(text + keep, '\n', len - keep);
        long long s;
        if (end == NULL || sscanf(text + keep, "{\"step\": %lld", &s) != 1 || s > step || (s == step && !keep_same))
            break;
        keep = (size_t)(end - text) + 1;
    }
    free(text);
    if (keep < len && truncate(path, (off_t)keep) != 0) {
        return hdo__fail(e, HDO_E_IO, "cannot shorten '%s': %s", path, strerror(errno));
    }
    return HDO_OK;
}

hdo_status hdo__run_restore(hdo_run *r, const char *dir, hdo_error *e) {
    char path[PATH_CAP], hex[65];
    int64_t step;
    snprintf(r->dir, sizeof r->dir, "%s", dir);
    hdo_status st = HDO_OK;
    if (list_steps(dir, &step, 1) == 0) {
        st = hdo__fail(e, HDO_E_DATA,
                       "'%s' has no checkpoint to resume from (checkpoint.every sets how often one is written)", dir);
    } else {
        checkpoint_path(dir, step, "json", path);
        st = read_state(r, path, hex, e);
    }
    st = hdo__run_settle(r, st, e);
    if (st == HDO_OK) {
        checkpoint_path(dir, step, "safetensors", path);
        st = read_tensors(r, path, hex, e);
    }
    r->saved_step = step;
    r->saved_s = hdo__now_s();
    bool again = hdo__run_due(r);
    r->has_row = !again;
    static const char *const logs[] = {"metrics.jsonl", "trace.jsonl"};
    for (int k = 0; k < 2 && st == HDO_OK && r->transport->rank == 0; k++) {
        hdo__path_join(path, sizeof path, dir, logs[k]);
        st = trim_lines(path, r->step, k == 1, e);
    }
    return st;
}
