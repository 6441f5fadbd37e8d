/* SPDX-License-Identifier: Apache-2.0 — where rows go. */
#ifndef HDO_SINK_SINK_H
#define HDO_SINK_SINK_H

#include "base/status.h"
#include "hdo/run.h"

typedef struct hdo_sink hdo_sink;

typedef struct hdo_sink_ops {
    const char *name;
    hdo_status (*row)(hdo_sink *s, const hdo_row *row, hdo_error *e);
    void (*destroy)(hdo_sink *s);
} hdo_sink_ops;

struct hdo_sink { /* first member of every implementation */
    const hdo_sink_ops *ops;
};

/* JSON lines, one object per evaluation, appended with one write each: a killed run loses at most the line in flight. */
hdo_status hdo__sink_jsonl_create(hdo_sink **out, const char *path, const hdo_config *c, hdo_error *e);

#endif
