/* SPDX-License-Identifier: Apache-2.0 — from what a user says about the bus to a bus: see link.h. */
#include "run/link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

enum { FILE_MAX = 1 << 16 };

hdo_status hdo__link_read(hdo_link *l, const hdo_fleet_link *given, hdo_error *e) {
    *l = (hdo_link){.given = given};
    if (given->url == NULL || given->url[0] == '\0')
        return hdo__fail(e, HDO_E_CONFIG, "where is the bus? Give its address, such as nats://host:4222");
    const char *file = given->credentials;
    if (file == NULL) return HDO_OK;
    char *text;
    size_t len;
    hdo_status st = hdo__file_read(file, FILE_MAX, &text, &len, e);
    if (st != HDO_OK) return st;
    l->is_creds = strstr(text, "BEGIN NATS USER JWT") != NULL;
    for (char *line = strtok(text, "\n"); line != NULL && !l->is_creds; line = strtok(NULL, "\n")) {
        if (sscanf(line, "user %63s", l->user) != 1) (void)sscanf(line, "password %255s", l->password);
    }
    free(text);
    if (!l->is_creds && l->user[0] == '\0')
        return hdo__fail(e, HDO_E_CONFIG, "'%s' has neither lines 'user NAME' and 'password SECRET' nor a NATS user",
                         file);
    return HDO_OK;
}

hdo_status hdo__link_open(hdo_bus **out, const hdo_link *l, const char *name, hdo_error *e) {
    const hdo_fleet_link *g = l->given;
    hdo_bus_setup s = {.url = g->url,
                       .name = name,
                       .user = l->user[0] != '\0' ? l->user : NULL,
                       .password = l->password,
                       .credentials = l->is_creds ? g->credentials : NULL,
                       .tls_ca = g->tls_ca,
                       .tls_cert = g->tls_cert,
                       .tls_key = g->tls_key,
                       .patience_s = g->patience_s};
    if ((g->tls_cert != NULL) != (g->tls_key != NULL))
        return hdo__fail(e, HDO_E_CONFIG, "--tls-cert and --tls-key go together");
    return hdo__bus_open(out, &s, e);
}
