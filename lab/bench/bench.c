/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of cases and the loop over it. Names have the form group/what/how; a name on the command line selects every
 * case that begins with it. `quick` cases together take well under a minute at the default 0.3 s each.
 */
#include <string.h>

#include "lab/bench/bench_internal.h"

#define STEP(e, class_, est, rv, quick)                                                                                \
    {                                                                                                                  \
        "step/" e "/" est, quick, hdo__bench_step, {e, class_, est}, {                                                 \
            rv                                                                                                         \
        }                                                                                                              \
    }
#define STEP_RV(e, class_, est, rv, quick)                                                                             \
    {                                                                                                                  \
        "step/" e "/" est "-rv" #rv, quick, hdo__bench_step, {e, class_, est}, {                                       \
            rv                                                                                                         \
        }                                                                                                              \
    }
#define EVAL(e, class_, quick)                                                                                         \
    {                                                                                                                  \
        "eval/" e, quick, hdo__bench_eval, {e, class_, NULL}, {                                                        \
            0                                                                                                          \
        }                                                                                                              \
    }
#define GEMM(name, quick, ta, tb, M, N, K)                                                                             \
    {                                                                                                                  \
        "gemm/" name, quick, hdo__bench_gemm, {NULL}, {                                                                \
            ta, tb, M, N, K                                                                                            \
        }                                                                                                              \
    }
#define CONV(name, quick, ...)                                                                                         \
    {                                                                                                                  \
        "conv/" name, quick, hdo__bench_conv, {NULL}, {                                                                \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }
#define NODES(n, quick)                                                                                                \
    {                                                                                                                  \
        "nodes/" #n, quick, hdo__bench_nodes, {NULL}, {                                                                \
            n, 10                                                                                                      \
        }                                                                                                              \
    }
#define DIM(d, quick)                                                                                                  \
    {                                                                                                                  \
        "dim/" #d, quick, hdo__bench_dim, {"forward-law"}, {                                                           \
            d                                                                                                          \
        }                                                                                                              \
    }

static const hdo_bench_case cases[] = {
    {"normals/l1", true, hdo__bench_normals, {NULL}, {4096}},
    {"normals/memory", true, hdo__bench_normals, {NULL}, {1 << 24}},
    {"exp/l1", true, hdo__bench_exp, {NULL}, {2048}},
    GEMM("square", true, 0, 1, 1024, 1024, 1024),
    GEMM("e2-eval", true, 0, 1, 10000, 400, 784),
    GEMM("e2-batch", true, 0, 1, 2, 10, 784),
    GEMM("skinny", true, 0, 1, 10000, 10, 784),
    GEMM("mlp-fwd", true, 0, 1, 8, 128, 784),
    GEMM("mlp-weights", true, 1, 0, 128, 784, 8),
    GEMM("cnn-fwd", true, 0, 1, 256, 128, 392),
    GEMM("cnn-weights", true, 1, 0, 128, 392, 256),
    GEMM("mlp-eval", true, 0, 1, 10000, 128, 784),
    CONV("cnn1", true, 32, 1, 28, 8, 3, 1, 1),
    CONV("cnn2", true, 32, 8, 14, 8, 3, 1, 1),
    CONV("cnn3", true, 32, 8, 7, 8, 3, 1, 1),
    CONV("resnet-conv1", true, 10, 3, 32, 64, 7, 2, 3),
    CONV("resnet-l1", true, 10, 64, 8, 64, 3, 1, 1),
    CONV("resnet-l2", true, 10, 128, 4, 128, 3, 1, 1),
    CONV("resnet-l3", true, 10, 256, 2, 256, 3, 1, 1),
    CONV("resnet-l4", true, 10, 512, 1, 512, 3, 1, 1),
    {"attention/e4", true, hdo__bench_attn, {NULL}, {16, 258, 2, 2}},
    {"average/cache", true, hdo__bench_average, {NULL}, {2, 7850}},
    {"average/memory", true, hdo__bench_average, {NULL}, {2048, 7850}},
    {"gather/mnist", true, hdo__bench_gather, {"mnist"}, {256}},
    {"gather/cifar10", true, hdo__bench_gather, {"cifar10"}, {50}},
    {"gather/brackets", true, hdo__bench_gather, {"brackets"}, {256}},

    STEP("e1", "zo", "fo", 0, true),
    STEP("e1", "zo", "forward-law", 128, true),
    STEP("e1", "zo", "forward-sim", 128, true),
    STEP_RV("e1", "zo", "forward-sim", 8, false),
    STEP("e1", "zo", "fd", 128, false),
    STEP_RV("e1", "zo", "fd", 8, false),
    STEP("e1", "zo", "fd-central", 128, false),
    STEP("e2", "fo", "fo", 0, true),
    STEP("e2", "zo", "forward-law", 128, true),
    STEP("e2", "zo", "forward-sim", 128, true),
    STEP("e2", "zo", "forward", 128, false),
    STEP("e2", "zo", "fd", 128, false),
    STEP("e2", "zo", "fd-central", 128, false),
    STEP("e2", "zo", "fd-law", 128, false),
    STEP("e2", "zo", "debiased", 128, false),
    STEP("e2", "zo", "complex-step", 128, false),
    STEP("e3", "fo", "fo", 0, false),
    STEP("e3", "zo", "forward-law", 128, false),
    STEP("e3", "zo", "forward-sim", 128, false),
    STEP("e4", "fo", "fo", 0, true),
    STEP("e4", "zo", "forward-law", 64, true),
    STEP("e4", "zo", "forward-sim", 64, false),
    STEP("e5", "fo", "fo", 0, false),
    STEP("e5", "zo", "forward-law", 128, false),
    STEP("e5", "zo", "forward-sim", 128, false),
    STEP("e6", "fo", "fo", 0, true),
    STEP("e6", "zo", "forward-law", 64, true),
    STEP("e6", "zo", "forward-sim", 64, true),
    STEP_RV("e6", "zo", "forward-sim", 8, false),
    STEP("e7", "fo", "fo", 0, true),
    STEP("e7", "zo", "forward-law", 128, true),
    STEP("e7", "zo", "forward-sim", 128, false),
    EVAL("e1", "zo", true),
    EVAL("e2", "zo", true),
    EVAL("e3", "zo", false),
    EVAL("e4", "zo", true),
    EVAL("e5", "zo", false),
    EVAL("e6", "zo", true),
    EVAL("e7", "zo", true),

    {"create/e2", true, hdo__bench_create, {"e2"}, {0}},
    {"create/theory-fleet", true, hdo__bench_create, {"theory-fleet"}, {0}},
    {"run/e2/forward-law", false, hdo__bench_whole, {"e2", "zo", "forward-law"}, {0}},
    {"run/e2/forward-sim", false, hdo__bench_whole, {"e2", "zo", "forward-sim"}, {0}},
    NODES(100, true),
    NODES(1000, true),
    NODES(10000, true),
    NODES(100000, false),
    NODES(1000000, false),
    NODES(10000000, false),
    {"beyond/1000", true, hdo__bench_beyond, {NULL}, {1000, 100}},
    {"beyond/10000", true, hdo__bench_beyond, {NULL}, {10000, 100}},
    {"beyond/100000", false, hdo__bench_beyond, {NULL}, {100000, 100}},
    DIM(100, true),
    DIM(10000, true),
    DIM(1000000, true),
    DIM(10000000, false),
    {"threads/e2/step", true, hdo__bench_threads, {"e2", "step"}, {0}},
    {"threads/e2/eval", true, hdo__bench_threads, {"e2", "eval"}, {0}},
    {"threads/e7/step", false, hdo__bench_threads, {"e7", "step"}, {0}},
};
enum { N_CASES = sizeof cases / sizeof cases[0], TIMINGS = 4096 };

