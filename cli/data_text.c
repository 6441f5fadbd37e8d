/* SPDX-License-Identifier: Apache-2.0 — hdo data show: what is in a data set. */
#include <math.h>

#include "cmd_data.h"

void data_print_stats(const hdo_data_stats *t, const char *name, const char *which) {
    printf("%s, %s: %lld samples, %d classes, ", name, which, (long long)t->count, t->classes);
    if (t->vocab > 0) {
        printf("%d tokens of %d kinds\n", t->n_in, t->vocab);
    } else if (t->shape[1] > 1) {
        printf("%dx%d, %d channel%s\n", t->shape[1], t->shape[2], t->shape[0], t->shape[0] > 1 ? "s" : "");
    } else {
        printf("%d inputs\n", t->n_in);
    }
    for (int c = 0; c < 4 && c < t->shape[0] && t->vocab == 0; c++) {
        printf("  channel %d   mean %.4f  deviation %.4f\n", c, t->mean[c], t->sd[c]);
    }
    if (t->vocab == 0) printf("  range       %.4g .. %.4g\n", t->min, t->max);
    if (isfinite(t->bayes_error)) printf("  Bayes error %.4f\n", t->bayes_error);
    printf("  per class  ");
    const int shown = t->classes < 16 ? t->classes : 16;
    for (int c = 0; c < shown; c++) {
        const char *word = hdo_data_class_name(name, c);
        if (word != NULL)
            printf(" %s %lld", word, (long long)t->per_class[c]);
        else
            printf(" %lld", (long long)t->per_class[c]);
    }
    printf("%s\n  sha256      %s\n", shown < t->classes ? " ..." : "", t->sha256);
}

int data_json_stats(const hdo_data_stats *t, const char *name, const char *which) {
    hdo_json j;
    hdo__json_begin(&j, false, 1);
    hdo__json_text(&j, "name", name);
    hdo__json_text(&j, "part", which);
    hdo__json_int(&j, "count", t->count);
    hdo__json_int(&j, "classes", t->classes);
    hdo__json_array(&j, "shape");
    for (int k = 0; k < 3; k++) hdo__json_int(&j, NULL, t->shape[k]);
    hdo__json_end(&j, ']');
    hdo__json_int(&j, "vocab", t->vocab);
    for (int k = 0; k < 2; k++) {
        hdo__json_array(&j, k == 0 ? "mean" : "sd");
        for (int c = 0; c < 4 && c < t->shape[0] && t->vocab == 0; c++)
            hdo__json_real(&j, NULL, k == 0 ? t->mean[c] : t->sd[c]);
        hdo__json_end(&j, ']');
    }
    hdo__json_real(&j, "min", t->min);
    hdo__json_real(&j, "max", t->max);
    hdo__json_real(&j, "bayes_error", t->bayes_error);
    hdo__json_array(&j, "per_class");
    for (int c = 0; c < t->classes && c < HDO_DATA_HISTOGRAM; c++) hdo__json_int(&j, NULL, t->per_class[c]);
    hdo__json_end(&j, ']');
    hdo__json_text(&j, "sha256", t->sha256);
    hdo__json_end(&j, '}');
    return cli_json(&j);
}
