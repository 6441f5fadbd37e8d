/* SPDX-License-Identifier: Apache-2.0
 *
 * Loss, accuracy and confusion of a stored model. An objective only tells how many samples of a batch it gets right, so
 * samples are grouped by their class and each group is asked once for every class: "how many of you look like c?" The
 * number of passes is that of the classes; nothing inside a model has to be opened.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hdo/experimental/file.h"
#include "base/team.h"
#include "base/vec.h"
#include "hdo/lab/eval.h"
#include "objective/objective.h"
#include "objective/weights.h"
#include "record/ckfile.h"
#include "record/ckstate.h"
#include "run/run_internal.h"

/* ---- where the model is ---- */

static bool is_folder(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

/* A checkpoint by itself holds the configuration of its run. */
static hdo_status checkpoint_config(const char *path, hdo_config *c, hdo_error *e) {
    hdo_ckfile f;
    hdo_status st = hdo__ckfile_open_whole(&f, path, e);
    if (st != HDO_OK) return st;
    hdo_config_default(c);
    st = hdo_config_load_bytes(c, path, f.config, strlen(f.config), e);
    hdo_config_as_base(c);
    hdo__ckfile_close(&f);
    return st;
}

hdo_status hdo_stored_config(const char *source, hdo_config *c, hdo_error *e) {
    if (strlen(source) >= HDO_PATH_MAX - 64)
        return hdo__fail(e, HDO_E_CONFIG, "the name '%.100s...' is too long", source);
    if (is_folder(source)) {
        hdo_status st = hdo__stored_config_load(source, c, NULL, 0, e);
        return st == HDO_E_CONFIG ? HDO_E_DATA : st;
    }
    if (hdo__ckfile_is(source)) return checkpoint_config(source, c, e);
    return hdo__fail(e, HDO_E_DATA, "'%s' is neither a run folder nor a checkpoint", source);
}

/* ---- the model itself ---- */

typedef struct share { /* of every class in the mean model: what the averages of the run keep */
    int n;
    int64_t count[HDO_CLASSES_MAX];
    double weight[HDO_CLASSES_MAX], total;
} share;

/* As the run itself has it: equal, or inverse to the noise of the classes. */
static hdo_status shares(const hdo_ckfile *ck, const hdo_state_head *h, share *s, hdo_evaluation *out, hdo_error *e) {
    hdo_config *c = malloc(sizeof *c);
    if (c == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for a configuration");
    hdo_config_default(c);
    hdo_status st = hdo_config_load_bytes(c, ck->path, ck->config, strlen(ck->config), e);
    const hdo_mixer_ops *mixer = st == HDO_OK ? hdo__mixer_find(c->mixing.kind) : NULL;
    bool equal = c->mixing.average.id == HDO_AVERAGE_EQUAL || mixer == NULL || mixer->match == NULL;
    *s = (share){.n = st == HDO_OK ? c->n_classes : 0};
    size_t at = (size_t)snprintf(out->which, sizeof out->which, equal ? "mean" : "weighted mean:");
    for (int k = 0; k < s->n; k++) {
        s->count[k] = c->population[k].count;
        s->weight[k] = equal || !(h->noise[k] > 0.0) ? 1.0 : 1.0 / h->noise[k];
        s->total += (double)s->count[k] * s->weight[k];
        if (!equal && at < sizeof out->which)
            at += (size_t)snprintf(out->which + at, sizeof out->which - at, "%s %s %.4g", k > 0 ? "," : "",
                                   c->population[k].name, s->weight[k] / s->weight[0]);
    }
    free(c);
    return st;
}

static double share_of(const share *s, int64_t node) {
    for (int k = 0; k < s->n; k++) {
        if (node < s->count[k]) return s->weight[k];
        node -= s->count[k];
    }
    return 1.0;
}

/* One row of params (n, len), or the mean of all. */
static hdo_status read_rows(int fd, const hdo_st_tensor *t, size_t len, int64_t node, const share *s, const char *path,
                            float *x, hdo_error *e) {
    int64_t n = t->dim[0], first = node >= 0 ? node : 0, last = node >= 0 ? node + 1 : n;
    if (node >= n)
        return hdo__fail(e, HDO_E_CONFIG, "there is no node %lld: '%s' holds %lld of them, from 0", (long long)node,
                         path, (long long)n);
    float *row = malloc(len * sizeof *row);
    double *sum = calloc(len, sizeof *sum);
    hdo_status st =
        row == NULL || sum == NULL ? hdo__fail(e, HDO_E_MEMORY, "out of memory for the models of '%s'", path) : HDO_OK;
    for (int64_t i = first; i < last && st == HDO_OK; i++) {
        if (!hdo__read_at(fd, row, len * sizeof *row, t->off + (uint64_t)i * len * sizeof *row)) {
            st = hdo__fail(e, HDO_E_DATA, "reading '%s' failed", path);
        } else {
            double w = node >= 0 ? 1.0 : share_of(s, i);
            for (size_t j = 0; j < len; j++) sum[j] += w * (double)row[j];
        }
    }
    double total = node >= 0 ? 1.0 : s->total;
    for (size_t j = 0; j < len && st == HDO_OK; j++) x[j] = (float)(sum[j] / total);
    free(row);
    free(sum);
    return st;
}

/* Of an open and verified checkpoint, which is closed. */
static hdo_status load_checkpoint(const hdo_objective *f, hdo_ckfile *ck, int64_t node, float *x, hdo_evaluation *out,
                                  hdo_error *e) {
    hdo_state_head h;
    hdo_status st = hdo__state_read_head(ck->state, ck->path, &h, e);
    const hdo_st_tensor *p = hdo__st_find(&ck->list, "params");
    size_t len = f->d + f->n_buf;
    if (st == HDO_OK && (p == NULL || strcmp(p->dtype, "F32") != 0 || p->n_dim != 2 || p->dim[1] != (int64_t)len)) {
        st = hdo__fail(e, HDO_E_DATA, "'%s' holds models of %lld numbers, but this one has %zu", ck->path,
                       p != NULL && p->n_dim == 2 ? (long long)p->dim[1] : 0, len);
    }
    share s = {0};
    if (st == HDO_OK) st = shares(ck, &h, &s, out, e);
    if (st == HDO_OK && node >= 0) snprintf(out->which, sizeof out->which, "%lld", (long long)node);
    if (st == HDO_OK) {
        st = read_rows(ck->fd, p, len, node, &s, ck->path, x, e);
        out->n = p->dim[0];
        out->step = h.step;
    }
    hdo__ckfile_close(ck);
    return st;
}

static hdo_status load_weights(const hdo_objective *f, const char *path, int classes, float *x, hdo_evaluation *out,
                               hdo_error *e) {
    hdo_tensors *t;
    hdo_status st = hdo_tensors_open(&t, path, e);
    if (st != HDO_OK) return st;
    hdo_weights_report r = {0};
    st = hdo__weights_load(f, t, classes, x, &r, e);
    hdo_tensors_close(t);
    if (st == HDO_OK) snprintf(out->note, sizeof out->note, "%s", r.text);
    return st;
}

static hdo_status load_model(const hdo_objective *f, const char *source, const hdo_eval_options *o, int classes,
                             float *x, hdo_evaluation *out, hdo_error *e) {
    bool folder = is_folder(source);
    if (folder || hdo__ckfile_is(source)) {
        hdo_ckfile ck;
        hdo_status st = folder ? hdo__ckfile_open_newest(&ck, source, out->note, sizeof out->note, e)
                               : hdo__ckfile_open_whole(&ck, source, e);
        snprintf(out->kind, sizeof out->kind, folder ? "run" : "checkpoint");
        return st == HDO_OK ? load_checkpoint(f, &ck, o->node, x, out, e) : st;
    }
    snprintf(out->kind, sizeof out->kind, "weights");
    if (o->node >= 0)
        return hdo__fail(e, HDO_E_CONFIG, "'%s' holds one model, so there is no node %lld", source, (long long)o->node);
    return load_weights(f, source, classes, x, out, e);
}

/* ---- passes ---- */

typedef struct piece { /* some samples of one class */
    int label, size;
    const int64_t *idx;
} piece;

typedef struct pass {
    const hdo_objective *f;
    const hdo_dataset *ds;
    const float *x;
    const piece *pieces;
    int classes;
    bool confusion;
    double *loss;  /* (pieces) */
    int64_t *hits; /* (pieces, classes): how many look like c */
    hdo_status st; /* only failures are written */
} pass;

static void run_piece(void *ctx, int task, hdo_work *w) {
    pass *p = ctx;
    const piece *q = &p->pieces[task];
    size_t n = (size_t)q->size, mark = hdo__arena_mark(w->arena);
    int32_t *label = hdo__arena_take(w->arena, n * sizeof *label);
    void *in = hdo__arena_take(w->arena, n * (size_t)p->ds->n_in * sizeof(float));
    hdo_batch b = {.size = q->size, .node = -1};
    hdo__batch_gather(&b, p->ds, q->idx, NULL, in, label);
    size_t ld = p->f->d + p->f->n_buf;
    int64_t *hits = p->hits + (size_t)task * (size_t)p->classes, left = q->size;
    hdo_status st = p->f->ops->evaluate(p->f, &b, p->x, ld, 1, w, &p->loss[task], &hits[q->label]);
    left -= hits[q->label];
    for (int c = 0; c < p->classes && p->confusion && left > 0 && st == HDO_OK; c++) {
        double ignored = 0.0;
        if (c == q->label) continue;
        for (size_t i = 0; i < n; i++) label[i] = c;
        st = p->f->ops->evaluate(p->f, &b, p->x, ld, 1, w, &ignored, &hits[c]);
        left -= hits[c];
    }
    if (st != HDO_OK) p->st = st;
    hdo__arena_rewind(w->arena, mark);
}

/* Sample numbers sorted by class, cut into pieces of at most `most`. Returns how many; -1: out of memory or a bad
 * label. */
static int cut(const hdo_dataset *ds, int64_t samples, int most, int64_t *idx, piece **out, int64_t *count) {
    int n = 0;
    int64_t at = 0;
    piece *p = malloc((size_t)(samples / most + ds->classes + 1) * sizeof *p);
    if (p == NULL) return -1;
    for (int c = 0; c < ds->classes; c++) {
        int64_t first = at;
        for (int64_t i = 0; i < samples; i++) {
            if (ds->ops->label(ds, i) == c) idx[at++] = i;
        }
        count[c] = at - first;
        for (int64_t k = first; k < at; k += most) p[n++] = (piece){c, (int)(at - k < most ? at - k : most), idx + k};
    }
    *out = p;
    return n;
}

static hdo_status measure(const hdo_objective *f, const hdo_dataset *ds, const float *x, const hdo_eval_options *o,
                          hdo_evaluation *out, hdo_error *e) {
    int64_t samples = o->limit > 0 && o->limit < ds->count ? o->limit : ds->count;
    size_t C = (size_t)ds->classes, batch = (size_t)f->eval_batch;
    int64_t *idx = malloc((size_t)samples * sizeof *idx);
    piece *pieces = NULL;
    int n = idx != NULL ? cut(ds, samples, f->eval_batch, idx, &pieces, out->count) : -1;
    pass p = {.f = f,
              .ds = ds,
              .x = x,
              .pieces = pieces,
              .classes = ds->classes,
              .confusion = !o->no_confusion && f->has_accuracy};
    p.loss = calloc((size_t)(n > 0 ? n : 1), sizeof *p.loss);
    p.hits = calloc((size_t)(n > 0 ? n : 1) * C, sizeof *p.hits);
    out->confusion = calloc(C * C, sizeof *out->confusion);
    hdo_team team = {0};
    size_t bytes = hdo__objective_work_bytes(f, f->eval_batch, 1) +
                   hdo__arena_round(batch * (size_t)ds->n_in * sizeof(float)) +
                   hdo__arena_round(batch * sizeof(int32_t));
    hdo_status st = HDO_E_MEMORY;
    if (n >= 0 && p.loss != NULL && p.hits != NULL && out->confusion != NULL) {
        st = hdo__team_init(&team, o->threads > 0 ? o->threads : hdo__cpu_count(), bytes);
    }
    if (st == HDO_OK) {
        hdo__team_run(&team, n, run_piece, &p);
        st = p.st;
        for (int k = 0; k < n; k++) {
            out->loss += p.loss[k];
            for (size_t c = 0; c < C; c++) out->confusion[(size_t)pieces[k].label * C + c] += p.hits[(size_t)k * C + c];
        }
        int64_t right = 0;
        for (size_t c = 0; c < C; c++) right += out->correct[c] = out->confusion[c * C + c];
        out->samples = samples;
        out->loss /= (double)samples;
        out->accuracy = f->has_accuracy ? (double)right / (double)samples : (double)NAN;
    }
    if (st != HDO_OK) hdo__fail(e, st, "evaluation failed: %s", hdo_status_text(st));
    if (!p.confusion) {
        free(out->confusion);
        out->confusion = NULL;
    }
    hdo__team_clear(&team);
    free(idx);
    free(pieces);
    free(p.loss);
    free(p.hits);
    return st;
}

typedef struct model { /* a stored model with what it belongs to */
    hdo_config config;
    hdo_problem problem;
    float *x; /* (d + n_buf) */
} model;

static void model_close(model *m) {
    hdo__free(m->x);
    hdo__problem_close(&m->problem);
}

/* A run that trains a part of the model stores that part: the rest comes from the files it began with. */
static hdo_status same_base(const hdo_config *c, const char *source, hdo_error *e) {
    char now[65];
    hdo_ckfile ck;
    hdo_state_head h;
    hdo_status st =
        is_folder(source) ? hdo__ckfile_open_newest(&ck, source, NULL, 0, e) : hdo__ckfile_open_whole(&ck, source, e);
    if (st != HDO_OK) return st;
    st = hdo__state_read_head(ck.state, ck.path, &h, e);
    hdo__inputs_sha256(c, now);
    if (st == HDO_OK && strcmp(now, h.inputs_sha256) != 0)
        st = hdo__fail(
            e, HDO_E_DATA,
            "'%s' trains a part of the model (model.train: %s); the rest is in '%s', which is not the file the "
            "run began with",
            source, c->model.train, c->model.weights);
    hdo__ckfile_close(&ck);
    return st;
}

static hdo_status model_open(const hdo_config *c, const char *source, const hdo_eval_options *o, model *m,
                             hdo_evaluation *out, hdo_error *e) {
    m->x = NULL;
    m->problem = (hdo_problem){0};
    *out = (hdo_evaluation){.step = -1, .n = -1};
    if (!hdo__problem_has_data(c))
        return hdo__fail(e, HDO_E_UNSUPPORTED, "model '%s' is a formula without data", c->model.name);
    if (!hdo__path_exists(source)) return hdo__fail(e, HDO_E_DATA, "'%s' does not exist", source);
    m->config = *c;
    bool file = !is_folder(source) && !hdo__ckfile_is(source);
    if (file) snprintf(m->config.model.train, sizeof m->config.model.train, "all"); /* files hold whole models */
    hdo_status st = hdo__problem_open_whole(&m->problem, &m->config, e);
    if (st != HDO_OK) return st;
    const hdo_objective *f = m->problem.objective;
    int classes = m->problem.train->classes;
    m->x = hdo__alloc((f->d + f->n_buf) * sizeof *m->x);
    if (m->x == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the model");
    if (file) st = f->ops->init(f, (uint64_t)c->seed, m->x); /* what the file may leave out */
    if (st == HDO_OK && f->whole != NULL) st = same_base(c, source, e);
    if (st == HDO_OK) st = load_model(f, source, o, classes, m->x, out, e);
    out->d = (int64_t)f->d;
    out->classes = classes;
    return st;
}

hdo_status hdo_evaluate(const hdo_config *c, const char *source, const hdo_eval_options *o, hdo_evaluation *out,
                        hdo_error *e) {
    model *m = malloc(sizeof *m);
    if (m == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory");
    hdo_status st = model_open(c, source, o, m, out, e);
    if (st == HDO_OK && out->classes > HDO_EVAL_CLASSES_MAX) {
        st = hdo__fail(e, HDO_E_UNSUPPORTED, "more than %d classes", HDO_EVAL_CLASSES_MAX);
    }
    const hdo_problem *p = &m->problem;
    if (st == HDO_OK) st = measure(p->objective, o->train ? p->train : p->val, m->x, o, out, e);
    model_close(m);
    free(m);
    if (st != HDO_OK) hdo_evaluation_clear(out);
    return st;
}

static hdo_status export_model(const char *source, int64_t node, const char *path, bool part, hdo_error *e) {
    hdo_config *c = malloc(sizeof *c);
    hdo_eval_options o = {.node = node};
    hdo_evaluation v;
    model *m = calloc(1, sizeof *m);
    char step[32];
    hdo_status st =
        c != NULL && m != NULL ? hdo_stored_config(source, c, e) : hdo__fail(e, HDO_E_MEMORY, "out of memory");
    if (st == HDO_OK) st = model_open(c, source, &o, m, &v, e);
    if (st == HDO_OK) {
        snprintf(step, sizeof step, "%lld", (long long)v.step);
        const char *const notes[] = {"model", c->model.name, "data", c->data.name, "step", step, "node", v.which, NULL};
        st = (part ? hdo__weights_save_part : hdo__weights_save)(m->problem.objective, m->x, notes, path, e);
    }
    if (m != NULL) model_close(m);
    free(m);
    free(c);
    return st;
}

hdo_status hdo_export_weights(const char *source, int64_t node, const char *path, hdo_error *e) {
    return export_model(source, node, path, false, e);
}

hdo_status hdo_export_trained(const char *source, int64_t node, const char *path, hdo_error *e) {
    return export_model(source, node, path, true, e);
}

void hdo_evaluation_clear(hdo_evaluation *v) {
    free(v->confusion);
    *v = (hdo_evaluation){0};
}
