/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions by oneDNN, where it wins: `entries` below, on processors with AVX-512 only. Our arrays are plain, oneDNN
 * likes blocks of 16 channels, so a pass is a reorder of each argument, the convolution and a reorder of the result.
 * The library is loaded when the first convolution of such a geometry is planned: a program without one never pays.
 *
 * Same seed, same bits. Whether a pass comes here depends on the geometry of the whole layer and on the machine, never
 * on the batch, on the piece of it or on threads. The library makes no promise about the order of its sums; the
 * implementation named in `known` adds up a number in the same order whatever part of the channels or of the samples it
 * is given (tests/test_kernels_onednn.c demands it), and an entry for which a library answers with another one is left
 * to our kernels.
 *
 * One thread. oneDNN asks its OpenMP runtime how many threads there are, both when it plans and when it runs; inside
 * run_one the answer is one for the calling thread, so it never starts a team of its own.
 *
 * Plans (primitives with the memory objects of their arguments) are made at the first use of a geometry and kept in a
 * fixed pool. A caller has a plan for itself while it runs; the scratch is the caller's arena.
 *
 * HDO_ONEDNN in the environment names another library file, or is "none". Both API generations are served: in 2.x
 * memory descriptors are values and convolutions have descriptors, in 3.x memory descriptors are handles (compiled
 * against its declarations, not run).
 */
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include <stdio.h>
#include <string.h>

#include "kernels/mm.h"

#ifdef HDO_HAVE_ONEDNN
#include <dnnl.h>
#if DNNL_VERSION_MAJOR == 3 || (DNNL_VERSION_MAJOR == 2 && DNNL_VERSION_MINOR >= 4)
#define USABLE_HEADER
#endif
#endif

#ifdef USABLE_HEADER
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/* ---- where it wins ----------------------------------------------------------------------------------------------- */

/* Layers of ResNet-18 at 32 x 32 pixels. Processor time over that of our kernels inside a step of E3, at batch 10 and
 * 50 on one thread, then on two (each has a part of the channels); AVX-512, oneDNN 2.6. An entry wins a tenth on one
 * thread and does not lose on two. The stem forward does not (0.95, 0.93, 1.0, 0.90), nor do the 1 x 1 shortcuts, which
 * win a third to a half when one of them is run over and over (bench_kernels): within a step that of stage 2
 * takes 1.05, 0.78, 1.5, 0.90 forward, 0.93, 0.69, 1.2, 0.86 to the input. There is little to compute, and four
 * primitives bring their code into cold caches. */
typedef struct entry {
    int pass, C, side, O, kernel, stride, pad;
} entry;
static const entry entries[] = {
    {HDO_CONV_BWD_W, 3, 32, 64, 7, 2, 3},  /* stem: 0.57, 0.57, 0.50, 0.45 */
    {HDO_CONV_FWD, 64, 8, 128, 3, 2, 1},   /* first layer of stage 2: 0.89, 0.82, 0.95, 0.80 */
    {HDO_CONV_BWD_X, 64, 8, 128, 3, 2, 1}, /* 0.82, 0.75, 0.87, 0.70 */
};
enum { ENTRIES = sizeof entries / sizeof entries[0] };

static const char known[] = "jit:avx512_core"; /* the implementation that was measured, and whose sums were checked */

/* A part of the channels has the steps of the whole: the layer is recognised by them. */
static int find_entry(int pass, const hdo_conv *c) {
    for (int i = 0; i < ENTRIES; i++) {
        const entry *e = &entries[i];
        if (e->pass == pass && e->kernel == c->kh && e->kernel == c->kw && e->stride == c->stride && e->pad == c->pad &&
            e->side == c->H && e->side == c->W && c->w_step == (size_t)(e->C * e->kernel * e->kernel) &&
            c->y_step == (size_t)(e->O * c->Ho * c->Wo) && c->x_step == (size_t)(e->C * c->H * c->W))
            return i;
    }
    return -1;
}

/* ---- the library ------------------------------------------------------------------------------------------------- */

