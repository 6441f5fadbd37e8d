/* SPDX-License-Identifier: Apache-2.0 — hdo spectrum: the curvature of a problem, and how many directions count. */
#include <math.h>
#include <stdlib.h>

#include "cmd_theory.h"
#include "hdo/lab/predict.h"
#include "hdo/lab/report.h"

typedef struct spectrum_options {
    cli_common common;
    const char *output;
    hdo_predict_options how;
} spectrum_options;

#define AT(member) offsetof(spectrum_options, member)
static const cli_option options[] = {
    {"samples", 0, CLI_INT, "N", "training samples to measure on (default: by size)", .target = AT(how.samples),
     .lo = 2, .hi = 1e12},
    {"products", 0, CLI_INT32, "N", "products with the Hessian for one start vector (default: by size)",
     .target = AT(how.products), .lo = 1, .hi = 96},
    {"output", 'o', CLI_TEXT, "BASE", "figures BASE.svg (density) and BASE-dimension.svg, with .png, .pdf, .csv, .gp",
     .target = AT(output)},
    {.name = NULL},
};

static void print_report(const hdo_config *c, const hdo_hessian_report *s) {
    cli_style b = cli_style_for(stdout);
    printf("%sProblem%s   %s, d = %zu, loss %.5g, |grad|^2 = %.4g, variance of one sample's gradient %.4g\n", b.bold,
           b.off, c->model.name, s->d, s->loss, s->g2, s->c2);
    if (!s->gradient) {
        printf("%sHessian%s   trace %.5g (forward passes alone: nothing else is known)\n", b.bold, b.off, s->trace);
        return;
    }
    printf("%sHessian%s   trace %.5g, largest curvature %.5g, smallest %.3g\n\n", b.bold, b.off, s->trace, s->l_max,
           s->l_min);
    printf("Effective dimension at rate %.4g, and the noise of a zeroth-order node over that of its data:\n\n",
           s->rate);
    printf("  %12s %14s %12s\n", "steps", "dimension", "noise ratio");
    for (int i = 0; i < s->n_times; i += 2) {
        printf("  %12.0f %14.1f", s->steps[i], s->effective_dim[i]);
        if (isfinite(s->noise_ratio[i])) printf(" %12.3g", s->noise_ratio[i]);
        printf("\n");
    }
}

static int spectrum(void *ctx, hdo_config *c) {
    const spectrum_options *o = ctx;
    hdo_error e = {.code = HDO_E_MEMORY, .msg = "out of memory for a spectrum"};
    hdo_hessian_report *s = malloc(sizeof *s);
    cli_study_progress progress = {0};
    hdo_study_hooks hooks = {.ctx = &progress, .tick = cli_study_tick};
    cli_catch_signals();
    hdo_status st = s != NULL ? hdo_hessian_measure(c, &o->how, &hooks, s, &e) : HDO_E_MEMORY;
    cli_study_end(&progress);
    if (st == HDO_OK && o->common.json) {
        char *text = hdo_hessian_json(s);
        if (text != NULL) puts(text);
        free(text);
    } else if (st == HDO_OK) {
        print_report(c, s);
    }
    if (st == HDO_OK && o->output != NULL)
        st = hdo_hessian_figures(s, o->output, HDO_FORMAT_SVG | HDO_FORMAT_PNG | HDO_FORMAT_PDF, &e);
    free(s);
    return st == HDO_OK ? 0 : cli_study_fail(&e);
}

static int run_spectrum(int argc, char **argv) {
    spectrum_options o = {0};
    int code = cli_parse(&cmd_spectrum, argc, argv, &o);
    return code >= 0 ? code : cli_with_config(o.common.word[0], &o.common, spectrum, &o);
}

const cli_command cmd_spectrum = {
    .name = "spectrum",
    .summary = "curvature of a problem: spectrum, trace, effective dimension",
    .run = run_spectrum,
    .usage = "CONFIG|PRESET [OPTIONS]",
    .about = "Measures the Hessian of a problem at its start through products with it (stochastic Lanczos quadrature): "
             "trace, largest curvature, density of the spectrum, and the effective dimension at every horizon: how "
             "many directions have been learnt after T steps, and therefore how much the noise of zeroth-order nodes "
             "counts by then. docs/prediction.md explains the figures.",
    .options = options,
    .common = CLI_CONFIG | CLI_THREADS | CLI_JSON | CLI_TALK,
    .examples = "hdo spectrum e2 -o figures/e2-spectrum",
    .presets = true,
    .least = 1,
    .most = 1,
    .missing = "which problem? Give a YAML file or a preset, for example: hdo spectrum e2",
    .single = "one configuration at a time",
    .size = sizeof(spectrum_options),
};
