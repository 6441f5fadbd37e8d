/* SPDX-License-Identifier: Apache-2.0
 *
 * The paper's claims as small predicates on stored curves. Each row of the table compares one number per seed of two
 * curves (or of one curve with a limit); the verdict is Student's at 95 %, without correction for the number of rows.
 *
 *   BETTER     mean of the metric over a window of the run: lower loss, higher accuracy
 *   MEAN_MODEL the same for the loss of the mean of all models
 *   FIXED_NODE the same for node 0, the paper's fixed node; in a hybrid it is a first-order one
 *   EQUAL_COST the metric where both have spent as much as the one that spent least in all (oracle/cost)
 *   SLOWER     mean loss over the whole run is higher (area under the curve)
 *   ROUGHER    logarithm of the rms second difference of the curve in its second half is higher
 *   VANISHES   spread over nodes in the last tenth, over its largest value in the run, is below the limit
 *   SIMILAR    |a - b| / b of the final loss, of runs with the same seed, is below the limit
 *
 * Divergence is an outcome, not evidence: a part with a diverged run is undecided, and the numbers of diverged runs
 * only say which way it leans. One seed decides nothing.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hdo/lab/paper.h"

typedef enum kind { BETTER, MEAN_MODEL, FIXED_NODE, EQUAL_COST, SLOWER, ROUGHER, VANISHES, SIMILAR } kind;

typedef struct row {
    int claim; /* 0: another figure of the same runs, which counts towards no claim */
    const char *experiment, *a, *b;
    kind kind;
    double from, to; /* window, in parts of the run */
    double limit;    /* VANISHES, SIMILAR */
    const char *text;
} row;

static const char *const claims[] = {
    "more random vectors, and unbiased instead of biased estimators, give better accuracy per step",
    "first-order nodes beat the same or a smaller number of zeroth-order ones",
    "many zeroth-order nodes beat few first-order or zeroth-order ones",
    "a hybrid population beats each of its parts, after a first phase led by the first-order nodes",
    "small learning rates are smooth; 0.5 oscillates and is slower",
    "fewer random vectors converge more slowly and fluctuate more",
    "the spread of losses over nodes goes to zero, more FO nodes are faster, ZO nodes alone reach a similar final loss",
};

#define END 0.9, 1.0
#define ALL 0.0, 1.0
#define LATE 0.5, 1.0
#define EARLY 0.04, 0.3   /* "initially", with a crossing after step 200 of 500 */
#define EARLY_E4 0.1, 0.3 /* the same, once the warm-up, a tenth of the run, is over and nodes meet */

