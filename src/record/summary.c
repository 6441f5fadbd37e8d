/* SPDX-License-Identifier: Apache-2.0 — the end of a run: fingerprint, what all ranks know together, summary.json. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/sha256.h"
#include "hdo/experimental/all.h"
#include "record/record.h"

const char *hdo_stop_name(hdo_stop why) {
    static const char *const names[] = {"running", "completed", "target", "timeout", "diverged", "stopped"};
    return (unsigned)why < sizeof names / sizeof names[0] ? names[why] : "unknown";
}

static const char *outcome_of(hdo_stop stop) {
    switch (stop) {
    case HDO_COMPLETED:
    case HDO_TARGET: return "completed";
    case HDO_DIVERGED: return "diverged";
    default: return "stopped";
    }
}

static void put_group(hdo_json *j, const hdo_group *g) {
    HDO_JSON_REALS(j, {"val_loss_mean", g->loss_mean}, {"val_loss_std", g->loss_std}, {"val_loss_min", g->loss_min},
                   {"val_loss_max", g->loss_max}, {"val_acc_mean", g->acc_mean});
}

static void put_final(hdo_json *j, const hdo_record *r) {
    const hdo_row *row = &r->row;
    hdo__json_object(j, "final");
    hdo__json_real(j, "val_loss_mu", row->mu_loss);
    hdo__json_real(j, "val_acc_mu", row->mu_acc);
    put_group(j, &row->all);
    HDO_JSON_REALS(j, {"val_loss_node0", row->node0_loss}, {"val_acc_node0", row->node0_acc}, {"gamma", row->gamma},
                   {"mg", row->mg}, {"train_loss", row->train_loss});
    hdo__json_object(j, "classes");
    for (int k = 0; k < r->population->n_classes; k++) {
        hdo__json_object(j, r->config->population[k].name);
        put_group(j, &row->cls[k]);
        hdo__json_end(j, '}');
    }
    hdo__json_end(j, '}');
    hdo__json_end(j, '}');
}

/* The model a run offers: the mean that its averages keep. */
static void put_offer(hdo_json *j, const hdo_record *r) {
    const hdo_population *p = r->population;
    bool equal = true;
    for (int k = 1; k < p->n_classes; k++)
        equal = equal && hdo__population_weight(p, k) == hdo__population_weight(p, 0);
    hdo__json_object(j, "final_model");
    hdo__json_text(j, "kind", equal ? "mean" : "weighted mean");
    hdo__json_object(j, "weights"); /* of one node of each class; the first has 1 */
    for (int k = 0; k < p->n_classes; k++)
        hdo__json_real(j, r->config->population[k].name, hdo__population_weight(p, k) / hdo__population_weight(p, 0));
    hdo__json_end(j, '}');
    hdo__json_real(j, "val_loss", r->row.mu_loss);
    hdo__json_real(j, "val_acc", r->row.mu_acc);
    hdo__json_end(j, '}');
}

static void put_classes(hdo_json *j, const hdo_record *r) {
    hdo__json_array(j, "classes");
    for (int k = 0; k < r->population->n_classes; k++) {
        const hdo_class_config *c = &r->config->population[k];
        hdo__json_object(j, NULL);
        hdo__json_text(j, "name", c->name);
        hdo__json_int(j, "count", c->count);
        hdo__json_text(j, "estimator", c->estimator);
        HDO_JSON_INTS(j, {"rv", r->population->classes[k].estimator.ops->zeroth ? c->rv : 0}, {"batch", c->batch});
        hdo__json_real(j, "lr", r->population->classes[k].schedule.lr);
        hdo__json_end(j, '}');
    }
    hdo__json_end(j, ']');
}

/* How fast mixing alone brings the nodes together (docs/topologies.md). */
void hdo__put_mixing(hdo_json *j, const hdo_record *r) {
    const hdo_spectrum *s = &r->population->spectrum;
    hdo__json_object(j, "mixing");
    hdo__json_text(j, "kind", r->config->mixing.kind);
    HDO_JSON_REALS(j, {"lambda", s->lambda}, {"lambda_error", s->error});
    hdo__json_text(j, "how", hdo__spectrum_how_name(s->how));
    hdo__json_real(j, "spectral_gap", s->gap);
    hdo__json_int(j, "edges", s->edges);
    hdo__json_end(j, '}');
}