#if DNNL_VERSION_MAJOR == 2
typedef const dnnl_memory_desc_t *md_ref;
#define GENERATION_FUNCTIONS(X)                                                                                        \
    X(memory_desc_init_by_tag)                                                                                         \
    X(memory_desc_init_by_strides)                                                                                     \
    X(primitive_desc_create)                                                                                           \
    X(convolution_forward_desc_init)                                                                                   \
    X(convolution_backward_data_desc_init)                                                                             \
    X(convolution_backward_weights_desc_init)
#else
typedef const_dnnl_memory_desc_t md_ref;
#define GENERATION_FUNCTIONS(X)                                                                                        \
    X(memory_desc_create_with_tag)                                                                                     \
    X(memory_desc_create_with_strides)                                                                                 \
    X(memory_desc_destroy)                                                                                             \
    X(convolution_forward_primitive_desc_create)                                                                       \
    X(convolution_backward_data_primitive_desc_create)                                                                 \
    X(convolution_backward_weights_primitive_desc_create)
#endif
#define FUNCTIONS(X)                                                                                                   \
    GENERATION_FUNCTIONS(X)                                                                                            \
    X(version)                                                                                                         \
    X(get_effective_cpu_isa)                                                                                           \
    X(engine_create)                                                                                                   \
    X(stream_create)                                                                                                   \
    X(stream_wait)                                                                                                     \
    X(stream_destroy)                                                                                                  \
    X(primitive_attr_create)                                                                                           \
    X(primitive_attr_set_scratchpad_mode)                                                                              \
    X(primitive_attr_set_fpmath_mode)                                                                                  \
    X(primitive_desc_query)                                                                                            \
    X(primitive_desc_query_md)                                                                                         \
    X(primitive_desc_destroy)                                                                                          \
    X(primitive_create)                                                                                                \
    X(primitive_execute)                                                                                               \
    X(primitive_destroy)                                                                                               \
    X(memory_desc_equal)                                                                                               \
    X(memory_desc_get_size)                                                                                            \
    X(memory_create)                                                                                                   \
    X(memory_set_data_handle)                                                                                          \
    X(memory_destroy)                                                                                                  \
    X(reorder_primitive_desc_create)

typedef struct runtime { /* an OpenMP library */
    int (*max_threads)(void);
    void (*set_threads)(int n);
} runtime;

/* Written once under `once`, read-only afterwards. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_bool loaded;
static struct {
#define MEMBER(f) __typeof__(dnnl_##f) *f; /* the header's own type: a wrong argument is an error of compilation */
    FUNCTIONS(MEMBER)
#undef MEMBER
} dnn;
static dnnl_engine_t engine;
static dnnl_primitive_attr_t attr;
static runtime omp[2];
static bool usable[ENTRIES];
static char name[64];

/* ISO C has no cast from an object to a function. */
#define LOOK_UP(so, fn, symbol)                                                                                        \
    do {                                                                                                               \
        void *symbol_ = dlsym(so, symbol);                                                                             \
        memcpy(&(fn), &symbol_, sizeof(fn));                                                                           \
    } while (0)

