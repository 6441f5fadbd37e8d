/* SPDX-License-Identifier: Apache-2.0
 *
 * model.train: a list of items joined by commas, each of which adds tensors to what is trained; a later item overrules
 * an earlier one.
 *
 *   PATTERN            tensors whose name matches, as the shell matches: fc.*, *.bias, layer4.1.bn?.*
 *   head               the last linear layer and what stands behind it
 *   lora(R) [PATTERN]  matrices that match, or all: W + B A with B (out, R) and A (R, in)
 *   scales [PATTERN]   matrices that match, or all: a factor for every output channel
 */
#include "objective/train.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ITEM_MAX = 256 };

typedef struct item {
    int how, rank;
    char pattern[ITEM_MAX];
} item;

bool hdo__train_is_all(const char *text) {
    return text[0] == '\0' || strcmp(text, "all") == 0;
}

/* Convolutions, linear layers: what a product with a sample is made of. */
static bool is_matrix(const hdo_net *net, int row) {
    for (int i = 0; i < net->n_layers; i++) {
        const char *name = net->layer[i].ops->name;
        if (net->layer[i].weight == row) return strcmp(name, "linear") == 0 || strcmp(name, "conv") == 0;
    }
    return false;
}

/* From the last linear layer on. */
static bool in_head(const hdo_net *net, int row) {
    int head = net->n_layers - 1;
    while (head > 0 && strcmp(net->layer[head].ops->name, "linear") != 0) head--;
    for (int i = head; i < net->n_layers; i++)
        if (net->layer[i].weight == row || net->layer[i].bias == row) return true;
    return false;
}

static bool selects(const item *t, const hdo_net *net, int row) {
    if (t->how == HDO_TRAIN_PLAIN && strcmp(t->pattern, "head") == 0) return in_head(net, row);
    if (t->how != HDO_TRAIN_PLAIN && !is_matrix(net, row)) return false;
    return fnmatch(t->pattern, net->params.row[row].name, 0) == 0;
}

/* "lora(8) layer4.*" and its like; false: not a sound item. */
static bool read_item(const char *text, size_t len, item *t) {
    char word[ITEM_MAX], *rest = word, *end;
    while (len > 0 && text[len - 1] == ' ') len--;
    while (len > 0 && text[0] == ' ') text++, len--;
    if (len == 0 || len >= sizeof word) return false;
    snprintf(word, sizeof word, "%.*s", (int)len, text);
    *t = (item){.how = HDO_TRAIN_PLAIN};
    if (strncmp(word, "lora(", 5) == 0) {
        long rank = strtol(word + 5, &end, 10);
        if (end == word + 5 || *end != ')' || rank < 1 || rank > 4096) return false;
        *t = (item){.how = HDO_TRAIN_LORA, .rank = (int)rank};
        rest = end + 1;
    } else if (strncmp(word, "scales", 6) == 0 && (word[6] == '\0' || word[6] == ' ')) {
        *t = (item){.how = HDO_TRAIN_SCALES};
        rest = word + 6;
    }
    if (t->how != HDO_TRAIN_PLAIN && *rest != '\0' && *rest != ' ') return false;
    rest += strspn(rest, " ");
    if (strchr(rest, ' ') != NULL) return false;
    snprintf(t->pattern, sizeof t->pattern, "%s", *rest != '\0' ? rest : "*");
    return true;
}

static hdo_status no_tensor(const item *t, const hdo_net *net, hdo_error *e) {
    char names[HDO_MSG_MAX / 2] = "";
    for (int i = 0; i < net->params.n && strlen(names) + HDO_PARAM_NAME_MAX < sizeof names; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i > 0 ? ", " : "",
                 net->params.row[i].name);
    return hdo__fail(e, HDO_E_CONFIG, "model.train: no %s of the model matches '%s'; its tensors are %s%s",
                     t->how == HDO_TRAIN_PLAIN ? "tensor" : "weight of a linear layer or convolution", t->pattern,
                     names, names[0] != '\0' && net->params.n > 12 ? ", ..." : "");
}

hdo_status hdo__train_parse(const char *text, const hdo_net *net, hdo_train how[HDO_PARAMS_MAX], hdo_error *e) {
    for (int i = 0; i < net->params.n; i++) how[i] = (hdo_train){HDO_TRAIN_FROZEN, 0};
    for (const char *at = text; at != NULL;) {
        const char *comma = strchr(at, ',');
        size_t len = comma != NULL ? (size_t)(comma - at) : strlen(at);
        item t;
        int found = 0;
        if (!read_item(at, len, &t))
            return hdo__fail(
                e, HDO_E_CONFIG,
                "model.train: '%.*s' is not understood: all, or a list of head, patterns over tensor names "
                "(fc.*), lora(rank) and scales, each of these two with or without a pattern",
                (int)(len < 80 ? len : 80), at);
        for (int i = 0; i < net->params.n; i++) {
            if (!selects(&t, net, i)) continue;
            how[i] = (hdo_train){t.how, t.rank};
            found++;
        }
        if (found == 0) return no_tensor(&t, net, e);
        at = comma != NULL ? comma + 1 : NULL;
    }
    return HDO_OK;
}
