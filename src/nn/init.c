/* SPDX-License-Identifier: Apache-2.0
 *
 * Initial parameters. Every tensor has its own stream (purpose HDO_RNG_INIT, sub = number of the tensor), so that
 * adding a layer at the end does not change the numbers of the layers before it.
 *
 *   pytorch      what the layers of the model do in PyTorch: the fill stored in the layout
 *   he           weights N(0, 2 / fan_in), biases 0 (He et al. 2015)
 *   normal(std)  weights N(0, std^2), biases 0
 *   zero         weights and biases 0
 *
 * Scales of normalisation layers start at 1 and their shifts at 0 in all of them; running means at 0, variances at 1.
 */
#include <math.h>

#include "base/vec.h"
#include "hdo/experimental/config.h"
#include "nn/nn.h"

static void fill(int kind, double arg, hdo_stream s, size_t len, float *out) {
    float a = (float)arg;
    switch (kind) {
    case HDO_FILL_UNIFORM: /* (-a, a) */
        hdo__rng_uniform(s, 0, len, out);
        for (size_t i = 0; i < len; i++) out[i] = a * (2.0f * out[i] - 1.0f);
        break;
    case HDO_FILL_NORMAL:
        hdo__rng_normal(s, 0, len, out);
        hdo__scale(len, a, out);
        break;
    default:
        for (size_t i = 0; i < len; i++) out[i] = a;
    }
}

void hdo__net_init(const hdo_net *net, int init, double arg, uint64_t seed, float *x) {
    for (int t = 0; t < net->params.n; t++) {
        const hdo_param *row = &net->params.row[t];
        int kind = row->fill;
        double number = row->arg;
        if (init != HDO_INIT_PYTORCH && row->role == HDO_ROLE_BIAS) {
            kind = HDO_FILL_CONST;
            number = 0.0;
        } else if (init != HDO_INIT_PYTORCH && row->role == HDO_ROLE_WEIGHT) {
            kind = init == HDO_INIT_ZERO ? HDO_FILL_CONST : HDO_FILL_NORMAL;
            number = init == HDO_INIT_ZERO ? 0.0 : init == HDO_INIT_HE ? sqrt(2.0 / (double)row->fan_in) : arg;
        }
        fill(kind, number, hdo__stream(seed, HDO_RNG_INIT, 0, 0, (uint32_t)t), row->len, x + row->off);
    }
    for (int t = 0; t < net->buffers.n; t++) {
        const hdo_param *row = &net->buffers.row[t];
        for (size_t i = 0; i < row->len; i++) x[net->params.total + row->off + i] = (float)row->arg;
    }
}
