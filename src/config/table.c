/* SPDX-License-Identifier: Apache-2.0 — the option tables: every key of a configuration, once.
 *
 * To add an option: one field in <hdo/experimental/config.h>, one row here, and a default below if zero is not it.
 * Reading, --set, help, range checks, dump and schema follow from the row. The row macros refuse at compile time a
 * field whose type does not fit the row. Bounds without a source are taste: wide enough for every experiment we could
 * think of, tight enough to catch a slipped decimal point.
 */
#include "config/options.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- row macros ---- */

#define FIELD(T, f, type) _Generic(((T *)0)->f, type : offsetof(T, f))
#define ROW(T, f, kind_, ctype) .key = #f, .type = HDO_OPT_##kind_, .offset = FIELD(T, f, ctype)
#define BOOL(T, f, help_)                                                                                              \
    { ROW(T, f, BOOL, bool), .help = help_ }
#define INT(T, f, lo_, hi_, unit_, help_)                                                                              \
    { ROW(T, f, INT, int64_t), .lo = lo_, .hi = hi_, .unit = unit_, .help = help_ }
#define REAL(T, f, lo_, hi_, unit_, help_)                                                                             \
    { ROW(T, f, REAL, double), .lo = lo_, .hi = hi_, .unit = unit_, .help = help_ }
#define POSITIVE(T, f, hi_, unit_, help_)                                                                              \
    { ROW(T, f, REAL, double), .lo = 0, .lo_open = true, .hi = hi_, .unit = unit_, .help = help_ }
#define TEXT(T, f, kind_, help_)                                                                                       \
    { ROW(T, f, TEXT, char *), .cap = sizeof(((T *)0)->f), .kind = kind_, .help = help_ }
#define CHOICE(T, f, words_, help_)                                                                                    \
    { ROW(T, f, CHOICE, hdo_choice), .words = words_, .help = help_ }
#define NUMBER_OR(T, f, open_, lo_, hi_, words_, help_)                                                                \
    {                                                                                                                  \
        ROW(T, f, CHOICE, hdo_choice), .number = true, .lo_open = open_, .lo = lo_, .hi = hi_, .words = words_,        \
                                       .help = help_                                                                   \
    }
#define END                                                                                                            \
    { .key = NULL }
#define WORD(name_, id_)                                                                                               \
    { .name = name_, .id = id_ }
#define WORD_ARG(name_, id_, lo_, hi_, arg_)                                                                           \
    { .name = name_, .id = id_, .takes_arg = true, .lo = lo_, .hi = hi_, .arg = arg_ }
#define WORD_COUNT(name_, id_, lo_, hi_, arg_)                                                                         \
    { .name = name_, .id = id_, .takes_arg = true, .lo = lo_, .hi = hi_, .arg = arg_, .whole = true }
#define WORDS_END                                                                                                      \
    { .name = NULL }

#define STEPS_MAX 4294967295.0 /* 2^32 - 1: a step is one 32-bit word of the random numbers' address */
#define SEED_MAX 0x1p63        /* 2^63 - 1, which a double cannot hold: the engine knows */
#define COUNT_MAX 16000000.0   /* nodes of a class; a node is 24 bits of the random numbers' address */
#define SAMPLES_MAX 2147483647.0
#define SECONDS_MAX 1e9 /* some 30 years */

/* ---- words ---- */

static const hdo_word kernels_words[] = {WORD("auto", HDO_KERNELS_AUTO), WORD("ref", HDO_KERNELS_REF), WORDS_END};
static const hdo_word engine_words[] = {WORD("sim", HDO_ENGINE_SIM), WORD("mpi", HDO_ENGINE_MPI),
                                        WORD("fleet", HDO_ENGINE_FLEET), WORDS_END};
static const hdo_word reading_words[] = {WORD("text", HDO_READING_TEXT), WORD("authors", HDO_READING_AUTHORS),
                                         WORDS_END};
