/* SPDX-License-Identifier: Apache-2.0
 *
 * The nodes: their classes with estimator, rate and update, their models, who is here, who meets, what a step does to
 * them. An engine puts these parts together to a step; nothing in here waits, saves or decides when a run ends.
 *
 *   population.c  creation, memory      classes.c     estimators and rates of the classes
 *   meeting.c     who is here, steps    local_step.c  batch -> estimate -> move of one node, over the team
 *   average.c     pairs, allreduce      mean.c        mean model, Gamma, weighted average
 *   noise.c       measured noise        simclock.c    simulated time
 *   places.c      which rank holds which nodes
 */
#ifndef HDO_POPULATION_POPULATION_H
#define HDO_POPULATION_POPULATION_H

#include "base/log.h"
#include "base/team.h"
#include "estimator/estimator.h"
#include "population/progress.h"
#include "problem/problem.h"
#include "topo/churn.h"
#include "topo/mixer.h"
#include "transport/transport.h"
#include "update/update.h"

typedef struct hdo_class { /* a class of nodes, wired */
    int first, count;      /* its nodes, numbered over the whole population */
    int batch;
    hdo_estimator estimator;
    hdo_schedule schedule;
    hdo_update update;
    bool balanced; /* its rate follows from the measured noise */
    bool chosen;   /* its rate is chosen by hooks.tune */
    double noise;  /* E|G - E G|^2 of one node, as measured; 1 before. Its inverse is the weight in an average */
    /* with `auto`, 0: none: |G|^2 of its nodes over the last steps, at the last look, and what the mean model said
     * there */
    double g2, g2_seen, g2_expected;
} hdo_class;

#define HDO_NO_ESTIMATE (-1.0) /* hdo_node_result.g2 of a node that has not stepped yet; a square is not negative */

typedef struct hdo_node_result { /* what a local step leaves behind, to be added up in node order */
    double loss, g2;             /* of its newest estimate: g2 = |G|^2 */
    int64_t forward, backward, jvp, cost;
    hdo_status status;
} hdo_node_result;

typedef struct hdo_tuned {             /* what hooks.tune remembers */
    double way;                        /* sum of the paces of the mean model, over all steps */
    double seen_way, seen_loss, slope; /* at the last look: way, training loss, loss per e-fold of the way */
} hdo_tuned;

typedef struct hdo_mean { /* of all models, buffers included; see mean.c */
    double *mu;           /* (ld, in whole tiles) sum, then mean */
    float *model;         /* (ld) the same, rounded */
    double *tile_sum;     /* one partial sum of Gamma per column tile */
} hdo_mean;

typedef struct hdo_population {
    const hdo_problem *problem; /* borrowed, like the next three */
    hdo_transport *transport;
    hdo_team *team;
    const hdo_log *log;
    int n, n_classes;
    hdo_class classes[HDO_CLASSES_MAX];
    hdo_mixer mixer;
    hdo_churn churn;
    hdo_spectrum spectrum;
    hdo_mean mean;

    /* state: what a checkpoint holds */
    hdo_models models; /* of the local nodes; memory of the transport */
    float *momentum;   /* like models.X, or NULL when no class has momentum */
    int64_t *batches;  /* (count): batches node i has drawn so far */
    double *clock_s;   /* (n): simulated time of every node; NULL without a time model */
    float *y;          /* (ld): the weighted average y_t; NULL unless kept */
    hdo_tuned tuned;
    float *fresh;     /* (ld): the common start, for nodes that return with a fresh model; NULL unless they do */
    uint8_t *waiting; /* (n): nodes that have stepped and wait for a partner; NULL unless nodes go at their own pace */
    bool told;        /* losses are told by the caller, and only those of estimates: nothing else is evaluated */

    /* of the last step */
    double lr[HDO_CLASSES_MAX];
    int32_t *active; /* (n): nodes that step, in order */
    int32_t *own;    /* (count): those of them that are local */
    int n_active, n_own;
    hdo_node_result *result; /* (n): of local nodes, of all once the ranks have agreed */
    int32_t *returned;       /* (n): scratch */
    float **mine, **peer;    /* (n / 2): models of the pairs in flight */
    bool in_exchange;        /* models may leave as soon as their step is done */

    bool (*hurry)(void *ctx); /* asked inside long steps: true gives the step up; NULL: steps are never given up */
    void *hurry_ctx;
    double slow;         /* local steps take that many times as long (mpi.slow); 1: as they are */
    int64_t timed_steps; /* the first few, on one thread, decide whether threads pay */
    double timed_s, quickest_s;
} hdo_population;

/* Everything but the models. How it goes on: the team gets arenas of hdo__population_work_bytes, the transport reserves
 * `models`, hdo__population_start fills them. On failure, too, the population is to be cleared. */
hdo_status hdo__population_init(hdo_population *p, const hdo_problem *problem, hdo_transport *t, const hdo_log *log,
                                hdo_error *e);
