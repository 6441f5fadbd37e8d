/* SPDX-License-Identifier: Apache-2.0
 *
 * TensorBoard event files, written by hand: four message fields do not need a protobuf library.
 *
 *   record  = length (u64), masked crc32c of the length, data, masked crc32c of the data; little endian    (TFRecord)
 *   data    = Event { 1: wall_time double, 2: step int64, 3: file_version string | 5: summary Summary }
 *   Summary = repeated 1: Value { 1: tag string, 2: simple_value float }
 *
 * The first record carries the version, then each evaluation is one record with all its figures. A record goes out in
 * one write: a killed run leaves at most one torn record at the end, which TensorBoard skips.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "metrics/metrics.h"
#include "sink/sink.h"

enum { RECORD_MAX = 1 << 15, HEAD = 12, TAIL = 4 }; /* some 130 figures of at most 80 bytes */

typedef struct tb {
    hdo_sink base;
    int fd;
    char path[HDO_PATH_MAX + 128];
    char class_name[HDO_CLASSES_MAX][HDO_NAME_MAX];
    size_t len;
    unsigned char record[RECORD_MAX];
} tb;

/* ---- CRC-32C: reflected polynomial 0x82f63b78, half a byte at a time (records are a few kilobytes a step) ---- */

uint32_t hdo__crc32c(const void *data, size_t len) {
    static const uint32_t table[16] = {0x00000000u, 0x105ec76fu, 0x20bd8edeu, 0x30e349b1u, 0x417b1dbcu, 0x5125dad3u,
                                       0x61c69362u, 0x7198540du, 0x82f63b78u, 0x92a8fc17u, 0xa24bb5a6u, 0xb21572c9u,
                                       0xc38d26c4u, 0xd3d3e1abu, 0xe330a81au, 0xf36e6f75u};
    const unsigned char *p = data;
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < len; i++) {
        crc ^= p[i];
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}

uint32_t hdo__crc32c_masked(const void *data, size_t len) {
    uint32_t crc = hdo__crc32c(data, len);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* ---- bytes ---- */

static void put_byte(tb *t, unsigned b) {
    if (t->len < sizeof t->record - TAIL) t->record[t->len++] = (unsigned char)b;
}

static void put_little(unsigned char *at, uint64_t v, int bytes) {
    for (int b = 0; b < bytes; b++) at[b] = (unsigned char)(v >> 8 * b);
}

static void put_fixed(tb *t, uint64_t v, int bytes) {
    for (int b = 0; b < bytes; b++) put_byte(t, (unsigned)(v >> 8 * b & 0xff));
}

static void put_varint(tb *t, uint64_t v) {
    for (; v >= 0x80; v >>= 7) put_byte(t, (unsigned)(v & 0x7f) | 0x80);
    put_byte(t, (unsigned)v);
}

static void put_text(tb *t, unsigned key, const char *text) {
    size_t len = strlen(text);
    put_byte(t, key);
    put_varint(t, len);
    for (size_t i = 0; i < len; i++) put_byte(t, (unsigned char)text[i]);
}

enum { /* field number << 3 | wire type */
       EVENT_WALL_TIME = 1 << 3 | 1,
       EVENT_STEP = 2 << 3 | 0,
       EVENT_VERSION = 3 << 3 | 2,
       EVENT_SUMMARY = 5 << 3 | 2,
       SUMMARY_VALUE = 1 << 3 | 2,
       VALUE_TAG = 1 << 3 | 2,
       VALUE_SIMPLE = 2 << 3 | 5
};

static void begin_event(tb *t) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    double wall = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    uint64_t bits;
    memcpy(&bits, &wall, sizeof bits);
    t->len = HEAD;
    put_byte(t, EVENT_WALL_TIME);
    put_fixed(t, bits, 8);
}

static hdo_status end_event(tb *t, hdo_error *e) {
    size_t len = t->len - HEAD;
    put_little(t->record, len, 8);
    put_little(t->record + 8, hdo__crc32c_masked(t->record, 8), 4);
    put_little(t->record + t->len, hdo__crc32c_masked(t->record + HEAD, len), 4);
    t->len += TAIL;
    ssize_t n = write(t->fd, t->record, t->len);
    if (n == (ssize_t)t->len) return HDO_OK;
    return hdo__fail(e, HDO_E_IO, "writing '%s' failed: %s", t->path, n < 0 ? strerror(errno) : "the disk is full");
}

