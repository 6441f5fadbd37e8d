/* The test of @NAME@: the same bits on one thread and on four, and a loss that comes down. */
#include <hdo/hdo.h>
#include <hdo/plugin.h>
#include <stdio.h>
#include <string.h>

const hdo_plugin *hdo_plugin_entry(void);

static hdo_status train(const char *threads, char fingerprint[65], double *before, double *after, hdo_error *e) {
    const hdo_parts *parts = &hdo_plugin_entry()->parts;
    hdo_run *run = NULL;
    hdo_config *c = hdo_config_new(NULL, e);
    hdo_status st = hdo_config_use_estimator(c, parts->estimator, parts->user, e);
    if (st == HDO_OK)
        st = hdo_config_load_text(c,
                                  "{steps: 300, model: {name: quadratic, dim: 10, start: 3}, "
                                  "population: {zo: {count: 4, estimator: @NAME@, rv: 8, nu: 1.0e-3, lr: 0.05}}}",
                                  e);
    if (st == HDO_OK) st = hdo_config_set(c, "threads", threads, e);
    if (st == HDO_OK) st = hdo_run_new(&run, c, e);
    if (st == HDO_OK) st = hdo_run_advance(run, 300, NULL, e);
    *before = hdo_row_value(hdo_run_row(run, 0), "val/loss_mu");
    *after = hdo_row_value(hdo_run_last_row(run), "val/loss_mu");
    hdo_run_fingerprint(run, fingerprint);
    hdo_run_free(run);
    hdo_config_free(c);
    return st;
}

int main(void) {
    char one[65], four[65];
    double before, after;
    hdo_error e;
    if (train("1", one, &before, &after, &e) != HDO_OK || train("4", four, &before, &after, &e) != HDO_OK) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    printf("@NAME@: loss %.4g, then %.4g; %s on four threads\n", before, after,
           strcmp(one, four) == 0 ? "the same bits" : "other bits");
    return strcmp(one, four) == 0 && after < 0.1 * before ? 0 : 1;
}
