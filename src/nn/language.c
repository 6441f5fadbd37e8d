/* SPDX-License-Identifier: Apache-2.0
 *
 * The layer language: a network as a comma-separated list, the same for the built-in models (models.c) and for
 * `model: {name: custom, layers: "conv 8 3 pad 1, relu, pool 2, linear 10"}`. docs/models.md is its reference.
 *
 *   item   = [name ":"] word { argument }
 *
 * Unnamed items are named by their position, as in torch.nn.Sequential; save, load and add do not count.
 */
#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/nn.h"

enum { WORD_MAX = 64, WORDS_MAX = 10, MARKS_MAX = 32 };

typedef struct item {
    char text[160]; /* for messages */
    char name[HDO_PARAM_NAME_MAX];
    char word[WORDS_MAX][WORD_MAX];
    int n;
} item;

typedef struct parser {
    hdo_net *net;
    const hdo_net_words *words;
    hdo_error *e;
    int at;     /* the current value */
    int number; /* items so far that count */
    struct {
        char name[WORD_MAX];
        int value;
    } mark[MARKS_MAX];
    int n_marks;
} parser;

static hdo_status wrong(const parser *s, const item *it, const char *why) {
    return hdo__fail(s->e, HDO_E_CONFIG, "model.layers: \"%s\": %s.", it->text, why);
}

/* ---- reading items ---- */

/* One item from *text up to a comma, newline or the end. False: too long. */
static bool next_item(const char **text, item *it) {
    memset(it, 0, sizeof *it);
    const char *p = *text;
    while (*p == ',' || isspace((unsigned char)*p)) p++;
    const char *end = p;
    while (*end != '\0' && *end != ',' && *end != '\n') end++;
    *text = end;
    size_t len = (size_t)(end - p);
    while (len > 0 && isspace((unsigned char)p[len - 1])) len--;
    if (len >= sizeof it->text) {
        memcpy(it->text, p, sizeof it->text - 1);
        return false;
    }
    memcpy(it->text, p, len);
    const char *q = it->text, *colon = strchr(q, ':');
    if (colon != NULL) {
        size_t n = (size_t)(colon - q);
        while (n > 0 && isspace((unsigned char)q[n - 1])) n--;
        if (n == 0 || n >= sizeof it->name) return false;
        memcpy(it->name, q, n);
        q = colon + 1;
    }
    while (*q != '\0') {
        while (isspace((unsigned char)*q)) q++;
        size_t n = 0;
        while (q[n] != '\0' && !isspace((unsigned char)q[n])) n++;
        if (n == 0) break;
        if (it->n == WORDS_MAX || n >= WORD_MAX) return false;
        memcpy(it->word[it->n++], q, n);
        q += n;
    }
    return true;
}

static bool read_int(const char *text, long lo, long hi, int *out) {
    char *end;
    long v = strtol(text, &end, 10);
    if (end == text || *end != '\0' || v < lo || v > hi) return false;
    *out = (int)v;
    return true;
}

static bool read_real(const char *text, double lo, double hi, double *out) {
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end != '\0' || !(v >= lo && v < hi)) return false;
    *out = v;
    return true;
}

/* ---- options behind the leading numbers of a word ---- */

typedef struct options {
    int stride, pad;
    bool nobias, fanout, dropout;
    double std, p;
} options;

/* allowed: the option words this layer takes, separated by spaces. */
static bool read_options(const parser *s, const item *it, int from, const char *allowed, options *o) {
    for (int i = from; i < it->n; i++) {
        const char *w = it->word[i];
        if (strstr(allowed, w) == NULL) return false;
        bool more = i + 1 < it->n;
        if (strcmp(w, "nobias") == 0) {
            o->nobias = true;
        } else if (strcmp(w, "fanout") == 0) {
            o->fanout = true;
        } else if (strcmp(w, "stride") == 0 && more) {
            if (!read_int(it->word[++i], 1, 64, &o->stride)) return false;
        } else if (strcmp(w, "pad") == 0 && more) {
            if (!read_int(it->word[++i], 0, 64, &o->pad)) return false;
        } else if (strcmp(w, "std") == 0 && more) {
            if (!read_real(it->word[++i], 0.0, 1e6, &o->std)) return false;
        } else if (strcmp(w, "dropout") == 0) {
            o->dropout = true;
            o->p = s->words->dropout;
            if (more && !read_real(it->word[++i], 0.0, 1.0, &o->p)) return false;
        } else {
            return false;
        }
    }
    return true;
}