static const hdo_word init_words[] = {WORD("pytorch", HDO_INIT_PYTORCH), WORD("he", HDO_INIT_HE),
                                      WORD_ARG("normal", HDO_INIT_NORMAL, 0, 100, 0.02), WORD("zero", HDO_INIT_ZERO),
                                      WORDS_END};
static const hdo_word buffers_words[] = {WORD("average", HDO_BUFFERS_AVERAGE), WORD("private", HDO_BUFFERS_PRIVATE),
                                         WORDS_END};
static const hdo_word mask_words[] = {WORD("shared", HDO_MASK_SHARED), WORD("fresh", HDO_MASK_FRESH), WORDS_END};
static const hdo_word split_words[] = {WORD("copies", HDO_SPLIT_COPIES),
                                       WORD("single", HDO_SPLIT_SINGLE),
                                       WORD("shared", HDO_SPLIT_SHARED),
                                       WORD_ARG("dirichlet", HDO_SPLIT_DIRICHLET, 0.001, 1e6, 0.3),
                                       WORD_COUNT("shards", HDO_SPLIT_SHARDS, 1, 1e6, 2),
                                       WORDS_END};
static const hdo_word scaling_words[] = {WORD("normalised", HDO_SCALING_NORMALISED), WORD("unit", HDO_SCALING_UNIT),
                                         WORD("twice", HDO_SCALING_TWICE), WORDS_END};
static const hdo_word pretext_words[] = {WORD("none", HDO_PRETEXT_NONE), WORD("rotation", HDO_PRETEXT_ROTATION),
                                         WORDS_END};
static const hdo_word law_words[] = {WORD("uniform", HDO_LAW_UNIFORM), WORD("authors", HDO_LAW_AUTHORS), WORDS_END};
static const hdo_word nu_words[] = {WORD("eta/sqrt(d)", HDO_NU_ETA_SQRT_D), WORDS_END};
static const hdo_word lr_words[] = {WORD("balanced", HDO_LR_BALANCED), WORD("theorem", HDO_LR_THEOREM),
                                    WORD("auto", HDO_LR_AUTO), WORDS_END};
static const hdo_word momentum_words[] = {WORD("ema", HDO_MOMENTUM_EMA), WORD("heavy-ball", HDO_MOMENTUM_HEAVY_BALL),
                                          WORDS_END};
static const hdo_word schedule_words[] = {WORD("constant", HDO_SCHEDULE_CONSTANT), WORD("cosine", HDO_SCHEDULE_COSINE),
                                          WORD("cosine-authors", HDO_SCHEDULE_COSINE_AUTHORS),
                                          WORD("file", HDO_SCHEDULE_FILE), WORDS_END};
static const hdo_word directions_words[] = {WORD("whole", HDO_DIRECTIONS_WHOLE),
                                            WORD("per-tensor", HDO_DIRECTIONS_PER_TENSOR),
                                            WORD_COUNT("low-rank", HDO_DIRECTIONS_LOW_RANK, 1, 64, 1), WORDS_END};
static const hdo_word streams_words[] = {WORD("independent", HDO_STREAMS_INDEPENDENT),
                                         WORD("shared", HDO_STREAMS_SHARED), WORDS_END};
static const hdo_word dist_words[] = {WORD("gaussian", HDO_DIST_GAUSSIAN), WORD("sphere", HDO_DIST_SPHERE),
                                      WORD("rademacher", HDO_DIST_RADEMACHER), WORDS_END};

static const hdo_word average_words[] = {WORD("equal", HDO_AVERAGE_EQUAL), WORD("noise", HDO_AVERAGE_NOISE),
                                         WORD("auto", HDO_AVERAGE_AUTO), WORDS_END};
static const hdo_word partners_words[] = {WORD("any", HDO_PARTNERS_ANY), WORD_ARG("own", HDO_PARTNERS_OWN, 0, 1, 0.5),
                                          WORD("auto", HDO_PARTNERS_AUTO), WORDS_END};
static const hdo_word diverged_words[] = {WORD_ARG("relative", HDO_DIVERGED_RELATIVE, 1, 1e12, 100), WORDS_END};
static const hdo_word return_words[] = {WORD("stale", HDO_RETURN_STALE), WORD("fresh", HDO_RETURN_FRESH), WORDS_END};