hdo_status hdo__population_reserve(hdo_population *p, hdo_error *e); /* what hangs on n, count and ld */
hdo_status hdo__population_start(hdo_population *p, hdo_error *e);   /* all models at the common start */
void hdo__population_clear(hdo_population *p);                       /* {0} is fine */
size_t hdo__population_work_bytes(const hdo_population *p);          /* arena bytes of a thread for local steps */
bool hdo__population_has_momentum(const hdo_population *p);
static inline size_t hdo__population_cells(const hdo_population *p) { /* numbers in models.X */
    return (size_t)p->models.count * p->models.ld;
}
static inline bool hdo__population_has(const hdo_population *p, int node) { /* is it local? */
    return node >= p->models.first && node < p->models.first + p->models.count;
}
static inline float *hdo__population_model(const hdo_population *p, int node) { /* of a local node */
    return p->models.X + (size_t)(node - p->models.first) * p->models.ld;
}
static inline int hdo__population_class(const hdo_population *p, int node) {
    return hdo__problem_class(p->problem, node);
}
/* Adds the local models to the SHA-256 v, in node order (a step of a relay). ctx is the population. */
void hdo__population_hash(void *ctx, void *v, size_t first, size_t count);

/* classes.c */
hdo_status hdo__population_wire_classes(hdo_population *p, hdo_error *e);
void hdo__population_set_rates(hdo_population *p, int64_t step); /* lr of this step */

/* meeting.c. Who is here: those that return with a fresh model get the common start again. */
void hdo__population_churn(hdo_population *p, int64_t step);
/* Who meets (plan), who steps (active) and whom of them this rank has (own). */
void hdo__population_meet(hdo_population *p, int64_t step, hdo_plan *plan);

/* local_step.c. An estimate at x, a model of that node, into g (d, then buffers); leaves loss and counts in result. */
void hdo__node_estimate(hdo_population *p, int64_t step, int node, const float *x, hdo_work *w, float *g);
/* Moves the node's model by that estimate, if there is one; leaves |G|^2 in result. */
void hdo__node_move(hdo_population *p, int node, float *g, hdo_work *w);
/* fn(ctx, node, work) for every own node that steps: over nodes when there are enough of them, otherwise one node after
 * the other with the team inside. */
typedef void (*hdo_node_fn)(void *ctx, int node, hdo_work *w);
void hdo__population_each(hdo_population *p, hdo_node_fn fn, void *ctx);
/* fn(ctx, k, work) for k < n, over the team if that pays. */
void hdo__population_tasks(hdo_population *p, int n, hdo_node_fn fn, void *ctx);
void hdo__population_timed(hdo_population *p, double step_s); /* how long a step took */
/* Adds up what the nodes that stepped left behind, in the order they stepped. False: a loss or estimate is not finite.
 * *st: a failure of one of them. */
bool hdo__population_collect(const hdo_population *p, hdo_progress *progress, hdo_status *st);

/* average.c. Models travel while others still step: begin before the local steps, ready after that of each node. */
hdo_status hdo__exchange_begin(hdo_population *p, const hdo_plan *plan, int64_t step, hdo_error *e);
void hdo__exchange_ready(hdo_population *p, int node, const hdo_work *w);
/* The pairs of the plan exchange their models and both take the average, or all take the mean. */
hdo_status hdo__population_mix(hdo_population *p, const hdo_plan *plan, hdo_counts *counts, hdo_error *e);
/* Weight of a node of class k when it averages with another, and in the mean model: 1, or as mixing.average says. */
HDO_LAB double hdo__population_weight(const hdo_population *p, int k);

/* mean.c. The (weighted) mean model into p->mean, and Gamma = (1/n) sum |X_i - mu|^2 over the d parameters; gamma may
 * be NULL. */
HDO_LAB hdo_status hdo__population_mean(hdo_population *p, double *gamma, hdo_error *e);
/* y_t, if it is kept; before step t = 1, 2, ... */
hdo_status hdo__population_add_to_y(hdo_population *p, int64_t step, hdo_error *e);
hdo_status hdo__mean_init(hdo_mean *m, size_t ld);
void hdo__mean_clear(hdo_mean *m);

/* noise.c. Measures the noise of the classes at the present models and sets the rates of balanced classes. */
HDO_LAB hdo_status hdo__population_measure_noise(hdo_population *p, int64_t step, hdo_error *e);
bool hdo__population_uses_noise(const hdo_population *p);                        /* at some step */
HDO_LAB bool hdo__population_wants_noise(const hdo_population *p, int64_t step); /* before this one */
bool hdo__population_has_auto(const hdo_population *p);
bool hdo__population_wants_tuning(const hdo_population *p, int64_t step); /* before this step */
HDO_LAB int64_t hdo__population_next_tuning(const hdo_population *p,
                                            int64_t step); /* after this one, as far as planned */
void hdo__population_follow_g2(hdo_population *p);         /* after a step: hdo_class.g2 */

/* simclock.c. Simulated time of the nodes after a step. */
void hdo__population_advance_clocks(hdo_population *p, const hdo_plan *plan);

/* ---- places.c ---- */

/* Which rank holds which nodes: blocks of equal cost, as mpi.roles allows. */
hdo_status hdo__population_spread(const hdo_config *c, hdo_transport *t, hdo_error *e);
/* Refuses a population whose part on this rank does not fit into the memory it may use. */
hdo_status hdo__population_fits(const hdo_population *p, size_t state_bytes, size_t scratch_bytes, hdo_error *e);

#endif
