/* SPDX-License-Identifier: Apache-2.0
 *
 * Who lives where, and how long. Time runs over the layers, forward and (for grad) back again; a value lives from the
 * layer that makes it to its last reader; blocks whose lives overlap get disjoint addresses, greedily, largest first.
 * Element-wise layers work in place where their input dies. Offsets are per sample and multiplied by the batch size.
 *
 * The network is also cut once, in front of the first linear layer over whole samples: the front (convolutions,
 * attention) then runs a few samples at a time so that its large activations stay in cache, the tail takes a whole
 * chunk so that its matrix products are worth their name. Where weights outweigh activations (resnet18) the cut is
 * earlier, behind the first million weights: the others, larger than any cache, are read once a long chunk. All lengths
 * depend on the network alone, never on the threads.
 */
#include <string.h>

#include "nn/nn.h"

typedef struct block {
    size_t n;       /* floats a sample */
    int start, end; /* inclusive */
    size_t *off;
} block;

enum { BLOCKS_MAX = 3 * HDO_VALUES_MAX };

static size_t round16(size_t n) {
    return (n + 15) & ~(size_t)15;
}

/* First fit, largest first; returns the total. */
static size_t place(block *b, int n) {
    for (int i = 1; i < n; i++) { /* insertion sort: a few hundred blocks at most */
        block key = b[i];
        int j = i;
        for (; j > 0 && b[j - 1].n < key.n; j--) b[j] = b[j - 1];
        b[j] = key;
    }
    size_t total = 0;
    for (int i = 0; i < n; i++) {
        size_t at = 0;
        bool moved = true;
        while (moved) { /* lowest address free of every block already placed that lives at the same time */
            moved = false;
            for (int j = 0; j < i; j++) {
                bool together = b[j].start <= b[i].end && b[i].start <= b[j].end;
                if (together && at < *b[j].off + round16(b[j].n) && *b[j].off < at + round16(b[i].n)) {
                    at = *b[j].off + round16(b[j].n);
                    moved = true;
                }
            }
        }
        *b[i].off = at;
        if (at + round16(b[i].n) > total) total = at + round16(b[i].n);
    }
    return total;
}

static bool reads(const hdo_layer *l, int v) {
    return l->in == v || l->in2 == v;
}

static int last_reader(const hdo_net *net, const hdo_net_plan *p, int v) {
    int last = -1;
    for (int i = p->first; i < p->last; i++)
        if (reads(&net->layer[i], v)) last = i;
    return last;
}

/* The layer that makes v, or -1 (input of the segment). */
static int maker(const hdo_net *net, const hdo_net_plan *p, int v) {
    for (int i = p->first; i < p->last; i++)
        if (net->layer[i].out == v) return i;
    return -1;
}

static bool keeps_out(const hdo_layer *l) {
    return l->ops->needs_out || l->relu;
}

/* The backward walk reads v. */
static bool kept(const hdo_net *net, const hdo_net_plan *p, int v) {
    int m = maker(net, p, v);
    if (m >= 0 && keeps_out(&net->layer[m])) return true;
    for (int i = p->first; i < p->last; i++)
        if (net->layer[i].in == v && net->layer[i].ops->needs_in) return true;
    return false;
}

static void share_memory(const hdo_net *net, hdo_net_plan *p, bool grad) {
    for (int v = 0; v < net->n_values; v++) p->root[v] = v;
    for (int i = p->first; i < p->last; i++) {
        const hdo_layer *l = &net->layer[i];
        if (!l->ops->inplace) continue;
        for (int k = 0; k < 2; k++) {
            int v = k == 0 ? l->in : l->in2;
            if (v < 0 || maker(net, p, v) < 0 || last_reader(net, p, v) != i || (l->in == l->in2 && k == 1)) continue;
            if (net->value[v].n != net->value[l->out].n || (grad && kept(net, p, v))) continue;
            p->root[l->out] = p->root[v];
            break;
        }
    }
}

/* Gradients: who writes first, who adds, who may reuse the memory of dout. Time of layer i's backward step: 2 L - i. */
static int plan_back(const hdo_net *net, hdo_net_plan *p, block *b, int n) {
    int L = p->last, out = net->layer[L - 1].out, groot[HDO_VALUES_MAX], slot[HDO_VALUES_MAX];
    for (int v = 0; v < net->n_values; v++) groot[v] = slot[v] = -1;
    groot[out] = out;
    slot[out] = n;
    b[n++] = (block){net->value[out].n, L, L, &p->goff[out]};
    for (int i = L - 1; i >= p->first; i--) {
        const hdo_layer *l = &net->layer[i];
        if (!net->live[l->out] || groot[l->out] < 0) continue;
        block *mine = &b[slot[groot[l->out]]];
        if (mine->end < 2 * L - i) mine->end = 2 * L - i;
        for (int k = 0; k < 2; k++) {
            int v = k == 0 ? l->in : l->in2;
            if (v < 0 || !net->live[v]) continue;
            if (groot[v] >= 0) {
                if (k == 0) p->second[i] = true;
                if (k == 1) p->second2[i] = true;
                if (k == 0 && p->tmp < round16(net->value[v].n)) p->tmp = round16(net->value[v].n);
                continue;
            }
            if (k == 0 && l->ops->inplace_bwd) {
                groot[v] = groot[l->out];
                continue;
            }
            groot[v] = v;
            slot[v] = n;
            b[n++] = (block){net->value[v].n, 2 * L - i, 2 * L - i, &p->goff[v]};
        }
    }
    for (int v = 0; v < net->n_values; v++) p->groot[v] = groot[v];
    return n;
}

