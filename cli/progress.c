/* SPDX-License-Identifier: Apache-2.0
 *
 * Progress on stderr. On a terminal one line rewrites itself at most ten times a second, with a sparkline of the loss;
 * elsewhere a plain line every ten seconds, so that logs stay short.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

enum { SPARK = 24 };

void cli_progress_start(cli_progress *p, const char *label, int64_t total) {
    const char *term = getenv("TERM");
    *p = (cli_progress){.label = label, .total = total, .start_s = cli_now_s(), .keep_every = 1};
    int rank, ranks;
    p->tty = isatty(STDERR_FILENO) && (term == NULL || strcmp(term, "dumb") != 0) && !hdo_mpi_launched(&rank, &ranks);
    p->last_s = p->start_s;
}

/* Keeps at most 64 losses: when full, every second one goes and the spacing doubles. */
static void remember(cli_progress *p, double loss) {
    if (p->seen++ % p->keep_every != 0) return;
    const int cap = (int)(sizeof p->curve / sizeof p->curve[0]);
    if (p->n_curve == cap) {
        for (int i = 0; i < cap / 2; i++) p->curve[i] = p->curve[2 * i];
        p->n_curve = cap / 2;
        p->keep_every *= 2;
    }
    p->curve[p->n_curve++] = loss;
}

static void spark(const cli_progress *p, char *out, size_t cap) {
    static const char *const bars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    double lo = (double)INFINITY, hi = -(double)INFINITY;
    int first = p->n_curve > SPARK ? p->n_curve - SPARK : 0;
    for (int i = first; i < p->n_curve; i++) {
        if (!isfinite(p->curve[i])) continue;
        lo = fmin(lo, p->curve[i]);
        hi = fmax(hi, p->curve[i]);
    }
    size_t len = 0;
    out[0] = '\0';
    for (int i = first; i < p->n_curve && len + 8 < cap; i++) {
        double t = hi > lo ? (p->curve[i] - lo) / (hi - lo) : 0.0;
        const char *bar = isfinite(p->curve[i]) ? bars[(int)(7.0 * t + 0.5)] : "!";
        len += (size_t)snprintf(out + len, cap - len, "%s", bar);
    }
}

void cli_clock_text(double s, char buf[32]) {
    long t = s < 0.0 ? 0 : s > 3.5e6 ? 3599999 : (long)(s + 0.5); /* at most 999:59:59 */
    if (t >= 3600) {
        snprintf(buf, 32, "%ld:%02ld:%02ld", t / 3600, t / 60 % 60, t % 60);
    } else {
        snprintf(buf, 32, "%ld:%02ld", t / 60, t % 60);
    }
}

static void show(cli_progress *p, int64_t step, const hdo_row *row) {
    char curve[4 * SPARK + 1], eta[32];
    double now = cli_now_s(), spent = now - p->start_s;
    spark(p, curve, sizeof curve);
    cli_clock_text(step > 0 ? spent / (double)step * (double)(p->total - step) : 0.0, eta);
    char loss[64] = "";
    if (row != NULL) {
        int n = snprintf(loss, sizeof loss, "  loss %.4g", row->all.loss_mean);
        if (isfinite(row->all.acc_mean)) snprintf(loss + n, sizeof loss - (size_t)n, "  acc %.4f", row->all.acc_mean);
    }
    fprintf(stderr, "%s%s %lld/%lld (%d%%)%s  eta %s  %s%s", p->tty ? "\r" : "", p->label, (long long)step,
            (long long)p->total, p->total > 0 ? (int)(100 * step / p->total) : 100, loss, eta, curve,
            p->tty ? "\033[K" : "\n");
    fflush(stderr);
    p->last_s = now;
    p->live = p->tty;
}

void cli_progress_row(cli_progress *p, const hdo_row *row) {
    remember(p, row->all.loss_mean);
}

void cli_progress_step(cli_progress *p, int64_t step, const hdo_row *row) {
    if (cli_quiet()) return;
    if (cli_now_s() - p->last_s >= (p->tty ? 0.1 : 10.0)) show(p, step, row);
}

void cli_progress_end(cli_progress *p) {
    if (p->live) fprintf(stderr, "\r\033[K");
    p->live = false;
}