static const row rows[] = {
    {1, "e1", "forward rv 128", "forward rv 16", BETTER, ALL, 0, "forward: 128 vectors beat 16"},
    {1, "e1", "forward rv 16", "forward rv 8", BETTER, ALL, 0, "forward: 16 vectors beat 8"},
    {1, "e1", "fd rv 128", "fd rv 16", BETTER, ALL, 0, "differences: 128 vectors beat 16"},
    {1, "e1", "fd rv 16", "fd rv 8", BETTER, ALL, 0, "differences: 16 vectors beat 8"},
    {1, "e1", "forward rv 128", "fd rv 128", BETTER, ALL, 0, "128 vectors: unbiased beats biased"},
    {1, "e1", "forward rv 16", "fd rv 16", BETTER, ALL, 0, "16 vectors: unbiased beats biased"},
    {1, "e1", "forward rv 8", "fd rv 8", BETTER, ALL, 0, "8 vectors: unbiased beats biased"},
    {0, "e1", "forward rv 8", "forward rv 128", EQUAL_COST, ALL, 0, "forward, at equal cost: 8 vectors beat 128"},
    {0, "e1", "fd rv 8", "fd rv 128", EQUAL_COST, ALL, 0, "differences, at equal cost: 8 vectors beat 128"},

    {2, "e2", "1fo", "1zo", BETTER, END, 0, "1 FO beats 1 ZO"},
    {2, "e2", "24fo", "1zo", BETTER, END, 0, "24 FO beat 1 ZO"},
    {2, "e2", "24fo", "24zo", BETTER, END, 0, "24 FO beat 24 ZO"},
    {3, "e2", "256zo", "1fo", BETTER, END, 0, "256 ZO beat 1 FO"},
    {3, "e2", "256zo", "24fo", BETTER, END, 0, "256 ZO beat 24 FO at the end"},
    {3, "e2", "256zo", "24zo", BETTER, END, 0, "256 ZO beat 24 ZO"},
    {4, "e2", "24fo+256zo", "24fo", BETTER, END, 0, "the hybrid beats 24 FO at the end"},
    {4, "e2", "24fo+256zo", "256zo", BETTER, END, 0, "the hybrid beats 256 ZO at the end"},
    {4, "e2", "24fo", "24fo+256zo", BETTER, EARLY, 0, "24 FO lead the hybrid at first (steps 20 to 150)"},
    {4, "e2", "24fo", "256zo", BETTER, EARLY, 0, "24 FO lead 256 ZO at first (steps 20 to 150)"},

    {0, "e2", "24fo+256zo", "24fo", MEAN_MODEL, END, 0, "the mean model of the hybrid beats that of 24 FO"},
    {0, "e2", "256zo", "24fo", MEAN_MODEL, END, 0, "the mean model of 256 ZO beats that of 24 FO"},
    {0, "e2", "24fo", "24zo", FIXED_NODE, END, 0, "fixed node: 24 FO beat 24 ZO"},
    {0, "e2", "256zo", "24fo", FIXED_NODE, END, 0, "fixed node: 256 ZO beat 24 FO"},
    {0, "e2", "24fo+256zo", "24fo", FIXED_NODE, END, 0, "fixed node: the hybrid beats 24 FO"},
    {0, "e2", "24fo+256zo", "256zo", FIXED_NODE, END, 0, "fixed node: the hybrid beats 256 ZO"},

    {2, "e3", "1fo", "1zo", BETTER, END, 0, "1 FO beats 1 ZO"},
    {3, "e3", "5zo", "1fo", BETTER, END, 0, "5 ZO beat 1 FO"},
    {3, "e3", "5zo", "1zo", BETTER, END, 0, "5 ZO beat 1 ZO"},
    {4, "e3", "1fo+5zo", "1fo", BETTER, END, 0, "the hybrid beats 1 FO"},
    {4, "e3", "1fo+5zo", "5zo", BETTER, END, 0, "the hybrid beats 5 ZO"},

    {0, "e3", "1fo+5zo", "1fo", FIXED_NODE, END, 0, "fixed node: the hybrid beats 1 FO"},
    {0, "e3", "1fo+5zo", "5zo", FIXED_NODE, END, 0, "fixed node: the hybrid beats 5 ZO"},

    {2, "e4", "1fo", "1zo", BETTER, END, 0, "1 FO beats 1 ZO"},
    {2, "e4", "4fo", "1zo", BETTER, END, 0, "4 FO beat 1 ZO"},
    {3, "e4", "16zo", "1fo", BETTER, END, 0, "16 ZO beat 1 FO"},
    {3, "e4", "16zo", "1zo", BETTER, END, 0, "16 ZO beat 1 ZO"},
    {3, "e4", "16zo", "4fo", BETTER, END, 0, "16 ZO beat 4 FO"},
    {4, "e4", "4fo+16zo", "4fo", BETTER, END, 0, "the hybrid beats 4 FO"},
    {4, "e4", "4fo+16zo", "16zo", BETTER, END, 0, "the hybrid beats 16 ZO"},
    {4, "e4", "4fo", "4fo+16zo", BETTER, EARLY_E4, 0, "4 FO lead the hybrid at first (steps 110 to 330)"},
    {4, "e4", "4fo", "16zo", BETTER, EARLY_E4, 0, "4 FO lead 16 ZO at first (steps 110 to 330)"},

    {0, "e4", "4fo+16zo", "4fo", MEAN_MODEL, END, 0, "the mean model of the hybrid beats that of 4 FO"},
    {0, "e4", "4fo+16zo", "4fo", FIXED_NODE, END, 0, "fixed node: the hybrid beats 4 FO"},
    {0, "e4", "4fo+16zo", "16zo", FIXED_NODE, END, 0, "fixed node: the hybrid beats 16 ZO"},

    {5, "e5", "lr 0.5", "lr 0.005", ROUGHER, LATE, 0, "lr 0.5 oscillates more than 0.005"},
    {5, "e5", "lr 0.5", "lr 0.01", ROUGHER, LATE, 0, "lr 0.5 oscillates more than 0.01"},
    {5, "e5", "lr 0.5", "lr 0.01", SLOWER, ALL, 0, "lr 0.5 is slower than 0.01"},
    {5, "e5", "lr 0.5", "lr 0.05", SLOWER, ALL, 0, "lr 0.5 is slower than 0.05"},

    {6, "e6", "4fo+16zo rv 8", "4fo+16zo rv 64", SLOWER, ALL, 0, "hybrid: 8 vectors are slower than 64"},
    {6, "e6", "4fo+16zo rv 16", "4fo+16zo rv 32", SLOWER, ALL, 0, "hybrid: 16 vectors are slower than 32"},
    {6, "e6", "4fo+16zo rv 8", "4fo+16zo rv 64", ROUGHER, LATE, 0, "hybrid: 8 vectors fluctuate more than 64"},
    {6, "e6", "16zo rv 8", "16zo rv 64", SLOWER, ALL, 0, "16 ZO: 8 vectors are slower than 64"},
    {6, "e6", "16zo rv 16", "16zo rv 32", SLOWER, ALL, 0, "16 ZO: 16 vectors are slower than 32"},
    {6, "e6", "16zo rv 8", "16zo rv 64", ROUGHER, LATE, 0, "16 ZO: 8 vectors fluctuate more than 64"},
    {0, "e6", "4fo+16zo rv 8", "4fo+16zo rv 64", EQUAL_COST, ALL, 0, "hybrid, at equal cost: 8 vectors beat 64"},
    {0, "e6", "16zo rv 8", "16zo rv 64", EQUAL_COST, ALL, 0, "16 ZO, at equal cost: 8 vectors beat 64"},

    {7, "e7", "16fo", NULL, VANISHES, END, 0.1, "16 FO: spread below a tenth of its largest value"},
    {7, "e7", "12fo+4zo", NULL, VANISHES, END, 0.1, "12 FO + 4 ZO: the same"},
    {7, "e7", "8fo+8zo", NULL, VANISHES, END, 0.1, "8 FO + 8 ZO: the same"},
    {7, "e7", "4fo+12zo", NULL, VANISHES, END, 0.1, "4 FO + 12 ZO: the same"},
    {7, "e7", "16zo", NULL, VANISHES, END, 0.1, "16 ZO: the same"},
    {7, "e7", "8fo+8zo", "16fo", SLOWER, ALL, 0, "8 FO + 8 ZO are slower than 16 FO"},
    {7, "e7", "16zo", "8fo+8zo", SLOWER, ALL, 0, "16 ZO are slower than 8 FO + 8 ZO"},
    {7, "e7", "16zo", "16fo", SIMILAR, END, 0.25, "final loss of 16 ZO within a quarter of that of 16 FO"},
};
enum { N_ROWS = sizeof rows / sizeof rows[0], N_CLAIMS = sizeof claims / sizeof claims[0], RUNS_MAX = 256 };

