/* SPDX-License-Identifier: Apache-2.0
 *
 * The seven experiments and the readings, as data. Settings that all variants of an experiment share are in its preset
 * (presets/eN.yaml); here is what differs from curve to curve, what --quick shortens, and the paper's search intervals.
 * Lists the paper does not give (E5's learning rates, E6's and E7's populations) are our choice.
 */
#include <string.h>

#include "hdo/lab/paper.h"

#define EST(name, r)                                                                                                   \
    { "population.zo.estimator=" name, "population.zo.rv=" r, NULL }
#define LR(v)                                                                                                          \
    { "population.fo.lr=" v, "population.zo.lr=" v, NULL }
#define RV(r)                                                                                                          \
    { "population.zo.rv=" r, NULL }
#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

static const hdo_paper_variant e1[] = {
    {"fd rv 8", "1zo", EST("fd", "8")},
    {"fd rv 16", "1zo", EST("fd", "16")},
    {"fd rv 128", "1zo", EST("fd", "128")},
    {"forward rv 8", "1zo", EST("forward-law", "8")},
    {"forward rv 16", "1zo", EST("forward-law", "16")},
    {"forward rv 128", "1zo", EST("forward-law", "128")},
};
static const hdo_paper_variant e2[] = {
    {"1fo", "1fo", {NULL}},
    {"24fo", "24fo", {NULL}},
    {"1zo", "1zo", {NULL}}, /* these two are not in the paper's figure; its text claims something about them */
    {"24zo", "24zo", {NULL}},
    {"256zo", "256zo", {NULL}},
    {"24fo+256zo", "24fo+256zo", {NULL}},
};
static const hdo_paper_variant e3[] = {
    {"1zo", "1zo", {NULL}},
    {"1fo", "1fo", {NULL}},
    {"5zo", "5zo", {NULL}},
    {"1fo+5zo", "1fo+5zo", {NULL}},
};
static const hdo_paper_variant e4[] = {
    {"1zo", "1zo", {NULL}},   {"1fo", "1fo", {NULL}},           {"4fo", "4fo", {NULL}},
    {"16zo", "16zo", {NULL}}, {"4fo+16zo", "4fo+16zo", {NULL}},
};
static const hdo_paper_variant e5[] = {
    {"lr 0.005", "3fo+90zo", LR("0.005")}, {"lr 0.01", "3fo+90zo", LR("0.01")}, {"lr 0.05", "3fo+90zo", LR("0.05")},
    {"lr 0.1", "3fo+90zo", LR("0.1")},     {"lr 0.5", "3fo+90zo", LR("0.5")},
};
static const hdo_paper_variant e6[] = {
    {"4fo+16zo rv 8", "4fo+16zo", RV("8")},
    {"4fo+16zo rv 16", "4fo+16zo", RV("16")},
    {"4fo+16zo rv 32", "4fo+16zo", RV("32")},
    {"4fo+16zo rv 64", "4fo+16zo", RV("64")},
    {"16zo rv 8", "16zo", RV("8")},
    {"16zo rv 16", "16zo", RV("16")},
    {"16zo rv 32", "16zo", RV("32")},
    {"16zo rv 64", "16zo", RV("64")},
    {"4fo", "4fo", {NULL}},
};
static const hdo_paper_variant e7[] = {
    {"16fo", "16fo", {NULL}},         {"12fo+4zo", "12fo+4zo", {NULL}}, {"8fo+8zo", "8fo+8zo", {NULL}},
    {"4fo+12zo", "4fo+12zo", {NULL}}, {"16zo", "16zo", {NULL}},
};

