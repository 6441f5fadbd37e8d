/* SPDX-License-Identifier: Apache-2.0 — hdo weights: what is in a weights file, and models of runs as weights files. */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "hdo/lab/eval.h"
#include "hdo/weights.h"

static const char help_text[] =
    "Usage: hdo weights info FILE [--json]\n"
    "       hdo weights convert RUN|CHECKPOINT -o FILE [--node N|mean]\n\n"
    "info     names, types and shapes of the tensors in a safetensors file\n"
    "convert  writes the model of one node, or the mean of all nodes (the default), as a safetensors file with "
    "PyTorch's\n"
    "         tensor names. Start a run from it with hdo run ... --init FILE, or load it in PyTorch.\n\n"
    "PyTorch checkpoints become safetensors files with tools/pth2safetensors.py IN.pth OUT.safetensors.\n\n"
    "Example: hdo weights convert runs/hybrid --node mean -o hybrid.safetensors\n";

static int info_json(const hdo_tensors *t) {
    hdo_json j;
    uint64_t total = 0;
    hdo__json_init(&j, false);
    hdo__json_object(&j, NULL);
    hdo__json_int(&j, "schema_version", 1);
    hdo__json_array(&j, "tensors");
    for (int i = 0; i < hdo_tensors_count(t); i++) {
        const hdo_tensor_info *r = hdo_tensors_at(t, i);
        total += r->count;
        hdo__json_object(&j, NULL);
        hdo__json_text(&j, "name", r->name);
        hdo__json_text(&j, "dtype", r->dtype);
        hdo__json_array(&j, "shape");
        for (int k = 0; k < r->n_dim; k++) hdo__json_int(&j, NULL, r->dim[k]);
        hdo__json_end(&j, ']');
        hdo__json_end(&j, '}');
    }
    hdo__json_end(&j, ']');
    hdo__json_int(&j, "numbers", (int64_t)total);
    hdo__json_end(&j, '}');
    return cli_json(&j);
}

static void info_text(const hdo_tensors *t) {
    uint64_t total = 0;
    int n = hdo_tensors_count(t);
    for (int i = 0; i < n; i++) {
        const hdo_tensor_info *r = hdo_tensors_at(t, i);
        total += r->count;
        printf("  ");
        hdo__quote_plain(stdout, r->name);
        for (size_t k = strlen(r->name); k < 44; k++) putchar(' ');
        printf(" %-5s (", r->dtype);
        for (int k = 0; k < r->n_dim; k++) printf("%s%lld", k > 0 ? ", " : "", (long long)r->dim[k]);
        printf(")\n");
    }
    printf("%d tensors, %llu numbers\n", n, (unsigned long long)total);
    const char *key, *value;
    for (int i = 0; hdo_tensors_note_at(t, i, &key, &value) != 0; i++) {
        printf("  ");
        hdo__quote_plain(stdout, key);
        printf(": ");
        hdo__quote_plain(stdout, value);
        printf("\n");
    }
}

static int info(const char *path, bool json) {
    hdo_error e = {0};
    hdo_tensors *t = NULL;
    if (hdo_tensors_open(&t, path, &e) != HDO_OK) return cli_fail(&e);
    int code = 0;
    if (json) {
        code = info_json(t);
    } else {
        info_text(t);
    }
    hdo_tensors_close(t);
    return code;
}

static int convert(const char *source, int64_t node, const char *out) {
    hdo_error e = {0};
    hdo_status st = hdo_export_weights(source, node, out, &e);
    if (st != HDO_OK) return cli_fail(&e);
    printf("%s\n", out);
    return 0;
}

int cmd_weights(int argc, char **argv) {
    enum { NODE = 256, JSON };
    static const struct option longs[] = {{"help", no_argument, NULL, 'h'},
                                          {"output", required_argument, NULL, 'o'},
                                          {"node", required_argument, NULL, NODE},
                                          {"json", no_argument, NULL, JSON},
                                          {NULL, 0, NULL, 0}};
    const char *output = NULL;
    int64_t node = HDO_EVAL_MEAN;
    bool json = false;
    for (int o; (o = getopt_long(argc, argv, "ho:", longs, NULL)) != -1;) {
        switch (o) {
        case 'h': fputs(help_text, stdout); return 0;
        case 'o': output = optarg; break;
        case JSON: json = true; break;
        case NODE:
            if (strcmp(optarg, "mean") != 0 && !cli_int(optarg, 0, (1 << 24) - 1, &node)) {
                return cli_usage_error("weights", "--node takes the number of a node or 'mean', got '%s'", optarg);
            }
            break;
        default: return cli_usage_error("weights", "the options are not right");
        }
    }
    if (argc - optind != 2)
        return cli_usage_error("weights", "say what to do and with which file: info FILE, or convert RUN -o FILE");
    const char *verb = argv[optind], *source = argv[optind + 1];
    if (strcmp(verb, "info") == 0) return info(source, json);
    if (strcmp(verb, "convert") != 0) return cli_usage_error("weights", "'%s' is not info or convert", verb);
    if (output == NULL) return cli_usage_error("weights", "where to? Give -o FILE");
    return convert(source, node, output);
}