const char *hdo_claim_text(int claim) {
    return claim >= 1 && claim <= N_CLAIMS ? claims[claim - 1] : NULL;
}

const char *hdo_verdict_text(hdo_verdict v) {
    return v == HDO_HOLDS ? "holds" : v == HDO_FAILS ? "does not hold" : "undecided";
}

/* ---- one number per seed ---- */

typedef struct sample {
    double v[RUNS_MAX];
    int64_t seed[RUNS_MAX];
    int n, diverged;
} sample;

/* Mean over the window; the ends are those of the longest run, so that a run that stopped early has no value. */
static double window_mean(const hdo_series *s, double lo, double hi) {
    double sum = 0.0;
    int n = 0;
    for (int i = 0; i < s->n; i++) {
        if (s->x[i] < lo || s->x[i] > hi) continue;
        sum += s->y[i];
        n++;
    }
    return n > 0 ? sum / n : (double)NAN;
}

static double roughness(const hdo_series *s, double lo, double hi) {
    double sum = 0.0;
    int n = 0;
    for (int i = 1; i + 1 < s->n; i++) {
        if (s->x[i] < lo || s->x[i] > hi) continue;
        double bend = s->y[i - 1] - 2.0 * s->y[i] + s->y[i + 1];
        sum += bend * bend / 6.0; /* the variance of independent noise on the points */
        n++;
    }
    return n > 0 && sum > 0.0 ? 0.5 * log(sum / n) : (double)NAN;
}

