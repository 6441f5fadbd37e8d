/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks of one machine keep their rows in memory they have in common: one of the two ranks of a pair averages both
 * rows where they are, as the simulator would, and nothing is copied. A rank says in its own head that the local steps
 * of a step are done; that a step's averages are done is known once all ranks have agreed at its end.
 *
 * Memory without a name (memfd), found through /proc: nothing is left behind however a rank ends, and /dev/shm, small
 * in many containers, is not touched. All pages are claimed at once: too little memory is an answer, not a SIGBUS in
 * step 1000. Ranks that cannot reach each other's memory (containers, other machines of the same name) use messages.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "transport/mpi/tp_mpi.h"

enum { PAGE = 4096, TOKEN_BYTES = 16 };

struct shared_head {
    unsigned char token[TOKEN_BYTES]; /* is this the memory that was meant? */
    _Atomic int64_t steps_done;
    _Alignas(PAGE) float X[]; /* (held, ld) */
};

typedef struct invitation { /* where a rank's memory is */
    int64_t pid;
    int fd; /* -1: there is none */
    unsigned char token[TOKEN_BYTES];
} invitation;

static size_t bytes_of(const mpi_tp *t, int rank) {
    return sizeof(shared_head) + (size_t)t->base.held[rank] * t->ld * sizeof(float);
}

static shared_head *map(int fd, size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return p != MAP_FAILED ? p : NULL;
}

/* This rank's memory, and how others find it. */
static void make(mpi_tp *t, invitation *own) {
    size_t bytes = bytes_of(t, t->base.rank);
    *own = (invitation){.pid = getpid(), .fd = memfd_create("hdo-rows", MFD_CLOEXEC)};
    bool good = own->fd >= 0 && posix_fallocate(own->fd, 0, (off_t)bytes) == 0 &&
                getrandom(own->token, TOKEN_BYTES, 0) == TOKEN_BYTES;
    shared_head *head = good ? map(own->fd, bytes) : NULL;
    if (head != NULL) {
        memcpy(head->token, own->token, TOKEN_BYTES);
        t->shared[t->base.rank] = head;
    } else if (own->fd >= 0) {
        close(own->fd);
        own->fd = -1;
    }
}

/* The memory of another rank; NULL if it is out of reach. The number may mean anything here: look before use. */
static shared_head *enter(const invitation *in, size_t bytes) {
    char path[64];
    struct stat s;
    snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)in->pid, in->fd);
    int fd = in->fd >= 0 ? open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) : -1;
    if (fd < 0) return NULL;
    shared_head *head = NULL;
    if (fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_size == (off_t)bytes) head = map(fd, bytes);
    close(fd);
    if (head != NULL && memcmp(head->token, in->token, TOKEN_BYTES) != 0) {
        munmap(head, bytes);
        head = NULL;
    }
    return head;
}

static bool same_host(const mpi_tp *t, int rank) {
    return strcmp(t->hosts[rank], t->hosts[t->base.rank]) == 0;
}

/* All ranks of this machine, or none of them: whether a pair is shared must look the same from both sides. */
static hdo_status join(mpi_tp *t, invitation *all, int *reached, hdo_error *e) {
    int me = t->base.rank, ranks = t->base.ranks;
    MPI_Request req;
    make(t, &all[me]);
    int fd = all[me].fd;
    MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, (int)sizeof *all, MPI_BYTE, t->control, &req);
    hdo_status st = mpi_wait(t, 1, &req, -1, "all ranks to offer their memory", -1, e);
    reached[me] = t->shared[me] != NULL;
    for (int r = 0; r < ranks && st == HDO_OK && reached[me]; r++) {
        if (r == me || !same_host(t, r)) continue;
        t->shared[r] = enter(&all[r], bytes_of(t, r));
        reached[me] = t->shared[r] != NULL;
    }
    if (st == HDO_OK) {
        MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, reached, 1, MPI_INT, t->control, &req);
        st = mpi_wait(t, 1, &req, -1, "all ranks to find each other's memory", -1, e);
    }
    if (fd >= 0) close(fd); /* the mapping stays */
    bool together = st == HDO_OK;
    for (int r = 0; r < ranks; r++) together = together && (reached[r] || !same_host(t, r));
    if (!together) mpi_unshare(t);
    return st;
}

hdo_status mpi_share(mpi_tp *t, hdo_error *e) {
    size_t ranks = (size_t)t->base.ranks;
    t->shared = hdo__alloc(ranks * sizeof *t->shared);
    invitation *all = hdo__alloc(ranks * sizeof *all);
    int *reached = hdo__alloc(ranks * sizeof *reached);
    hdo_status st = HDO_E_MEMORY;
    if (t->shared != NULL && all != NULL && reached != NULL) {
        st = t->setup.shared && ranks > 1 ? join(t, all, reached, e) : HDO_OK;
    } else {
        hdo__fail(e, st, "out of memory for %zu ranks", ranks);
    }
    hdo__free(all);
    hdo__free(reached);
    return st;
}

void mpi_unshare(mpi_tp *t) {
    for (int r = 0; r < t->base.ranks && t->shared != NULL; r++) {
        if (t->shared[r] != NULL) munmap(t->shared[r], bytes_of(t, r));
        t->shared[r] = NULL;
    }
}

float *mpi_shared_row(const mpi_tp *t, int rank, int node) {
    return t->shared[rank]->X + (size_t)(node - t->base.start[rank]) * t->ld;
}

void mpi_shared_ready(mpi_tp *t) {
    shared_head *own = t->shared[t->base.rank];
    if (own != NULL) atomic_store_explicit(&own->steps_done, t->step + 1, memory_order_release);
}

static bool has_stepped(mpi_tp *t, void *ctx) {
    const shared_head *head = ctx;
    if (atomic_load_explicit(&head->steps_done, memory_order_acquire) > t->step) return true;
    mpi_move(t);
    return false;
}

hdo_status mpi_shared_wait(mpi_tp *t, int rank, int node, hdo_error *e) {
    return mpi_wait_until(t, has_stepped, t->shared[rank], rank, "the model of node", node, e);
}