/* `std S`: weights N(0, S^2), bias 0. `fanout`: torchvision's He initialisation, N(0, 2 / (O kh kw)). */
static void override_init(hdo_net *net, const options *o) {
    assert(net->n_layers > 0);
    hdo_layer *l = &net->layer[net->n_layers - 1];
    if (l->weight < 0 || (o->std < 0 && !o->fanout)) return;
    hdo_param *w = &net->params.row[l->weight];
    w->fill = HDO_FILL_NORMAL;
    w->arg = o->fanout ? sqrt(2.0 / ((double)w->dim[0] * (double)w->dim[2] * (double)w->dim[3])) : o->std;
    if (l->bias < 0) return;
    net->params.row[l->bias].fill = HDO_FILL_CONST;
    net->params.row[l->bias].arg = 0.0;
}

/* ---- words ---- */

static int find_mark(const parser *s, const char *name) {
    for (int i = 0; i < s->n_marks; i++)
        if (strcmp(s->mark[i].name, name) == 0) return i;
    return -1;
}

static hdo_status link_word(parser *s, const item *it) {
    if (it->n != 2) return wrong(s, it, "save, load and add take one name");
    int k = find_mark(s, it->word[1]);
    if (strcmp(it->word[0], "save") == 0) {
        if (k < 0 && s->n_marks == MARKS_MAX) return wrong(s, it, "too many saved values (32 at most)");
        if (k < 0) k = s->n_marks++;
        memcpy(s->mark[k].name, it->word[1], WORD_MAX);
        s->mark[k].value = s->at;
        s->net->pinned[s->at] = true;
        return HDO_OK;
    }
    if (k < 0) return wrong(s, it, "nothing was saved under that name");
    if (strcmp(it->word[0], "load") == 0) {
        s->at = s->mark[k].value;
        return HDO_OK;
    }
    int v = s->at == 0 || s->mark[k].value == 0 ? -1 : hdo__residual_add(s->net, s->at, s->mark[k].value);
    if (v < 0) return wrong(s, it, "both values of a sum must have the same size, and neither may be the input");
    s->at = v;
    return HDO_OK;
}

static hdo_status layer_word(parser *s, const item *it, const char *name) {
    hdo_net *net = s->net;
    const char *w = it->word[0];
    options o = {.stride = 0, .std = -1.0};
    int n = 0, k = 0, v = -1, layers = net->n_layers;
    bool image = !net->value[s->at].seq && !(s->at == 0 && net->vocab > 0);
    if (s->at == 0 && net->vocab > 0 && strcmp(w, "embed") != 0)
        return wrong(s, it, "token data must go to an embed layer first");

    if (strcmp(w, "linear") == 0) {
        bool classes = it->n > 1 && strcmp(it->word[1], "classes") == 0;
        if (classes) n = s->words->classes;
        if (it->n < 2 || (!classes && !read_int(it->word[1], 1, 1 << 20, &n)) ||
            !read_options(s, it, 2, "nobias std", &o))
            return wrong(s, it, "expected linear N [nobias] [std S], N a number or `classes`");
        v = hdo__linear_add(net, name, s->at, n, !o.nobias);
    } else if (strcmp(w, "conv") == 0) {
        o.stride = 1;
        if (it->n < 3 || !read_int(it->word[1], 1, 1 << 14, &n) || !read_int(it->word[2], 1, 64, &k) ||
            !read_options(s, it, 3, "stride pad nobias fanout std", &o) || !image)
            return wrong(s, it, "expected conv CHANNELS KERNEL [stride S] [pad P] [nobias] [fanout] [std S] on images");
        v = hdo__conv_add(net, name, s->at, (hdo_conv_words){n, k, o.stride, o.pad, !o.nobias});
    } else if (strcmp(w, "pool") == 0) {
        if (it->n < 2 || !read_int(it->word[1], 1, 15, &k) || !read_options(s, it, 2, "stride pad", &o) || !image)
            return wrong(s, it, "expected pool KERNEL [stride S] [pad P] on images");
        v = hdo__maxpool_add(net, s->at, k, o.stride > 0 ? o.stride : k, o.pad);
    } else if (strcmp(w, "resize") == 0) {
        bool crop = it->n == 4 && strcmp(it->word[2], "crop") == 0;
        if ((it->n != 2 && !crop) || !read_int(it->word[1], 1, 4096, &n) || s->at != 0 || !image ||
            (crop && !read_int(it->word[3], 1, n, &k)))
            return wrong(s, it, "expected resize SIZE [crop N], N at most SIZE, as the first layer, on images");
        v = hdo__resize_add(net, s->at, n, crop ? k : n);
    } else if (strcmp(w, "avgpool") == 0 && it->n == 1 && image) {
        v = hdo__avgpool_add(net, s->at);
    } else if (strcmp(w, "batchnorm") == 0 && it->n == 1 && image) {
        v = hdo__batchnorm_add(net, name, s->at);
    } else if (strcmp(w, "layernorm") == 0 && read_options(s, it, 1, "nobias", &o)) {
        v = hdo__layernorm_add(net, name, s->at, !o.nobias);
    } else if (strcmp(w, "relu") == 0 && it->n == 1) {
        v = hdo__act_add(net, s->at, HDO_ACT_RELU);
    } else if (strcmp(w, "gelu") == 0 && it->n == 1) {
        v = hdo__act_add(net, s->at, HDO_ACT_GELU);
    } else if (strcmp(w, "sigmoid") == 0 && it->n == 1) {
        v = hdo__act_add(net, s->at, HDO_ACT_SIGMOID);
    } else if (strcmp(w, "dropout") == 0 && read_options(s, it, 0, "dropout", &o)) {
        v = hdo__dropout_add(net, s->at, o.p);
    } else if (strcmp(w, "flatten") == 0 && it->n == 1) { /* numbers are contiguous already: only the view changes */
        hdo_value *x = &net->value[s->at];
        *x = (hdo_value){.n = x->n, .C = (int)x->n, .H = 1, .W = 1};
        v = s->at;
    } else if (strcmp(w, "embed") == 0) {
        if (it->n < 2 || !read_int(it->word[1], 1, 4096, &n) || !read_options(s, it, 2, "std", &o) || s->at != 0 ||
            net->vocab < 1)
            return wrong(s, it, "expected embed WIDTH [std S] as the first layer, on token data");
        v = hdo__embed_add(net, name, s->at, n);
    } else if (strcmp(w, "position") == 0 && read_options(s, it, 1, "std", &o)) {
        v = hdo__position_add(net, name, s->at);
    } else if (strcmp(w, "attention") == 0) {
        if (it->n < 2 || !read_int(it->word[1], 1, 256, &n) || !read_options(s, it, 2, "dropout", &o))
            return wrong(s, it, "expected attention HEADS [dropout [P]]");
        v = hdo__attention_add(net, s->at, n, o.dropout ? o.p : 0.0);
    } else {
        return wrong(s, it, "not a layer, or with wrong arguments (see docs/models.md)");
    }
    if (v < 0)
        return wrong(s, it, "does not fit the value before it, or its name is taken, or the network is too large");
    if (net->value[v].n == 0 || net->value[v].n > (size_t)1 << 28) return wrong(s, it, "gives no or too many numbers");
    if (net->n_layers > layers) override_init(net, &o); /* flatten adds no layer */
    s->at = v;
    return HDO_OK;
}