char *hdo__record_summary(const hdo_record *r) {
    hdo_json j;
    char hex[65];
    hdo__json_begin(&j, true, HDO_SCHEMA_VERSION);
    hdo__json_text(&j, "outcome", outcome_of(r->progress->stop));
    hdo__json_text(&j, "reason", hdo_stop_name(r->progress->stop));
    hdo__json_text(&j, "version", hdo_version());
    hdo__json_text(&j, "commit", hdo_commit());
    hdo__put_revisions(&j, r->config);
    if (r->progress->stop == HDO_DIVERGED) hdo__fate_put(&j, r);
    hdo__json_text(&j, "name", r->config->name);
    hdo__json_text(&j, "model", r->config->model.name);
    hdo__json_text(&j, "data", r->problem->train != NULL ? r->config->data.name : "none");
    HDO_JSON_INTS(&j, {"d", (int64_t)r->problem->objective->d}, {"n", r->population->n});
    put_classes(&j, r);
    HDO_JSON_INTS(&j, {"seed", r->config->seed}, {"steps", r->progress->step},
                  {"interactions", r->progress->counts.interactions});
    put_offer(&j, r);
    put_final(&j, r);
    hdo__json_object(&j, "time");
    HDO_JSON_REALS(&j, {"wall_s", r->row.wall_s}, {"step_s", r->progress->step_s}, {"eval_s", r->progress->eval_s});
    hdo__json_end(&j, '}');
    hdo__json_object(&j, "oracle");
    HDO_JSON_INTS(&j, {"forward", r->progress->counts.forward}, {"backward", r->progress->counts.backward},
                  {"jvp", r->progress->counts.jvp}, {"cost", r->progress->counts.cost},
                  {"failed", r->progress->counts.failed});
    hdo__json_end(&j, '}');
    hdo__put_mixing(&j, r);
    hdo__json_int(&j, "bytes_exchanged", r->progress->counts.bytes);
    hdo__record_fingerprint(r, hex);
    hdo__json_text(&j, "params_sha256", hex);
    if (r->transport->ranks > 1) {
        hdo__json_object(&j, "mpi");
        hdo__json_int(&j, "ranks", r->transport->ranks);
        hdo__json_int(&j, "wire_bytes", (int64_t)r->wire[0]); /* of models, between ranks, without headers */
        hdo__json_int(&j, "wire_messages", (int64_t)r->wire[1]);
        hdo__json_int(&j, "shared_bytes", (int64_t)r->wire[4]); /* likewise, in memory in common */
        HDO_JSON_REALS(&j, {"wait_s_mean", r->wire[2] / r->transport->ranks}, {"wait_s_max", r->wire[3]});
        if (r->put_engine != NULL) r->put_engine(r->engine, &j);
        hdo__json_end(&j, '}');
    } else if (r->put_engine != NULL) {
        r->put_engine(r->engine, &j);
    }
    hdo__json_text(&j, "dir", r->dir[0] != '\0' ? r->dir : NULL);
    return hdo__json_finish(&j);
}

/* ---- the end ---- */

/* The hash goes from rank to rank in node order: it comes out as in the simulator. */
void hdo__record_fingerprint(const hdo_record *r, char hex[65]) {
    hdo_sha256 c;
    unsigned char digest[32];
    if (r->fingerprint[0] != '\0') {
        memcpy(hex, r->fingerprint, sizeof r->fingerprint);
        return;
    }
    hdo__sha256_init(&c);
    hdo__population_hash(r->population, &c, 0, 1);
    hdo__sha256_final(&c, digest);
    hdo__sha256_hex(digest, hex);
}

static void add_wire(void *ctx, void *v, size_t first, size_t count) {
    const hdo_transport *t = ctx;
    double *sum = v;
    (void)first;
    (void)count;
    sum[0] += (double)t->sent_bytes;
    sum[1] += (double)t->sent_messages;
    sum[2] += t->wait_s;
    sum[3] = fmax(sum[3], t->wait_s);
    sum[4] += (double)t->shared_bytes;
}

hdo_status hdo__record_conclude(hdo_record *r, hdo_error *e) {
    hdo_transport *t = r->transport;
    if (t->ranks == 1 || r->fingerprint[0] != '\0') return HDO_OK;
    hdo_sha256 c;
    unsigned char digest[32];
    hdo__sha256_init(&c);
    hdo_status st = t->ops->relay(t, &c, sizeof c, 1, hdo__population_hash, r->population, e);
    if (st == HDO_OK) st = t->ops->relay(t, r->wire, sizeof r->wire, 1, add_wire, t, e);
    if (st != HDO_OK) return st;
    hdo__sha256_final(&c, digest);
    hdo__sha256_hex(digest, r->fingerprint);
    return HDO_OK;
}

static hdo_status write_summary(hdo_record *r, hdo_error *e) {
    char path[HDO_PATH_MAX + 64];
    hdo_status st = hdo__record_dir_stands(r, e);
    if (st != HDO_OK) return st;
    char *text = hdo__record_summary(r);
    if (text == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the summary");
    hdo__path_join(path, sizeof path, r->dir, "summary.json");
    st = hdo__file_write(path, text, strlen(text), e);
    free(text);
    return st;
}

/* The checkpoint first: where there is a summary, the models it speaks of are there too. */
hdo_status hdo__record_write_summary(hdo_record *r, hdo_error *e) {
    if (r->dir[0] == '\0') return HDO_OK;
    hdo_status st =
        r->progress->stop != HDO_DIVERGED && r->saved_step != r->progress->step ? hdo__record_save(r, e) : HDO_OK;
    if (st != HDO_OK) return st;
    return hdo__transport_settle(r->transport, r->transport->rank == 0 ? write_summary(r, e) : HDO_OK, e);
}
