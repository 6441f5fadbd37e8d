/* SPDX-License-Identifier: Apache-2.0 — hdo plan: are the zeroth-order nodes worth adding? One screen, with reasons. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd_theory.h"
#include "hdo/lab/predict.h"

typedef struct plan_options {
    cli_common common;
    hdo_fleet fleet;
} plan_options;

#define AT(member) offsetof(plan_options, fleet.member)
static const cli_option options[] = {
    {"fo", 0, CLI_INT32, "N", "first-order nodes (they back-propagate)", .target = AT(fo), .lo = 1, .hi = 1 << 20},
    {"zo", 0, CLI_INT32, "N", "zeroth-order candidates (they only run the model forward)", .target = AT(zo), .lo = 1,
     .hi = 1 << 20},
    {"rv", 0, CLI_INT32, "N", "most random vectors of one estimate (default 256)", .target = AT(rv_max), .lo = 1,
     .hi = 1 << 20},
    {"fo-speed", 0, CLI_REAL, "X", "gradients a second of a first-order node (default 1)", .target = AT(fo_speed),
     .lo = CLI_POSITIVE, .hi = HUGE_VAL},
    {"zo-speed", 0, CLI_REAL, "X",
     "forward passes a second of a zeroth-order node (default 3: a third of a gradient each)", .target = AT(zo_speed),
     .lo = CLI_POSITIVE, .hi = HUGE_VAL},
    {"memory", 0, CLI_REAL, "MB", "memory of a zeroth-order node (default: enough)", .target = AT(memory), .lo = 0,
     .hi = HUGE_VAL},
    {"bandwidth", 0, CLI_REAL, "MB/S", "of a link (default: infinite)", .target = AT(bandwidth), .lo = 0,
     .hi = HUGE_VAL},
    {"latency", 0, CLI_REAL, "S", "seconds of an exchange (default 0)", .target = AT(latency), .lo = 0, .hi = HUGE_VAL},
    {"time", 0, CLI_DURATION, "S", "time to spend (default: what the first-order nodes need for the configured steps)",
     .target = AT(time), .lo = 0, .hi = HUGE_VAL},
    {"traffic", 0, CLI_REAL, "MB", "most that all nodes together may send (default: no limit)", .target = AT(traffic),
     .lo = CLI_POSITIVE, .hi = HUGE_VAL},
    {"energy", 0, CLI_REAL, "J", "most joules all nodes together may spend (default: no limit)", .target = AT(energy),
     .lo = CLI_POSITIVE, .hi = HUGE_VAL},
    {"fo-joules", 0, CLI_REAL, "J", "of one gradient of a first-order node (default: not counted)",
     .target = AT(fo_joules), .lo = 0, .hi = HUGE_VAL},
    {"zo-joules", 0, CLI_REAL, "J", "of one forward pass of a zeroth-order node (default: not counted)",
     .target = AT(zo_joules), .lo = 0, .hi = HUGE_VAL},
    {"seeds", 0, CLI_INT32, "N", "seeds of the simulation (default 10, 0: no simulation)", .target = AT(sim_seeds),
     .lo = 0, .hi = 10000},
    {"sim-steps", 0, CLI_INT, "N", "length of the simulation (default 2000)", .target = AT(sim_steps), .lo = 1,
     .hi = 1 << 30},
    {.name = NULL},
};

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

static void print_choice(const char *name, const hdo_fleet_prediction *q, const hdo_fleet_choice *o, bool joules) {
    printf("  %-10s %6d %6d", name, o->n0, o->rv);
    if (o->ok) {
        printf(" %9.3g %9.3g %9.4g %9.4g %9.4g", o->eta1, o->eta0, o->T, o->seconds, o->bytes / 1e6);
        if (joules) printf(" %9.4g", o->joules);
        printf(" %10.5g %10.3g %+10.3g\n", o->loss, o->noise, o->loss - q->without.loss);
    } else {
        printf("  no stable rate was found\n");
    }
}

static void print_prediction(const hdo_fleet_plan *p, const hdo_fleet_prediction *q) {
    cli_style s = cli_style_for(stdout);
    const hdo_fleet_choice *b = &q->best;
    printf("%sAnswer%s    ", s.bold, s.off);
    if (q->worth) {
        printf(
            "%sYes.%s Add %d with rv = %d, lr = %.3g (fo) and %.3g (zo): the predicted loss of the mean model falls\n"
            "          from %.5g to %.5g.\n",
            s.green, s.off, b->n0, b->rv, b->eta1, b->eta0, q->without.loss, b->loss);
    } else {
        printf("%sNo.%s Run the %d first-order nodes alone with lr = %.3g: predicted loss %.5g%s.\n", s.red, s.off,
               p->fleet.fo, q->without.eta1, q->without.loss,
               p->memory_ok ? "" : " (a zeroth-order node has not enough memory)");
    }
    if (q->scale < 1.0) printf("          (predicted for the first %.3g of the time)\n", q->scale);
    bool joules = p->fleet.fo_joules > 0.0 || p->fleet.zo_joules > 0.0;
    printf("\n  %-10s %6s %6s %9s %9s %9s %9s %9s", "prediction", "zo", "rv", "lr fo", "lr zo", "rounds", "seconds",
           "MB sent");
    if (joules) printf(" %9s", "joules");
    printf(" %10s %10s %10s\n", "loss", "noise", "change");
    print_choice("without", q, &q->without, joules);
    for (int i = 0; i < q->n_rows; i++) print_choice(q->rows[i].n0 == b->n0 ? "best" : "", q, &q->rows[i], joules);
    printf("  (each at its own best stable rate; noise: its part of the loss; a zeroth-order node needs %.3g MB)\n\n",
           p->memory_needed / 1e6);
}

static void print_fleet(const hdo_config *c, const hdo_fleet_plan *p) {
    cli_style s = cli_style_for(stdout);
    const hdo_constants *k = &p->constants;
    printf("%sFleet%s     %d first-order nodes (%.3g gradients/s), up to %d zeroth-order (%s, %.3g forward passes/s, "
           "rv <= %d),\n"
           "          %s mixing, %.4g s to spend",
           s.bold, s.off, p->fleet.fo, p->fleet.fo_speed, p->fleet.zo, p->estimator, p->fleet.zo_speed, p->fleet.rv_max,
           p->mixing, p->fleet.time);
    if (p->fleet.traffic > 0.0) printf(", %.4g MB to send", p->fleet.traffic / 1e6);
    if (p->fleet.energy > 0.0) printf(", %.4g J", p->fleet.energy);
    printf("\n");
    printf("%sProblem%s   %s, d = %zu, L = %.4g, ell = %.4g (%s); bound on %s\n", s.bold, s.off, c->model.name, k->d,
           k->L.value, k->ell.value, hdo_known_name(p->quality), p->convex ? "f(y_T) - f*" : "mean |grad f(mu)|^2");
}

static void print_bounds(const hdo_fleet_plan *p, bool decides) {
    cli_style s = cli_style_for(stdout);
    const hdo_plan_option *b = &p->best;
    printf("%s%s%s    ", s.bold, decides ? "Answer" : "Bounds", s.off);
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
    if (!decides) return; /* one screen: the table of the bounds is in --json */
    printf("\n");
    printf("  %-10s %6s %6s %10s %10s %9s %11s %11s %8s %8s\n", "bounds", "zo", "rv", "lr fo", "lr zo", "round s",
           "rounds", "bound", "gain", "noise");
    print_row("without", p, &p->without);
    for (int i = 0; i < p->n_rows; i++) print_row(p->rows[i].n0 == b->n0 ? "best" : "", p, &p->rows[i]);
    if (p->equal.rv > 0 && b->eta0 != b->eta1) print_row("equal lr", p, &p->equal);
    printf(
        "  (gain: bound without / bound; noise: its share of the bound, the rest is the start not yet forgotten)\n\n");
    printf("Rule of thumb: with equal steps and equal round times a zeroth-order node pays while its noise is below\n"
           "2 + n0/n1 times that of a first-order node; forward mode: from rv = %.0f on. A round is as slow as its\n"
           "slowest node.\n",
           isfinite(p->rv_needed) ? ceil(p->rv_needed) : (double)HUGE_VAL);
    if (p->quality == HDO_MEASURED) printf("Constants were measured at a few points: take the bounds as estimates.\n");
}

