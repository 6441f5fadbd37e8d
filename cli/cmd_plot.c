/* SPDX-License-Identifier: Apache-2.0 — hdo plot: curves of runs as a figure. */
#include <stdlib.h>

#include "cli.h"
#include "hdo/lab/report.h"

typedef struct plot_options {
    cli_common common;
    const char *output, *y, *x, *title;
    bool log_y, log_x, text;
    double y_max;
} plot_options;

#define AT(member) offsetof(plot_options, member)
static const cli_option options[] = {
    {"output", 'o', CLI_TEXT, "BASE",
     "writes BASE.svg, .png, .pdf, and BASE.csv and .gp to restyle them (default: figure)", .target = AT(output)},
    {"y", 0, CLI_TEXT, "METRIC", "what to draw (default: val/loss_mean)", .target = AT(y)},
    {"x", 0, CLI_TEXT, "METRIC",
     "against what: step, interactions, cost (weighted passes), bytes_exchanged, time/wall (default: step)",
     .target = AT(x), .words = CLI_AXES},
    {"log", 0, CLI_FLAG, NULL, "logarithmic y axis", .target = AT(log_y)},
    {"log-x", 0, CLI_FLAG, NULL, "logarithmic x axis", .target = AT(log_x)},
    {"y-max", 0, CLI_REAL, "V", "cut the y axis at V (default: where all curves start, if one of them explodes)",
     .target = AT(y_max), .lo = CLI_POSITIVE, .hi = HUGE_VAL, .takes = "a positive number"},
    {"title", 0, CLI_TEXT, "TEXT", "above the figure", .target = AT(title)},
    {"text", 0, CLI_FLAG, NULL, "draw it in the terminal as well", .target = AT(text)},
    {.name = NULL},
};

static hdo_status draw(const plot_options *o, hdo_curve *curves, int n, hdo_error *e) {
    hdo_figure f = {.title = o->title,
                    .x_label = hdo_axis_label(o->x),
                    .y_label = hdo_axis_label(o->y),
                    .log_x = o->log_x,
                    .log_y = o->log_y,
                    .y_max = o->y_max,
                    .curves = curves,
                    .n_curves = n};
    if (!o->log_y && o->y_max == 0.0) f.y_max = hdo_figure_clip(curves, n);
    hdo_status st = hdo_figure_write(&f, o->output, HDO_FORMAT_SVG | HDO_FORMAT_PNG | HDO_FORMAT_PDF, e);
    if (st != HDO_OK) return st;
    printf("%s.svg %s.png %s.pdf\n", o->output, o->output, o->output);
    if (o->text) cli_print(hdo_figure_text(&f, 78, 24), "");
    return HDO_OK;
}

static int run_plot(int argc, char **argv) {
    plot_options o = {.output = "figure", .y = "val/loss_mean", .x = "step"};
    int code = cli_parse(&cmd_plot, argc, argv, &o);
    if (code >= 0) return code;
    int n = o.common.n_words, loaded = 0;
    hdo_curve *curves = calloc((size_t)n, sizeof *curves);
    if (curves == NULL) return 1;
    hdo_error e = {0};
    hdo_status st = HDO_OK;
    for (; loaded < n && st == HDO_OK; loaded++)
        st = hdo_curve_load(&curves[loaded], o.common.word[loaded], o.x, o.y, &e);
    if (st == HDO_OK) st = draw(&o, curves, n, &e);
    for (int k = 0; k < loaded; k++) hdo_curve_clear(&curves[k]);
    free(curves);
    return st == HDO_OK ? 0 : cli_fail(&e);
}

const cli_command cmd_plot = {
    .name = "plot",
    .summary = "draw the curves of runs (svg, png, pdf; the .csv and .gp stay)",
    .run = run_plot,
    .usage = "RUN... [-o BASE] [--y METRIC] [--x METRIC] [OPTIONS]",
    .about =
        "Draws one curve per RUN. A RUN is a run folder, or a folder of runs that differ in the seed (as --seeds "
        "writes "
        "them): then the line is the mean and the band the standard error over seeds. A run that diverged is a thin "
        "line of its own that ends in a cross, and not part of the mean.",
    .options = options,
    .examples = "hdo plot runs/8fo runs/24zo runs/8fo+24zo --y val/loss_mu -o figures/hybrid",
    .least = 1,
    .most = -1,
    .missing = "which runs? Give one or more run folders",
    .size = sizeof(plot_options),
};