static bool find_functions(void *so) {
    bool all = true;
#define FIND(f)                                                                                                        \
    LOOK_UP(so, dnn.f, "dnnl_" #f);                                                                                    \
    all = all && dnn.f != NULL;
    FUNCTIONS(FIND)
#undef FIND
    return all;
}

/* The OpenMP library that `so` uses is one the program has already (built by clang, its libomp answers for libgomp
 * too), or the one that was loaded with it. Which of the two is the linker's business: both are told. */
static bool find_runtimes(void *so) {
    void *from[2] = {RTLD_DEFAULT, so};
    for (int i = 0; i < 2; i++) {
        LOOK_UP(from[i], omp[i].max_threads, "omp_get_max_threads");
        LOOK_UP(from[i], omp[i].set_threads, "omp_set_num_threads");
        if (omp[i].max_threads == NULL) omp[i].set_threads = NULL;
    }
    if (omp[0].set_threads == omp[1].set_threads) omp[1].set_threads = NULL;
    return omp[0].set_threads != NULL || omp[1].set_threads != NULL;
}

/* The number of threads is a variable of the calling thread: others do not see the change. */
typedef struct held {
    int was[2];
} held;

static held run_one(void) {
    held h = {{0, 0}};
    for (int i = 0; i < 2; i++) {
        if (omp[i].set_threads == NULL) continue;
        h.was[i] = omp[i].max_threads();
        if (h.was[i] != 1) omp[i].set_threads(1);
    }
    return h;
}

static void run_as_before(held h) {
    for (int i = 0; i < 2; i++)
        if (h.was[i] > 1) omp[i].set_threads(h.was[i]);
}

/* ---- descriptions ------------------------------------------------------------------------------------------------ */

enum { X, W, Y, ARRAYS }; /* x or dx, w or dw, y or dy */
static const int result_of[] = {[HDO_CONV_FWD] = Y, [HDO_CONV_BWD_X] = X, [HDO_CONV_BWD_W] = W};

typedef struct shape { /* of one array */
    dnnl_memory_desc_t any, plain;
} shape;

#if DNNL_VERSION_MAJOR == 2
static bool shape_init(shape *s, const dnnl_dims_t dims, const dnnl_dims_t steps) {
    return dnn.memory_desc_init_by_tag(&s->any, 4, dims, dnnl_f32, dnnl_format_tag_any) == dnnl_success &&
           dnn.memory_desc_init_by_strides(&s->plain, 4, dims, dnnl_f32, steps) == dnnl_success;
}
static void shape_clear(shape *s) {
    (void)s;
}
static md_ref ref(const dnnl_memory_desc_t *d) {
    return d;
}

static dnnl_primitive_desc_t describe_pass(int pass, const shape *s, const dnnl_dims_t stride, const dnnl_dims_t pad,
                                           const_dnnl_primitive_desc_t hint) {
    const dnnl_memory_desc_t *x = &s[X].any, *w = &s[W].any, *y = &s[Y].any;
    const dnnl_alg_kind_t alg = dnnl_convolution_direct;
    dnnl_convolution_desc_t d;
    dnnl_status_t st;
    if (pass == HDO_CONV_FWD)
        st = dnn.convolution_forward_desc_init(&d, dnnl_forward_training, alg, x, w, NULL, y, stride, pad, pad);
    else if (pass == HDO_CONV_BWD_X)
        st = dnn.convolution_backward_data_desc_init(&d, alg, x, w, y, stride, pad, pad);
    else
        st = dnn.convolution_backward_weights_desc_init(&d, alg, x, w, NULL, y, stride, pad, pad);
    dnnl_primitive_desc_t pd;
    return st == dnnl_success && dnn.primitive_desc_create(&pd, &d, attr, engine, hint) == dnnl_success ? pd : NULL;
}
#else
static bool shape_init(shape *s, const dnnl_dims_t dims, const dnnl_dims_t steps) {
    *s = (shape){NULL, NULL};
    return dnn.memory_desc_create_with_tag(&s->any, 4, dims, dnnl_f32, dnnl_format_tag_any) == dnnl_success &&
           dnn.memory_desc_create_with_strides(&s->plain, 4, dims, dnnl_f32, steps) == dnnl_success;
}
static void shape_clear(shape *s) {
    if (s->any != NULL) dnn.memory_desc_destroy(s->any);
    if (s->plain != NULL) dnn.memory_desc_destroy(s->plain);
}
static md_ref ref(const dnnl_memory_desc_t *d) {
    return *d;
}

static dnnl_primitive_desc_t describe_pass(int pass, const shape *s, const dnnl_dims_t stride, const dnnl_dims_t pad,
                                           const_dnnl_primitive_desc_t hint) {
    const dnnl_memory_desc_t x = s[X].any, w = s[W].any, y = s[Y].any;
    const dnnl_alg_kind_t alg = dnnl_convolution_direct;
    const dnnl_dims_t dense = {0, 0}; /* no dilation */
    dnnl_primitive_desc_t pd;
    dnnl_status_t st;
    if (pass == HDO_CONV_FWD)
        st = dnn.convolution_forward_primitive_desc_create(&pd, engine, dnnl_forward_training, alg, x, w, NULL, y,
                                                           stride, dense, pad, pad, attr);
    else if (pass == HDO_CONV_BWD_X)
        st = dnn.convolution_backward_data_primitive_desc_create(&pd, engine, alg, x, w, y, stride, dense, pad, pad,
                                                                 hint, attr);
    else
        st = dnn.convolution_backward_weights_primitive_desc_create(&pd, engine, alg, x, w, NULL, y, stride, dense, pad,
                                                                    pad, hint, attr);
    return st == dnnl_success ? pd : NULL;
}
#endif

typedef struct description {
    shape s[ARRAYS];
    dnnl_primitive_desc_t conv;
    dnnl_primitive_desc_t turn[ARRAYS]; /* between our array and the library's; NULL: it takes ours as it is */
    md_ref theirs[ARRAYS], scratch;     /* owned by conv */
    size_t bytes[ARRAYS], scratch_bytes;
} description;

static md_ref layout_of(int pass, int array, const_dnnl_primitive_desc_t pd) {
    static const dnnl_query_t what[][ARRAYS] = {
        [HDO_CONV_FWD] = {dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md},
        [HDO_CONV_BWD_X] = {dnnl_query_diff_src_md, dnnl_query_weights_md, dnnl_query_diff_dst_md},
        [HDO_CONV_BWD_W] = {dnnl_query_src_md, dnnl_query_diff_weights_md, dnnl_query_diff_dst_md},
    };
    return dnn.primitive_desc_query_md(pd, what[pass][array], 0);
}

static void description_clear(description *d) {
    for (int i = 0; i < ARRAYS; i++) {
        if (d->turn[i] != NULL) dnn.primitive_desc_destroy(d->turn[i]);
        shape_clear(&d->s[i]);
    }
    if (d->conv != NULL) dnn.primitive_desc_destroy(d->conv);
}

static bool describe_turn(description *d, int array, bool is_result) {
    md_ref ours = ref(&d->s[array].plain), theirs = d->theirs[array];
    if (dnn.memory_desc_equal(ours, theirs)) return true;
    d->bytes[array] = dnn.memory_desc_get_size(theirs);
    md_ref from = is_result ? theirs : ours, to = is_result ? ours : theirs;
    if (dnn.reorder_primitive_desc_create(&d->turn[array], from, engine, to, engine, attr) != dnnl_success) {
        d->turn[array] = NULL;
        return false;
    }
    md_ref scratch = dnn.primitive_desc_query_md(d->turn[array], dnnl_query_scratchpad_md, 0);
    return scratch == NULL || dnn.memory_desc_get_size(scratch) == 0; /* reorders of floats need none */
}

/* Call within run_one. Clear it in any case. */
static bool describe(int pass, const hdo_conv *c, description *d) {
    memset(d, 0, sizeof *d);
    const dnnl_dim_t map = c->Ho * c->Wo, plane = c->H * c->W, taps = c->kh * c->kw;
    const dnnl_dims_t dims[ARRAYS] = {{c->B, c->C, c->H, c->W}, {c->O, c->C, c->kh, c->kw}, {c->B, c->O, c->Ho, c->Wo}};
    const dnnl_dims_t steps[ARRAYS] = {{(dnnl_dim_t)c->x_step, plane, c->W, 1},
                                       {(dnnl_dim_t)c->w_step, taps, c->kw, 1},
                                       {(dnnl_dim_t)c->y_step, map, c->Wo, 1}};
    const dnnl_dims_t stride = {c->stride, c->stride}, pad = {c->pad, c->pad};
    bool ok = true;
    for (int i = 0; i < ARRAYS; i++) ok = shape_init(&d->s[i], dims[i], steps[i]) && ok;
    if (!ok) return false;
    dnnl_primitive_desc_t hint = NULL; /* backward passes ask for the forward one */
    if (pass != HDO_CONV_FWD) {
        hint = describe_pass(HDO_CONV_FWD, d->s, stride, pad, NULL);
        if (hint == NULL) return false;
    }
    d->conv = describe_pass(pass, d->s, stride, pad, hint);
    if (hint != NULL) dnn.primitive_desc_destroy(hint);
    if (d->conv == NULL) return false;
    for (int i = 0; i < ARRAYS && ok; i++) {
        d->theirs[i] = layout_of(pass, i, d->conv);
        ok = d->theirs[i] != NULL && describe_turn(d, i, i == result_of[pass]);
    }
    d->scratch = dnn.primitive_desc_query_md(d->conv, dnnl_query_scratchpad_md, 0);
    if (d->scratch != NULL) d->scratch_bytes = dnn.memory_desc_get_size(d->scratch);
    return ok;
}

static bool is_known(const_dnnl_primitive_desc_t pd) {
    const char *implementation = NULL;
    return dnn.primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&implementation) == dnnl_success &&
           strcmp(implementation, known) == 0;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static hdo_conv geometry(const entry *e, int B) {
    hdo_conv c = {.B = B, .C = e->C, .H = e->side, .W = e->side, .O = e->O};
    c.kh = c.kw = e->kernel;
    c.stride = e->stride;
    c.pad = e->pad;
    hdo__conv_init(&c);
    return c;
}

static bool has_avx512(void) {
#ifdef __x86_64__
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#else
    return false;
#endif
}

/* The version of the header and of the library must be of one generation: structures differ. */
static bool fits(void *so) {
    if (!find_functions(so)) return false;
    const dnnl_version_t *v = dnn.version();
    if (v->major != DNNL_VERSION_MAJOR) return false;
    if (v->cpu_runtime == DNNL_RUNTIME_OMP ? !find_runtimes(so) : v->cpu_runtime != DNNL_RUNTIME_SEQ) return false;
    int isa = (int)dnn.get_effective_cpu_isa(), need = (int)dnnl_cpu_isa_avx512_core;
    return (isa & need) == need;
}

static void open_library(void) {
#define TEXT2(x) #x
#define TEXT(x) TEXT2(x)
    const char *asked = getenv("HDO_ONEDNN"), *file = "libdnnl.so." TEXT(DNNL_VERSION_MAJOR);
    if (asked != NULL && asked[0] != '\0') file = asked;
    if (strcmp(file, "none") == 0 || !has_avx512()) return;
    void *so = dlopen(file, RTLD_NOW | RTLD_LOCAL); /* never closed: it keeps code it has generated */
    if (so == NULL || !fits(so)) return;
    held h = run_one();
    int count = 0;
    /* Strict: its environment may ask for products in bfloat16. */
    if (dnn.engine_create(&engine, dnnl_cpu, 0) == dnnl_success && dnn.primitive_attr_create(&attr) == dnnl_success &&
        dnn.primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user) == dnnl_success &&
        dnn.primitive_attr_set_fpmath_mode(attr, dnnl_fpmath_mode_strict) == dnnl_success) {
        for (int i = 0; i < ENTRIES; i++) {
            description d;
            hdo_conv c = geometry(&entries[i], 10);
            usable[i] = describe(entries[i].pass, &c, &d) && is_known(d.conv);
            count += usable[i];
            description_clear(&d);
        }
    }
    run_as_before(h);
    if (count == 0) return;
    const dnnl_version_t *v = dnn.version();
    snprintf(name, sizeof name, "oneDNN %d.%d.%d for %d passes of strided layers", v->major, v->minor, v->patch, count);
    atomic_store_explicit(&loaded, true, memory_order_release);
}

