/* @NAME@: an estimator for hdo, as a plug-in.
 *
 * It turns answers of the objective into an estimate of the gradient. <hdo/estimator.h> lists what may be asked; every
 * question is counted as a pass. Directions are addressed by seed, node and step: nothing random is kept.
 */
#include <hdo/plugin.h>

/* An example: central differences along rv random directions. scratch: u (d), then two points (2 d). */
static int estimate(void *user, hdo_call *call, hdo_oracle *o, const float *x, float *g) {
    size_t d = hdo_oracle_dim(o);
    int rv = hdo_oracle_rv(o);
    float *u = hdo_oracle_scratch(o), *pair = u + d, nu = (float)hdo_oracle_nu(o);
    (void)user, (void)call;
    for (size_t j = 0; j < d; j++) g[j] = 0.0f;
    for (int r = 0; r < rv; r++) {
        double loss[2];
        hdo_oracle_direction(o, r, u);
        for (size_t j = 0; j < d; j++) {
            pair[j] = x[j] + nu * u[j];
            pair[d + j] = x[j] - nu * u[j];
        }
        int failed = hdo_oracle_losses(o, pair, d, 2, loss);
        if (failed != 0) return failed; /* pass on what the oracle returned */
        double slope = (loss[0] - loss[1]) / (2.0 * (double)nu);
        for (size_t j = 0; j < d; j++) g[j] += (float)(slope / rv) * u[j];
    }
    return 0;
}

static const hdo_estimator_def estimator = {.struct_size = sizeof(hdo_estimator_def),
                                            .name = "@NAME@",
                                            .identity = "@NAME@ 1", /* change it when the estimator changes */
                                            .help = "central differences along random directions",
                                            .flags = HDO_ANY_THREAD,
                                            .needs = HDO_NEED_LOSSES,
                                            .uses_directions = 1,
                                            .scratch_per_dim = 3 * sizeof(float),
                                            .estimate = estimate};

static const hdo_plugin plugin = {.struct_size = sizeof(hdo_plugin),
                                  .abi = HDO_ABI,
                                  .name = "@NAME@",
                                  .version = "1",
                                  .parts = {.struct_size = sizeof(hdo_parts), .estimator = &estimator}};

HDO_PLUGIN_EXPORT const hdo_plugin *hdo_plugin_entry(void) {
    return &plugin;
}
