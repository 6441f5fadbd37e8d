/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints: everything a run needs to go on as if it had never stopped, in one file (ckfile.h).
 *
 * The order of a save: rows to the disk (fsync), then the file under a temporary name (fsync), its rename, the folder
 * (fsync), and only then are older ones dropped. So after a crash or a power cut there is always a whole checkpoint,
 * and the rows it counts on are there. Rows of models have fixed places in the file: every rank of a cluster writes its
 * own.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/stfile.h"
#include "record/ckfile.h"
#include "record/ckstate.h"
#include "record/record.h"

enum { TENSORS_MAX = 8, PATH_CAP = HDO_CKFILE_PATH_MAX };

typedef struct piece { /* one tensor of the file and where it lives in memory */
    const char *name, *dtype;
    void *data;
    size_t row_bytes, stride; /* bytes of a row in the file, and from row to row in memory */
    bool per_node;            /* a row per node (local ones only in memory), or one for the run */
} piece;

static int pieces_of(hdo_record *r, piece *p) {
    size_t len = (r->problem->objective->d + r->problem->objective->n_buf) * sizeof(float),
           ld = r->population->models.ld * sizeof(float);
    int n = 0;
    p[n++] = (piece){"params", "F32", r->population->models.X, len, ld, true};
    p[n++] = (piece){"batches", "I64", r->population->batches, sizeof(int64_t), sizeof(int64_t), true};
    p[n++] = (piece){"g2",
                     "F64",
                     &r->population->result[r->population->models.first].g2,
                     sizeof(double),
                     sizeof *r->population->result,
                     true};
    if (r->population->momentum != NULL)
        p[n++] =
            (piece){"momentum", "F32", r->population->momentum, r->problem->objective->d * sizeof(float), ld, true};
    if (r->population->churn.active)
        p[n++] = (piece){"away", "U8", r->population->churn.away, (size_t)r->population->n, 0, false};
    if (r->population->clock_s != NULL)
        p[n++] = (piece){"clock", "F64", r->population->clock_s, (size_t)r->population->n * sizeof(double), 0, false};
    if (r->population->waiting != NULL)
        p[n++] = (piece){"waiting", "U8", r->population->waiting, (size_t)r->population->n, 0, false};
    if (r->population->y != NULL) p[n++] = (piece){"weighted", "F32", r->population->y, len, 0, false};
    return n;
}

static void describe(const hdo_record *r, const piece *p, int n, hdo_st_tensor *t) {
    for (int i = 0; i < n; i++) {
        size_t item = hdo__st_dtype_bytes(p[i].dtype);
        t[i] = (hdo_st_tensor){.n_dim = 0};
        snprintf(t[i].name, sizeof t[i].name, "%s", p[i].name);
        snprintf(t[i].dtype, sizeof t[i].dtype, "%s", p[i].dtype);
        if (p[i].per_node)
            t[i].dim[t[i].n_dim++] = r->transport->alone ? r->population->models.count : r->population->n;
        t[i].dim[t[i].n_dim++] = (int64_t)(p[i].row_bytes / item);
    }
}

/* ---- moving rows ---- */

static bool move_bytes(int fd, void *buf, size_t len, uint64_t off, bool writing) {
    return writing ? hdo__write_at(fd, buf, len, off) : hdo__read_at(fd, buf, len, off);
}

/* The row of the file that holds the first local node. */
static int first_row(const hdo_record *r) {
    return r->transport->alone ? 0 : r->population->models.first;
}

