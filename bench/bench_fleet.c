/* SPDX-License-Identifier: Apache-2.0
 *
 * What an exchange over the bus costs: two processes, once as bare requests and replies of the NATS client (a model
 * there, a model back), once as members that meet as fast as they can. Needs a server.
 *
 *     nats-server -a 127.0.0.1 -p 4222 &  build/bench/bench_fleet nats://127.0.0.1:4222 SECONDS NUMBERS...
 */
#include <nats/nats.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "fleet/member.h"

static void reply(natsConnection *nc, natsSubscription *sub, natsMsg *msg, void *ctx) {
    (void)sub;
    (void)ctx;
    natsConnection_Publish(nc, natsMsg_GetReply(msg), natsMsg_GetData(msg), natsMsg_GetDataLength(msg));
    natsMsg_Destroy(msg);
}

static void serve(const char *url) {
    natsConnection *nc;
    natsSubscription *sub;
    if (natsConnection_ConnectTo(&nc, url) != NATS_OK ||
        natsConnection_Subscribe(&sub, nc, "bench.raw", reply, NULL) != NATS_OK)
        _exit(1);
    for (;;) pause();
}

/* Round trips a second of bare requests. */
static double raw(const char *url, size_t bytes, double seconds) {
    pid_t child = fork();
    if (child == 0) serve(url);
    natsConnection *nc = NULL;
    natsMsg *msg;
    char *data = calloc(1, bytes);
    int64_t n = 0;
    nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
    if (data == NULL || natsConnection_ConnectTo(&nc, url) != NATS_OK) exit(1);
    double start = hdo__now_s(), now = start;
    while (now - start < seconds) {
        if (natsConnection_Request(&msg, nc, "bench.raw", data, (int)bytes, 5000) != NATS_OK) exit(1);
        natsMsg_Destroy(msg);
        n++;
        now = hdo__now_s();
    }
    natsConnection_Destroy(nc);
    free(data);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return (double)n / (now - start);
}

typedef struct figures {
    double exchanges, bytes; /* a second; bytes an exchange */
} figures;

/* Two members that wish to meet all the time. */
static figures meet(const char *url, const char *name, size_t len, double seconds) {
    hdo_error e = {0};
    hdo_bus *bus;
    hdo_member *m;
    hdo_member_setup s = {.id = {.member = hdo__fleet_id(name), .epoch = 1, .classes = 1, .nodes = 1, .seed = 1},
                          .config_text = "-",
                          .X = calloc(len, sizeof(float)),
                          .ld = len,
                          .len = len,
                          .beat_s = 0.2,
                          .forget_s = 60.0};
    snprintf(s.id.run, sizeof s.id.run, "bench");
    snprintf(s.id.name, sizeof s.id.name, "%s", name);
    snprintf(s.id.role, sizeof s.id.role, "zo");
    hdo__fleet_run_id("bench", s.id.run_id);
    memset(s.id.config_hash, 1, sizeof s.id.config_hash);
    if (hdo__bus_open(&bus, &(hdo_bus_setup){.url = url, .name = name}, &e) != HDO_OK) {
        fprintf(stderr, "%s\n", e.msg);
        exit(1);
    }
    s.bus = bus;
    if (hdo__member_create(&m, &s, &e) != HDO_OK || hdo__member_start(m, &e) != HDO_OK) exit(1);
    hdo_member_stats a, b;
    hdo_roster_view v = {0};
    while (v.members < 2) {
        hdo__member_look(m, &v);
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    hdo__member_stats(m, &a);
    double start = hdo__now_s();
    for (uint64_t k = 0; hdo__now_s() - start < seconds; k++) {
        hdo__member_wish(m, 0, k);
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
    hdo__member_stats(m, &b);
    double met = (double)(b.met - a.met), sent = (double)(b.bytes - a.bytes);
    hdo__member_leave(m, HDO_LEAVING, 1.0);
    hdo__member_destroy(m);
    bus->ops->destroy(bus);
    free(s.X);
    return (figures){met / seconds, 2.0 * sent / (met > 0.0 ? met : 1.0)};
}

static figures fleet(const char *url, size_t len, double seconds) {
    pid_t child = fork();
    if (child == 0) {
        meet(url, "b", len, seconds);
        _exit(0);
    }
    figures f = meet(url, "a", len, seconds);
    waitpid(child, NULL, 0);
    return f;
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: bench_fleet URL SECONDS NUMBERS...\n");
        return 2;
    }
    double seconds = atof(argv[2]);
    printf("numbers,raw round trips/s,exchanges/s,bytes an exchange,of them the two models\n");
    for (int k = 3; k < argc; k++) {
        size_t len = (size_t)atoll(argv[k]), bytes = len * sizeof(float);
        figures f = fleet(argv[1], len, seconds); /* before the client library starts threads here */
        double r = bytes <= 1000000 ? raw(argv[1], bytes, seconds) : 0.0;
        printf("%zu,%.0f,%.0f,%.0f,%.2f\n", len, r, f.exchanges, f.bytes, 2.0 * (double)bytes / f.bytes);
        fflush(stdout);
    }
    return 0;
}