static double decay(const hdo_series *s, double lo, double hi) {
    double most = 0.0;
    for (int i = 0; i < s->n; i++) most = fmax(most, s->y[i]);
    return most > 0.0 ? window_mean(s, lo, hi) / most : (double)NAN;
}

static void measure(const hdo_bundle *b, const row *r, double end, sample *out) {
    double lo = r->from * end, hi = r->to * end;
    out->n = out->diverged = 0;
    for (int k = 0; k < b->n_runs && out->n < RUNS_MAX; k++) {
        const hdo_series *s = &b->run[k];
        double v = s->diverged             ? (double)NAN
                   : r->kind == ROUGHER    ? roughness(s, lo, hi)
                   : r->kind == VANISHES   ? decay(s, lo, hi)
                   : r->kind == EQUAL_COST ? hdo_series_at(s, end)
                                           : window_mean(s, lo, hi);
        if (s->diverged) out->diverged++;
        if (!isfinite(v)) continue;
        out->v[out->n] = v;
        out->seed[out->n++] = s->seed;
    }
}

/* ---- verdicts ---- */

static bool accuracy(const hdo_paper_case *k) {
    return strstr(k->x->figure[0].metric, "acc") != NULL;
}

static const char *metric_of(const hdo_paper_case *k, const row *r) {
    if (r->kind == VANISHES) return "val/loss_std";
    if (r->kind == MEAN_MODEL) return "val/loss_mu";
    if (r->kind == FIXED_NODE) return accuracy(k) ? "val/acc_node0" : "val/loss_node0";
    return (r->kind == BETTER || r->kind == EQUAL_COST) && accuracy(k) ? "val/acc_mean" : "val/loss_mean";
}

static const char *quantity_of(const hdo_paper_case *k, const row *r) {
    bool acc = accuracy(k);
    switch (r->kind) {
    case ROUGHER: return "log of the fluctuation of the loss";
    case VANISHES: return "spread at the end over its largest";
    case SLOWER: return "loss, mean over the run";
    case MEAN_MODEL: return "loss of the mean model, last tenth";
    case FIXED_NODE: return acc ? "accuracy of node 0, last tenth" : "loss of node 0, last tenth";
    case EQUAL_COST: return acc ? "accuracy at equal cost" : "loss at equal cost";
    case SIMILAR: return "relative difference of the final loss";
    default: break;
    }
    if (r->to < 1.0) return acc ? "accuracy, early" : "loss, early";
    if (r->from == 0.0) return acc ? "accuracy, mean over the run" : "loss, mean over the run";
    return acc ? "accuracy, last tenth" : "loss, last tenth";
}

static double end_of(const hdo_bundle *b, double end) {
    for (int k = 0; k < b->n_runs; k++) {
        if (b->run[k].n > 0) end = fmax(end, b->run[k].x[b->run[k].n - 1]);
    }
    return end;
}

/* The least that a run of the group got to. */
static double least_end(const hdo_bundle *b, double end) {
    for (int k = 0; k < b->n_runs; k++) {
        if (b->run[k].n > 0 && !b->run[k].diverged) end = fmin(end, b->run[k].x[b->run[k].n - 1]);
    }
    return end;
}