static void plan_segment(const hdo_net *net, hdo_net_plan *p, int first, int last, bool grad) {
    memset(p, 0, sizeof *p);
    p->first = first;
    p->last = last;
    share_memory(net, p, grad);
    block b[BLOCKS_MAX];
    int n = 0, L = last, slot[HDO_VALUES_MAX];
    for (int v = 0; v < net->n_values; v++) slot[v] = -1;
    for (int i = first; i < last; i++) {
        const hdo_layer *l = &net->layer[i];
        int v = l->out, root = p->root[v], end = last_reader(net, p, v);
        if (end < i) end = L; /* the result of the segment */
        if (grad) {
            if (keeps_out(l)) end = 2 * L - i;
            for (int j = first; j < last; j++)
                if (net->layer[j].in == v && net->layer[j].ops->needs_in && end < 2 * L - j) end = 2 * L - j;
        }
        if (root == v) {
            slot[v] = n;
            b[n++] = (block){net->value[v].n, i, end, &p->off[v]};
        } else if (b[slot[root]].end < end) {
            b[slot[root]].end = end;
        }
        if (grad && l->aux > 0) b[n++] = (block){l->aux, i, 2 * L - i, &p->aoff[i]};
        if (grad && l->aux_fixed > 0) {
            p->aoff[i] = p->fixed;
            p->fixed += round16(l->aux_fixed);
        }
    }
    if (grad) n = plan_back(net, p, b, n);
    p->total = place(b, n);
}

/* Everything before layer c reaches the rest through the one value it reads. */
bool hdo__net_may_cut(const hdo_net *net, int c) {
    for (int i = c; i < net->n_layers; i++) {
        int in[2] = {net->layer[i].in, net->layer[i].in2};
        for (int k = 0; k < 2; k++) {
            if (in[k] < 0 || in[k] == net->layer[c].in) continue;
            bool inside = false;
            for (int j = c; j < i; j++) inside = inside || net->layer[j].out == in[k];
            if (!inside) return false;
        }
    }
    return true;
}

/* First linear layer over whole samples; 0 when there is none worth a cut. */
static int find_head(const hdo_net *net) {
    for (int c = 1; c < net->n_layers; c++) {
        const hdo_layer *l = &net->layer[c];
        if (strcmp(l->ops->name, "linear") == 0 && l->rows == 1) return hdo__net_may_cut(net, c) ? c : 0;
    }
    return 0;
}

static size_t weights_between(const hdo_net *net, int first, int last) {
    size_t n = 0;
    for (int i = first; i < last; i++)
        if (net->layer[i].weight >= 0) n += net->params.row[net->layer[i].weight].len;
    return n;
}

/* Largest power of two with b * bytes <= budget, between lo and hi. */
static int fit(size_t bytes, size_t budget, int lo, int hi) {
    int b = lo;
    while (2 * b <= hi && (size_t)(2 * b) * bytes <= budget) b *= 2;
    return b;
}

void hdo__net_plan(hdo_net *net) {
    int L = net->n_layers;
    for (int i = 0; i < L; i++) {
        hdo_layer *l = &net->layer[i];
        bool own = !hdo__frozen(net, l->weight) || !hdo__frozen(net, l->bias);
        net->live[l->out] = own || net->live[l->in] || (l->in2 >= 0 && net->live[l->in2]);
    }
    net->n_idle = 0;
    for (int i = 0; i < net->params.n; i++) {
        const hdo_param *row = &net->params.row[i];
        const hdo_split *s = &row->split;
        if (s->kh == 0 || row->frozen) continue;
        size_t live = row->len / (size_t)(s->kh * s->kw) * (size_t)(s->h * s->w);
        net->idle[net->n_idle++] = (hdo_range){row->off + live, row->off + row->len};
    }
    net->small = net->params.total <= (size_t)1 << 19;
    int head = find_head(net);
    bool heavy = weights_between(net, 0, head) > (size_t)1 << 18; /* weights outweigh activations: long runs */
    net->cut = head;
    for (int c = 1; heavy && c < head && weights_between(net, 0, c) <= (size_t)1 << 20; c++)
        if (hdo__net_may_cut(net, c)) net->cut = c;
    plan_segment(net, &net->all, 0, L, false);
    plan_segment(net, &net->front, 0, net->cut, false);
    plan_segment(net, &net->tail, net->cut, L, false);
    plan_segment(net, &net->grad, 0, L, true);
    plan_segment(net, &net->rest, 1, L, false);

    /* Budgets: the activations of a run through the front in half of a second-level cache, those of a grad chunk in
     * twice of it. bench_nn is flat around them (5 % from 64 KB to 1 MB and from 512 KB to 4 MB), so small is better.
     */
    const size_t run = (size_t)256 << 10, kept_bytes = (size_t)1 << 20;
    net->group = net->small ? HDO_GROUP_MAX : 2;
    net->chunk = heavy ? 256 : net->cut > 0 && weights_between(net, net->cut, L) <= 4096 ? 16 : 64;
    net->sub = fit(net->front.total * sizeof(float), run, heavy ? 32 : 1, net->chunk);
    net->jsub = fit(net->front.total * (size_t)(1 + net->group) * sizeof(float), 2 * run, 1, net->chunk);
    net->gchunk = fit(net->grad.total * sizeof(float), kept_bytes, heavy ? 16 : 4, 64);
}
