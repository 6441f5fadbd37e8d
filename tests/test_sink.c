/* SPDX-License-Identifier: Apache-2.0
 *
 * Where figures go: CSV, TensorBoard, memory; and docs/metrics.md, whose table must be the metric table's. Run with
 * HDO_UPDATE_DOCS=1 in the environment to bring the document up to date.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "metrics/metrics.h"
#include "sink/sink.h"

/* ---- a folder and rows to write ---- */

static char folder[] = "/tmp/hdo_sink_XXXXXX";
static hdo_config conf;

static int make_folder(void **state) {
    (void)state;
    hdo_config_default(&conf); /* classes fo and zo */
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    hdo__sinks_remove(folder);
    return rmdir(folder);
}

/* Distinct figures everywhere; some special. */
static hdo_row make_row(int64_t step) {
    hdo_row r = {.step = step, .n_classes = 2};
    double *const reals[] = {&r.parallel_time, &r.all.loss_mean, &r.all.loss_std, &r.node0_loss, &r.gamma, &r.wall_s};
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++) *reals[i] = 0.1 * (double)(i + 1) + (double)step;
    r.interactions = 3 * step;
    r.bytes = INT64_C(1) << 40;
    r.train_loss = step == 0 ? (double)NAN : 1.0 / 3.0;
    r.all.loss_max = (double)INFINITY;
    r.all.acc_mean = (double)NAN;
    r.cls[0].loss_mean = 2.5;
    r.cls[1].loss_mean = -7.25e-300;
    r.lr[1] = 0.05;
    return r;
}

static char *read_all(const char *path, size_t *len) {
    static char *text; /* static: gcc 12 sees a dangling pointer in a local here */
    assert_int_equal(hdo__file_read(path, 1 << 24, &text, len, NULL), HDO_OK);
    return text;
}

typedef struct figure {
    char name[64];
    double real;
    int64_t integer;
    hdo_metric_type type;
} figure;
typedef struct figures {
    figure f[256];
    int n;
} figures;

static void collect(void *ctx, const hdo_metric *m, const char *name, double real, int64_t integer) {
    figures *all = ctx;
    figure *f = &all->f[all->n++];
    snprintf(f->name, sizeof f->name, "%s", name);
    f->real = real;
    f->integer = integer;
    f->type = m->type;
}

static figures figures_of(const hdo_row *row) {
    figures all = {.n = 0};
    char names[HDO_CLASSES_MAX][HDO_NAME_MAX] = {"fo", "zo"};
    hdo__metric_each(row, (const char(*)[HDO_NAME_MAX])names, collect, &all);
    return all;
}

/* ---- CSV ---- */

static void check_csv_line(const char *line, const hdo_row *row) {
    figures all = figures_of(row);
    char *end;
    for (int i = 0; i < all.n; i++) {
        if (all.f[i].type == HDO_METRIC_INT) {
            assert_true(strtoll(line, &end, 10) == all.f[i].integer);
        } else if (isnan(all.f[i].real)) {
            end = (char *)line; /* an empty cell */
        } else {
            double v = strtod(line, &end);
            if (memcmp(&v, &all.f[i].real, sizeof v) != 0) fail_msg("%s: %.17g", all.f[i].name, v); /* to the bit */
        }
        assert_int_equal(*end, i + 1 < all.n ? ',' : '\n');
        line = end + 1;
    }
}

static int count_lines(const char *text) {
    int n = 0;
    for (; *text != '\0'; text++) n += *text == '\n';
    return n;
}

