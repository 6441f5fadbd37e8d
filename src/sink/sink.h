/* SPDX-License-Identifier: Apache-2.0 — where rows go. */
#ifndef HDO_SINK_SINK_H
#define HDO_SINK_SINK_H

#include "base/linelog.h"
#include "base/status.h"
#include "hdo/experimental/run.h"

typedef struct hdo_sink hdo_sink;

typedef struct hdo_sink_ops {
    const char *name;
    hdo_status (*row)(hdo_sink *s, const hdo_row *row, hdo_error *e);
    /* Before a checkpoint of that step: brings the rows to the disk. metrics.jsonl also marks them, without the row of
     * the step itself, which a resumed run evaluates again. NULL: nothing to do. */
    hdo_status (*mark)(hdo_sink *s, int64_t step, hdo_linemark *out, hdo_error *e);
    void (*destroy)(hdo_sink *s);
} hdo_sink_ops;

struct hdo_sink { /* first member of every implementation */
    const hdo_sink_ops *ops;
};

/* JSON lines, one object per evaluation, appended with one write each: a killed run loses at most the line in flight.
 */
hdo_status hdo__sink_jsonl_create(hdo_sink **out, const char *path, const hdo_config *c, hdo_error *e);

/* CSV: a header line, then one line per evaluation, every figure of the metric table in its order. NaN is an empty
 * cell. last_step: the step a run goes on from; lines of later steps are cut off first and rows up to it are not
 * repeated. -1: a new file. */
hdo_status hdo__sink_csv_create(hdo_sink **out, const char *path, const hdo_config *c, int64_t last_step, hdo_error *e);

/* TensorBoard: a new event file in dir, named after the second and the host. NaN is left out. */
hdo_status hdo__sink_tb_create(hdo_sink **out, const char *dir, const hdo_config *c, hdo_error *e);

/* Rows kept in memory, for library users. */
hdo_status hdo__sink_memory_create(hdo_sink **out, hdo_error *e);
const hdo_row *hdo__sink_memory_rows(const hdo_sink *s, size_t *count); /* NULL: s is not such a sink */

/* A kind of sink a user may ask for (section `sink`): one file, one line in sinks.c. */
typedef struct hdo_sink_kind {
    const char *files; /* the name of its file in a run folder; one that ends in a dot: what its files begin with */
    bool (*wanted)(const hdo_config *c);
    hdo_status (*open)(hdo_sink **out, const char *dir, const hdo_config *c, int64_t last_step, hdo_error *e);
} hdo_sink_kind;
extern const hdo_sink_kind hdo__sink_csv, hdo__sink_tensorboard;

/* The optional sinks of section `sink` for a run folder, appended to sinks[0 .. *n). last_step as above. */
hdo_status hdo__sinks_open(hdo_sink **sinks, int *n, int max, const char *dir, const hdo_config *c, int64_t last_step,
                           hdo_error *e);
/* Removes what they wrote into a folder before: metrics.csv and event files. */
void hdo__sinks_remove(const char *dir);

/* Sinks of one's own (own_sink.c): one for each table of the configuration, appended to sinks[0 .. *n). They open with
 * the first row, or with the folder, whichever comes first. from_step: rows beyond it will come again. */
hdo_status hdo__own_sinks_create(hdo_sink **sinks, int *n, int max, const hdo_config *c, hdo_error *e);
hdo_status hdo__own_sink_open(hdo_sink *s, const char *dir, int64_t from_step, hdo_error *e);
bool hdo__sink_is_own(const hdo_sink *s);

/* CRC-32C (Castagnoli), and as TensorBoard's records carry it: rotated, plus a constant. */
uint32_t hdo__crc32c(const void *data, size_t len);
uint32_t hdo__crc32c_masked(const void *data, size_t len);

#endif