const char *hdo__onednn_name(bool load) {
    if (load) pthread_once(&once, open_library);
    return atomic_load_explicit(&loaded, memory_order_acquire) ? name : NULL;
}

static bool takes(int pass, const hdo_conv *c) {
    int i = find_entry(pass, c);
    if (i < 0) return false;
    pthread_once(&once, open_library);
    return usable[i];
}

bool hdo__onednn_entry(int i, int *pass, hdo_conv *c) {
    pthread_once(&once, open_library);
    for (int k = 0; k < ENTRIES; k++) {
        if (!usable[k] || i-- > 0) continue;
        *pass = entries[k].pass;
        *c = geometry(&entries[k], 1);
        return true;
    }
    return false;
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

typedef struct plan {
    struct plan *next; /* in `idle` or `empty` */
    int pass;
    hdo_conv c;
    dnnl_stream_t stream;
    dnnl_primitive_t conv, turn[ARRAYS];
    dnnl_memory_t ours[ARRAYS], theirs[ARRAYS], scratch; /* theirs: NULL where the library takes ours */
    size_t bytes[ARRAYS], scratch_bytes;
} plan;

/* A thread needs one plan per entry and size of its piece of the batch. With more threads and sizes than fit, the
 * plan that was idle longest is made anew: slower, never different. */
enum { POOL = 256 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what follows */
static pthread_cond_t returned = PTHREAD_COND_INITIALIZER;
static plan pool[POOL];
static int in_use;         /* plans of the pool that were ever taken */
static plan *idle, *empty; /* idle: latest first; empty: cleared */

static bool same_geometry(const hdo_conv *a, const hdo_conv *b) {
    return a->B == b->B && a->C == b->C && a->O == b->O && a->H == b->H && a->W == b->W && a->kh == b->kh &&
           a->kw == b->kw && a->stride == b->stride && a->pad == b->pad && a->x_step == b->x_step &&
           a->y_step == b->y_step && a->w_step == b->w_step;
}

static void plan_clear(plan *p) {
    for (int i = 0; i < ARRAYS; i++) {
        if (p->turn[i] != NULL) dnn.primitive_destroy(p->turn[i]);
        if (p->theirs[i] != NULL) dnn.memory_destroy(p->theirs[i]);
        if (p->ours[i] != NULL) dnn.memory_destroy(p->ours[i]);
    }
    if (p->scratch != NULL) dnn.memory_destroy(p->scratch);
    if (p->conv != NULL) dnn.primitive_destroy(p->conv);
    if (p->stream != NULL) dnn.stream_destroy(p->stream);
    memset(p, 0, sizeof *p);
}

/* Memory objects get their arrays at every run. */
static bool plan_arrays(plan *p, const description *d) {
    for (int i = 0; i < ARRAYS; i++) {
        if (dnn.memory_create(&p->ours[i], ref(&d->s[i].plain), engine, DNNL_MEMORY_NONE) != dnnl_success) return false;
        if (d->turn[i] == NULL) continue;
        if (dnn.memory_create(&p->theirs[i], d->theirs[i], engine, DNNL_MEMORY_NONE) != dnnl_success ||
            dnn.primitive_create(&p->turn[i], d->turn[i]) != dnnl_success)
            return false;
        p->bytes[i] = d->bytes[i];
    }
    p->scratch_bytes = d->scratch_bytes;
    return d->scratch_bytes == 0 ||
           dnn.memory_create(&p->scratch, d->scratch, engine, DNNL_MEMORY_NONE) == dnnl_success;
}

static bool plan_make(plan *p, int pass, const hdo_conv *c) {
    description d;
    p->pass = pass;
    p->c = *c;
    bool ok = describe(pass, c, &d) && dnn.primitive_create(&p->conv, d.conv) == dnnl_success &&
              dnn.stream_create(&p->stream, engine, dnnl_stream_default_flags) == dnnl_success && plan_arrays(p, &d);
    description_clear(&d);
    if (!ok) plan_clear(p);
    return ok;
}

static plan *unlink_plan(plan **at) {
    plan *p = *at;
    *at = p->next;
    return p;
}

/* A plan of that geometry (made already), an empty one, or the one to be given up. */
static plan *take(int pass, const hdo_conv *c) {
    plan *p = NULL;
    pthread_mutex_lock(&lock);
    while (p == NULL) {
        plan **last = NULL, **at = &idle;
        while (*at != NULL && !((*at)->pass == pass && same_geometry(&(*at)->c, c))) last = at, at = &(*at)->next;
        if (*at != NULL)
            p = unlink_plan(at);
        else if (empty != NULL)
            p = unlink_plan(&empty);
        else if (in_use < POOL)
            p = &pool[in_use++];
        else if (last != NULL)
            p = unlink_plan(last);
        else
            pthread_cond_wait(&returned, &lock);
    }
    pthread_mutex_unlock(&lock);
    return p;
}

static void give_back(plan *p) {
    pthread_mutex_lock(&lock);
    plan **to = p->conv != NULL ? &idle : &empty;
    p->next = *to;
    *to = p;
    pthread_cond_signal(&returned);
    pthread_mutex_unlock(&lock);
}

static plan *ready_plan(int pass, const hdo_conv *c) {
    plan *p = take(pass, c);
    if (p->conv != NULL && p->pass == pass && same_geometry(&p->c, c)) return p;
    plan_clear(p);
    if (plan_make(p, pass, c)) return p;
    give_back(p);
    return NULL;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static bool turn(const plan *p, int array, dnnl_memory_t from, dnnl_memory_t to) {
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    return p->turn[array] == NULL || dnn.primitive_execute(p->turn[array], p->stream, 2, args) == dnnl_success;
}

static bool run(const plan *p, float *const data[ARRAYS], hdo_arena *a) {
    static const int arg[][ARRAYS] = {
        [HDO_CONV_FWD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
        [HDO_CONV_BWD_X] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
        [HDO_CONV_BWD_W] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST},
    };
    dnnl_exec_arg_t args[ARRAYS + 1];
    int result = result_of[p->pass], n = 0;
    bool ok = true;
    for (int i = 0; i < ARRAYS; i++) {
        ok = ok && dnn.memory_set_data_handle(p->ours[i], data[i]) == dnnl_success;
        if (p->theirs[i] != NULL)
            ok = ok && dnn.memory_set_data_handle(p->theirs[i], hdo__arena_take(a, p->bytes[i])) == dnnl_success;
        args[n++] = (dnnl_exec_arg_t){arg[p->pass][i], p->theirs[i] != NULL ? p->theirs[i] : p->ours[i]};
    }
    if (p->scratch != NULL) {
        ok = ok && dnn.memory_set_data_handle(p->scratch, hdo__arena_take(a, p->scratch_bytes)) == dnnl_success;
        args[n++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, p->scratch};
    }
    for (int i = 0; i < ARRAYS; i++)
        if (i != result) ok = ok && turn(p, i, p->ours[i], p->theirs[i]);
    return ok && dnn.primitive_execute(p->conv, p->stream, n, args) == dnnl_success &&
           turn(p, result, p->theirs[result], p->ours[result]) && dnn.stream_wait(p->stream) == dnnl_success;
}

size_t hdo__onednn_work(int pass, const hdo_conv *c) {
    if (!takes(pass, c)) return 0;
    description d;
    size_t bytes = 0;
    held h = run_one();
    if (describe(pass, c, &d)) {
        for (int i = 0; i < ARRAYS; i++) bytes += d.turn[i] != NULL ? hdo__arena_round(d.bytes[i]) : 0;
        bytes += d.scratch_bytes > 0 ? hdo__arena_round(d.scratch_bytes) : 0;
    }
    description_clear(&d);
    run_as_before(h);
    return bytes;
}

bool hdo__onednn_conv(int pass, const hdo_conv *c, const float *x, const float *w, const float *y, hdo_arena *a) {
    if (!takes(pass, c)) return false;
    float *const data[ARRAYS] = {(float *)x, (float *)w, (float *)y}; /* a memory object does not know who reads it */
    held h = run_one();
    plan *p = ready_plan(pass, c);
    bool ok = false;
    if (p != NULL) {
        size_t mark = hdo__arena_mark(a);
        ok = run(p, data, a);
        hdo__arena_rewind(a, mark);
        give_back(p);
    }
    run_as_before(h);
    return ok;
}

#else /* built without it */

const char *hdo__onednn_name(bool load) {
    (void)load;
    return NULL;
}
bool hdo__onednn_entry(int i, int *pass, hdo_conv *c) {
    (void)i, (void)pass, (void)c;
    return false;
}
size_t hdo__onednn_work(int pass, const hdo_conv *c) {
    (void)pass, (void)c;
    return 0;
}
bool hdo__onednn_conv(int pass, const hdo_conv *c, const float *x, const float *w, const float *y, hdo_arena *a) {
    (void)pass, (void)c, (void)x, (void)w, (void)y, (void)a;
    return false;
}

#endif
