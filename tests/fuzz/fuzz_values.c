/* SPDX-License-Identifier: Apache-2.0 — libFuzzer target: the value of every option, as --set takes it.
 *
 * The first byte chooses the option. A value that is refused leaves the configuration as it was; one that is taken
 * comes back when the configuration is written and read.
 */
#include "config/options.h"
#include "fuzz.h"

static const char *const keys[] = {"name",
                                   "seed",
                                   "steps",
                                   "threads",
                                   "kernels",
                                   "model.name",
                                   "model.init",
                                   "model.layers",
                                   "model.dropout",
                                   "model.smoothness",
                                   "data.split",
                                   "data.path",
                                   "data.augment",
                                   "data.classes",
                                   "mixing",
                                   "mixing.kind",
                                   "mixing.graph",
                                   "mixing.period",
                                   "mixing.average",
                                   "eval.weighted",
                                   "checkpoint.every_s",
                                   "stop.time_s",
                                   "stop.diverged",
                                   "churn.outage",
                                   "mpi.roles",
                                   "mpi.memory",
                                   "mpi.slow",
                                   "mpi.deadline_s",
                                   "population.zo.count",
                                   "population.zo.estimator",
                                   "population.zo.nu",
                                   "population.zo.lr",
                                   "population.zo.schedule",
                                   "population.zo.bandwidth"};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static hdo_config before, c, again;
    hdo_error e = {HDO_OK, ""};
    if (size < 1) return 0;
    hdo_config_default(&before);
    c = before;
    char *value = text_of(data + 1, size - 1);
    hdo_status st = hdo_config_set_from(&c, keys[data[0] % (sizeof keys / sizeof keys[0])], value, HDO_FROM_FLAG, &e);
    require_sentence(st, &e);
    if (st != HDO_OK) {
        require(memcmp(&c, &before, sizeof c) == 0, "refused, but changed the configuration");
    } else {
        char *text = hdo_config_dump(&c, false);
        require(text != NULL, "no dump");
        hdo_config_default(&again);
        st = hdo_config_load_bytes(&again, "dump.yaml", text, strlen(text), &e);
        require(st == HDO_OK, "the dump does not load");
        char *second = hdo_config_dump(&again, false);
        require(second != NULL && strcmp(text, second) == 0, "the value does not come back");
        free(text);
        free(second);
    }
    free(value);
    return 0;
}