static void test_sink_csv(void **state) {
    (void)state;
    char path[256];
    hdo_sink *s;
    size_t len;
    snprintf(path, sizeof path, "%s/metrics.csv", folder);
    assert_int_equal(hdo__sink_csv_create(&s, path, &conf, -1, NULL), HDO_OK);
    for (int64_t t = 0; t <= 30; t += 10) {
        hdo_row row = make_row(t);
        assert_int_equal(s->ops->row(s, &row, NULL), HDO_OK);
    }
    s->ops->destroy(s);
    char *text = read_all(path, &len);
    assert_int_equal(count_lines(text), 5);
    hdo_row row = make_row(0);
    figures all = figures_of(&row);
    const char *p = text;
    for (int i = 0; i < all.n; i++) { /* the header is the table's names */
        size_t n = strlen(all.f[i].name);
        assert_memory_equal(p, all.f[i].name, n);
        assert_int_equal(p[n], i + 1 < all.n ? ',' : '\n');
        p += n + 1;
    }
    for (int64_t t = 0; t <= 30; t += 10) {
        row = make_row(t);
        check_csv_line(p, &row);
        p = strchr(p, '\n') + 1;
    }
    free(text);

    /* Going on from step 10 after a crash in the middle of a line: later lines go, step 10 is not repeated. */
    FILE *f = fopen(path, "a");
    assert_non_null(f);
    fputs("40,12", f);
    fclose(f);
    assert_int_equal(hdo__sink_csv_create(&s, path, &conf, 10, NULL), HDO_OK);
    for (int64_t t = 10; t <= 20; t += 10) {
        row = make_row(t);
        assert_int_equal(s->ops->row(s, &row, NULL), HDO_OK);
    }
    s->ops->destroy(s);
    text = read_all(path, &len);
    assert_int_equal(count_lines(text), 4);
    p = strchr(text, '\n') + 1;
    for (int64_t t = 0; t <= 20; t += 10) {
        row = make_row(t);
        check_csv_line(p, &row);
        p = strchr(p, '\n') + 1;
    }
    free(text);
    hdo_error e;
    assert_int_equal(hdo__sink_csv_create(&s, "/nowhere/metrics.csv", &conf, -1, &e), HDO_E_IO);
    assert_non_null(strstr(e.msg, "/nowhere/metrics.csv"));
}

/* ---- CRC-32C: RFC 3720 B.4, the check value of the catalogue of CRCs, and the definition bit by bit ---- */

static uint32_t crc_by_bits(const unsigned char *p, size_t len) {
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < len; i++) {
        crc ^= p[i];
        for (int b = 0; b < 8; b++) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
    }
    return crc ^ 0xffffffffu;
}

static void test_sink_crc32c(void **state) {
    (void)state;
    unsigned char b[256];
    memset(b, 0, 32);
    assert_true(hdo__crc32c(b, 32) == 0x8a9136aau);
    memset(b, 0xff, 32);
    assert_true(hdo__crc32c(b, 32) == 0x62a8ab43u);
    for (int i = 0; i < 32; i++) b[i] = (unsigned char)i;
    assert_true(hdo__crc32c(b, 32) == 0x46dd794eu);
    for (int i = 0; i < 32; i++) b[i] = (unsigned char)(31 - i);
    assert_true(hdo__crc32c(b, 32) == 0x113fdb5cu);
    assert_true(hdo__crc32c("123456789", 9) == 0xe3069283u);
    assert_true(hdo__crc32c("", 0) == 0);
    for (int i = 0; i < 256; i++) b[i] = (unsigned char)(i * i * 7 + 3 * i);
    for (size_t n = 0; n <= 256; n++) assert_true(hdo__crc32c(b, n) == crc_by_bits(b, n));
    /* The mask is what LevelDB and TFRecord do: rotate right by 15, add a constant. */
    assert_true(hdo__crc32c_masked("123456789", 9) == 0xc78ab0e5u);
}

/* ---- TensorBoard: read back by a parser that shares nothing with the writer ---- */

typedef struct cursor {
    const unsigned char *p, *end;
} cursor;

static uint64_t little(cursor *c, int bytes) {
    uint64_t v = 0;
    assert_true(c->end - c->p >= bytes);
    for (int i = bytes; i-- > 0;) v = v << 8 | c->p[i];
    c->p += bytes;
    return v;
}

