/* SPDX-License-Identifier: Apache-2.0
 *
 * A fleet: members that come and go train one model over a message bus (docs/fleet.md). A member is a run with a few
 * nodes of one class, made here and advanced like any other (hdo_run_advance). The rest of this header looks at a run
 * from outside.
 *
 * Experimental: may change or vanish in any version.
 */
#ifndef HDO_EXPERIMENTAL_FLEET_H
#define HDO_EXPERIMENTAL_FLEET_H

#include "hdo/experimental/run.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hdo_fleet_link { /* how to reach the bus; NULL: not given */
    const char *url;            /* nats://host:4222, tls://host:4222 */
    const char *credentials;    /* a file: lines "user NAME" and "password SECRET", or a NATS .creds file */
    const char *tls_ca, *tls_cert, *tls_key;
    double patience_s; /* for the first connection; 0: a try */
} hdo_fleet_link;

typedef struct hdo_node_options { /* NULL or 0: the default */
    hdo_fleet_link link;
    const char *run;      /* its name; default: that of the configuration, or the only run on the bus */
    const char *name;     /* of this member; default: the user of the credentials, or drawn at random */
    const char *role;     /* a class of the run, or zo (any that only runs forward), fo (any that back-propagates) */
    const char *data;     /* own training data, which stay here; default: the shard of the configuration */
    const char *data_val; /* own validation data; default: a part of data */
    const char *dir;      /* folder of this member; one that holds a run of it is taken up */
    const char *command_line;
    int nodes; /* default 1 */
    int place; /* the number of its first node in the population, from 1; default: a free one */
    double pace_s, slow;
    double join_s; /* how long to wait for others to show themselves; default 1.5 */
    int64_t threads;
} hdo_node_options;

/* Connects, finds the others, takes configuration and model from them (c NULL: there has to be somebody) or starts the
 * run. */
HDO_API hdo_status hdo_node_create(hdo_run **out, const hdo_config *c, const hdo_node_options *o,
                                   const hdo_hooks *hooks, hdo_error *e);

typedef struct hdo_node_info {
    char run[32], name[32], role[32];
    int place, nodes, members; /* place from 1; members: others heard of while joining */
    uint32_t epoch;
    bool started; /* nobody was there: this member has started the run */
    bool stopped; /* somebody has ended it */
} hdo_node_info;
HDO_API void hdo_node_describe(const hdo_run *r, hdo_node_info *info);

/* ---- from outside ---- */

typedef struct hdo_fleet_row { /* a member, as it describes itself */
    char name[32], role[32], version[32];
    uint64_t id;
    uint32_t epoch;
    int class_id, place, nodes, heard;
    bool leaving;
    int64_t step, exchanges, expired, far, missed, bytes, rss, drops;
    double loss, accuracy, steps_per_s; /* loss: NaN before the first evaluation */
    double silent_s;
} hdo_fleet_row;

typedef struct hdo_fleet_view hdo_fleet_view;
/* Listens for wait_s. run NULL: the only one. */
HDO_API hdo_status hdo_fleet_look(hdo_fleet_view **out, const hdo_fleet_link *link, const char *run, double wait_s,
                                  hdo_error *e);
HDO_API void hdo_fleet_close(hdo_fleet_view *v); /* NULL is fine */
HDO_API const char *hdo_fleet_run(const hdo_fleet_view *v);
HDO_API int hdo_fleet_count(const hdo_fleet_view *v);
HDO_API void hdo_fleet_at(const hdo_fleet_view *v, int i, hdo_fleet_row *row);
HDO_API int64_t hdo_fleet_dropped(const hdo_fleet_view *v, const char *reason); /* over members; -1: no such reason */
/* The mean of the members' models (by number of nodes), collected while they go on, as safetensors. *models: how many.
 */
HDO_API hdo_status hdo_fleet_save_mean(hdo_fleet_view *v, const char *path, int *models, hdo_error *e);
HDO_API hdo_status hdo_fleet_stop(hdo_fleet_view *v, hdo_error *e); /* everybody ends; says so three times */

typedef struct hdo_fleet_sums { /* what the summaries of members add up to */
    int members;                /* that left one */
    int64_t steps, exchanges, expired, missed, bytes;
    double loss; /* mean over members */
    /* What exchanges between these lives have moved, which should be nothing: as a shift of a coordinate of the mean
     * model (root mean square), and relative to all that was moved. */
    double drift, drift_relative;
} hdo_fleet_sums;
/* dir: folders of members (hdo node -o); those without a summary are left out. */
HDO_API hdo_status hdo_fleet_add_up(const char *const *dir, int n, hdo_fleet_sums *sums, hdo_error *e);

/* The text of a nats-server configuration: a user for each name, each of whom may publish under its own name alone, and
 * the user "operator", who may also stop the run. secret: (n + 1) passwords, the operator's last. tls: folder with
 * ca.pem, server.pem and server-key.pem, or NULL. free() it. */
HDO_API char *hdo_fleet_server_config(const char *run, const char *const *name, const char *const *secret, int n,
                                      const char *listen, const char *tls);
HDO_API bool hdo_fleet_name_ok(const char *name); /* may a member or a run be called so? */

#ifdef __cplusplus
}
#endif

#endif
