/* SPDX-License-Identifier: Apache-2.0
 *
 * Configuration -> objects, top to bottom, once: transport (which nodes are local), data, shards, objective, classes
 * with their estimators, mixing, metrics; then everybody is asked for scratch bytes, models and arenas are allocated
 * and the models initialised. After this nothing is allocated.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/sha256.h"
#include "run/run_internal.h"

static void warn(void *ctx, const char *message) {
    hdo__log(ctx, HDO_LOG_WARN, "%s", message);
}

/* What must be equal on all ranks: everything but the number of threads. */
static hdo_status hash_config(const hdo_run *r, unsigned char out[32], hdo_error *e) {
    hdo_config *c = malloc(sizeof *c);
    if (c == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the configuration");
    *c = r->config;
    c->threads = 0;
    char *text = hdo_config_dump(c, false);
    free(c);
    if (text == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the configuration text");
    hdo_sha256 h;
    hdo__sha256_init(&h);
    hdo__sha256_update(&h, HDO_VERSION, sizeof HDO_VERSION);
    hdo__sha256_update(&h, text, strlen(text));
    hdo__sha256_final(&h, out);
    free(text);
    return HDO_OK;
}

static hdo_status wire_transport(hdo_run *r, int n, hdo_error *e) {
    if (r->config.engine.id == HDO_ENGINE_FLEET) {
        if (r->fleet == NULL)
            return hdo__fail(
                e, HDO_E_CONFIG,
                "engine fleet has no run of its own: start each member with hdo node --join URL --config FILE");
        return hdo__inproc_create_part(&r->transport, n, r->fleet->id.place, r->fleet->id.nodes, e);
    }
    if (r->config.engine.id != HDO_ENGINE_MPI) return hdo__inproc_create(&r->transport, n, e);
    hdo_transport_setup s = {.deadline_s = r->config.mpi.deadline_s,
                             .chunk = (size_t)r->config.mpi.chunk,
                             .shared = r->config.mpi.shared && !r->config.mpi.async,
                             .warn = warn,
                             .ctx = &r->log};
    hdo_status st = hash_config(r, s.same, e);
    if (st == HDO_OK) st = hdo__mpi_create(&r->transport, &s, e);
    if (st != HDO_OK) return st;
    r->log.quiet = r->transport->rank != 0;
    st = hdo__population_spread(&r->config, r->transport, e);
    if (st != HDO_OK && r->transport->rank != 0) hdo__fail(e, st, "%s", ""); /* all ranks found the same: one says it */
    return st;
}

static size_t scratch_bytes(const hdo_run *r) {
    size_t evaluation = hdo__metrics_work_bytes(&r->metrics), local = hdo__population_work_bytes(&r->population);
    return local > evaluation ? local : evaluation;
}

static hdo_status wire_memory(hdo_run *r, hdo_error *e) {
    hdo_population *p = &r->population;
    int mates = r->transport->host_ranks, cpus = hdo__cpu_count();
    if (mates > 1) cpus = hdo__cpu_count_shared(mates); /* ranks of one machine share it */
    int threads = (int)r->config.threads > 0 ? (int)r->config.threads : cpus;
    hdo_engine parts = {.config = &r->config,
                        .hooks = &r->hooks,
                        .log = &r->log,
                        .transport = r->transport,
                        .problem = &r->problem,
                        .population = p,
                        .progress = &r->progress,
                        .metrics = &r->metrics,
                        .record = &r->record,
                        .fleet = r->fleet};
    parts.ops = hdo__engine_for(&parts);
    size_t matrices = hdo__population_has_momentum(p) ? 3 : 2; /* models, and those that arrive */
    size_t state = matrices * hdo__population_cells(p) * sizeof(float);
    if (parts.ops->state_bytes != NULL) state += parts.ops->state_bytes(&parts);
    hdo_status st = hdo__population_fits(&r->population, state, scratch_bytes(r) * (size_t)threads, e);
    if (st == HDO_OK) st = hdo__population_reserve(p, e);
    if (st == HDO_OK) st = hdo__record_reserve(&r->record, e);
    if (st == HDO_OK) st = parts.ops->create(&r->engine, &parts, e);
    if (st != HDO_OK) return st;
    r->record.put_engine = parts.ops->put;
    r->record.engine = r->engine;
    if (hdo__team_init(&r->team, threads, scratch_bytes(r)) != HDO_OK) {
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for scratch of %d threads (%.1f MB each)", threads,
                         (double)scratch_bytes(r) / 1e6);
    }
    p->team = &r->team;
    return HDO_OK;
}

/* Whatever a rank does for itself. */
static hdo_status wire_own(hdo_run *r, hdo_error *e) {
    int64_t n = 0;
    for (int k = 0; k < r->config.n_classes; k++) n += r->config.population[k].count;
    hdo_status st = wire_transport(r, (int)n, e);
    if (st == HDO_OK) st = hdo__problem_open(&r->problem, &r->config, e);
    if (st != HDO_OK) return st;
    r->record.transport = r->transport;
    st = hdo__population_init(&r->population, &r->problem, r->transport, &r->log, e);
    if (st == HDO_OK) st = hdo__metrics_init(&r->metrics, &r->population, e);
    return st == HDO_OK ? wire_memory(r, e) : st;
}

hdo_status hdo__run_wire(hdo_run *r, hdo_error *e) {
    hdo_status st = wire_own(r, e);
    if (r->transport != NULL)
        st = hdo__transport_settle(r->transport, st, e); /* models are reserved by all ranks together, or by none */
    if (st == HDO_OK) st = r->transport->ops->reserve(r->transport, &r->population.models, e);
    if (st == HDO_OK) st = hdo__population_start(&r->population, e);
    if (st == HDO_OK) st = hdo__engine_check(&r->population, e);
    if (st == HDO_OK && hdo__population_has_auto(&r->population) && r->hooks.tune == NULL) {
        st = hdo__fail(
            e, HDO_E_UNSUPPORTED,
            "'auto' rates or weights are chosen while a run goes on, and nobody here can; use hdo run, or set "
            "hooks.tune to hdo_auto_tune");
    }
    return st;
}