static uint64_t varint(cursor *c) {
    uint64_t v = 0;
    for (int shift = 0;; shift += 7) {
        uint64_t b = little(c, 1);
        v |= (b & 0x7f) << shift;
        if (b < 0x80) return v;
    }
}

static cursor block(cursor *c) {
    uint64_t n = varint(c);
    assert_true((uint64_t)(c->end - c->p) >= n);
    cursor in = {c->p, c->p + n};
    c->p += n;
    return in;
}

static uint32_t unmask(uint32_t m) {
    uint32_t rot = m - 0xa282ead8u;
    return rot >> 17 | rot << 15;
}

/* One TFRecord; false at the end of the file. */
static bool record(cursor *file, cursor *data) {
    if (file->p == file->end) return false;
    const unsigned char *head = file->p;
    uint64_t n = little(file, 8);
    assert_true(unmask((uint32_t)little(file, 4)) == crc_by_bits(head, 8));
    assert_true((uint64_t)(file->end - file->p) >= n + 4);
    *data = (cursor){file->p, file->p + n};
    file->p += n;
    assert_true(unmask((uint32_t)little(file, 4)) == crc_by_bits(data->p, n));
    return true;
}

static void check_value(cursor v, const figures *all, bool *seen) {
    char tag[64] = "";
    float x = 0;
    while (v.p < v.end) {
        uint64_t key = varint(&v);
        if (key == 0x0a) {
            cursor text = block(&v);
            snprintf(tag, sizeof tag, "%.*s", (int)(text.end - text.p), (const char *)text.p);
        } else {
            assert_int_equal(key, 0x15);
            uint32_t bits = (uint32_t)little(&v, 4);
            memcpy(&x, &bits, sizeof x);
        }
    }
    for (int i = 0; i < all->n; i++) {
        if (strcmp(all->f[i].name, tag) != 0) continue;
        assert_false(seen[i]);
        seen[i] = true;
        float want = all->f[i].type == HDO_METRIC_INT ? (float)all->f[i].integer : (float)all->f[i].real;
        assert_memory_equal(&x, &want, sizeof x);
        return;
    }
    fail_msg("tag '%s' is not in the metric table", tag);
}

static void check_event(cursor ev, const hdo_row *row) {
    figures all = figures_of(row);
    bool seen[256] = {false}, step = false, wall = false;
    while (ev.p < ev.end) {
        uint64_t key = varint(&ev);
        if (key == 0x09) {
            uint64_t bits = little(&ev, 8);
            double t;
            memcpy(&t, &bits, sizeof t);
            wall = fabs(t - (double)time(NULL)) < 100;
        } else if (key == 0x10) {
            assert_true(varint(&ev) == (uint64_t)row->step);
            step = true;
        } else {
            assert_int_equal(key, 0x2a);
            cursor sum = block(&ev);
            while (sum.p < sum.end) {
                assert_int_equal(varint(&sum), 0x0a);
                check_value(block(&sum), &all, seen);
            }
        }
    }
    assert_true(step && wall);
    for (int i = 0; i < all.n; i++) { /* everything but the axis and what was not measured */
        bool want = strcmp(all.f[i].name, "step") != 0 && !(all.f[i].type == HDO_METRIC_REAL && isnan(all.f[i].real));
        if (seen[i] != want) fail_msg("%s", all.f[i].name);
    }
}

static int event_files(char paths[4][512]) {
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *f = readdir(d); f != NULL; f = readdir(d)) {
        if (strncmp(f->d_name, "events.out.tfevents.", 20) != 0) continue;
        assert_true(n < 4);
        char *rest;
        long long sec = strtoll(f->d_name + 20, &rest, 10);
        assert_true(llabs(sec - (long long)time(NULL)) < 100 && rest[0] == '.' && rest[1] != '\0');
        snprintf(paths[n++], 512, "%s/%s", folder, f->d_name);
    }
    closedir(d);
    return n;
}

