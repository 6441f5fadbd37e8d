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

/* ---- layers: every word reads its arguments and adds its layer ---- */

typedef struct call {
    parser *s;
    const item *it;
    const char *name; /* of the layer */
    hdo_net *net;
    options o;
} call;

enum { MISUSED = -2 }; /* wrong arguments; -1: the layer does not fit */

static bool number(const call *c, int i, long hi, int *out) {
    return c->it->n > i && read_int(c->it->word[i], 1, hi, out);
}
static bool options_from(call *c, int from, const char *allowed) {
    return read_options(c->s, c->it, from, allowed, &c->o);
}
static bool alone(const call *c) {
    return c->it->n == 1;
}

static int add_linear(call *c) {
    int n = c->s->words->classes;
    bool classes = c->it->n > 1 && strcmp(c->it->word[1], "classes") == 0;
    if ((!classes && !number(c, 1, 1 << 20, &n)) || !options_from(c, 2, "nobias std")) return MISUSED;
    return hdo__linear_add(c->net, c->name, c->s->at, n, !c->o.nobias);
}

static int add_conv(call *c) {
    hdo_conv_words w;
    c->o.stride = 1;
    if (!number(c, 1, 1 << 14, &w.channels) || !number(c, 2, 64, &w.kernel) ||
        !options_from(c, 3, "stride pad nobias fanout std"))
        return MISUSED;
    w.stride = c->o.stride;
    w.pad = c->o.pad;
    w.bias = !c->o.nobias;
    return hdo__conv_add(c->net, c->name, c->s->at, w);
}

static int add_pool(call *c) {
    int k;
    if (!number(c, 1, 15, &k) || !options_from(c, 2, "stride pad")) return MISUSED;
    return hdo__maxpool_add(c->net, c->s->at, k, c->o.stride > 0 ? c->o.stride : k, c->o.pad);
}

static int add_resize(call *c) {
    int n, k;
    bool crop = c->it->n == 4 && strcmp(c->it->word[2], "crop") == 0;
    if ((c->it->n != 2 && !crop) || !number(c, 1, 4096, &n) || c->s->at != 0 || (crop && !number(c, 3, n, &k)))
        return MISUSED;
    return hdo__resize_add(c->net, c->s->at, n, crop ? k : n);
}

static int add_avgpool(call *c) {
    return alone(c) ? hdo__avgpool_add(c->net, c->s->at) : MISUSED;
}
static int add_batchnorm(call *c) {
    return alone(c) ? hdo__batchnorm_add(c->net, c->name, c->s->at) : MISUSED;
}
static int add_layernorm(call *c) {
    return options_from(c, 1, "nobias") ? hdo__layernorm_add(c->net, c->name, c->s->at, !c->o.nobias) : MISUSED;
}
static int add_relu(call *c) {
    return alone(c) ? hdo__act_add(c->net, c->s->at, HDO_ACT_RELU) : MISUSED;
}
static int add_gelu(call *c) {
    return alone(c) ? hdo__act_add(c->net, c->s->at, HDO_ACT_GELU) : MISUSED;
}
static int add_sigmoid(call *c) {
    return alone(c) ? hdo__act_add(c->net, c->s->at, HDO_ACT_SIGMOID) : MISUSED;
}
static int add_dropout(call *c) {
    return options_from(c, 0, "dropout") ? hdo__dropout_add(c->net, c->s->at, c->o.p) : MISUSED;
}
static int add_position(call *c) {
    return options_from(c, 1, "std") ? hdo__position_add(c->net, c->name, c->s->at) : MISUSED;
}

/* Numbers are contiguous already: only the view changes, and there is no new layer. */
static int view_flat(call *c) {
    hdo_value *x = &c->net->value[c->s->at];
    if (!alone(c)) return MISUSED;
    *x = (hdo_value){.n = x->n, .C = (int)x->n, .H = 1, .W = 1};
    return c->s->at;
}

static int add_embed(call *c) {
    int n;
    if (!number(c, 1, 4096, &n) || !options_from(c, 2, "std") || c->s->at != 0 || c->net->vocab < 1) return MISUSED;
    return hdo__embed_add(c->net, c->name, c->s->at, n);
}

static int add_attention(call *c) {
    int heads;
    if (!number(c, 1, 256, &heads) || !options_from(c, 2, "dropout")) return MISUSED;
    return hdo__attention_add(c->net, c->s->at, heads, c->o.dropout ? c->o.p : 0.0);
}

static const struct word {
    const char *word;
    int (*add)(call *c);
    bool image;        /* takes images (or vectors) only */
    const char *usage; /* NULL: the word alone */
} layer_words[] = {
    {"linear", add_linear, false, "expected linear N [nobias] [std S], N a number or `classes`"},
    {"conv", add_conv, true, "expected conv CHANNELS KERNEL [stride S] [pad P] [nobias] [fanout] [std S] on images"},
    {"pool", add_pool, true, "expected pool KERNEL [stride S] [pad P] on images"},
    {"resize", add_resize, true, "expected resize SIZE [crop N], N at most SIZE, as the first layer, on images"},
    {"avgpool", add_avgpool, true, NULL},
    {"batchnorm", add_batchnorm, true, NULL},
    {"layernorm", add_layernorm, false, NULL},
    {"relu", add_relu, false, NULL},
    {"gelu", add_gelu, false, NULL},
    {"sigmoid", add_sigmoid, false, NULL},
    {"dropout", add_dropout, false, NULL},
    {"flatten", view_flat, false, NULL},
    {"embed", add_embed, false, "expected embed WIDTH [std S] as the first layer, on token data"},
    {"position", add_position, false, NULL},
    {"attention", add_attention, false, "expected attention HEADS [dropout [P]]"},
};

static const struct word *find_word(const char *word) {
    for (size_t i = 0; i < sizeof layer_words / sizeof layer_words[0]; i++)
        if (strcmp(layer_words[i].word, word) == 0) return &layer_words[i];
    return NULL;
}

static hdo_status layer_word(parser *s, const item *it, const char *name) {
    hdo_net *net = s->net;
    const struct word *w = find_word(it->word[0]);
    bool tokens = s->at == 0 && net->vocab > 0, image = !net->value[s->at].seq && !tokens;
    int layers = net->n_layers;
    call c = {.s = s, .it = it, .name = name, .net = net, .o = {.std = -1.0}};
    if (tokens && (w == NULL || w->add != add_embed)) return wrong(s, it, "token data must go to an embed layer first");
    int v = w == NULL || (w->image && !image) ? MISUSED : w->add(&c);
    if (v == MISUSED)
        return wrong(s, it,
                     w != NULL && w->usage != NULL ? w->usage
                                                   : "not a layer, or with wrong arguments (see docs/models.md)");
    if (v < 0)
        return wrong(s, it, "does not fit the value before it, or its name is taken, or the network is too large");
    if (net->value[v].n == 0 || net->value[v].n > (size_t)1 << 28) return wrong(s, it, "gives no or too many numbers");
    if (net->n_layers > layers) override_init(net, &c.o);
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