static void print_sim(const hdo_plan_sim *m) {
    cli_style s = cli_style_for(stdout);
    if (!m->done) return;
    printf("%sTried%s     %d seeds, %.3g of the time, loss of the mean model: %.4g +- %.2g without (%.0f steps),\n"
           "          %.4g +- %.2g with (%.0f steps): %s.\n",
           s.bold, s.off, m->seeds, m->scale, m->without, m->without_se, m->steps_without, m->with, m->with_se,
           m->steps_with, m->agrees ? "agrees with the plan" : "DOES NOT AGREE with the plan");
    if (m->tuned_without > 0.0 && m->tuned_with > 0.0)
        printf("          (rates tuned by trials: %.3g and %.3g times the planned ones)\n", m->tuned_without,
               m->tuned_with);
}

static void print_text(const hdo_config *c, const hdo_plan_answer *a) {
    if (!a->predicted) cli_note("no prediction: %s; the bounds decide", a->why.msg);
    print_fleet(c, &a->plan);
    if (a->predicted) print_prediction(&a->plan, &a->prediction);
    print_bounds(&a->plan, !a->predicted);
    print_sim(a->predicted ? &a->prediction.sim : &a->plan.sim);
}

static int plan(void *ctx, hdo_config *c) {
    const plan_options *o = ctx;
    hdo_error e = {.code = HDO_E_MEMORY};
    hdo_plan_answer *a = malloc(sizeof *a);
    cli_study_progress progress = {0};
    hdo_study_hooks hooks = {.ctx = &progress, .tick = cli_study_tick};
    cli_catch_signals();
    hdo_status st = a != NULL ? hdo_plan_answer_find(c, &o->fleet, &hooks, a, &e) : HDO_E_MEMORY;
    cli_study_end(&progress);
    if (st == HDO_OK && !a->predicted && cli_signal() != 0) st = a->why.code, e = a->why;
    int code = 0;
    if (st != HDO_OK) {
        code = cli_study_fail(&e);
    } else if (o->common.json) {
        code = cli_print(hdo_plan_answer_json(a), "\n");
    } else {
        print_text(c, a);
    }
    free(a);
    return code;
}

