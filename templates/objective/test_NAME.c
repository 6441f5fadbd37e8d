/* The test of @NAME@: is it what the library expects, and does a short run of it come down? */
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
    const hdo_plugin *plugin = hdo_plugin_entry();
    hdo_parts parts = plugin->parts;
    char message[256] = "";
    hdo_error e;
    hdo_run *run = NULL;
    if (plugin->create("{\"curvature\": 2.0}", &parts, message, sizeof message) != 0) {
        fprintf(stderr, "create: %s\n", message);
        return 1;
    }
    /* Gradient against differences, batches, repetition, threads. */
    if (hdo_test_objective(parts.objective, parts.user, NULL, NULL, &e) != HDO_OK)
        return complain("hdo_test_objective", &e);

    hdo_config *c = hdo_config_new(NULL, &e);
    hdo_status st = hdo_config_use_objective(c, parts.objective, parts.user, &e);
    if (st == HDO_OK)
        st = hdo_config_load_text(c,
                                  "{steps: 200, population: {fo: {count: 1, estimator: fo, lr: 0.1}, "
                                  "zo: {count: 3, estimator: fd, rv: 8, nu: 1.0e-3, lr: 0.05}}}",
                                  &e);
    if (st == HDO_OK) st = hdo_run_new(&run, c, &e);
    if (st == HDO_OK) st = hdo_run_advance(run, 200, NULL, &e);
    if (st != HDO_OK) return complain("run", &e);
    double before = hdo_row_value(hdo_run_row(run, 0), "val/loss_mu"),
           after = hdo_row_value(hdo_run_last_row(run), "val/loss_mu");
    hdo_run_free(run);
    hdo_config_free(c);
    plugin->destroy(parts.user);
    printf("@NAME@: loss %.4g, then %.4g\n", before, after);
    return after < 0.1 * before ? 0 : 1;
}
