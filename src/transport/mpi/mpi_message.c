/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages of the asynchronous engine: a few words and perhaps a row behind them. A sender never waits: a message goes
 * into one of the buffers, and when all are under way the caller hears no. A receiver never waits either: a row that
 * has been announced but not arrived is asked for again with the next call.
 */
#include <string.h>

#include "transport/mpi/tp_mpi.h"

static bool prepare(mpi_tp *t) {
    if (t->posts != NULL) return true;
    t->n_with_row = hdo__transport_offers(&t->base) * t->base.ranks; /* all offers and answers that can be under way */
    t->n_posts = t->n_with_row + SMALL_A_RANK * t->base.ranks;
    float *rows = hdo__alloc((size_t)t->n_with_row * t->ld * sizeof(float));
    t->inbox = hdo__alloc(t->ld * sizeof(float));
    t->posts = hdo__alloc((size_t)t->n_posts * sizeof *t->posts);
    if (rows == NULL || t->inbox == NULL || t->posts == NULL) return false;
    for (int k = 0; k < t->n_posts; k++) {
        t->posts[k].row = k < t->n_with_row ? rows + (size_t)k * t->ld : NULL;
        t->posts[k].req[0] = t->posts[k].req[1] = MPI_REQUEST_NULL;
    }
    t->coming = MPI_REQUEST_NULL;
    return true;
}

bool mpi_post_message(hdo_transport *base, int to, const hdo_message *m) {
    mpi_tp *t = (mpi_tp *)base;
    if (!prepare(t)) return false;
    for (int k = m->row != NULL ? 0 : t->n_with_row; k < (m->row != NULL ? t->n_with_row : t->n_posts); k++) {
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
    if (!prepare(t)) return false;
    if (t->coming == MPI_REQUEST_NULL) {
        MPI_Iprobe(MPI_ANY_SOURCE, TAG_MESSAGE, t->control, &there, &s);
        if (!there) return false;
        t->coming_from = s.MPI_SOURCE;
        MPI_Recv(t->coming_word, HDO_MESSAGE_WORDS + 1, MPI_INT64_T, s.MPI_SOURCE, TAG_MESSAGE, t->control,
                 MPI_STATUS_IGNORE); /* small and here already: does not block */
        if (t->coming_word[HDO_MESSAGE_WORDS] != 0) {
            MPI_Irecv(t->inbox, (int)t->ld, MPI_FLOAT, s.MPI_SOURCE, TAG_ROW, t->rows, &t->coming);
        }
    }
    bool with_row = t->coming != MPI_REQUEST_NULL;
    if (with_row) {
        MPI_Test(&t->coming, &there, MPI_STATUS_IGNORE);
        if (!there) return false;
    }
    memcpy(m->word, t->coming_word, sizeof m->word);
    m->row = with_row ? t->inbox : NULL;
    *from = t->coming_from;
    return true;
}