static const hdo_word graph_words[] = {WORD("complete", HDO_GRAPH_COMPLETE),
                                       WORD("ring", HDO_GRAPH_RING),
                                       WORD_COUNT("torus", HDO_GRAPH_TORUS, 0, COUNT_MAX, 0),
                                       WORD("hypercube", HDO_GRAPH_HYPERCUBE),
                                       WORD("star", HDO_GRAPH_STAR),
                                       WORD("path", HDO_GRAPH_PATH),
                                       WORD_COUNT("random-regular", HDO_GRAPH_REGULAR, 1, 1e6, 4),
                                       WORD_ARG("erdos-renyi", HDO_GRAPH_ERDOS_RENYI, 0, 1, 0.1),
                                       WORD_ARG("small-world", HDO_GRAPH_SMALL_WORLD, 0, 1, 0.1),
                                       WORD("exponential", HDO_GRAPH_EXPONENTIAL),
                                       WORD("file", HDO_GRAPH_FILE),
                                       WORDS_END};
static const hdo_word graph_mode_words[] = {WORD("matching", HDO_GRAPH_MODE_MATCHING),
                                            WORD("colour", HDO_GRAPH_MODE_COLOUR), WORD("edge", HDO_GRAPH_MODE_EDGE),
                                            WORDS_END};
static const hdo_word placement_words[] = {
    WORD("random", HDO_PLACEMENT_RANDOM),       WORD("spread", HDO_PLACEMENT_SPREAD),
    WORD("clustered", HDO_PLACEMENT_CLUSTERED), WORD("hub", HDO_PLACEMENT_HUB),
    WORD("order", HDO_PLACEMENT_ORDER),         WORDS_END};

/* ---- sections ---- */

#define T hdo_config
static const hdo_option root_options[] = {
    TEXT(T, name, NULL, "name of the run; its folder is called after it"),
    INT(T, seed, 0, SEED_MAX, NULL, "every random number follows from it: same seed, same bits"),
    INT(T, steps, 0, STEPS_MAX, "steps", "T: steps (interactions when mixing is pairwise) after the warm-up"),
    INT(T, warmup, 0, STEPS_MAX, "steps", "W: steps before T, local only, with linearly rising learning rate"),
    INT(T, threads, 0, 4096, NULL, "worker threads; 0: all CPUs this process may use. Never changes results"),
    CHOICE(T, kernels, kernels_words, "auto: the fastest this machine has; ref: plain loops, to check against"),
    CHOICE(
        T, engine, engine_words,
        "sim: all nodes in this process; mpi: nodes spread over ranks, the same bits; fleet: members that come and go "
        "(hdo node)"),
    END};
#undef T