static int run_plan(int argc, char **argv) {
    plan_options o = {.fleet = {.rv_max = 256, .fo_speed = 1.0, .zo_speed = 3.0, .sim_seeds = 10}};
    int code = cli_parse(&cmd_plan, argc, argv, &o);
    if (code >= 0) return code;
    if (o.fleet.fo < 1 || o.fleet.zo < 1)
        return cli_usage_error("plan", "the fleet is missing: --fo N --zo N, for example --fo 4 --zo 28");
    o.fleet.memory *= 1e6; /* MB */
    o.fleet.bandwidth *= 1e6;
    o.fleet.traffic *= 1e6;
    if (o.fleet.energy > 0.0 && !(o.fleet.fo_joules > 0.0 || o.fleet.zo_joules > 0.0))
        return cli_usage_error("plan", "--energy needs to know what a pass costs: --fo-joules J --zo-joules J");
    return cli_with_config(o.common.word[0], &o.common, plan, &o);
}

const cli_command cmd_plan = {
    .name = "plan",
    .summary = "are zeroth-order nodes worth adding to a fleet, and how?",
    .run = run_plan,
    .usage = "CONFIG|PRESET --fo N --zo N [OPTIONS]",
    .about =
        "Given a fleet and a problem: are the zeroth-order nodes worth adding, how many, with how many random vectors "
        "(rv), which difference step (nu) and which learning rates? Decided by prediction (docs/prediction.md), each "
        "side at its own best stable rate, and tried in a short simulation at those rates; the bounds of "
        "docs/theory.md are printed beside it. docs/planner.md explains the model.",
    .options = options,
    .common = CLI_SET | CLI_THREADS | CLI_JSON | CLI_TALK,
    .examples = "hdo plan theory-fleet --fo 4 --zo 28 --rv 64 --zo-speed 30",
    .presets = true,
    .least = 1,
    .most = 1,
    .missing = "which problem? Give a YAML file or a preset, for example: hdo plan theory-fleet --fo 4 --zo 28",
    .single = "one configuration at a time",
    .size = sizeof(plan_options),
};