/* Where the mean curves change places for the last time. */
static void note_crossing(const hdo_bundle *a, const hdo_bundle *b, double end, char *note, size_t cap) {
    double last = 0.0, before = 0.0;
    for (int i = 1; i <= 100; i++) {
        double x = end * i / 100.0, d = 0.0;
        for (int k = 0; k < a->n_runs; k++) d += hdo_series_at(&a->run[k], x) / a->n_runs;
        for (int k = 0; k < b->n_runs; k++) d -= hdo_series_at(&b->run[k], x) / b->n_runs;
        if (!isfinite(d)) return;
        if (before * d < 0.0) last = x;
        before = d != 0.0 ? d : before;
    }
    if (last > 0.0) snprintf(note, cap, "the mean curves cross last near step %.0f", last);
}

/* `sign` > 0: the claim is that a is larger. */
static hdo_verdict by_sign(const hdo_difference *d, int sign) {
    if (!isfinite(d->low) || (d->low <= 0.0 && d->high >= 0.0)) return HDO_UNDECIDED;
    return (d->low > 0.0) == (sign > 0) ? HDO_HOLDS : HDO_FAILS;
}

static hdo_verdict below(const hdo_difference *d) { /* d: value minus limit */
    if (!isfinite(d->low)) return HDO_UNDECIDED;
    return d->high < 0.0 ? HDO_HOLDS : d->low > 0.0 ? HDO_FAILS : HDO_UNDECIDED;
}

/* What is left to say without confidence: which way the means go. */
static int lean(double more, int sign) {
    return more > 0.0 ? sign : more < 0.0 ? -sign : 0;
}

/* |a - b| / b of every seed that both have. */
static void relative_difference(const sample *a, const sample *b, sample *out) {
    out->n = 0;
    for (int i = 0; i < a->n; i++) {
        for (int j = 0; j < b->n; j++) {
            if (a->seed[i] != b->seed[j] || a->seed[i] < 0) continue;
            out->v[out->n] = fabs(a->v[i] - b->v[j]) / b->v[j];
            out->seed[out->n++] = a->seed[i];
            break;
        }
    }
}

/* s is below the limit of the row. */
static void judge_limit(const row *r, const sample *s, hdo_claim_result *out) {
    double limit[RUNS_MAX];
    for (int i = 0; i < s->n; i++) limit[i] = r->limit;
    out->d = hdo_compare_values(s->v, s->seed, s->n, limit, s->seed, s->n);
    out->verdict = below(&out->d);
    out->lean = lean(out->d.a - out->d.b, -1);
}

/* s[0] and s[1]: of a and b; s[2]: scratch. */
static void judge_one(const row *r, sample *s, int sign, hdo_claim_result *out) {
    if (r->kind == VANISHES) {
        judge_limit(r, &s[0], out);
    } else if (r->kind == SIMILAR) {
        relative_difference(&s[0], &s[1], &s[2]);
        judge_limit(r, &s[2], out);
        if (s[2].n == 0) snprintf(out->note, sizeof out->note, "no seed in common");
    } else {
        out->d = hdo_compare_values(s[0].v, s[0].seed, s[0].n, s[1].v, s[1].seed, s[1].n);
        out->verdict = by_sign(&out->d, sign);
        out->lean = lean(out->d.a - out->d.b, sign);
    }
}

static double lost(const sample *s) {
    return s->diverged > 0 ? (double)s->diverged / (s->diverged + s->n) : 0.0;
}

/* Nothing is decided by runs that diverged, nor by those that happened not to: say how many they were. */
static bool judge_diverged(const row *r, const sample *a, const sample *b, hdo_claim_result *out) {
    if (a->diverged == 0 && b->diverged == 0) return false;
    int len = snprintf(out->note, sizeof out->note, "diverged: %d of %d (%s)", a->diverged, a->diverged + a->n, r->a);
    if (b->diverged > 0 && len > 0 && (size_t)len < sizeof out->note) {
        snprintf(out->note + len, sizeof out->note - (size_t)len, ", %d of %d (%s)", b->diverged, b->diverged + b->n,
                 r->b);
    }
    bool a_worse = r->kind == SLOWER || r->kind == ROUGHER; /* the claim is that a is the worse one */
    out->verdict = HDO_UNDECIDED;
    out->lean = lean(lost(a) - lost(b), a_worse ? 1 : -1);
    return true;
}