#define T hdo_model_config
static const hdo_option model_options[] = {
    TEXT(T, name, "model", "what is optimised: a network, softmax regression, or a function with known constants"),
    TEXT(T, plugin, NULL, "shared object with an objective of one's own; relative to the configuration file"),
    TEXT(T, options, NULL, "options for the plug-in: a group of keys (a JSON object)"),
    REAL(T, trial_s, 0, 3600, "s", "a plug-in is tried in a process of its own first and has this long; 0: no trial"),
    TEXT(T, identity, NULL,
         "an objective of one's own: what it must say it is. Written into stored runs, guards a resume"),
    CHOICE(T, reading, reading_words, "the paper's text, or its authors' published code where that differs"),
    CHOICE(T, init, init_words, "start: PyTorch's default, He, normal(standard deviation), or zero"),
    CHOICE(T, buffers, buffers_words, "batch-norm statistics when two nodes meet: average them or keep one's own"),
    CHOICE(T, dropout_mask, mask_words, "one dropout mask per estimate (shared) or one per evaluation (fresh)"),
    REAL(T, dropout, 0, 0.99, NULL, "probability to drop an activation (transformer, custom)"),
    INT(T, input_size, 8, 1024, "pixels", "resnet18: images are resized to this; the authors use 224"),
    INT(T, resize, 0, 1024, "pixels",
        "resnet18: images are resized to this and their centre of input_size is kept; 0: resized to input_size"),
    TEXT(T, layers, NULL, "custom: layers in order, such as \"conv 8 3, relu, pool 2, linear 10\""),
    TEXT(T, train, NULL,
         "what is trained: all, or a list of head, patterns over tensor names (fc.*, *.bias), lora(rank) and scales, "
         "the "
         "last two with or without a pattern; the rest is frozen (docs/models.md)"),
    TEXT(T, weights, NULL, "safetensors file to start from; empty: start from init"),
    REAL(T, l2, 0, 1e6, NULL, "logistic-l2: coefficient of |x|^2 / 2, which makes it strongly convex"),
    INT(T, dim, 1, 1e8, NULL, "quadratic: d, the number of coordinates"),
    POSITIVE(T, smoothness, 1e12, NULL, "quadratic: L, the largest eigenvalue"),
    REAL(T, convexity, 0, 1e12, NULL, "quadratic: ell, the smallest eigenvalue, at most smoothness"),
    REAL(T, noise, 0, 1e12, NULL, "quadratic: root mean square norm of the noise added to a gradient"),
    REAL(T, spread, 0, 1e12, NULL, "quadratic: distance of each node's minimiser from the mean minimiser"),
    REAL(T, start, 0, 1e12, NULL, "quadratic: distance of the start from the minimiser"),
    END};
#undef T

#define T hdo_data_config
static const hdo_option data_options[] = {
    TEXT(T, name, "data",
         "data set or file format; choosing another one than a preset or file did forgets what that said of its size "
         "and files"),
    TEXT(T, plugin, NULL, "shared object with data of one's own; relative to the configuration file"),
    TEXT(T, options, NULL, "options for the plug-in: a group of keys (a JSON object)"),
    TEXT(T, identity, NULL,
         "data of one's own: what they must say they are. Written into stored runs, guards a resume"),
    TEXT(T, path, NULL, "file or folder of the data; empty: the cache that `hdo data get` fills"),
    TEXT(T, path_val, NULL, "file of the validation data, when it is a file of its own"),
    TEXT(T, label, NULL,
         "csv: column of the label: a name of the heading, a number from 1, or last; empty: the one called label, "
         "class, target or y, otherwise the last"),
    REAL(T, validation, 0.001, 0.9, NULL, "own data without path_val: share of the samples held out for validation"),
    CHOICE(T, split, split_words,
           "who holds what: a copy per class kind, 1/n each, all for all, label skew by dirichlet(alpha) or shards(k)"),
    CHOICE(T, scaling, scaling_words,
           "inputs to mean 0 and deviation 1, to [0, 1], or (cifar10) normalised twice as the authors do; it changes "
           "results a lot"),
    CHOICE(T, pretext, pretext_words,
           "rotation: labels are forgotten; images are turned, and the model says by how many quarters"),
    BOOL(T, reshuffle, "every pass of a node over its samples is shuffled anew; false: all as the first (authors)"),
    BOOL(T, augment, "cifar10: random crop with padding 4 and horizontal flip"),
    BOOL(T, augment_val, "cifar10: validation images too, each always the same way (authors)"),
    INT(T, train, 0, SAMPLES_MAX, "samples",
        "use only the first that many training samples; 0: all. synthetic: how many to make; 0: its own choice"),
    INT(T, val, 0, SAMPLES_MAX, "samples", "the same for validation"),
    INT(T, classes, 2, 65536, NULL, "synthetic: number of classes"),
    INT(T, features, 1, 1e6, NULL, "synthetic: input dimension"),
    REAL(T, separation, 0, 1e6, NULL, "synthetic: distance between class means in standard deviations"),
    INT(T, positions, 4, 65536, "tokens", "brackets: padded length; the authors use 514"),
    CHOICE(T, law, law_words,
           "brackets: correct strings are uniform and have label 1, or follow the authors' recursion and have label 0"),
    INT(T, data_seed, 0, SEED_MAX, NULL, "synthetic, brackets: seed of the generator, apart from the run's seed"),
    END};