static const hdo_paper_experiment experiments[] = {
    {.id = "e1",
     .title = "E1: number of random vectors",
     .about = "one zeroth-order node, CNN on MNIST; fd and forward",
     .seeds = 3,
     .paper_seeds = 3,
     .variant = e1,
     .n_variants = COUNT(e1),
     .figure = {{"acc", "val/acc_mean", "validation accuracy", false, NULL},
                {"loss", "val/loss_mean", "validation loss", false, NULL}},
     .quick = {"steps=80", "warmup=10", "data.val=1000", "eval.every=10"},
     .quick_seeds = 2,
     .search = {"population.zo.batch=128,256,512", "population.zo.lr=0.001:0.1:log"}},
    {.id = "e2",
     .title = "E2: populations on a convex problem",
     .about = "logistic regression on MNIST",
     .seeds = 5,
     .paper_seeds = 1,
     .variant = e2,
     .n_variants = COUNT(e2),
     .figure = {{"loss", "val/loss_mean", "validation loss", false, NULL},
                {"minus-24fo", "val/loss_mean", "validation loss minus that of 24 FO", false, "24fo"}},
     .quick = {"data.val=1000", "eval.every=20"},
     .quick_seeds = 3,
     .search = {"population.fo.lr=0.001:0.1:log", "population.zo.lr=0.001:0.1:log", "population.zo.rv=32,64,128"}},
    {.id = "e3",
     .title = "E3: fine-tuning ResNet-18",
     .about = "CIFAR-10 at 32x32",
     .seeds = 3,
     .paper_seeds = 3,
     .variant = e3,
     .n_variants = COUNT(e3),
     .figure = {{"acc", "val/acc_mean", "validation accuracy", false, NULL},
                {"loss", "val/loss_mean", "validation loss", false, NULL}},
     .quick = {"steps=8", "warmup=2", "data.val=100", "eval.every=5"},
     .quick_seeds = 2,
     .search = {"population.fo.batch=10:100", "population.zo.batch=50:250", "population.fo.lr=0.0001:0.1:log",
                "population.zo.lr=0.0001:0.1:log", "population.zo.rv=16,32,64,128"}},
    {.id = "e4",
     .title = "E4: populations on a non-convex problem",
     .about = "transformer on Brackets",
     .seeds = 17,
     .paper_seeds = 17,
     .variant = e4,
     .n_variants = COUNT(e4),
     .figure = {{"loss", "val/loss_mean", "validation loss", false, NULL},
                {"acc", "val/acc_mean", "validation accuracy", false, NULL}},
     .quick = {"steps=24", "warmup=6", "data.val=256", "eval.every=6"},
     .quick_seeds = 2,
     .search = {"population.fo.batch=128,256,1024,2048", "population.zo.batch=128,256,1024,2048",
                "population.fo.lr=0.0001:0.1:log", "population.zo.lr=0.0001:0.1:log", "population.fo.momentum=0:0.95",
                "population.zo.momentum=0:0.95", "population.zo.rv=8,16,32,64,128"}},
    {.id = "e5",
     .title = "E5: learning rate",
     .about = "3 FO + 90 ZO, logistic regression on MNIST",
     .seeds = 3,
     .paper_seeds = 3,
     .variant = e5,
     .n_variants = COUNT(e5),
     .figure = {{"loss", "val/loss_mean", "validation loss", false, NULL},
                {"loss-log", "val/loss_mean", "validation loss", true, NULL}},
     .quick = {"data.val=1000"},
     .quick_seeds = 3,
     .search = {"population.fo.lr=0.001:0.1:log", "population.zo.lr=0.001:0.1:log", "population.zo.rv=32,64,128"}},
    {.id = "e6",
     .title = "E6: random vectors in populations",
     .about = "MLP on MNIST, hybrid and mono-type",
     .seeds = 3,
     .paper_seeds = 3,
     .variant = e6,
     .n_variants = COUNT(e6),
     .figure = {{"loss", "val/loss_mean", "validation loss", false, NULL}},
     .quick = {"steps=200", "warmup=20", "data.val=1000", "eval.every=10"},
     .quick_seeds = 2,
     .search = {"population.fo.lr=0.001:0.5:log", "population.zo.lr=0.001:0.5:log"}},
    {.id = "e7",
     .title = "E7: consensus of mixed populations",
     .about = "16 nodes, CNN on MNIST",
     .seeds = 3,
     .paper_seeds = 3,
     .variant = e7,
     .n_variants = COUNT(e7),
     .figure = {{"loss", "val/loss_mean", "validation loss", false, NULL},
                {"std", "val/loss_std", "standard deviation of the loss over nodes", true, NULL}},
     .quick = {"steps=80", "warmup=10", "data.val=1000", "eval.every=5"},
     .quick_seeds = 2,
     .search = {"population.fo.batch=8,64,256", "population.zo.batch=8,64,256", "population.fo.lr=0.001:0.1:log",
                "population.zo.lr=0.001:0.1:log"}},
};

static const hdo_paper_reading readings[] = {
    {"text", "", "what the paper says", {NULL}, NULL},
    {"authors", "-authors", "what its authors' published code does", {NULL}, NULL},
    {"authors-models",
     "",
     "text, but the authors' models, which keep their buffers to themselves",
     {"model.reading=authors", "model.buffers=private", NULL},
     NULL},
    {"he", "", "text, but He initialisation", {"model.init=he", NULL}, NULL},
    {"per-tensor", "", "text, but directions drawn tensor by tensor", {"zo.directions=per-tensor", NULL}, NULL},
    {"he-per-tensor", "", "text, but both of the above", {"model.init=he", "zo.directions=per-tensor", NULL}, NULL},
    {"unit", "", "text, but inputs in [0, 1]", {"data.scaling=unit", NULL}, NULL},
    {"shared-streams",
     "",
     "text, but every node draws the same directions",
     {"zo.streams=shared", "zo.estimator=forward-sim", NULL},
     NULL},
    {"heavy-ball", "", "text, but momentum without the factor 1 - m", {"*.momentum_kind=heavy-ball", NULL}, NULL},
    {"short-warmup", "", "text, but only ten local steps before nodes meet", {"warmup=10", NULL}, NULL},
    {"balanced", "", "text, but zeroth-order rates from the measured noise", {"zo.lr=balanced", NULL}, NULL},
    {"stand-in",
     "",
     "text, but E3 starts from quarter turns of CIFAR-10 learnt here, not ImageNet",
     {NULL},
     "e3-start"},
};

const hdo_paper_experiment *hdo_paper_at(int i) {
    return i >= 0 && i < COUNT(experiments) ? &experiments[i] : NULL;
}

const hdo_paper_experiment *hdo_paper_find(const char *id) {
    for (int i = 0; i < COUNT(experiments); i++) {
        if (strcmp(experiments[i].id, id) == 0) return &experiments[i];
    }
    return NULL;
}

const hdo_paper_reading *hdo_paper_reading_at(int i) {
    return i >= 0 && i < COUNT(readings) ? &readings[i] : NULL;
}

const hdo_paper_reading *hdo_paper_reading_find(const char *name) {
    for (int i = 0; i < COUNT(readings); i++) {
        if (strcmp(readings[i].name, name) == 0) return &readings[i];
    }
    return NULL;
}
