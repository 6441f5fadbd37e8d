/* SPDX-License-Identifier: Apache-2.0
 *
 * A plug-in: a shared object with tables (<hdo/objective.h> and its siblings), named in a configuration:
 *
 *     model: {plugin: ./libmine.so, options: {a: 1, b: 100}}
 *
 * It exports one function, hdo_plugin_entry, and links nothing of the library:
 *
 *     #include <hdo/plugin.h>
 *     static const hdo_objective_def objective = {.struct_size = sizeof objective, .name = "mine", ...};
 *     static const hdo_plugin plugin = {.struct_size = sizeof plugin, .abi = HDO_ABI, .name = "mine", .version = "1.0",
 *                                       .parts = {.struct_size = sizeof(hdo_parts), .objective = &objective}};
 *     HDO_PLUGIN_EXPORT const hdo_plugin *hdo_plugin_entry(void) { return &plugin; }
 *
 *     cc -shared -fPIC $(pkg-config --cflags hdo) mine.c -o libmine.so
 *
 * Before it is used its ABI and tables are checked, and an objective is tried in a process of its own with a deadline
 * (`model.trial_s`, 10 s): made, started, evaluated twice. What hangs, crashes, leaves by longjmp, writes to x or
 * answers with NaN is refused in a sentence instead of ending a run.
 */
#ifndef HDO_PLUGIN_H
#define HDO_PLUGIN_H

#include "hdo/dataset.h"
#include "hdo/estimator.h"
#include "hdo/mixing.h"
#include "hdo/objective.h"
#include "hdo/sink.h"
#include "hdo/version.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Tables, and the pointer all their callbacks get. Whichever are not NULL are there. */
typedef struct hdo_parts {
    size_t struct_size; /* required: sizeof(hdo_parts) */
    void *user;
    const hdo_objective_def *objective;
    const hdo_dataset_def *dataset;
    const hdo_estimator_def *estimator;
    const hdo_mixing_def *mixing;
    const hdo_sink_def *sink;
} hdo_parts;

typedef struct hdo_plugin {
    size_t struct_size;  /* required: sizeof(hdo_plugin) */
    int abi;             /* required: HDO_ABI */
    const char *name;    /* required: for messages and stored runs */
    const char *version; /* for stored runs; NULL: none */
    hdo_parts parts;     /* those that hang on no options */

    /* One use of the plug-in. options: a JSON object as text, "{}" when the configuration has none. parts begins as a
     * copy of the above; set user, and whichever tables hang on options (a `dim`, an `identity`): they are copied when
     * create returns. Not 0: refused, with the sentence in message (room for cap bytes): options that are unknown or
     * out of range are yours to refuse. May be called several times, each use with its own user. NULL: the above as it
     * is, and then any option is refused. */
    int (*create)(const char *options, hdo_parts *parts, char *message, size_t cap);
    void (*destroy)(void *user); /* the end of one use; NULL: nothing to do. The tables' own destroy is not called */
} hdo_plugin;

/* The name of the function, and how to mark it. */
#define HDO_PLUGIN_SYMBOL "hdo_plugin_entry"
#define HDO_PLUGIN_EXPORT HDO_API

/* Its type. The plug-in stays where it is as long as the library may use it. */
typedef const hdo_plugin *(*hdo_plugin_entry_fn)(void);

#ifdef __cplusplus
}
#endif

#endif