/* ---- rows ---- */

typedef struct summary {
    tb *t;
    size_t bytes; /* of all values */
    bool write;   /* second turn; the first one measures, because lengths stand in front */
} summary;

static size_t value_bytes(const char *name) {
    return 2 + strlen(name) + 5; /* names are shorter than 128 bytes: a length is one byte */
}

static void emit(void *ctx, const hdo_metric *m, const char *name, double real, int64_t integer) {
    summary *s = ctx;
    float v = m->type == HDO_METRIC_INT ? (float)integer : (float)real;
    if (isnan(v) || strcmp(m->name, "step") == 0) return; /* not measured; the axis itself */
    if (!s->write) {
        s->bytes += 2 + value_bytes(name);
        return;
    }
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    put_byte(s->t, SUMMARY_VALUE);
    put_varint(s->t, value_bytes(name));
    put_text(s->t, VALUE_TAG, name);
    put_byte(s->t, VALUE_SIMPLE);
    put_fixed(s->t, bits, 4);
}

static hdo_status tb_row(hdo_sink *s, const hdo_row *row, hdo_error *e) {
    tb *t = (tb *)s;
    const char(*names)[HDO_NAME_MAX] = (const char(*)[HDO_NAME_MAX])t->class_name;
    summary sum = {.t = t};
    begin_event(t);
    put_byte(t, EVENT_STEP);
    put_varint(t, (uint64_t)row->step);
    hdo__metric_each(row, names, emit, &sum);
    put_byte(t, EVENT_SUMMARY);
    put_varint(t, sum.bytes);
    sum.write = true;
    hdo__metric_each(row, names, emit, &sum);
    return end_event(t, e);
}

static void tb_destroy(hdo_sink *s) {
    tb *t = (tb *)s;
    if (t->fd >= 0) close(t->fd);
    hdo__free(t);
}

static const hdo_sink_ops tb_ops = {.name = "tensorboard", .row = tb_row, .destroy = tb_destroy};

/* events.out.tfevents.<second>.<host>; a run that was resumed within the second gets a number behind. */
static int open_new(tb *t, const char *dir) {
    struct utsname u;
    const char *host = uname(&u) == 0 && u.nodename[0] != '\0' ? u.nodename : "localhost";
    long long second = (long long)time(NULL);
    int fd = -1;
    for (int k = 0; k < 1000; k++) {
        char more[8] = "";
        if (k > 0) snprintf(more, sizeof more, ".%d", k);
        int n = snprintf(t->path, sizeof t->path, "%s/events.out.tfevents.%lld.%.60s%s", dir, second, host, more);
        if (n < 0 || (size_t)n >= sizeof t->path) {
            errno = ENAMETOOLONG;
            return -1;
        }
        fd = open(t->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST) break;
    }
    return fd;
}

hdo_status hdo__sink_tb_create(hdo_sink **out, const char *dir, const hdo_config *c, hdo_error *e) {
    tb *t = hdo__alloc(sizeof *t);
    if (t == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for an event file in '%s'", dir);
    t->base.ops = &tb_ops;
    for (int k = 0; k < c->n_classes; k++) memcpy(t->class_name[k], c->population[k].name, HDO_NAME_MAX);
    t->fd = open_new(t, dir);
    hdo_status st = HDO_OK;
    if (t->fd < 0) {
        st = hdo__fail(e, HDO_E_IO, "cannot write '%s': %s", t->path, strerror(errno));
    } else {
        begin_event(t);
        put_text(t, EVENT_VERSION, "brain.Event:2");
        st = end_event(t, e);
    }
    if (st != HDO_OK) {
        tb_destroy(&t->base);
        return st;
    }
    *out = &t->base;
    return HDO_OK;
}

static bool tb_wanted(const hdo_config *c) {
    return c->sink.tensorboard;
}

static hdo_status tb_open(hdo_sink **out, const char *dir, const hdo_config *c, int64_t last_step, hdo_error *e) {
    (void)last_step; /* every session has a file of its own */
    return hdo__sink_tb_create(out, dir, c, e);
}

const hdo_sink_kind hdo__sink_tensorboard = {.files = "events.out.tfevents.", .wanted = tb_wanted, .open = tb_open};