const char *hdo_bench_case_name(int i, bool *quick) {
    if (i < 0 || i >= N_CASES) return NULL;
    if (quick != NULL) *quick = cases[i].quick;
    return cases[i].name;
}

bool hdo_bench_selects(const char *name, const char *case_name) {
    size_t n = strlen(name);
    if (strcmp(name, "all") == 0) return true;
    return strncmp(name, case_name, n) == 0 && (case_name[n] == '\0' || case_name[n] == '/');
}

static bool wanted(const hdo_bench_options *o, const hdo_bench_case *c) {
    return o->name == NULL ? c->quick : hdo_bench_selects(o->name, c->name);
}

hdo_status hdo_bench_run(const hdo_bench_options *o, hdo_error *e) {
    bool only_limits = o->name != NULL && strcmp(o->name, "limit") == 0;
    int n = 0;
    for (int i = 0; i < N_CASES; i++) n += wanted(o, &cases[i]) ? 1 : 0;
    if (n == 0 && !only_limits)
        return hdo__fail(e, HDO_E_CONFIG, "there is no benchmark '%s'; 'hdo bench --list' shows them", o->name);
    hdo_bench b = {.o = o, .asked = o->threads, .threads = o->threads > 0 ? o->threads : hdo__cpu_count(), .e = e};
    b.seconds = o->seconds > 0.0 ? o->seconds : 0.3;
    b.wall = hdo__alloc(TIMINGS * sizeof(double));
    b.cpu = hdo__alloc(TIMINGS * sizeof(double));
    if (b.wall == NULL || b.cpu == NULL) {
        b.status = hdo__fail(e, HDO_E_MEMORY, "out of memory");
    } else {
        hdo__bench_limits(&b);
    }
    for (int i = 0; i < N_CASES && b.status == HDO_OK; i++) {
        if (o->stop != NULL && o->stop(o->ctx)) break;
        if (wanted(o, &cases[i])) cases[i].run(&b, &cases[i]);
    }
    hdo__free(b.wall);
    hdo__free(b.cpu);
    return b.status;
}
