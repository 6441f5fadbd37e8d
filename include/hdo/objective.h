/* SPDX-License-Identifier: Apache-2.0
 *
 * An objective of one's own: a function of `dim` numbers, given by whichever of its oracles there are. Fill the table,
 * hand it to hdo_config_use_objective (<hdo/hdo.h>), and it is trained, checked, predicted, stored and resumed like
 * those that come with the library.
 *
 *     static int loss(void *user, hdo_call *call, const hdo_samples *s, const float *x, double *out) {
 *         *out = (1 - x[0]) * (1 - x[0]) + 100 * (x[1] - x[0] * x[0]) * (x[1] - x[0] * x[0]);
 *         return 0;
 *     }
 *     hdo_objective_def def = {.struct_size = sizeof def, .name = "rosenbrock", .dim = 2, .loss = loss};
 *     hdo_config_use_objective(config, &def, NULL, &error);
 *
 * Which oracles there are decides which estimators are allowed: without `gradient` no `fo`, without `slopes` (or
 * `gradient`) no `forward`; a configuration that asks for more is refused in a sentence. Differences of losses (fd,
 * fd-central, fd-coord, debiased) work always.
 *
 * Every callback of every table, here and in the other headers,
 *   - gets the user's pointer first, and an hdo_call that says whose evaluation this is;
 *   - returns 0 when all is well; a number above 0 when this evaluation failed but others may not (the solver did not
 *     converge, the machine was busy): the node then leaves out its step, it is counted (`oracle/failed` in the
 *     rows and in the summary) and the run goes on; a number below 0 when nothing makes sense any more: the run ends
 *     with HDO_E_OBJECTIVE and the sentence the callback wrote into call->message, on every thread and every rank;
 *   - must be a pure function of its arguments: the same call gives the same bits, at any time, on any thread. What is
 *     random about it is to be drawn from (call->seed, call->node, call->step), the same for all evaluations of one
 *     estimate. Then a run depends on its seed alone, and a resumed run equals the uninterrupted one;
 *   - must not write to its const arguments, keep their pointers, leave by longjmp or an exception, nor call functions
 *     of <hdo/hdo.h> on the run that called it (those return HDO_E_MISUSE);
 *   - is called from one thread at a time, not always the same one, unless the table has HDO_ANY_THREAD.
 */
#ifndef HDO_OBJECTIVE_H
#define HDO_OBJECTIVE_H

#include <stddef.h>
#include <stdint.h>

#include "hdo/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whose evaluation this is. Made by the library, valid during the call. */
typedef struct hdo_call {
    size_t struct_size; /* of the library's hdo_call: members behind it are not there */
    int64_t node;       /* the node, 0 .. n-1; -1: the population as a whole (evaluation, start, tests) */
    int64_t step;       /* steps done before this one; -1: outside of steps */
    uint64_t seed;      /* the run's seed: with node and step the address of everything random here */
    int thread;         /* number of the calling thread, 0 .. threads-1: for scratch of one's own */
    char *message; /* room for one sentence, empty: what went wrong and what to do. Read when the result is not 0 */
    size_t message_cap; /* bytes there, the ending 0 included; at least 256 */
} hdo_call;

/* The samples an evaluation is about. Made by the library, valid during the call.
 *
 * Without data (no HDO_WANT_...): all pointers are NULL; count is the class's `batch`, for objectives that scale noise
 * of their own by it, and 0 in evaluations. */
typedef struct hdo_samples {
    size_t struct_size;
    int count;             /* samples */
    const int64_t *index;  /* (count) their numbers in the training or the validation set */
    const float *inputs;   /* (count, n_in) row by row; NULL for tokens and with HDO_WANT_INDICES */
    const int32_t *tokens; /* (count, n_in) of token data, else NULL */
    const int32_t *labels; /* (count); NULL with HDO_WANT_INDICES */
    size_t n_in;           /* numbers (or tokens) of one sample; 0 with HDO_WANT_INDICES */
    int train;             /* 1: samples of the training set; 0: of the validation set (evaluation: no noise either) */
} hdo_samples;

