/* SPDX-License-Identifier: Apache-2.0
 *
 * sum_r c_r u_r for directions of low rank. In a matrix (m, n) it is A' B with the factors of all directions under each
 * other, (k rank, m) and (k rank, n): rank (m + n) numbers a direction are drawn instead of m n, and the rest is a
 * product. Tasks are blocks of rows of the tensors; the cut depends on nothing but the model.
 */
#include <string.h>

#include "base/vec.h"
#include "estimator/estimator.h"
#include "kernels/kernels.h"

enum { ROWS = 128, TILE = 2048, FLOATS = 1 << 16 }; /* rows of a task; numbers of a plain one; factors at a time */

typedef struct job {
    const hdo_dirs *u;
    int first, k;
    const double *c;
    float *g;
} job;

static int tasks_of(const hdo_dirs *u, const hdo_tensor *t) {
    int m, n;
    bool matrix = hdo__dirs_matrix(u, t->off, &m, &n) != NULL;
    return matrix ? (m + ROWS - 1) / ROWS : (int)((t->len + TILE - 1) / TILE);
}

/* Directions whose factors are held at a time. */
static int group_of(int rank, int n) {
    size_t one = (size_t)rank * (size_t)(ROWS + n);
    return one >= FLOATS ? 1 : (int)(FLOATS / one);
}

static void plain(const job *j, size_t off, size_t end) {
    float tile[TILE];
    for (size_t len; (len = hdo__outside(j->u->idle, &off, end, TILE)) > 0; off += len)
        for (int r = 0; r < j->k; r++) {
            hdo__dirs_fill(j->u, j->first + r, off, len, tile);
            hdo__axpy(len, (float)j->c[r], tile, j->g + off);
        }
}

/* Rows [i0, i0 + rows) of the matrix t (m, n). */
static void product(const job *j, const hdo_tensor *t, int n, int i0, int rows, hdo_arena *arena) {
    int rank = j->u->rank, group = group_of(rank, n);
    size_t mark = hdo__arena_mark(arena), cols = (size_t)n;
    float *A = hdo__arena_floats(arena, (size_t)group * (size_t)rank * (size_t)rows);
    float *B = hdo__arena_floats(arena, (size_t)group * (size_t)rank * cols);
    for (int r = 0; r < j->k; r += group) {
        int now = j->k - r < group ? j->k - r : group;
        for (int i = 0; i < now; i++)
            hdo__dirs_factor_rows(j->u, j->first + r + i, t, i0, rows, (float)j->c[r + i],
                                  A + (size_t)i * (size_t)(rank * rows), B + (size_t)i * (size_t)rank * cols);
        hdo__kernels(HDO_KERNELS_AUTO)
            ->gemm(true, false, rows, n, now * rank, 1.0f, A, rows, B, n, 1.0f, j->g + t->off + (size_t)i0 * cols, n);
    }
    hdo__arena_rewind(arena, mark);
}

static void combine_task(void *ctx, int task, hdo_work *w) {
    const job *j = ctx;
    const hdo_tensor *t = j->u->tensors;
    int m, n;
    for (int n_tasks; task >= (n_tasks = tasks_of(j->u, t)); t++) task -= n_tasks;
    if (hdo__dirs_matrix(j->u, t->off, &m, &n) != NULL) {
        product(j, t, n, task * ROWS, m - task * ROWS < ROWS ? m - task * ROWS : ROWS, w->arena);
        return;
    }
    size_t off = t->off + (size_t)task * TILE, end = t->off + t->len;
    plain(j, off, end - off < TILE ? end : off + TILE);
}

void hdo__combine_low_rank(const hdo_dirs *u, int first, int k, const double *c, hdo_team *team, float *g) {
    job j = {u, first, k, c, g};
    int tasks = 0;
    for (int t = 0; t < u->n_tensors; t++) tasks += tasks_of(u, &u->tensors[t]);
    hdo__team_run(team, tasks, combine_task, &j);
}

size_t hdo__combine_low_rank_bytes(const hdo_estimator *s, const hdo_objective *f) {
    const hdo_dirs u = {.rank = s->rank, .tensors = f->tensors, .n_tensors = f->n_tensors};
    size_t most = 0;
    for (int t = 0; t < f->n_tensors && s->rank > 0; t++) {
        int m, n;
        if (hdo__dirs_matrix(&u, f->tensors[t].off, &m, &n) == NULL) continue;
        size_t held = (size_t)group_of(s->rank, n) * (size_t)s->rank;
        size_t need =
            hdo__arena_round(held * ROWS * sizeof(float)) + hdo__arena_round(held * (size_t)n * sizeof(float));
        most = need > most ? need : most;
    }
    return most;
}
