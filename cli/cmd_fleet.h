/* SPDX-License-Identifier: Apache-2.0 — hdo fleet and hdo node: what they share. */
#ifndef HDO_CMD_FLEET_H
#define HDO_CMD_FLEET_H

#include "cli.h"
#include "hdo/experimental/fleet.h"

typedef struct fleet_link_options { /* how to reach the bus */
    const char *credentials, *tls_ca, *tls_cert, *tls_key, *run;
} fleet_link_options;

/* Rows for them; `at` is the offset of a fleet_link_options. */
#define FLEET_LINK(at)                                                                                                 \
    {"run",                                                                                                            \
     0,                                                                                                                \
     CLI_TEXT,                                                                                                         \
     "NAME",                                                                                                           \
     "which run on this bus (default: that of the configuration, or the only one)",                                    \
     .target = (at) + offsetof(fleet_link_options, run)},                                                              \
        {"credentials",                                                                                                \
         0,                                                                                                            \
         CLI_TEXT,                                                                                                     \
         "FILE",                                                                                                       \
         "who we are: a file of hdo fleet serve-config, or a NATS .creds file",                                        \
         .target = (at) + offsetof(fleet_link_options, credentials)},                                                  \
        {"tls-ca",                                                                                                     \
         0,                                                                                                            \
         CLI_TEXT,                                                                                                     \
         "FILE",                                                                                                       \
         "certificates to trust (PEM); turns TLS on",                                                                  \
         .target = (at) + offsetof(fleet_link_options, tls_ca)},                                                       \
        {"tls-cert",                                                                                                   \
         0,                                                                                                            \
         CLI_TEXT,                                                                                                     \
         "FILE",                                                                                                       \
         "our own certificate, where the server asks for one",                                                         \
         .target = (at) + offsetof(fleet_link_options, tls_cert)},                                                     \
    {                                                                                                                  \
        "tls-key", 0, CLI_TEXT, "FILE", "its key", .target = (at) + offsetof(fleet_link_options, tls_key)              \
    }

hdo_fleet_link fleet_link(const char *url, const fleet_link_options *o);

typedef struct fleet_demo_options {
    const char *output;
    double seconds;
    bool json, force;
} fleet_demo_options;
int fleet_demo(const fleet_demo_options *o);

#endif
