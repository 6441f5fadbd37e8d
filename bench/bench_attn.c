/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention, exp and GELU, one thread: time and exponentials per second (elements per second for GELU).
 *   bench_attn [B T heads hs [reps]]      default: 128 258 2 2, the brackets transformer
 * One call of a pass is one layer; two threads are two such processes side by side: kernels share nothing.
 * Reading the rates: an AVX2 core that does two FMA a cycle spends 4.5 cycles on the 9 multiply-adds of 8 weights
 * forward and 8 cycles on 16 backward; masks cost what hdo__rng_bits costs for half a word a weight, listed as mask.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "kernels/attn.h"

enum { MAX_REPS = 1000, MAX_K = 8 };

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct job {
    const hdo_attn_simd *t;
    hdo_attn s;
    int k;
    size_t n;
    float *qkv, *tan, *out, *lse, *dout, *dqkv, *x, *y, *dy;
    uint32_t *bits;
    hdo_arena arena;
} job;

static void do_fwd(job *j) {
    j->t->attn_fwd(&j->s, j->qkv, j->out, j->lse, &j->arena);
}
static void do_bwd(job *j) {
    j->t->attn_bwd(&j->s, j->qkv, j->out, j->lse, j->dout, j->dqkv, &j->arena);
}
static void do_jvp(job *j) {
    j->t->attn_jvp(&j->s, j->k, j->qkv, j->tan, j->out, j->dqkv, &j->arena);
}
static void do_exp(job *j) {
    j->t->vexp(j->n, j->x, j->y);
}
static void do_gelu(job *j) {
    j->t->gelu(j->n, j->x, j->y, j->dy);
}
static void do_mask(job *j) { /* the random words of one pass, in the chunks the kernels use */
    for (size_t off = 0; off < j->n / 2; off += 4096) hdo__rng_bits(j->s.mask, off, 4096, j->bits);
}

static void time_it(const char *name, const char *what, const char *backend, int reps, double work, void (*f)(job *),
                    job *j) {
    static double t[MAX_REPS];
    f(j);
    for (int r = 0; r < reps; r++) {
        double t0 = hdo__now_s();
        f(j);
        t[r] = hdo__now_s() - t0;
    }
    qsort(t, (size_t)reps, sizeof *t, by_value);
    double median = t[reps / 2];
    printf("%s,%s,%s,1,%d,%.6g,%.6g,%.6g,%.4g\n", name, what, backend, reps, median, t[reps / 10], t[reps * 9 / 10],
           work / median);
    fflush(stdout);
}

static void run(const char *backend, const hdo_attn_simd *t, const int d[4], int reps) {
    job j = {.t = t};
    j.s = (hdo_attn){.B = d[0], .T = d[1], .heads = d[2], .hs = d[3]};
    j.s.mask = hdo__stream(1, HDO_RNG_TEST, 0, 0, 0);
    size_t n = (size_t)d[0] * (size_t)d[1] * (size_t)(d[2] * d[3]);
    double weights = (double)d[0] * d[2] * (double)d[1] * (d[1] + 1) / 2;
    char what[96];
    j.n = (size_t)d[0] * (size_t)d[1] * (size_t)(d[2] * d[3]) * 4;
    size_t room = j.n > 3 * n * MAX_K ? j.n : 3 * n * MAX_K;
    j.qkv = hdo__alloc(3 * n * sizeof(float));
    j.tan = hdo__alloc(3 * n * MAX_K * sizeof(float));
    j.out = hdo__alloc(n * sizeof(float));
    j.lse = hdo__alloc(n * sizeof(float));
    j.dout = hdo__alloc(n * sizeof(float));
    j.dqkv = hdo__alloc(room * sizeof(float));
    j.x = hdo__alloc(j.n * sizeof(float));
    j.y = hdo__alloc(j.n * sizeof(float));
    j.dy = hdo__alloc(j.n * sizeof(float));
    j.bits = hdo__alloc(4096 * sizeof(uint32_t));
    if (!j.qkv || !j.tan || !j.out || !j.lse || !j.dout || !j.dqkv || !j.x || !j.y || !j.dy || !j.bits ||
        hdo__arena_init(&j.arena, t->attn_work(&j.s, MAX_K)) != HDO_OK) {
        fprintf(stderr, "bench_attn: out of memory\n");
        exit(1);
    }
    hdo__rng_normal(j.s.mask, 0, 3 * n, j.qkv);
    hdo__rng_normal(j.s.mask, 0, 3 * n * MAX_K, j.tan);
    hdo__rng_normal(j.s.mask, 0, n, j.dout);
    hdo__rng_normal(j.s.mask, 0, j.n, j.x);

    for (int drop = 0; drop < 2; drop++) {
        j.s.dropout = drop ? 0.1f : 0.0f;
        snprintf(what, sizeof what, "B%d T%d h%d hs%d p%g", d[0], d[1], d[2], d[3], drop ? 0.1 : 0.0);
        time_it("attn_fwd", what, backend, reps, weights, do_fwd, &j);
        time_it("attn_bwd", what, backend, reps, weights, do_bwd, &j);
        j.k = 1;
        time_it("attn_jvp_k1", what, backend, reps, weights, do_jvp, &j);
        j.k = 8;
        time_it("attn_jvp_k8", what, backend, reps, weights, do_jvp, &j);
    }
    snprintf(what, sizeof what, "n%zu", j.n);
    time_it("vexp", what, backend, reps, (double)j.n, do_exp, &j);
    time_it("gelu", what, backend, reps, (double)j.n, do_gelu, &j);
    j.n = (size_t)weights;
    snprintf(what, sizeof what, "n%zu", j.n);
    time_it("mask", what, backend, reps, weights, do_mask, &j);

    hdo__arena_clear(&j.arena);
    hdo__free(j.qkv), hdo__free(j.tan), hdo__free(j.out), hdo__free(j.lse), hdo__free(j.dout), hdo__free(j.dqkv);
    hdo__free(j.x), hdo__free(j.y), hdo__free(j.dy), hdo__free(j.bits);
}

int main(int argc, char **argv) {
    int d[4] = {128, 258, 2, 2}, reps = 15;
    for (int i = 0; i < 4 && i + 1 < argc; i++) d[i] = atoi(argv[i + 1]);
    if (argc > 5) reps = atoi(argv[5]);
    if (reps < 1 || reps > MAX_REPS || d[0] < 1 || d[1] < 1 || d[2] < 1 || d[3] < 1) {
        fprintf(stderr, "usage: bench_attn [B T heads hs [reps]]\n");
        return 2;
    }
    printf("bench,shape,backend,threads,reps,median_s,p10_s,p90_s,rate\n");
#ifdef HDO_HAVE_AVX2_BUILD
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) run("avx2", &hdo__attn_avx2, d, reps);
#endif
    run("portable", &hdo__attn_portable, d, reps);
    hdo_attn_simd ref = {hdo__ref_attn_fwd,  hdo__ref_attn_bwd, hdo__ref_attn_jvp,
                         hdo__ref_attn_work, hdo__ref_vexp,     hdo__ref_gelu};
    int few[4] = {d[0] < 4 ? d[0] : 4, d[1], d[2], d[3]}; /* slow: a rate needs no more */
    run("ref", &ref, few, 3);
    return 0;
}
