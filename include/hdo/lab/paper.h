/* SPDX-License-Identifier: Apache-2.0
 *
 * The paper's seven experiments: which populations with which settings, where their runs are stored, what the paper
 * claims about them and what the stored curves say about each claim.
 *
 * A *reading* settles what the paper leaves open: `text` is what it says, `authors` what its authors' code does, others
 * change one thing of `text`. A case is an experiment under a reading, in full or --quick.
 *
 * Experimental: may change or vanish in any version.
 */
#ifndef HDO_LAB_PAPER_H
#define HDO_LAB_PAPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hdo/experimental/config.h"
#include "hdo/lab/report.h"
#include "hdo/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HDO_PAPER_SETS = 8, HDO_PAPER_FIGURES = 3, HDO_PAPER_AXES = 8 };

typedef struct hdo_paper_variant { /* one curve */
    const char *label, *population;
    const char *set[HDO_PAPER_SETS]; /* "key=value", NULL-terminated */
} hdo_paper_variant;

typedef struct hdo_paper_figure {
    const char *name, *metric, *title;
    bool log_y;
    const char *minus; /* a variant: draw the difference to it, seed by seed */
} hdo_paper_figure;

typedef struct hdo_paper_experiment {
    const char *id, *title, *about;
    int seeds;       /* of the full run here */
    int paper_seeds; /* of the paper */
    const hdo_paper_variant *variant;
    int n_variants;
    hdo_paper_figure figure[HDO_PAPER_FIGURES]; /* ends with name == NULL */
    const char *quick[HDO_PAPER_SETS];
    int quick_seeds;
    const char *search[HDO_PAPER_AXES]; /* the paper's search intervals, as hdo sweep takes them; ends with NULL */
} hdo_paper_experiment;

typedef struct hdo_paper_reading {
    const char *name, *suffix /* of the preset */, *about;
    const char *set[HDO_PAPER_SETS]; /* "*.key" stands for every class, "zo.key" for one, other keys as they are */
    const char *start;               /* preset of the run whose mean model E3 starts from; NULL: none */
} hdo_paper_reading;

/* Tables; NULL beyond the end or for an unknown name. */
HDO_API const hdo_paper_experiment *hdo_paper_at(int i);
HDO_API const hdo_paper_experiment *hdo_paper_find(const char *id);
HDO_API const hdo_paper_reading *hdo_paper_reading_at(int i);
HDO_API const hdo_paper_reading *hdo_paper_reading_find(const char *name);

typedef struct hdo_paper_case {
    const hdo_paper_experiment *x;
    const hdo_paper_reading *reading;
    bool quick;
    const char *weights; /* safetensors to start from, or NULL */
    const char *root;    /* folder of all results */
} hdo_paper_case;

HDO_API hdo_status hdo_paper_config(const hdo_paper_case *k, int variant, int64_t seed, hdo_config *c, hdo_error *e);

/* Folder of a run; seed < 0: of the variant; variant < 0: of the case. False when the name is too long. */
HDO_API bool hdo_paper_dir(const hdo_paper_case *k, int variant, int64_t seed, char *buf, size_t cap);

/* The run that makes the start of a reading that has one: configuration, and folder ROOT/e3-start. */
HDO_API hdo_status hdo_paper_start_config(const hdo_paper_case *k, hdo_config *c, hdo_error *e);
HDO_API bool hdo_paper_start_dir(const hdo_paper_case *k, char *buf, size_t cap);

/* Work of a run relative to other runs of the experiment. */
HDO_API double hdo_paper_cost(const hdo_config *c);

/* What a folder holds, compared with what it should hold. */
typedef enum hdo_stored {
    HDO_STORED_NOTHING,
    HDO_STORED_OTHER, /* a run with another configuration, or made before a change of what it uses */
    HDO_STORED_PART,  /* this run, not ended: to be resumed */
    HDO_STORED_DONE   /* this run, completed or diverged */
} hdo_stored;
HDO_API hdo_stored hdo_run_stored(const char *dir, const hdo_config *c);

/* ---- claims ---- */

typedef enum hdo_verdict { HDO_UNDECIDED, HDO_HOLDS, HDO_FAILS } hdo_verdict;
HDO_API const char *hdo_verdict_text(hdo_verdict v); /* "undecided", "holds", "does not hold" */

typedef struct hdo_claim_result { /* one part of a claim on one experiment */
    int claim;                    /* 1 .. 7; 0: another figure, which counts towards no claim */
    const char *text;             /* what is claimed */
    const char *quantity;         /* what was compared: "val/loss_mean, last tenth" */
    hdo_verdict verdict;
    int lean; /* 1, -1: the means (or the numbers of diverged runs) are as claimed, or the other way; 0: neither */
    hdo_difference d; /* a - b; for one-sided statements about one curve b is the limit */
    char note[160];   /* diverged, not run, where curves cross, ... */
} hdo_claim_result;

enum { HDO_CLAIM_PARTS_MAX = 32 };

HDO_API const char *hdo_claim_text(int claim); /* the claim in full; NULL: there is none */
/* All parts that concern the experiment, from the runs stored; *n of them. Parts without runs are undecided. */
HDO_API hdo_status hdo_paper_claims(const hdo_paper_case *k, hdo_claim_result out[HDO_CLAIM_PARTS_MAX], int *n,
                                    hdo_error *e);
/* A claim holds if all its parts do, and does not if one does not. */
HDO_API hdo_verdict hdo_claim_verdict(const hdo_claim_result *r, int n, int claim);

/* ---- results ---- */

/* Draws the figures of the case into its folder (figures/ID-NAME.svg, ...). x: the axis, "step" unless you want
 * another. */
HDO_API hdo_status hdo_paper_figures(const hdo_paper_case *k, const char *x, unsigned formats, hdo_error *e);

/* Writes claims.json, claims.md and runs.md (final figures of every variant) into the folder of the case. */
HDO_API hdo_status hdo_paper_tables(const hdo_paper_case *k, hdo_error *e);

/* Collects every case found under root: a self-contained page, and Markdown for docs/results.md, between the lines
 * "<!-- results -->" and "<!-- end of results -->" of an existing file, so that text around them stays. Either path may
 * be NULL. svg_dir, if not NULL, receives the figures the Markdown refers to. */
HDO_API hdo_status hdo_paper_report(const char *root, const char *html, const char *markdown, const char *svg_dir,
                                    hdo_error *e);

#ifdef __cplusplus
}
#endif

#endif
