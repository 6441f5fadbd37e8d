/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages of the asynchronous engine: six words and perhaps a row behind them. A sender never waits: a message goes
 * into one of a few buffers, and when all are under way the caller hears no and does without.
 */
#include <string.h>

#include "transport/mpi/tp_mpi.h"

static bool prepare(mpi_tp *t) {
    if (t->posts != NULL) return true;
    float *rows = hdo__alloc(POSTS_MAX * t->ld * sizeof(float));
    t->inbox = hdo__alloc(t->ld * sizeof(float));
    t->posts = hdo__alloc(POSTS_MAX * sizeof *t->posts);
    if (rows == NULL || t->inbox == NULL || t->posts == NULL) return false;
    for (int k = 0; k < POSTS_MAX; k++) {
        t->posts[k].row = rows + (size_t)k * t->ld;
        t->posts[k].req[0] = t->posts[k].req[1] = MPI_REQUEST_NULL;
    }
    return true;
}

bool mpi_post_message(hdo_transport *base, int to, const hdo_message *m) {
    mpi_tp *t = (mpi_tp *)base;
    if (!prepare(t)) return false;
    for (int k = 0; k < POSTS_MAX; k++) {
        mpi_post *p = &t->posts[k];
        int done = 0;
        MPI_Testall(2, p->req, &done, MPI_STATUSES_IGNORE);
        if (!done) continue;
        memcpy(p->word, m->word, sizeof m->word);
        p->word[HDO_MESSAGE_WORDS] = m->row != NULL;
        MPI_Isend(p->word, HDO_MESSAGE_WORDS + 1, MPI_INT64_T, to, TAG_MESSAGE, t->control, &p->req[0]);
        if (m->row != NULL) {
            memcpy(p->row, m->row, t->ld * sizeof(float));
            MPI_Isend(p->row, (int)t->ld, MPI_FLOAT, to, TAG_ROW, t->rows, &p->req[1]);
            base->sent_bytes += (int64_t)(t->ld * sizeof(float));
        }
        base->sent_messages++;
        return true;
    }
    return false;
}

bool mpi_next_message(hdo_transport *base, int *from, hdo_message *m) {
    mpi_tp *t = (mpi_tp *)base;
    int there = 0;
    MPI_Status s;
    int64_t word[HDO_MESSAGE_WORDS + 1];
    if (!prepare(t)) return false;
    MPI_Iprobe(MPI_ANY_SOURCE, TAG_MESSAGE, t->control, &there, &s);
    if (!there) return false;
    MPI_Recv(word, HDO_MESSAGE_WORDS + 1, MPI_INT64_T, s.MPI_SOURCE, TAG_MESSAGE, t->control, MPI_STATUS_IGNORE);
    memcpy(m->word, word, sizeof m->word);
    m->row = NULL;
    *from = s.MPI_SOURCE;
    if (word[HDO_MESSAGE_WORDS] != 0) {
        MPI_Recv(t->inbox, (int)t->ld, MPI_FLOAT, s.MPI_SOURCE, TAG_ROW, t->rows, MPI_STATUS_IGNORE);
        m->row = t->inbox;
    }
    return true;
}
