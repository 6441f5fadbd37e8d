/* SPDX-License-Identifier: Apache-2.0
 *
 * What a configuration can name: estimators, models, mixings, data sets, one line each. This is the registry. The
 * folders above expand the same lists into tables of their own objects; here only the names count, so that the option
 * table, its help and its schema know them without a call upwards.
 */
#ifndef HDO_CONFIG_NAMES_H
#define HDO_CONFIG_NAMES_H

#include <stdbool.h>

/* X(id, name, zeroth, vectors): hdo__est_<id> in estimator/. zeroth: uses random directions. vectors: of an estimator
 * that is exact in law and draws no vectors, the one that does; NULL for all others. */
#define HDO_ESTIMATOR_LIST(X)                                                                                          \
    X(fo, "fo", false, NULL)                                                                                           \
    X(fd, "fd", true, NULL)                                                                                            \
    X(fd_central, "fd-central", true, NULL)                                                                            \
    X(fd_coord, "fd-coord", true, NULL)                                                                                \
    X(debiased, "debiased", true, NULL)                                                                                \
    X(forward, "forward", true, NULL)                                                                                  \
    X(complex_step, "complex-step", true, NULL)                                                                        \
    X(forward_sim, "forward-sim", true, NULL)                                                                          \
    X(forward_law, "forward-law", true, "forward-sim")                                                                 \
    X(fd_law, "fd-law", true, "fd")

/* X(name, needs data, constructor in objective/) */
#define HDO_MODEL_LIST(X)                                                                                              \
    X("logistic", true, logistic_create)                                                                               \
    X("logistic-l2", true, hdo__logistic_create)                                                                       \
    X("mlp", true, hdo__network_create)                                                                                \
    X("cnn2", true, hdo__network_create)                                                                               \
    X("cnn3", true, hdo__network_create)                                                                               \
    X("resnet18", true, hdo__network_create)                                                                           \
    X("transformer", true, hdo__network_create)                                                                        \
    X("custom", true, hdo__network_create)                                                                             \
    X("quadratic", false, hdo__quadratic_create)

/* X(table hdo__mixer_ID in topo/, name) */
#define HDO_MIXING_LIST(X)                                                                                             \
    X(matching, "matching")                                                                                            \
    X(pairwise, "pairwise")                                                                                            \
    X(graph, "graph")                                                                                                  \
    X(none, "none")                                                                                                    \
    X(allreduce, "allreduce")

/* X(name, how data/ opens it, what it needs, one line for people) */
#define HDO_DATA_LIST(X)                                                                                               \
    X("synthetic", hdo__synth_open, HDO_DATA_BUILT_IN, "Gaussian mixture with known Bayes error, generated")           \
    X("mnist", hdo__mnist_open, HDO_DATA_ABSENT, "handwritten digits, 28x28 grey, 60,000 + 10,000, 10 classes")        \
    X("cifar10", hdo__cifar_open, HDO_DATA_ABSENT, "small photographs, 32x32 RGB, 50,000 + 10,000, 10 classes")        \
    X("brackets", hdo__brackets_open, HDO_DATA_BUILT_IN,                                                               \
      "strings of ( and ), correct or not, 25,600 + 2,560, generated")                                                 \
    X("csv", hdo__custom_open, HDO_DATA_OWN, "your table: numbers and a label column (data.path)")                     \
    X("libsvm", hdo__custom_open, HDO_DATA_OWN, "your LIBSVM file: label index:value ... (data.path)")                 \
    X("npy", hdo__custom_open, HDO_DATA_OWN, "your NumPy arrays: inputs and labels (data.path)")                       \
    X("idx", hdo__custom_open, HDO_DATA_OWN, "your IDX files: images and labels, raw or .gz (data.path)")              \
    X("none", open_none, HDO_DATA_BUILT_IN, "no data, for objectives that are formulas (quadratic)")

typedef struct hdo_estimator_name {
    const char *name;
    bool zeroth;
    const char *vectors;
} hdo_estimator_name;
const hdo_estimator_name *hdo__estimator_named(const char *name); /* NULL: no such estimator */

#endif
