/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast rows move between two ranks: our exchange (chunks, non-blocking, tested) against one bare MPI_Sendrecv of
 * the same bytes. Both directions at once, as an exchange is. Run on 2 ranks:
 *
 *     mpirun -n 2 bench_mpi_openmpi          mpiexec.mpich -n 2 bench_mpi_mpich
 *
 * The window holds one exchange: post, send, wait, no averaging. Prints CSV; gbytes counts both directions.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "transport/transport.h"

hdo_status hdo_transport_open(int abi, const char *version, const hdo_transport_setup *s, hdo_transport **out,
                              hdo_error *e);

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void print(const char *what, size_t bytes, int reps, double *t) {
    qsort(t, (size_t)reps, sizeof *t, by_value);
    printf("mpi_%s,%zu,mpi,1,%d,%.3e,%.3e,%.3e,0,%.3f\n", what, bytes, reps, t[reps / 2], t[reps / 10],
           t[reps * 9 / 10], 2e-9 * (double)bytes / t[reps / 2]);
}

static void exchange(hdo_transport *t, hdo_models *rows, int64_t step) {
    hdo_pair pair = {.a = 0, .b = 1};
    hdo_plan plan = {.pairs = &pair, .n_pairs = 1};
    hdo_error e = {0};
    float *mine, *peer;
    if (t->ops->exchange_begin(t, &plan, rows, step, &e) != HDO_OK) exit(1);
    t->ops->exchange_send(t, rows);
    if (t->ops->exchange_wait(t, &plan, rows, 0, &mine, &peer, &e) != HDO_OK) {
        fprintf(stderr, "%s\n", e.msg);
        exit(1);
    }
}

static void one_size(size_t numbers, int reps) {
    hdo_transport_setup s = {.deadline_s = 60.0, .chunk = 1 << 20};
    hdo_transport *t;
    hdo_error e = {0};
    if (hdo_transport_open(HDO_TRANSPORT_ABI, HDO_VERSION, &s, &t, &e) != HDO_OK || t->ranks != 2) {
        fprintf(stderr, "bench_mpi: start on 2 ranks. %s\n", e.msg);
        exit(1);
    }
    hdo__transport_assign(t, 2, (int[]){0, 1}, (int[]){1, 1});
    size_t bytes = numbers * sizeof(float);
    hdo_models rows = {.ld = numbers, .len = numbers, .first = t->rank, .count = 1};
    float *in = hdo__alloc(bytes);
    double *ours = malloc((size_t)reps * sizeof(double)), *raw = malloc((size_t)reps * sizeof(double));
    if (t->ops->reserve(t, &rows, &e) != HDO_OK || in == NULL || ours == NULL || raw == NULL) exit(1);
    memset(in, 1, bytes);
    for (int k = 0; k < reps + 2; k++) { /* in turns, so that both see the same machine; two to warm up */
        MPI_Barrier(MPI_COMM_WORLD);
        double t0 = hdo__now_s();
        exchange(t, &rows, k);
        double t1 = hdo__now_s();
        MPI_Barrier(MPI_COMM_WORLD);
        double t2 = hdo__now_s();
        MPI_Sendrecv(rows.X, (int)numbers, MPI_FLOAT, 1 - t->rank, 9, in, (int)numbers, MPI_FLOAT, 1 - t->rank, 9,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        double t3 = hdo__now_s();
        if (k < 2) continue;
        ours[k - 2] = t1 - t0;
        raw[k - 2] = t3 - t2;
    }
    if (t->rank == 0) {
        print("exchange", bytes, reps, ours);
        print("sendrecv", bytes, reps, raw);
    }
    hdo__free(in);
    free(ours);
    free(raw);
    t->ops->destroy(t);
}

int main(void) {
    one_size(7850, 400);    /* E2: softmax regression on MNIST */
    one_size(266610, 100);  /* a small network */
    one_size(11800000, 10); /* ResNet18 */
    return 0;
}