static hdo_status load(const hdo_paper_case *k, const char *label, const char *x, const char *metric, hdo_bundle *out) {
    char dir[HDO_PATH_MAX];
    for (int v = 0; v < k->x->n_variants && label != NULL; v++) {
        if (strcmp(k->x->variant[v].label, label) != 0) continue;
        return hdo_paper_dir(k, v, -1, dir, sizeof dir) ? hdo_bundle_load(out, dir, x, metric, NULL) : HDO_E_CONFIG;
    }
    *out = (hdo_bundle){0};
    return label == NULL ? HDO_OK : HDO_E_CONFIG;
}

static void judge_bundles(const row *r, const hdo_bundle *a, const hdo_bundle *b, int sign, hdo_claim_result *out) {
    sample *s = calloc(3, sizeof *s);
    if (s == NULL) return;
    double end = r->kind == EQUAL_COST ? least_end(b, least_end(a, HUGE_VAL)) : end_of(b, end_of(a, 0.0));
    measure(a, r, end, &s[0]);
    measure(b, r, end, &s[1]);
    if (!judge_diverged(r, &s[0], &s[1], out)) {
        judge_one(r, s, sign, out);
        if (r->kind == BETTER && r->claim == 4) note_crossing(a, b, end, out->note, sizeof out->note);
        if (r->kind == EQUAL_COST) snprintf(out->note, sizeof out->note, "at cost %.4g", end);
        if (s[0].n < 2) snprintf(out->note, sizeof out->note, "one seed: no idea of the spread");
    }
    free(s);
}

static hdo_claim_result judge(const hdo_paper_case *k, const row *r) {
    hdo_claim_result out = {.claim = r->claim, .text = r->text, .quantity = quantity_of(k, r)};
    hdo_bundle a = {0}, b = {0};
    const char *metric = metric_of(k, r), *x = r->kind == EQUAL_COST ? "oracle/cost" : "step";
    hdo_status st = load(k, r->a, x, metric, &a);
    if (st == HDO_OK) st = load(k, r->b, x, metric, &b);
    if (st == HDO_OK) {
        bool larger = r->kind == SLOWER || r->kind == ROUGHER || strstr(metric, "acc") != NULL;
        judge_bundles(r, &a, &b, larger ? 1 : -1, &out);
    } else if (st == HDO_E_CONFIG) { /* older than the column */
        snprintf(out.note, sizeof out.note, "its runs have no %s", strcmp(x, "step") != 0 ? x : metric);
    } else {
        snprintf(out.note, sizeof out.note, "not run");
    }
    hdo_bundle_clear(&a);
    hdo_bundle_clear(&b);
    return out;
}

hdo_status hdo_paper_claims(const hdo_paper_case *k, hdo_claim_result out[HDO_CLAIM_PARTS_MAX], int *n, hdo_error *e) {
    (void)e;
    *n = 0;
    for (int i = 0; i < N_ROWS && *n < HDO_CLAIM_PARTS_MAX; i++) {
        if (strcmp(rows[i].experiment, k->x->id) == 0) out[(*n)++] = judge(k, &rows[i]);
    }
    return HDO_OK;
}

hdo_verdict hdo_claim_verdict(const hdo_claim_result *r, int n, int claim) {
    hdo_verdict v = HDO_HOLDS;
    bool any = false;
    for (int i = 0; i < n; i++) {
        if (r[i].claim != claim) continue;
        any = true;
        if (r[i].verdict == HDO_FAILS) return HDO_FAILS;
        if (r[i].verdict == HDO_UNDECIDED) v = HDO_UNDECIDED;
    }
    return any ? v : HDO_UNDECIDED;
}
