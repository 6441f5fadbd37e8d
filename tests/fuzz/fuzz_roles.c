/* SPDX-License-Identifier: Apache-2.0 — libFuzzer target: mpi.roles and populations. The first byte: how many ranks. */
#include "fuzz.h"
#include "run/run_internal.h"

enum { RANKS_MAX = 8 };

static const char *host(const hdo_transport *t, int rank) {
    (void)t;
    return rank < 2 ? "alpha.cluster" : "beta";
}

/* Text up to a line break is the population, the rest the roles. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static hdo_config c;
    hdo_error e = {HDO_OK, ""};
    if (size < 1) return 0;
    char *text = text_of(data + 1, size - 1), *roles = strchr(text, '\n');
    if (roles != NULL) *roles++ = '\0';
    hdo_config_default(&c);
    hdo_status st = hdo_config_population(&c, text, &e);
    require_sentence(st, &e);
    int64_t n = 0;
    for (int k = 0; k < c.n_classes; k++) n += c.population[k].count;
    if (st == HDO_OK && roles != NULL && n > 0 && n < 1000) {
        int start[RANKS_MAX], held[RANKS_MAX], order[RANKS_MAX], ranks = 1 + data[0] % RANKS_MAX;
        hdo_transport t = {.ranks = ranks, .host_ranks = 1, .host = host, .start = start, .held = held, .order = order};
        if (hdo_config_set_from(&c, "mpi.roles", roles, HDO_FROM_FLAG, &e) == HDO_OK) {
            e = (hdo_error){HDO_OK, ""};
            st = hdo__population_spread(&c, &t, &e);
            require_sentence(st, &e);
            int64_t sum = 0;
            for (int r = 0; st == HDO_OK && r < ranks; r++) {
                require(held[r] >= 1 && start[r] >= 0, "a rank without nodes");
                sum += held[r];
            }
            require(st != HDO_OK || sum == n, "nodes are lost");
        }
    }
    free(text);
    return 0;
}
