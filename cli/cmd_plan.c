/* SPDX-License-Identifier: Apache-2.0 — hdo plan: are the zeroth-order nodes worth adding? One screen, with reasons. */
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd_theory.h"

static const char help_text[] =
    "Usage: hdo plan CONFIG|PRESET --fo N --zo N [OPTIONS]\n\n"
    "Given a fleet and a problem: are the zeroth-order nodes worth adding, how many, with how many random vectors "
    "(rv),\n"
    "which difference step (nu) and which learning rates? Answered from the bounds of docs/theory.md with the "
    "problem's\n"
    "constants (measured if they are not known), then tried in a short simulation. docs/planner.md explains the "
    "model.\n\n"
    "  --fo N               first-order nodes (they back-propagate)\n"
    "  --zo N               zeroth-order candidates (they only run the model forward)\n"
    "  --rv N               most random vectors of one estimate (default 256)\n"
    "  --fo-speed X         gradients a second of a first-order node (default 1)\n"
    "  --zo-speed X         forward passes a second of a zeroth-order node (default 3: a third of a gradient each)\n"
    "  --memory MB          memory of a zeroth-order node (default: enough)\n"
    "  --bandwidth MB/S     of a link (default: infinite);  --latency S of an exchange (default 0)\n"
    "  --time S             time to spend (default: what the first-order nodes need for the configured steps)\n"
    "  --seeds N            seeds of the simulation (default 10, 0: no simulation);  --sim-steps N its length (2000)\n"
    "  --set KEY=VALUE      as for hdo run;  --json;  -q, --quiet;  --color auto|always|never\n\n"
    "Example: hdo plan theory-fleet --fo 4 --zo 28 --rv 64 --zo-speed 30\n";

enum { FO = 256, ZO, RV, FO_SPEED, ZO_SPEED, MEMORY, BANDWIDTH, LATENCY, TIME, SEEDS, SIM_STEPS, SET, JSON, COLOUR };

typedef struct options {
    const char *source;
    char *set[64];
    int n_set;
    bool json;
    hdo_fleet fleet;
} options;

static const char *num(double v, char buf[32]) {
    snprintf(buf, 32, isfinite(v) ? "%.4g" : "none", v);
    return buf;
}

static void print_row(const char *name, const hdo_fleet_plan *p, const hdo_plan_option *o) {
    char b[3][32];
    const hdo_plan_option *w = &p->without;
    printf("  %-10s %6d %6d %10.3g %10.3g %9.3g %11.4g %11s %8s %8s\n", name, o->n0, o->rv, o->eta1, o->eta0,
           o->round_s, o->T, num(o->bound, b[0]), isfinite(o->bound) ? num(w->bound / o->bound, b[1]) : "-",
           isfinite(o->bound) ? num(o->noise / o->bound, b[2]) : "-");
}

static void print_answer(const hdo_config *c, const hdo_fleet_plan *p) {
    cli_style s = cli_style_for(stdout);
    const hdo_constants *k = &p->constants;
    const hdo_plan_option *b = &p->best;
    printf("%sFleet%s     %d first-order nodes (%.3g gradients/s), up to %d zeroth-order (%s, %.3g forward passes/s, "
           "rv <= %d),\n"
           "          %s mixing, %.4g s to spend\n",
           s.bold, s.off, p->fleet.fo, p->fleet.fo_speed, p->fleet.zo, p->estimator, p->fleet.zo_speed, p->fleet.rv_max,
           p->mixing, p->fleet.time);
    printf("%sProblem%s   %s, d = %zu, L = %.4g, ell = %.4g (%s); bound on %s\n", s.bold, s.off, c->model.name, k->d,
           k->L.value, k->ell.value, hdo_known_name(p->quality), p->convex ? "f(y_T) - f*" : "mean |grad f(mu)|^2");
    printf("%sAnswer%s    ", s.bold, s.off);
    if (p->worth) {
        printf("%sYes.%s Add %d with rv = %d", s.green, s.off, b->n0, b->rv);
        if (b->nu > 0.0) printf(", nu = %.3g", b->nu);
        if (b->eta0 == b->eta1) {
            printf(", lr = %.3g for all", b->eta1);
        } else {
            printf(", lr = %.3g (fo) and %.3g (zo)", b->eta1, b->eta0);
        }
        printf(": the bound falls from %.4g to %.4g (%.3g times).\n", p->without.bound, b->bound, p->gain);
    } else {
        printf("%sNo.%s Run the %d first-order nodes alone with lr = %.3g: bound %.4g.\n", s.red, s.off, p->fleet.fo,
               p->without.eta1, p->without.bound);
    }
    printf("%sWhy%s       ", s.bold, s.off);
    cli_print_wrapped(10, 10, p->reason);
    printf("\n");
    printf("  %-10s %6s %6s %10s %10s %9s %11s %11s %8s %8s\n", "", "zo", "rv", "lr fo", "lr zo", "round s", "rounds",
           "bound", "gain", "noise");
    print_row("without", p, &p->without);
    for (int i = 0; i < p->n_rows; i++) print_row(p->rows[i].n0 == b->n0 ? "best" : "", p, &p->rows[i]);
    if (p->equal.rv > 0 && b->eta0 != b->eta1) print_row("equal lr", p, &p->equal);
    printf(
        "  (gain: bound without / bound; noise: its share of the bound, the rest is the start not yet forgotten)\n\n");
    printf("Rule of thumb: with equal steps and equal round times a zeroth-order node pays while its noise is below\n"
           "2 + n0/n1 times that of a first-order node; forward mode: from rv = %.0f on. A round is as slow as its\n"
           "slowest node.\n",
           isfinite(p->rv_needed) ? ceil(p->rv_needed) : (double)INFINITY);
    if (p->sim.done) {
        const hdo_plan_sim *m = &p->sim;
        printf("%sTried%s     %d seeds, %.3g of the time, loss of the mean model: %.4g +- %.2g without (%.0f steps),\n"
               "          %.4g +- %.2g with (%.0f steps): %s.\n",
               s.bold, s.off, m->seeds, m->scale, m->without, m->without_se, m->steps_without, m->with, m->with_se,
               m->steps_with, m->agrees ? "agrees with the plan" : "DOES NOT AGREE with the plan");
    }
    if (p->quality == HDO_MEASURED) printf("Constants were measured at a few points: take the bounds as estimates.\n");
}

