/* SPDX-License-Identifier: Apache-2.0
 *
 * Long: many seeds, quadratics, every mix of first- and zeroth-order nodes, pairs, matchings and graphs, equal and
 * unequal steps: no measured mean may exceed its bound. Prints one line per case with the slack. Then the scaling laws.
 *
 *     long_theory [SEEDS]     default 300
 */
#include <math.h>
#include <string.h>

#include "study_help.h"

static const quad_case cases[] = {
    /* name            mixing      estimator    fo zo rv   lr    lr_zo ell  noise spread start steps nu */
    {"pair 8+0", "pairwise", "forward-law", 8, 0, 1, 0.02, 0, 1.0, 1, 1.0, 5, 3000, NULL},
    {"pair 4+4", "pairwise", "forward-law", 4, 4, 1, 0.02, 0, 1.0, 1, 1.0, 5, 3000, NULL},
    {"pair 0+8", "pairwise", "forward-law", 0, 8, 1, 0.005, 0, 1.0, 1, 1.0, 5, 3000, NULL},
    {"pair 2+6 sim", "pairwise", "forward-sim", 2, 6, 4, 0.02, 0, 0.1, 1, 0.5, 2, 3000, NULL},
    {"pair 5+2 odd", "pairwise", "forward-law", 5, 2, 2, 0.02, 0, 0.5, 1, 0.5, 2, 2000, NULL},
    {"pair 1+1", "pairwise", "forward-law", 1, 1, 2, 0.02, 0, 0.5, 1, 0.0, 2, 1000, NULL},
    {"pair fd", "pairwise", "fd", 4, 4, 1, 0.02, 0, 1.0, 1, 1.0, 5, 2000, "0.2"},
    {"pair fd theorem", "pairwise", "fd", 4, 4, 2, 0.02, 0, 0.2, 1, 0.5, 3, 2000, NULL},
    {"pair no noise", "pairwise", "forward-law", 4, 4, 1, 0.02, 0, 0.5, 0, 0.0, 2, 1000, NULL},
    {"match 8+0", "matching", "forward-law", 8, 0, 1, 0.02, 0, 1.0, 1, 1.0, 5, 1000, NULL},
    {"match 4+4", "matching", "forward-law", 4, 4, 1, 0.02, 0, 1.0, 1, 1.0, 5, 1000, NULL},
    {"match 0+8", "matching", "forward-law", 0, 8, 1, 0.01, 0, 1.0, 1, 1.0, 5, 1000, NULL},
    {"match 3+4 odd", "matching", "forward-law", 3, 4, 8, 0.05, 0, 0.1, 1, 0.5, 2, 1000, NULL},
    {"match 4+28", "matching", "forward-law", 4, 28, 8, 0.05, 0, 0.3, 1, 0.5, 2, 500, NULL},
    {"match fd", "matching", "fd", 4, 4, 2, 0.05, 0, 1.0, 1, 1.0, 5, 500, "0.2"},
    {"match fd-central", "matching", "fd-central", 4, 4, 2, 0.05, 0, 0.3, 1, 0.5, 2, 500, "0.2"},
    {"match forward", "matching", "forward", 4, 4, 4, 0.05, 0, 0.3, 1, 0.5, 2, 500, NULL},
    {"match complex", "matching", "complex-step", 4, 4, 4, 0.05, 0, 0.3, 1, 0.5, 2, 500, "0.01"},
    {"match unequal", "matching", "forward-law", 4, 4, 1, 0.05, 0.005, 0.3, 1, 0.5, 2, 800, NULL},
    {"pair unequal", "pairwise", "forward-law", 4, 4, 1, 0.05, 0.005, 0.3, 1, 0.5, 2, 3000, NULL},
    {"allreduce", "allreduce", "forward-law", 4, 4, 4, 0.05, 0, 0.3, 1, 0.5, 2, 500, NULL},
    {"ring matching", "graph", "forward-law", 4, 4, 4, 0.02, 0, 0.3, 1, 0.5, 2, 800, NULL},
    {"ring edge", "graph-edge", "forward-law", 4, 4, 4, 0.02, 0, 0.3, 1, 0.5, 2, 3000, NULL},
};

static bool run_case(const quad_case *q, int seeds) {
    static hdo_config c;
    hdo_error e = {0};
    hdo_study *s = NULL;
    hdo_comparison cmp;
    quad_case k = *q;
    bool graph = strncmp(q->mixing, "graph", 5) == 0;
    if (graph) k.mixing = "graph";
    quad_config(&c, &k);
    c.threads = 0;
    if (graph) set(&c, "mixing.graph", "ring");
    if (strcmp(q->mixing, "graph-edge") == 0) set(&c, "mixing.graph_mode", "edge");
    hdo_status st = hdo_study_create(&s, &c, NULL, &e);
    if (st == HDO_OK) st = hdo_study_compare(s, seeds, &cmp, &e);
    if (st != HDO_OK) {
        printf("not ok %-18s %s\n", q->name, e.msg);
        hdo_study_destroy(s);
        return false;
    }
    bool ok = !cmp.violated && cmp.assessment.sc_holds;
    printf("%s %-18s", ok ? "ok" : "not ok", q->name);
    for (int i = 0; i < HDO_QUANTITIES; i++) {
        const hdo_bound_check *v = &cmp.verdict[i];
        if (v->bounded) {
            printf("  %s %.3g%s", hdo_quantity_name((hdo_quantity)i), v->slack, v->violated ? " VIOLATED" : "");
        } else {
            printf("  %s -", hdo_quantity_name((hdo_quantity)i));
        }
    }
    printf("\n");
    fflush(stdout);
    hdo_comparison_clear(&cmp);
    hdo_study_destroy(s);
    return ok;
}

int main(int argc, char **argv) {
    int seeds = argc > 1 ? atoi(argv[1]) : 300, bad = 0;
    hdo_law law[HDO_LAWS];
    hdo_error e = {0};
    if (seeds < 2) seeds = 2;
    printf("slack (bound / measured) at the end, %d seeds\n", seeds);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) bad += !run_case(&cases[i], seeds);
    if (hdo_scaling_run(false, 0, NULL, law, &e) != HDO_OK) {
        printf("not ok scaling: %s\n", e.msg);
        return 1;
    }
    for (int k = 0; k < HDO_LAWS; k++) {
        printf("%s %-18s exponent %.4f +- %.4f, theory %g, chi2/dof %.2f\n",
               law[k].verdict != HDO_LAW_DISAGREES ? "ok" : "not ok", law[k].name, law[k].exponent, law[k].exponent_se,
               law[k].expected, law[k].chi2);
        bad += law[k].verdict == HDO_LAW_DISAGREES;
    }
    return bad == 0 ? 0 : 1;
}