static void test_sink_tensorboard(void **state) {
    (void)state;
    hdo_sink *s, *second;
    char paths[4][512];
    size_t len;
    static const int64_t steps[] = {0, 10, 300, INT64_C(1) << 31, (INT64_C(1) << 32) - 1};
    assert_int_equal(hdo__sink_tb_create(&s, folder, &conf, NULL), HDO_OK);
    for (int i = 0; i < 5; i++) {
        hdo_row row = make_row(steps[i]);
        assert_int_equal(s->ops->row(s, &row, NULL), HDO_OK);
    }
    s->ops->destroy(s);
    assert_int_equal(event_files(paths), 1);
    char *bytes = read_all(paths[0], &len);
    cursor file = {(unsigned char *)bytes, (unsigned char *)bytes + len}, ev;
    assert_true(record(&file, &ev)); /* the first says what kind of file it is */
    assert_int_equal(varint(&ev), 0x09);
    little(&ev, 8);
    assert_int_equal(varint(&ev), 0x1a);
    cursor version = block(&ev);
    assert_int_equal(version.end - version.p, 13);
    assert_memory_equal(version.p, "brain.Event:2", 13);
    assert_true(ev.p == ev.end);
    for (int i = 0; i < 5; i++) {
        hdo_row row = make_row(steps[i]);
        assert_true(record(&file, &ev));
        check_event(ev, &row);
    }
    assert_false(record(&file, &ev));
    free(bytes);
    /* A second run in the same second does not write into the first one's file. */
    assert_int_equal(hdo__sink_tb_create(&s, folder, &conf, NULL), HDO_OK);
    assert_int_equal(hdo__sink_tb_create(&second, folder, &conf, NULL), HDO_OK);
    s->ops->destroy(s);
    second->ops->destroy(second);
    assert_int_equal(event_files(paths), 3);
    hdo__sinks_remove(folder);
    assert_int_equal(event_files(paths), 0);
    hdo_error e;
    assert_int_equal(hdo__sink_tb_create(&s, "/nowhere", &conf, &e), HDO_E_IO);
}

/* ---- memory, and all together in a run ---- */

static void test_sink_memory(void **state) {
    (void)state;
    hdo_sink *s;
    size_t count;
    assert_int_equal(hdo__sink_memory_create(&s, NULL), HDO_OK);
    assert_non_null(hdo__sink_memory_rows(s, &count));
    assert_int_equal(count, 0);
    for (int64_t t = 0; t < 1000; t++) {
        hdo_row row = make_row(t);
        assert_int_equal(s->ops->row(s, &row, NULL), HDO_OK);
    }
    const hdo_row *rows = hdo__sink_memory_rows(s, &count);
    assert_int_equal(count, 1000);
    for (int64_t t = 0; t < 1000; t++) assert_true(rows[t].step == t && rows[t].interactions == 3 * t);
    s->ops->destroy(s);
}

