/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of changes. Whoever changes the law or the numbers of an estimator, a model or a data set adds a row, with
 * the next number of that name. A row says which runs it concerns, so that only those have to be made again.
 */
#include "hdo/experimental/revision.h"

#include <string.h>

#include "record/record.h"

static const hdo_revision table[] = {
    {"estimator", "forward-law", 2, "outcome=diverged",
     "a part of the gradient that nearly vanishes beside the rest no longer overflows"},
    {"estimator", "forward-law", 2, "streams=shared",
     "with shared streams it had another law over nodes than forward-sim, and is refused now"},
    {"estimator", "fd-law", 2, NULL,
     "small samples beside large ones are no longer dropped, saturated classes no longer overflow"},
    {"estimator", "fd-law", 2, "streams=shared",
     "with shared streams it had another law over nodes than fd, and is refused now"},
    {"model", "cnn2", 2, "model.reading=authors", "channels 8 and 16, pool after the second convolution only"},
};

const hdo_revision *hdo_revision_at(int i) {
    return i >= 0 && i < (int)(sizeof table / sizeof table[0]) ? &table[i] : NULL;
}

int hdo_revision_of(const char *kind, const char *name) {
    int number = 1;
    for (const hdo_revision *r = table; r < table + sizeof table / sizeof table[0]; r++) {
        bool same = strcmp(r->kind, kind) == 0 && strcmp(r->name, name) == 0;
        if (same && r->number > number) number = r->number;
    }
    return number;
}

void hdo__put_revisions(hdo_json *j, const hdo_config *c) {
    hdo__json_object(j, "revisions");
    hdo__json_object(j, "model");
    hdo__json_int(j, c->model.name, hdo_revision_of("model", c->model.name));
    hdo__json_end(j, '}');
    hdo__json_object(j, "data");
    hdo__json_int(j, c->data.name, hdo_revision_of("data", c->data.name));
    hdo__json_end(j, '}');
    hdo__json_object(j, "estimator");
    for (int k = 0; k < c->n_classes; k++) {
        bool before = false;
        for (int i = 0; i < k; i++)
            before = before || strcmp(c->population[i].estimator, c->population[k].estimator) == 0;
        const char *name = c->population[k].estimator;
        if (!before) hdo__json_int(j, name, hdo_revision_of("estimator", name));
    }
    hdo__json_end(j, '}');
    hdo__json_end(j, '}');
}
