/* The test of @NAME@: is it what the library expects, and does a model learn from it? */
#include <hdo/hdo.h>
#include <hdo/plugin.h>
#include <hdo/test.h>
#include <stdio.h>

const hdo_plugin *hdo_plugin_entry(void);

static int complain(const char *what, const hdo_error *e) {
    fprintf(stderr, "%s: %s\n", what, e->msg);
    return 1;
}

int main(void) {
    const hdo_parts *parts = &hdo_plugin_entry()->parts;
    hdo_error e;
    hdo_run *run = NULL;
    if (hdo_test_dataset(parts->dataset, parts->user, NULL, &e) != HDO_OK) return complain("hdo_test_dataset", &e);

    hdo_config *c = hdo_config_new(NULL, &e);
    hdo_status st = hdo_config_use_dataset(c, parts->dataset, parts->user, &e);
    if (st == HDO_OK)
        st = hdo_config_load_text(c,
                                  "{steps: 200, model: {name: logistic}, "
                                  "population: {fo: {count: 4, estimator: fo, lr: 0.5, batch: 32}}}",
                                  &e);
    if (st == HDO_OK) st = hdo_run_new(&run, c, &e);
    if (st == HDO_OK) st = hdo_run_advance(run, 200, NULL, &e);
    if (st != HDO_OK) return complain("run", &e);
    double accuracy = hdo_row_value(hdo_run_last_row(run), "val/acc_mu");
    printf("@NAME@: accuracy %.3f\n", accuracy);
    hdo_run_free(run);
    hdo_config_free(c);
    return accuracy > 0.8 ? 0 : 1;
}