static void test_sink_of_a_run(void **state) {
    (void)state;
    hdo_run *r;
    hdo_error e;
    hdo_stop why;
    char dir[256], path[512], paths[4][512];
    size_t count, len;
    snprintf(dir, sizeof dir, "%s/run", folder);
    hdo_config c = conf;
    c.steps = 20;
    c.threads = 1;
    c.sink.csv = c.sink.tensorboard = true;
    snprintf(c.mixing.kind, sizeof c.mixing.kind, "graph");
    assert_int_equal(hdo_config_set_from(&c, "mixing.graph", "ring", HDO_FROM_FLAG, &e), HDO_OK);
    for (int turn = 0; turn < 2; turn++) { /* the second replaces the first */
        if (hdo_run_create(&r, &c, NULL, &e) != HDO_OK) fail_msg("%s", e.msg);
        assert_null(hdo_run_rows(r, &count));
        assert_int_equal(hdo_run_keep_rows(r, &e), HDO_OK);
        if (hdo_run_attach_dir(r, dir, turn > 0, NULL, &e) != HDO_OK) fail_msg("%s", e.msg);
        if (hdo_run_advance(r, 100, &why, &e) != HDO_OK) fail_msg("%s", e.msg);
        const hdo_row *rows = hdo_run_rows(r, &count);
        assert_int_equal(count, 3);
        assert_true(rows[0].step == 0 && rows[1].step == 10 && rows[2].step == 20);
        snprintf(path, sizeof path, "%s/metrics.csv", dir);
        char *text = read_all(path, &len);
        assert_int_equal(count_lines(text), 4);
        const char *p = strchr(text, '\n') + 1;
        for (int i = 0; i < 3; i++) {
            check_csv_line(p, &rows[i]);
            p = strchr(p, '\n') + 1;
        }
        free(text);
        hdo_run_destroy(r);
    }
    DIR *d = opendir(dir);
    assert_non_null(d);
    int events = 0;
    for (struct dirent *f = readdir(d); f != NULL; f = readdir(d)) {
        if (f->d_name[0] == '.') continue;
        events += strncmp(f->d_name, "events.out.tfevents.", 20) == 0;
        snprintf(path, sizeof path, "%s/%s", dir, f->d_name);
        unlink(path);
    }
    closedir(d);
    assert_int_equal(events, 1);
    assert_int_equal(event_files(paths), 0);
    rmdir(dir);
}

/* ---- docs/metrics.md ---- */

static const char table_from[] = "<!-- the metric table: made by test_sink, do not edit -->\n";
static const char table_to[] = "<!-- end of the metric table -->\n";

static void make_table(char *text, size_t cap) {
    size_t n = (size_t)snprintf(text, cap, "| name | type | meaning |\n|---|---|---|\n");
    for (const hdo_metric *m = hdo__metric_table; m->name != NULL; m++) {
        const char *type = m->type == HDO_METRIC_INT ? "whole" : "real";
        n += (size_t)snprintf(text + n, cap - n, "| `%s` | %s%s%s | ", m->name, type,
                              m->stride > 0 ? ", per class" : "", m->clock ? ", clock" : "");
        for (const char *p = m->help; *p != '\0' && n + 3 < cap; p++) { /* a bar would end the cell */
            if (*p == '|') text[n++] = '\\';
            text[n++] = *p;
        }
        n += (size_t)snprintf(text + n, cap - n, " |\n");
    }
    assert_true(n < cap);
}

static void test_sink_docs_are_current(void **state) {
    (void)state;
    static char want[32768];
    char path[512];
    size_t len;
    const char *dir = getenv("HDO_TEST_DIR");
    if (dir == NULL) skip();
    snprintf(path, sizeof path, "%s/../docs/metrics.md", dir);
    make_table(want, sizeof want);
    char *text = read_all(path, &len);
    char *from = strstr(text, table_from), *to = strstr(text, table_to);
    assert_true(from != NULL && to != NULL && from < to);
    from += strlen(table_from);
    bool same = (size_t)(to - from) == strlen(want) && memcmp(from, want, strlen(want)) == 0;
    if (!same && getenv("HDO_UPDATE_DOCS") != NULL) {
        size_t before = (size_t)(from - text), after = len - (size_t)(to - text), all = before + strlen(want) + after;
        char *now = malloc(all);
        assert_non_null(now);
        memcpy(now, text, before);
        memcpy(now + before, want, strlen(want));
        memcpy(now + before + strlen(want), to, after);
        assert_int_equal(hdo__file_write(path, now, all, NULL), HDO_OK);
        free(now);
        same = true;
    }
    free(text);
    if (!same) fail_msg("docs/metrics.md does not show the metric table; run this test with HDO_UPDATE_DOCS=1 set");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sink_csv),         cmocka_unit_test(test_sink_crc32c),
        cmocka_unit_test(test_sink_tensorboard), cmocka_unit_test(test_sink_memory),
        cmocka_unit_test(test_sink_of_a_run),    cmocka_unit_test(test_sink_docs_are_current),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