#undef T

#define T hdo_mixing_config
static const hdo_option mixing_options[] = {
    TEXT(T, kind, "mixing", "who averages with whom"),
    TEXT(T, plugin, NULL, "shared object with a mixing of one's own; relative to the configuration file"),
    INT(T, period, 1, STEPS_MAX, "steps", "exchange every that many steps"),
    CHOICE(T, graph, graph_words,
           "kind graph: who knows whom; torus(rows), 0: as square as possible; random-regular(degree), "
           "erdos-renyi(edge probability), small-world(rewiring probability)"),
    CHOICE(T, graph_mode, graph_mode_words,
           "kind graph: a step draws a random maximal matching, one colour of the edges, or one edge whose two nodes "
           "step"),
    CHOICE(
        T, placement, placement_words,
        "kind graph: the first class sits anywhere, far apart, together, where most edges meet, or node i on vertex i"),
    INT(T, degree, 2, 1e6, NULL, "small-world: neighbours of a node before rewiring, an even number"),
    TEXT(T, edges, NULL, "graph file: edge list, two vertex numbers a line, counted from 0"),
    CHOICE(T, average, average_words,
           "equal: both take the mean; noise: weights inverse to the class noise; auto: where it has been learnt"),
    REAL(T, clip, 0, 1e9, NULL,
         "fleet: a model farther away than this many usual distances is not averaged in; 0: all are"),
    CHOICE(T, partners, partners_words,
           "kind matching: any other node; own(share): a share of the exchanges inside the classes; auto: a share by "
           "the noise of the classes"),
    END};
#undef T

#define T hdo_eval_config
static const hdo_option eval_options[] = {
    INT(T, every, 0, STEPS_MAX, "steps", "steps between evaluations; 0: only at the start and the end"),
    BOOL(T, mean_model, "evaluate the mean model mu too"),
    BOOL(T, consensus, "measure Gamma, the mean squared distance of the nodes from mu"),
    BOOL(T, trace, "write Gamma, the mean |G|^2 and the training loss of every step to trace.jsonl"),
    REAL(T, weighted, 0, 1, NULL, "rate of the weighted average y_T of the convex theorem (w_t = (1-rate)^-t); 0: off"),
    END};
#undef T

#define T hdo_checkpoint_config
static const hdo_option checkpoint_options[] = {
    INT(T, every, 0, STEPS_MAX, "steps", "steps between checkpoints; 0: only when the run stops"),
    REAL(T, every_s, 0, SECONDS_MAX, "s", "seconds between checkpoints; 0: never by time"),
    INT(T, keep, 1, 1e6, NULL, "how many checkpoints to keep; the oldest go first"), END};
#undef T

#define T hdo_stop_config
static const hdo_option stop_options[] = {
    REAL(T, loss, 0, 1e12, NULL, "stop when the mean validation loss falls to this; 0: never"),
    REAL(T, accuracy, 0, 1, NULL, "stop when the mean validation accuracy reaches this; 0: never"),
    REAL(T, time_s, 0, SECONDS_MAX, "s",
         "stop after that much wall time since the run was started or resumed, with a checkpoint; 0: never"),
    NUMBER_OR(
        T, diverged, true, 0, 1e300, diverged_words,
        "a mean loss above this, or not finite, ends the run as diverged; relative(k): above the start by k times "
        "its size"),
    END};
#undef T

#define T hdo_churn_config
static const hdo_option churn_options[] = {
    REAL(T, leave, 0, 1, NULL, "probability that a present node leaves, per step"),
    REAL(T, back, 0, 1, NULL, "probability that an absent node returns, per step"),
    CHOICE(T, model, return_words, "a returning node has its stale model, or a fresh one (the common start)"),
    REAL(T, loss, 0, 1, NULL, "probability that an exchange between two nodes fails"),
    REAL(T, straggle, 0, 1, NULL, "probability that a node is too slow for its local step (it still averages)"),
    TEXT(T, outage, NULL, "name of a class that is away for a while; empty: none"),
    INT(T, outage_from, 0, STEPS_MAX, "steps", "first step of the outage"),
    INT(T, outage_to, 0, STEPS_MAX, "steps", "first step after it"),
    END};