static bool real(const char *text, double *out) {
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end != '\0' || !(v >= 0.0) || !isfinite(v)) return false;
    *out = v;
    return true;
}

static int parse(int argc, char **argv, options *o) {
    static const struct option longs[] = {{"help", no_argument, NULL, 'h'},
                                          {"quiet", no_argument, NULL, 'q'},
                                          {"fo", required_argument, NULL, FO},
                                          {"zo", required_argument, NULL, ZO},
                                          {"rv", required_argument, NULL, RV},
                                          {"fo-speed", required_argument, NULL, FO_SPEED},
                                          {"zo-speed", required_argument, NULL, ZO_SPEED},
                                          {"memory", required_argument, NULL, MEMORY},
                                          {"bandwidth", required_argument, NULL, BANDWIDTH},
                                          {"latency", required_argument, NULL, LATENCY},
                                          {"time", required_argument, NULL, TIME},
                                          {"seeds", required_argument, NULL, SEEDS},
                                          {"sim-steps", required_argument, NULL, SIM_STEPS},
                                          {"set", required_argument, NULL, SET},
                                          {"json", no_argument, NULL, JSON},
                                          {"color", required_argument, NULL, COLOUR},
                                          {NULL, 0, NULL, 0}};
    hdo_fleet *f = &o->fleet;
    *f = (hdo_fleet){.rv_max = 256, .fo_speed = 1.0, .zo_speed = 3.0, .sim_seeds = 10};
    int64_t n = 0;
    for (int k, index = 0; (k = getopt_long(argc, argv, "hq", longs, &index)) != -1;) {
        bool ok = true;
        double v = 0.0;
        switch (k) {
        case 'h': fputs(help_text, stdout); return 0;
        case 'q': cli_set_quiet(true); break;
        case FO: ok = cli_int(optarg, 1, 1 << 20, &n), f->fo = (int)n; break;
        case ZO: ok = cli_int(optarg, 1, 1 << 20, &n), f->zo = (int)n; break;
        case RV: ok = cli_int(optarg, 1, 1 << 20, &n), f->rv_max = (int)n; break;
        case SEEDS: ok = cli_int(optarg, 0, 10000, &n), f->sim_seeds = (int)n; break;
        case SIM_STEPS: ok = cli_int(optarg, 1, 1 << 30, &f->sim_steps); break;
        case FO_SPEED: ok = real(optarg, &f->fo_speed) && f->fo_speed > 0.0; break;
        case ZO_SPEED: ok = real(optarg, &f->zo_speed) && f->zo_speed > 0.0; break;
        case MEMORY: ok = real(optarg, &v), f->memory = 1e6 * v; break;
        case BANDWIDTH: ok = real(optarg, &v), f->bandwidth = 1e6 * v; break;
        case LATENCY: ok = real(optarg, &f->latency); break;
        case TIME: ok = real(optarg, &f->time); break;
        case SET:
            if (o->n_set == 64) return cli_usage_error("plan", "too many settings on the command line (64 at most)");
            o->set[o->n_set++] = optarg;
            break;
        case JSON: o->json = true; break;
        case COLOUR: cli_colour(optarg); break;
        default: return cli_usage_error("plan", "the options are not right");
        }
        if (!ok) return cli_usage_error("plan", "'%s' is not a value for --%s", optarg, longs[index].name);
    }
    if (optind < argc) o->source = argv[optind++];
    if (optind < argc) return cli_usage_error("plan", "one configuration at a time, but got '%s' too", argv[optind]);
    if (o->source == NULL)
        return cli_usage_error(
            "plan", "which problem? Give a YAML file or a preset, for example: hdo plan theory-fleet --fo 4 --zo 28");
    if (f->fo < 1 || f->zo < 1)
        return cli_usage_error("plan", "the fleet is missing: --fo N --zo N, for example --fo 4 --zo 28");
    return -1;
}

int cmd_plan(int argc, char **argv) {
    options o = {0};
    int code = parse(argc, argv, &o);
    if (code >= 0) return code;
    hdo_config *c = malloc(sizeof *c);
    hdo_fleet_plan *p = malloc(sizeof *p);
    hdo_error e = {0};
    hdo_status st = HDO_E_MEMORY;
    if (c != NULL && p != NULL) st = cli_config(c, o.source, NULL, o.n_set, o.set, &e);
    cli_study_progress progress = {0};
    hdo_study_hooks hooks = {.ctx = &progress, .tick = cli_study_tick};
    cli_catch_signals();
    if (st == HDO_OK) st = hdo_plan_fleet(c, &o.fleet, &hooks, p, &e);
    cli_study_end(&progress);
    if (st == HDO_OK && o.json) {
        char *text = hdo_fleet_plan_json(p);
        if (text != NULL) puts(text);
        free(text);
    } else if (st == HDO_OK) {
        print_answer(c, p);
    }
    free(c);
    free(p);
    return st == HDO_OK ? 0 : cli_study_fail(&e);
}