/* Every value has a reader, and the last layer's value is the answer. */
static hdo_status check_result(const parser *s) {
    const hdo_net *net = s->net;
    if (net->n_layers == 0) return hdo__fail(s->e, HDO_E_CONFIG, "model.layers: there is no layer.");
    if (s->at != net->layer[net->n_layers - 1].out)
        return hdo__fail(s->e, HDO_E_CONFIG, "model.layers: the network must end with the layer listed last.");
    for (int i = 0; i < net->n_layers; i++) {
        bool read = net->layer[i].out == s->at;
        for (int j = i + 1; j < net->n_layers; j++)
            read = read || net->layer[j].in == net->layer[i].out || net->layer[j].in2 == net->layer[i].out;
        if (!read)
            return hdo__fail(s->e, HDO_E_CONFIG, "model.layers: nobody reads the result of layer %d (%s).", i,
                             net->layer[i].ops->name);
    }
    if (!(net->value[s->at].n == (size_t)s->words->classes))
        return hdo__fail(s->e, HDO_E_CONFIG,
                         "model.layers: the network ends with %zu numbers a sample, the data has %d classes; "
                         "end it with \"linear classes\".",
                         net->value[s->at].n, s->words->classes);
    if (net->params.total == 0) return hdo__fail(s->e, HDO_E_CONFIG, "model.layers: no layer has parameters.");
    return HDO_OK;
}

hdo_status hdo__net_parse(hdo_net *net, const char *text, const hdo_net_words *words, hdo_error *e) {
    parser s = {.net = net, .words = words, .e = e};
    item it;
    while (*text != '\0') {
        if (!next_item(&text, &it)) return wrong(&s, &it, "too long, or the name in front of the colon is missing");
        if (it.n == 0 && it.name[0] == '\0') continue; /* nothing between commas */
        if (it.n == 0) return wrong(&s, &it, "a layer is missing behind the name");
        const char *w = it.word[0];
        hdo_status st;
        if (strcmp(w, "save") == 0 || strcmp(w, "load") == 0 || strcmp(w, "add") == 0) {
            st = link_word(&s, &it);
        } else {
            char name[HDO_PARAM_NAME_MAX];
            snprintf(name, sizeof name, "%d", s.number++);
            st = layer_word(&s, &it, it.name[0] != '\0' ? it.name : name);
        }
        if (st != HDO_OK) return st;
    }
    return check_result(&s);
}