/* Flags of the tables. */
enum {
    HDO_ANY_THREAD = 1,   /* callbacks may run on several threads at once; without it the library takes turns */
    HDO_WANT_DATA = 2,    /* objective: its loss is over samples of the configured data set (`data.name`), gathered */
    HDO_WANT_INDICES = 4, /* objective: likewise, but only the samples' numbers: nothing is gathered. With train_count
                             above 0 the data are the objective's own and `data.name` is not looked at */
    HDO_HAS_ACCURACY = 8  /* objective: `metrics` counts correct answers */
};

/* A named piece of x, for files of weights and for `directions: per-tensor`. */
typedef struct hdo_tensor_def {
    const char *name; /* as in files of weights */
    int n_dim;        /* 1 .. 4 */
    int64_t dim[4];   /* (n_dim) its shape, outermost first */
} hdo_tensor_def;

/* Members are optional unless "required" stands with them; 0 and NULL: not there. The table and its texts are copied.
 */
typedef struct hdo_objective_def {
    size_t struct_size;   /* required: sizeof(hdo_objective_def) of the headers it was compiled with */
    const char *name;     /* required: up to 31 of a-z, 0-9, '-', '_'. In messages, summaries, stored runs */
    const char *identity; /* what the results depend on beside the configuration: a version, parameters, a checksum of
                             data; any text up to 511 bytes. Stored with a run; a run is resumed only with the same.
                             NULL: the name */
    unsigned flags;       /* HDO_ANY_THREAD, HDO_WANT_DATA or HDO_WANT_INDICES, HDO_HAS_ACCURACY */
    size_t dim;           /* required: numbers of x, 1 or more */
    int n_tensors;        /* named pieces of x; 0: x is one */
    const hdo_tensor_def *tensors;  /* (n_tensors) in the order of x; their sizes add up to dim. None: one, "x" */
    int64_t train_count, val_count; /* HDO_WANT_INDICES: samples of data of one's own; 0: those of `data.name` */
    double usual_loss;              /* a loss nobody would wonder at, above 0, for telling divergence; 0: 1 */

    /* The common starting point into x (dim); call->seed may be used. NULL: zeros. */
    int (*start)(void *user, hdo_call *call, float *x);

    /* Mean loss over the samples at x (dim). Of loss and losses at least one is required; without any
     * callback but start nobody computes here, and the run is asked and told (hdo_ask). */
    int (*loss)(void *user, hdo_call *call, const hdo_samples *s, const float *x, double *loss);

    /* The same at many points: point k, 0 .. count-1, is at points + k * stride; loss (count). Same samples, same noise
     * for all. Batching is the speed of zeroth-order nodes: an estimate with rv random vectors calls this a few times
     * only. It must give the same bits as `loss` if there are both, however points are grouped. */
    int (*losses)(void *user, hdo_call *call, const hdo_samples *s, const float *points, size_t stride, int count,
                  double *loss);

    /* Loss, and its gradient into g (dim), overwritten. NULL: zeroth order only. */
    int (*gradient)(void *user, hdo_call *call, const hdo_samples *s, const float *x, double *loss, float *g);

    /* Loss, and directional derivatives: slope[k] = <gradient at x, direction k>, direction k at directions + k *
     * stride. For forward-mode differentiation. NULL: made from `gradient` if there is one. */
    int (*slopes)(void *user, hdo_call *call, const hdo_samples *s, const float *x, const float *directions,
                  size_t stride, int count, double *loss, double *slope);

    /* Evaluation: the SUM of losses over the samples into *loss_sum and the number of correct answers into *correct
     * (HDO_HAS_ACCURACY; otherwise left alone). Without data *loss_sum is the loss itself. NULL: loss times count. */
    int (*metrics)(void *user, hdo_call *call, const hdo_samples *s, const float *x, double *loss_sum,
                   int64_t *correct);

    /* Called once, when neither a configuration nor a run needs the table any more. NULL: the pointer stays yours. */
    void (*destroy)(void *user);
} hdo_objective_def;

#ifdef __cplusplus
}
#endif

#endif