#undef T

#define T hdo_sink_config
static const hdo_option sink_options[] = {BOOL(T, csv, "write metrics.csv beside metrics.jsonl"),
                                          BOOL(T, tensorboard, "write a TensorBoard event file into the run folder"),
                                          TEXT(T, plugin, NULL,
                                               "shared object with a sink of one's own; relative to the configuration "
                                               "file"),
                                          END};
#undef T

#define T hdo_mpi_config
static const hdo_option mpi_options[] = {
    TEXT(T, roles, NULL,
         "\"0:fo,1-3:zo,host:zo\": ranks or hosts given only nodes that (fo) or never (zo) back-propagate"),
    POSITIVE(T, deadline_s, SECONDS_MAX, "s",
             "a rank that keeps the others waiting this long ends the job, and is named"),
    INT(T, chunk, 4096, 1 << 30, "bytes", "models travel in messages of this size"),
    BOOL(T, shared,
         "ranks of one machine average in memory they have in common; false: by messages, as between machines"),
    REAL(T, memory, 0, 1e15, "bytes", "what a rank may use; 0: its share of what its host has free"),
    BOOL(T, async, "no steps in common: every rank goes at its own pace; results then depend on timing"),
    TEXT(T, slow, NULL, "\"2:4\": rank 2 takes 4 times as long for its local steps, to study stragglers; empty: none"),
    END};
#undef T

#define T hdo_fleet_config
static const hdo_option fleet_options[] = {
    REAL(T, beat_s, 0.05, 3600, "s", "a member gives a sign of life this often; five that fail to come: it is gone"),
    REAL(T, forget_s, 10, SECONDS_MAX, "s", "an exchange whose other half is silent for this long is given up"), END};
#undef T

#define T hdo_class_config
static const hdo_option class_options[] = {
    INT(T, count, 0, COUNT_MAX, "nodes", "how many nodes are of this class"),
    TEXT(T, estimator, "estimator", "how a node estimates its gradient; the oracle it needs follows from it"),
    TEXT(T, plugin, NULL, "shared object with an estimator of one's own; relative to the configuration file"),
    INT(T, rv, 1, 1e9, NULL, "random vectors per estimate: variance falls as 1/rv"),
    NUMBER_OR(T, nu, true, 0, 1e3, nu_words, "step of finite differences; eta/sqrt(d) is the choice of Theorem 1"),
    NUMBER_OR(T, lr, false, 0, 1e6, lr_words,
              "learning rate eta; balanced: scaled by the variance; theorem: from the bounds; auto: measured "
              "(docs/prediction.md)"),
    INT(T, batch, 1, 1e7, "samples", "minibatch of one estimate"),
    REAL(T, momentum, 0, 0.999999, NULL, "m: weight of the past in the direction of the step"),
    CHOICE(T, momentum_kind, momentum_words, "ema: g = m g + (1-m) G, as in the text; heavy-ball: g = m g + G"),
    REAL(T, weight_decay, 0, 1e3, NULL, "coefficient of x added to the gradient"),
    CHOICE(T, schedule, schedule_words,
           "learning rate after the warm-up: constant, cosine to 0 (cosine-authors: one step ahead of it), or from a "
           "file"),
    TEXT(T, schedule_file, NULL,
         "schedule file: lines \"step rate\", steps rising; linear in between, constant after the last"),
    CHOICE(T, directions, directions_words,
           "one random vector over all coordinates, one per tensor (authors), or one whose matrices are products of "
           "low-rank(r) factors"),
    CHOICE(T, streams, streams_words, "random vectors differ between nodes, or are alike on all (authors)"),
    CHOICE(T, distribution, dist_words, "law of a random vector"),
    REAL(T, forward_s, 0, SECONDS_MAX, "s", "time model: one forward pass; 0: free"),
    REAL(T, backward_s, 0, SECONDS_MAX, "s", "time model: one gradient"),
    REAL(T, jvp_s, 0, SECONDS_MAX, "s", "time model: one forward-mode derivative"),
    REAL(T, latency_s, 0, SECONDS_MAX, "s", "time model: delay of an exchange; the slower partner counts"),
    REAL(T, bandwidth, 0, 1e15, "byte/s", "time model: the slower partner counts; 0: infinite"),
    INT(T, coords, 0, 1e9, NULL, "fd-coord: coordinates per estimate, drawn anew each step; 0: all of them"),
    INT(T, debias_levels, 1, 24, NULL,
        "debiased: steps go down to nu / 2^levels; deeper means less bias, more round-off"),
    REAL(T, debias_ratio, 0.26, 0.95, NULL,
         "debiased: probability of a level over that of the one before; above 1/4, or the variance is infinite"),
    BOOL(T, allow_piecewise, "complex-step: accept a model with kinks (ReLU, max-pool) and take the active piece"),
    END};