static bool move_piece(const hdo_record *r, int fd, const piece *p, uint64_t off, bool writing) {
    if (!p->per_node)
        return (writing && r->transport->rank != 0) || move_bytes(fd, p->data, p->row_bytes, off, writing);
    if (p->stride == p->row_bytes) {
        return move_bytes(fd, p->data, p->row_bytes * (size_t)r->population->models.count,
                          off + (uint64_t)first_row(r) * p->row_bytes, writing);
    }
    char block[1 << 16]; /* short rows travel together: a million nodes are not a million calls */
    const int together = p->row_bytes < sizeof block ? (int)(sizeof block / p->row_bytes) : 1;
    bool ok = true;
    for (int i = 0; i < r->population->models.count && ok; i += together) {
        const int n = r->population->models.count - i < together ? r->population->models.count - i : together;
        char *row = (char *)p->data + (size_t)i * p->stride, *via = n > 1 ? block : row;
        const uint64_t at = off + (uint64_t)(first_row(r) + i) * p->row_bytes;
        for (int k = 0; k < n && n > 1 && writing; k++)
            memcpy(block + (size_t)k * p->row_bytes, row + (size_t)k * p->stride, p->row_bytes);
        ok = move_bytes(fd, via, (size_t)n * p->row_bytes, at, writing);
        for (int k = 0; k < n && n > 1 && !writing; k++)
            memcpy(row + (size_t)k * p->stride, block + (size_t)k * p->row_bytes, p->row_bytes);
    }
    return ok;
}

typedef struct hash_ctx {
    const hdo_record *r;
    const piece *p;
} hash_ctx;

