/* @NAME@: a data set for hdo, as a plug-in.
 *
 * Replace `sample` by yours: read a file in `create`, or compute. <hdo/dataset.h> says what is asked for.
 */
#include <hdo/plugin.h>
#include <math.h>

enum { N_IN = 4, CLASSES = 3, TRAIN = 3000, VAL = 600 };

/* A number in (0, 1) for (sample, k), the same at any time: splitmix64. */
static double random_of(uint64_t sample, uint64_t k) {
    uint64_t z = (sample * 64 + k + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return ((double)((z ^ (z >> 31)) >> 11) + 0.5) / 9007199254740992.0;
}

/* An example: three clouds in four dimensions. Validation samples have numbers behind the training samples. */
static void sample(uint64_t i, float *input, int32_t *label) {
    *label = (int32_t)(random_of(i, 0) * CLASSES);
    for (int j = 0; j < N_IN; j++) {
        double noise = random_of(i, 2 * (uint64_t)j + 1) + random_of(i, 2 * (uint64_t)j + 2) - 1.0;
        if (input != NULL) input[j] = (float)(noise + cos(2.0 * *label + j));
    }
}

static int gather(void *user, hdo_call *call, int train, int count, const int64_t *index, float *inputs,
                  int32_t *tokens, int32_t *labels) {
    (void)user, (void)call, (void)tokens;
    for (int k = 0; k < count; k++)
        sample((uint64_t)index[k] + (train ? 0 : TRAIN), inputs + (size_t)k * N_IN, &labels[k]);
    return 0;
}

static const hdo_dataset_def dataset = {.struct_size = sizeof(hdo_dataset_def),
                                        .name = "@NAME@",
                                        .identity = "@NAME@ 1", /* change it when the samples change */
                                        .flags = HDO_ANY_THREAD,
                                        .train_count = TRAIN,
                                        .val_count = VAL,
                                        .n_in = N_IN,
                                        .classes = CLASSES,
                                        .gather = gather};

static const hdo_plugin plugin = {.struct_size = sizeof(hdo_plugin),
                                  .abi = HDO_ABI,
                                  .name = "@NAME@",
                                  .version = "1",
                                  .parts = {.struct_size = sizeof(hdo_parts), .dataset = &dataset}};

HDO_PLUGIN_EXPORT const hdo_plugin *hdo_plugin_entry(void) {
    return &plugin;
}
