/* SPDX-License-Identifier: Apache-2.0
 *
 * Progress on stderr. On a terminal one line rewrites itself at most ten times a second, with a sparkline of the loss,
 * and never fills it: where it is narrow, the least important parts go. Elsewhere a plain line every ten seconds, so
 * that logs stay short.
 */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
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

static void spark(const cli_progress *p, int width, char *out, size_t cap) {
    static const char *const bars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    double lo = (double)INFINITY, hi = -(double)INFINITY;
    int first = p->n_curve > width ? p->n_curve - width : 0;
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

int cli_columns(void) {
    int64_t own;
    const char *set = getenv("COLUMNS");
    struct winsize w;
    if (set != NULL && cli_int(set, 1, 10000, &own)) return (int)own;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
}

/* Columns of a text: characters, not bytes. */
static int columns_of(const char *s) {
    int n = 0;
    for (; *s != '\0'; s++) n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

int cli_line(bool tty, const cli_piece *piece, int n) {
    int room = tty ? cli_columns() - 1 : INT_MAX, used = 0; /* a full line would wrap on some terminals */
    bool drop[8] = {false};
    for (int i = 0; i < n; i++) used += columns_of(piece[i].text);
    while (used > room) {
        int worst = -1;
        for (int i = 0; i < n; i++) {
            if (!drop[i] && (worst < 0 || piece[i].rank > piece[worst].rank)) worst = i;
        }
        if (worst < 0 || piece[worst].rank == 0) break; /* what is left is cut */
        drop[worst] = true;
        used -= columns_of(piece[worst].text);
    }
    char line[1024] = "";
    size_t len = 0;
    for (int i = 0; i < n; i++) {
        if (!drop[i]) len += (size_t)snprintf(line + len, sizeof line - len, "%s", piece[i].text);
        if (len >= sizeof line) len = sizeof line - 1;
    }
    const char *text = line;
    while (*text == ' ') text++;
    if (used > room) line[(size_t)(text - line) + (size_t)room] = '\0'; /* plain digits */
    if (tty) fputc('\r', stderr);
    hdo__quote_plain(stderr, text);
    fputs(tty ? "\033[K" : "\n", stderr);
    fflush(stderr);
    return room - used;
}

static void show(cli_progress *p, int64_t step, const hdo_row *row) {
    char name[80], at[64], curve[4 * SPARK + 3] = "", eta[32], when[48], loss[32] = "", acc[32] = "";
    double now = cli_now_s(), spent = now - p->start_s;
    snprintf(name, sizeof name, "%.70s ", p->label);
    snprintf(at, sizeof at, "%lld/%lld (%d%%)", (long long)step, (long long)p->total,
             p->total > 0 ? (int)(100 * step / p->total) : 100);
    if (row != NULL) {
        snprintf(loss, sizeof loss, "  loss %.4g", row->all.loss_mean);
        if (isfinite(row->all.acc_mean)) snprintf(acc, sizeof acc, "  acc %.4f", row->all.acc_mean);
    }
    cli_clock_text(step > 0 ? spent / (double)step * (double)(p->total - step) : 0.0, eta);
    snprintf(when, sizeof when, "  eta %s", eta);
    int room = p->tty ? cli_columns() - 3 : INT_MAX; /* for the curve: what the rest leaves */
    const char *const rest[] = {name, at, loss, acc, when};
    for (size_t i = 0; i < sizeof rest / sizeof rest[0]; i++) room -= columns_of(rest[i]);
    if (room >= 4) {
        curve[0] = curve[1] = ' ';
        spark(p, room < SPARK ? room : SPARK, curve + 2, sizeof curve - 2);
    }
    const cli_piece line[] = {{name, 3}, {at, 0}, {loss, 1}, {acc, 4}, {when, 2}, {curve, 5}};
    cli_line(p->tty, line, (int)(sizeof line / sizeof line[0]));
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
    fflush(stderr);
    p->live = false;
}