/* This rank's rows of one piece. */
static void hash_piece(void *ctx, void *v, size_t first, size_t count) {
    const hash_ctx *c = ctx;
    (void)first;
    (void)count;
    int rows = c->p->per_node ? c->r->population->models.count : c->r->transport->rank == 0 ? 1 : 0;
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
static hdo_status hash_rows(hdo_record *r, const piece *p, int n, unsigned char digest[32], hdo_error *e) {
    hdo_sha256 all;
    hdo_status st = HDO_OK;
    hdo__sha256_init(&all);
    for (int k = 0; k < n && st == HDO_OK; k++) {
        hash_ctx c = {r, &p[k]};
        st = r->transport->ops->relay(r->transport, &all, sizeof all, 1, hash_piece, &c, e);
    }
    hdo__sha256_final(&all, digest);
    return st;
}

/* ---- dropping ---- */

/* Removes all checkpoints of dir but the newest `keep`. */
static void prune(const char *dir, int keep) {
    int64_t *step;
    int n = hdo__ckfile_list(dir, &step);
    for (int i = keep; i < n; i++) {
        char path[PATH_CAP];
        hdo__ckfile_path(dir, step[i], path);
        unlink(path);
    }
    free(step);
}

/* Files of checkpoints/ whose names begin with "step-" and hold `part`. */
static hdo_status remove_files(const char *dir, const char *part, hdo_error *e) {
    char path[PATH_CAP + 256];
    hdo_status st = HDO_OK;
    snprintf(path, sizeof path, "%s/checkpoints", dir);
    DIR *d = opendir(path);
    for (struct dirent *ent; d != NULL && (ent = readdir(d)) != NULL;) {
        if (strncmp(ent->d_name, "step-", 5) != 0 || strstr(ent->d_name, part) == NULL) continue;
        int len = snprintf(path, sizeof path, "%s/checkpoints/%s", dir, ent->d_name);
        if (len < 0 || (size_t)len >= sizeof path || (unlink(path) != 0 && errno != ENOENT))
            st = hdo__fail(e, HDO_E_IO, "cannot remove '%s': %s", path, strerror(errno));
        hdo__dir_sync_of(path);
    }
    if (d != NULL) closedir(d);
    return st;
}

hdo_status hdo__checkpoints_remove(const char *dir, hdo_error *e) {
    return remove_files(dir, "", e);
}

void hdo__checkpoints_sweep(const char *dir) {
    remove_files(dir, ".safetensors.tmp.", NULL);
}

void hdo__checkpoint_set_aside(const char *dir, int64_t step) {
    char path[PATH_CAP], aside[PATH_CAP + 16];
    hdo__ckfile_path(dir, step, path);
    snprintf(aside, sizeof aside, "%s.damaged", path);
    if (rename(path, aside) != 0) unlink(path);
}

/* ---- writing ---- */

typedef struct draft { /* a checkpoint that is being written */
    piece p[TENSORS_MAX];
    hdo_st_tensor t[TENSORS_MAX];
    int n;
    hdo_st_head head; /* rank 0 */
    char path[PATH_CAP], tmp[PATH_CAP + 32];
} draft;

/* Rank 0: the rows are on the disk, the folder is there, the head is made. */
static hdo_status begin(hdo_record *r, draft *w, hdo_error *e) {
    char folder[PATH_CAP];
    hdo_state_head h;
    hdo_status st = hdo__record_dir_stands(r, e);
    if (st != HDO_OK) return st;
    snprintf(folder, sizeof folder, "%s/checkpoints", r->dir);
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return hdo__fail(e, HDO_E_IO, "cannot create the folder '%s': %s", folder, strerror(errno));
    hdo__dir_sync_of(folder); /* its entry and those of the rows' files may be new */
    hdo__state_head_of(r, &h);
    for (int k = 0; k < r->n_sinks && st == HDO_OK; k++) {
        if (r->sinks[k]->ops->mark != NULL)
            st = r->sinks[k]->ops->mark(r->sinks[k], r->progress->step, &h.mark[HDO_MARK_METRICS], e);
    }
    if (st == HDO_OK && r->trace.fd >= 0) st = hdo__linelog_mark(&r->trace, -1, &h.mark[HDO_MARK_TRACE], e);
    if (st != HDO_OK) return st;
    char *state = hdo__state_text(r, &h), *config = hdo_config_dump(r->config, false);
    st = state != NULL && config != NULL ? hdo__ckfile_plan(w->t, w->n, state, config, &w->head, e)
                                         : hdo__fail(e, HDO_E_MEMORY, "out of memory for a checkpoint");
    free(state);
    free(config);
    return st;
}

static void tell_length(void *ctx, void *v, size_t first, size_t count) {
    const draft *w = ctx;
    (void)first;
    (void)count;
    if (w->head.bytes != NULL) *(uint64_t *)v = w->head.len;
}

/* All ranks: where the rows go, which follows from the length of rank 0's head. */
static hdo_status share_places(hdo_record *r, draft *w, hdo_error *e) {
    uint64_t len = 0;
    hdo_status st = r->transport->ops->relay(r->transport, &len, sizeof len, 1, tell_length, w, e);
    if (st != HDO_OK || r->transport->rank == 0) return st;
    hdo_st_head own;
    st = hdo__st_plan(w->t, w->n, NULL, &own, e);
    if (st != HDO_OK) return st;
    free(own.bytes);
    for (int k = 0; k < w->n; k++) w->t[k].off += len - own.len;
    return HDO_OK;
}

static hdo_status failed(const draft *w, int err, hdo_error *e) {
    return hdo__fail(e, HDO_E_IO, "writing the checkpoint '%s' failed: %s", w->path, strerror(err));
}

/* This rank's part of the file; rank 0 has made it. */
static hdo_status write_rows(const hdo_record *r, draft *w, int fd, hdo_error *e) {
    if (fd < 0) fd = open(w->tmp, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    bool ok = fd >= 0;
    for (int k = 0; k < w->n && ok; k++) ok = move_piece(r, fd, &w->p[k], w->t[k].off, true);
    ok = ok && fsync(fd) == 0;
    int err = errno;
    if (fd >= 0 && close(fd) != 0 && ok) {
        ok = false;
        err = errno;
    }
    return ok ? HDO_OK : failed(w, err, e);
}

static hdo_status write_file(hdo_record *r, draft *w, hdo_error *e) {
    bool root = r->transport->rank == 0;
    hdo__ckfile_path(r->dir, r->progress->step, w->path);
    snprintf(w->tmp, sizeof w->tmp, "%s.tmp.%lld", w->path, (long long)r->writer);
    int fd = root ? hdo__file_create(w->tmp) : -1;
    hdo_status st = HDO_OK;
    if (root &&
        (fd < 0 || ftruncate(fd, (off_t)w->head.file_len) != 0 || !hdo__write_at(fd, w->head.bytes, w->head.len, 0)))
        st = failed(w, errno, e);
    st = hdo__transport_settle(r->transport, st, e);
    if (st == HDO_OK) {
        st = hdo__transport_settle(r->transport, write_rows(r, w, fd, e), e);
    } else if (fd >= 0) {
        close(fd);
    }
    if (st == HDO_OK && root && rename(w->tmp, w->path) != 0) st = failed(w, errno, e);
    if (st != HDO_OK && root) unlink(w->tmp);
    if (st == HDO_OK && root) hdo__dir_sync_of(w->path);
    return st;
}

hdo_status hdo__record_save(hdo_record *r, hdo_error *e) {
    if (r->dir[0] == '\0') return hdo__fail(e, HDO_E_CONFIG, "a checkpoint needs a run folder");
    draft w = {.head = {.bytes = NULL}};
    unsigned char digest[32];
    bool root = r->transport->rank == 0;
    w.n = pieces_of(r, w.p);
    describe(r, w.p, w.n, w.t);
    hdo_status st = hdo__transport_settle(r->transport, root ? begin(r, &w, e) : HDO_OK, e);
    if (st == HDO_OK) st = hdo__transport_settle(r->transport, share_places(r, &w, e), e);
    if (st == HDO_OK) st = hash_rows(r, w.p, w.n, digest, e);
    if (st == HDO_OK && root) hdo__ckfile_seal(w.head.bytes, w.head.len, digest);
    if (st == HDO_OK) {
        st = write_file(r, &w, e);
        if (!r->transport->broken) st = hdo__transport_settle(r->transport, st, e);
    }
    free(w.head.bytes);
    if (st == HDO_OK && root) prune(r->dir, (int)r->config->checkpoint.keep);
    r->saved_step = st == HDO_OK ? r->progress->step : r->saved_step;
    r->saved_s = hdo__now_s();
    return st;
}

/* ---- reading ---- */

/* This rank's rows out of the open file. */
static hdo_status read_rows(hdo_record *r, const hdo_ckfile *f, const piece *p, int n, hdo_error *e) {
    hdo_st_tensor expected[TENSORS_MAX];
    describe(r, p, n, expected);
    if (f->list.n != n)
        return hdo__fail(e, HDO_E_DATA, "'%s' holds %d tensors, but this run has %d", f->path, f->list.n, n);
    for (int k = 0; k < n; k++) {
        const hdo_st_tensor *t = hdo__st_find(&f->list, p[k].name);
        if (t == NULL || strcmp(t->dtype, expected[k].dtype) != 0 || t->n_dim != expected[k].n_dim ||
            memcmp(t->dim, expected[k].dim, (size_t)t->n_dim * sizeof t->dim[0]) != 0) {
            return hdo__fail(e, HDO_E_DATA, "%s: tensor '%s' is missing or of another shape than this run's", f->path,
                             p[k].name);
        }
        if (!move_piece(r, f->fd, &p[k], t->off, false))
            return hdo__fail(e, HDO_E_DATA, "%s: reading tensor '%s' failed", f->path, p[k].name);
    }
    return HDO_OK;
}

hdo_status hdo__record_restore(hdo_record *r, const char *dir, int64_t step, hdo_error *e) {
    char path[PATH_CAP];
    hdo_ckfile f;
    piece p[TENSORS_MAX];
    unsigned char digest[32];
    int n = pieces_of(r, p);
    hdo__ckfile_path(dir, step, path);
    hdo_status st = hdo__transport_settle(r->transport, hdo__ckfile_open(&f, path, e), e);
    if (st != HDO_OK) {
        hdo__ckfile_close(&f);
        return st;
    }
    st = hdo__state_load(r, f.state, path, e);
    if (st == HDO_OK) st = read_rows(r, &f, p, n, e);
    st = hdo__transport_settle(r->transport, st, e);
    if (st == HDO_OK) st = hash_rows(r, p, n, digest, e);
    if (st == HDO_OK) st = hdo__transport_settle(r->transport, hdo__ckfile_check(&f, digest, e), e);
    hdo__ckfile_close(&f);
    r->saved_step = step;
    r->saved_s = hdo__now_s();
    r->has_row = !hdo__record_due(r);
    return st;
}
