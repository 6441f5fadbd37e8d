/* The test of @NAME@: is it what the library expects, and does a run with it come down? */
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
    if (hdo_test_estimator(parts->estimator, parts->user, &e) != HDO_OK) return complain("hdo_test_estimator", &e);

    hdo_config *c = hdo_config_new(NULL, &e);
    hdo_status st = hdo_config_use_estimator(c, parts->estimator, parts->user, &e);
    if (st == HDO_OK)
        st = hdo_config_load_text(c, "{steps: 300, model: {name: quadratic, dim: 10, start: 3}, "
                                     "population: {zo: {count: 4, estimator: @NAME@, rv: 8, nu: 1.0e-3, lr: 0.05}}}", &e);
    if (st == HDO_OK) st = hdo_run_new(&run, c, &e);
    if (st == HDO_OK) st = hdo_run_advance(run, 300, NULL, &e);
    if (st != HDO_OK) return complain("run", &e);
    double before = hdo_row_value(hdo_run_row(run, 0), "val/loss_mu"),
           after = hdo_row_value(hdo_run_last_row(run), "val/loss_mu");
    printf("@NAME@: loss %.4g, then %.4g after %.0f forward passes\n", before, after,
           hdo_row_value(hdo_run_last_row(run), "oracle/forward"));
    hdo_run_free(run);
    hdo_config_free(c);
    return after < 0.1 * before ? 0 : 1;
}
