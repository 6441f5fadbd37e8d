/* SPDX-License-Identifier: Apache-2.0 — hdo plot: curves of runs as a figure. */
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "hdo/lab/report.h"

static const char help_text[] =
    "Usage: hdo plot RUN... [-o BASE] [--y METRIC] [--x METRIC] [--log] [--title TEXT] [--text]\n\n"
    "Draws one curve per RUN. A RUN is a run folder, or a folder of runs that differ in the seed (as --seeds writes\n"
    "them): then the line is the mean and the band the standard error over seeds. A run that diverged is a thin line\n"
    "of its own that ends in a cross, and not part of the mean.\n\n"
    "  -o, --output BASE  writes BASE.svg, .png, .pdf, and BASE.csv and .gp to restyle them (default: figure)\n"
    "  --y METRIC         what to draw (default: val/loss_mean)\n"
    "  --x METRIC         against what: step, interactions, cost (weighted passes), bytes_exchanged, time/wall\n"
    "                     (default: step)\n"
    "  --log, --log-x     logarithmic y axis, x axis\n"
    "  --y-max V          cut the y axis at V (default: where all curves start, if one of them explodes)\n"
    "  --title TEXT       above the figure\n"
    "  --text             draw it in the terminal as well\n\n"
    "Example: hdo plot runs/8fo runs/24zo runs/8fo+24zo --y val/loss_mu -o figures/hybrid\n";

int cmd_plot(int argc, char **argv) {
    enum { Y = 256, X, LOG, LOG_X, Y_MAX, TITLE, TEXT };
    static const struct option longs[] = {
        {"help", no_argument, NULL, 'h'},    {"output", required_argument, NULL, 'o'},
        {"y", required_argument, NULL, Y},   {"x", required_argument, NULL, X},
        {"log", no_argument, NULL, LOG},     {"title", required_argument, NULL, TITLE},
        {"log-x", no_argument, NULL, LOG_X}, {"y-max", required_argument, NULL, Y_MAX},
        {"text", no_argument, NULL, TEXT},   {NULL, 0, NULL, 0}};
    const char *output = "figure", *y = "val/loss_mean", *x = "step", *title = NULL;
    bool log_y = false, log_x = false, text = false;
    double y_max = 0.0;
    for (int o; (o = getopt_long(argc, argv, "ho:", longs, NULL)) != -1;) {
        switch (o) {
        case 'h': fputs(help_text, stdout); return 0;
        case 'o': output = optarg; break;
        case Y: y = optarg; break;
        case X: x = optarg; break;
        case LOG: log_y = true; break;
        case LOG_X: log_x = true; break;
        case Y_MAX:
            y_max = atof(optarg);
            if (!(y_max > 0.0)) return cli_usage_error("plot", "--y-max takes a positive number; got '%s'", optarg);
            break;
        case TITLE: title = optarg; break;
        case TEXT: text = true; break;
        default: return cli_usage_error("plot", "the options are not right");
        }
    }
    int n = argc - optind, loaded = 0;
    if (n < 1) return cli_usage_error("plot", "which runs? Give one or more run folders");
    hdo_curve *curves = calloc((size_t)n, sizeof *curves);
    if (curves == NULL) return 1;
    hdo_error e = {0};
    hdo_status st = HDO_OK;
    for (; loaded < n && st == HDO_OK; loaded++) st = hdo_curve_load(&curves[loaded], argv[optind + loaded], x, y, &e);
    hdo_figure f = {.title = title,
                    .x_label = hdo_axis_label(x),
                    .y_label = hdo_axis_label(y),
                    .log_x = log_x,
                    .log_y = log_y,
                    .y_max = y_max,
                    .curves = curves,
                    .n_curves = n};
    if (st == HDO_OK && !log_y && y_max == 0.0) f.y_max = hdo_figure_clip(curves, n);
    if (st == HDO_OK) st = hdo_figure_write(&f, output, HDO_FORMAT_SVG | HDO_FORMAT_PNG | HDO_FORMAT_PDF, &e);
    if (st == HDO_OK) printf("%s.svg %s.png %s.pdf\n", output, output, output);
    if (st == HDO_OK && text) {
        char *drawing = hdo_figure_text(&f, 78, 24);
        if (drawing != NULL) fputs(drawing, stdout);
        free(drawing);
    }
    for (int k = 0; k < loaded; k++) hdo_curve_clear(&curves[k]);
    free(curves);
    return st == HDO_OK ? 0 : cli_fail(&e);
}