#undef T

#define FITS(options) _Static_assert(sizeof(options) / sizeof *(options)-1 <= HDO_OPTIONS_MAX, "raise HDO_OPTIONS_MAX")
FITS(root_options);
FITS(model_options);
FITS(data_options);
FITS(class_options);

const hdo_section hdo__sections[] = {
    {"", NULL, "the run as a whole", 0, root_options},
    {"model", "name", "what is optimised", offsetof(hdo_config, model), model_options},
    {"data", "name", "what it learns from, and who holds which part", offsetof(hdo_config, data), data_options},
    {"mixing", "kind", "how nodes exchange models", offsetof(hdo_config, mixing), mixing_options},
    {"eval", "every", "what is measured, and when", offsetof(hdo_config, eval), eval_options},
    {"checkpoint", "every", "when the state is saved", offsetof(hdo_config, checkpoint), checkpoint_options},
    {"stop", NULL, "when to stop before the last step", offsetof(hdo_config, stop), stop_options},
    {"sink", NULL, "where figures go besides metrics.jsonl", offsetof(hdo_config, sink), sink_options},
    {"churn", NULL, "nodes that come and go (simulator)", offsetof(hdo_config, churn), churn_options},
    {"mpi", NULL, "engine mpi: ranks, deadlines, messages", offsetof(hdo_config, mpi), mpi_options},
    {"fleet", NULL, "engine fleet: members that come and go", offsetof(hdo_config, fleet), fleet_options},
};
const int hdo__n_sections = (int)(sizeof hdo__sections / sizeof *hdo__sections);
_Static_assert(sizeof hdo__sections / sizeof *hdo__sections <= HDO_SECTIONS_MAX, "raise HDO_SECTIONS_MAX");

const hdo_section hdo__class_section = {"population", "count", "classes of nodes; any names, any number", 0,
                                        class_options};

/* ---- defaults ---- */

static void put_text(char *dst, size_t cap, const char *text) {
    assert(strlen(text) < cap);
    memset(dst, 0, cap);
    memcpy(dst, text, strlen(text));
}
#define PUT(field, text) put_text(field, sizeof(field), text)

/* Member by member, so that the padding between them stays zero and configurations compare with memcmp. */
static void put_choice(hdo_choice *c, int id, double arg) {
    c->id = id;
    c->arg = arg;
}
static void put_word(hdo_choice *c, int id) {
    put_choice(c, id, 0);
}
static void put_number(hdo_choice *c, double v) {
    put_choice(c, HDO_NUMBER, v);
}

/* The numbers are those of experiment E2, the paper's populations on a convex problem. */
void hdo__class_default(hdo_class_config *k, const char *name) {
    memset(k, 0, sizeof *k);
    PUT(k->name, name);
    PUT(k->estimator, strncmp(name, "fo", 2) == 0 ? "fo" : "forward-law");
    k->count = 1;
    k->rv = 128;
    put_number(&k->nu, 1e-4);
    put_number(&k->lr, 0.01);
    k->batch = 2;
    put_word(&k->momentum_kind, HDO_MOMENTUM_EMA);
    put_word(&k->schedule, HDO_SCHEDULE_CONSTANT);
    put_word(&k->directions, HDO_DIRECTIONS_WHOLE);
    put_word(&k->streams, HDO_STREAMS_INDEPENDENT);
    put_word(&k->distribution, HDO_DIST_GAUSSIAN);
    k->debias_levels = 4;
    k->debias_ratio = 0.5;
}

