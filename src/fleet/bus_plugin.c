/* SPDX-License-Identifier: Apache-2.0 — finds and loads the shared object that speaks to NATS: in $HDO_PLUGIN_PATH, or
 * beside libhdo. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fleet/bus.h"
#include "hdo/experimental/all.h"

#ifdef HDO_BUS_BUILT_IN /* a small program that carries it */
hdo_status hdo_bus_open(int abi, const char *version, const hdo_bus_setup *s, hdo_bus **out, hdo_error *e);

bool hdo__bus_there(void) {
    return true;
}

hdo_status hdo__bus_open(hdo_bus **out, const hdo_bus_setup *s, hdo_error *e) {
    return hdo_bus_open(HDO_BUS_ABI, hdo_version(), s, out, e);
}
#else

static bool in_folder(const char *dir, size_t dir_len, char *path, size_t cap) {
    int n = snprintf(path, cap, "%.*s/libhdo-nats.so", (int)dir_len, dir);
    return n > 0 && (size_t)n < cap && access(path, R_OK) == 0;
}

static bool find(char *path, size_t cap) {
    static const char here[] = "";
    const char *env = getenv("HDO_PLUGIN_PATH");
    if (env != NULL && env[0] != '\0' && in_folder(env, strlen(env), path, cap)) return true;
    Dl_info me;
    if (dladdr((const void *)here, &me) == 0 || me.dli_fname == NULL) return false;
    const char *slash = strrchr(me.dli_fname, '/');
    return slash != NULL && in_folder(me.dli_fname, (size_t)(slash - me.dli_fname), path, cap);
}

bool hdo__bus_there(void) {
    char path[HDO_PATH_MAX];
    return find(path, sizeof path);
}

hdo_status hdo__bus_open(hdo_bus **out, const hdo_bus_setup *s, hdo_error *e) {
    char path[HDO_PATH_MAX];
    *out = NULL;
    if (!find(path, sizeof path)) {
        return hdo__fail(e, HDO_E_UNSUPPORTED,
                         "engine fleet needs libhdo-nats.so, which is neither in $HDO_PLUGIN_PATH nor beside libhdo; "
                         "install the NATS client (libnats-dev) and build hdo again");
    }
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* never closed: its threads may outlive a connection */
    if (so == NULL) return hdo__fail(e, HDO_E_ENGINE, "'%s' cannot be loaded: %s", path, dlerror());
    void *symbol = dlsym(so, HDO_BUS_SYMBOL);
    if (symbol == NULL) return hdo__fail(e, HDO_E_ENGINE, "'%s' is not a plug-in of hdo", path);
    hdo_bus_open_fn open_fn;
    memcpy(&open_fn, &symbol, sizeof open_fn); /* ISO C has no cast from an object to a function */
    return open_fn(HDO_BUS_ABI, hdo_version(), s, out, e);
}
#endif