static void model_default(hdo_model_config *m) {
    PUT(m->name, "logistic");
    put_word(&m->reading, HDO_READING_TEXT);
    put_word(&m->init, HDO_INIT_PYTORCH);
    put_word(&m->buffers, HDO_BUFFERS_AVERAGE);
    put_word(&m->dropout_mask, HDO_MASK_SHARED);
    PUT(m->train, "all");
    m->dropout = 0.1;
    m->input_size = 32;
    m->l2 = 0.01;
    m->dim = 100;
    m->trial_s = 10.0;
    m->smoothness = 1.0;
    m->convexity = 0.1;
    m->noise = 1.0;
    m->start = 1.0;
}

void hdo__data_default(hdo_data_config *d) {
    PUT(d->name, "synthetic");
    put_word(&d->split, HDO_SPLIT_COPIES);
    put_word(&d->scaling, HDO_SCALING_NORMALISED);
    put_word(&d->pretext, HDO_PRETEXT_NONE);
    put_word(&d->law, HDO_LAW_UNIFORM);
    d->reshuffle = true;
    d->classes = 10;
    d->features = 32;
    d->separation = 3.0;
    d->positions = 258; /* <start>, up to 256 brackets, <stop> */
    d->validation = HDO_VALIDATION_DEFAULT;
    d->data_seed = 1;
}

/* 4 + 28 nodes of the demonstration population: they learn visibly within 300 steps. */
void hdo_config_default(hdo_config *c) {
    memset(c, 0, sizeof *c);
    PUT(c->name, "run");
    c->seed = 1;
    c->steps = 300;
    put_word(&c->kernels, HDO_KERNELS_AUTO);
    put_word(&c->engine, HDO_ENGINE_SIM);
    c->mpi.deadline_s = 300;
    c->mpi.chunk = 1 << 20;
    c->mpi.shared = true;
    c->fleet.beat_s = 1.0;
    c->fleet.forget_s = 120.0;
    model_default(&c->model);
    hdo__data_default(&c->data);
    PUT(c->mixing.kind, "matching");
    c->mixing.period = 1;
    put_word(&c->mixing.graph, HDO_GRAPH_COMPLETE);
    put_word(&c->mixing.graph_mode, HDO_GRAPH_MODE_MATCHING);
    put_word(&c->mixing.placement, HDO_PLACEMENT_RANDOM);
    c->mixing.degree = 4;
    put_word(&c->mixing.average, HDO_AVERAGE_EQUAL);
    put_word(&c->mixing.partners, HDO_PARTNERS_ANY);
    put_word(&c->churn.model, HDO_RETURN_STALE);
    c->churn.back = 0.1;
    c->eval.every = 10;
    c->eval.mean_model = true;
    c->eval.consensus = true;
    c->checkpoint.keep = 2;
    put_choice(&c->stop.diverged, HDO_DIVERGED_RELATIVE, 100);
    c->n_classes = 2;
    hdo__class_default(&c->population[0], "fo");
    hdo__class_default(&c->population[1], "zo");
    c->population[0].count = 4;
    c->population[1].count = 28;
    for (int k = 0; k < c->n_classes; k++) {
        c->population[k].rv = 64;
        put_number(&c->population[k].lr, 0.05);
        c->population[k].batch = 4;
    }
}

hdo_config *hdo__config_example(void) {
    hdo_config *c = malloc(sizeof *c);
    if (c == NULL) return NULL;
    hdo_config_default(c);
    hdo__class_default(&c->population[0], "fo");
    hdo__class_default(&c->population[1], "zo");
    return c;
}
