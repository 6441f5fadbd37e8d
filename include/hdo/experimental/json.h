/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing JSON into a growing buffer. Reading is Jansson's job. Numbers are written so that they read back to the same
 * double; NaN and infinities become null, because JSON has no word for them.
 *
 * Experimental: may change or vanish in any version.
 */
#ifndef HDO_EXPERIMENTAL_JSON_H
#define HDO_EXPERIMENTAL_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hdo/experimental/fail.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hdo_json {
    char *text; /* NUL-terminated; owned until hdo__json_clear */
    size_t len, cap;
    int depth;
    bool first, failed; /* failed: out of memory; text is then not to be used */
    bool pretty;        /* a line for every member down to depth 2 */
} hdo_json;

HDO_API void hdo__json_init(hdo_json *j, bool pretty);
HDO_API void hdo__json_clear(hdo_json *j);
HDO_API void hdo__json_reset(hdo_json *j); /* empty again, memory kept */

/* key is NULL inside arrays and at the top level. */
HDO_API void hdo__json_object(hdo_json *j, const char *key);
HDO_API void hdo__json_array(hdo_json *j, const char *key);
HDO_API void hdo__json_end(hdo_json *j, char bracket);                        /* '}' or ']' */
HDO_API void hdo__json_text(hdo_json *j, const char *key, const char *value); /* NULL: null */
HDO_API void hdo__json_real(hdo_json *j, const char *key, double value);
HDO_API void hdo__json_int(hdo_json *j, const char *key, int64_t value);
HDO_API void hdo__json_bool(hdo_json *j, const char *key, bool value);
HDO_API void hdo__json_raw(hdo_json *j, const char *key, const char *json); /* already JSON */

/* Several members at once: HDO_JSON_REALS(j, {"lr", c->lr}, {"weight", c->weight}); */
typedef struct hdo_json_pair {
    const char *key;
    double value;
} hdo_json_pair;
typedef struct hdo_json_count {
    const char *key;
    int64_t value;
} hdo_json_count;
HDO_API void hdo__json_reals(hdo_json *j, const hdo_json_pair *v, size_t n);
HDO_API void hdo__json_ints(hdo_json *j, const hdo_json_count *v, size_t n);
#define HDO_JSON_REALS(j, ...)                                                                                         \
    hdo__json_reals((j), (const hdo_json_pair[]){__VA_ARGS__},                                                         \
                    sizeof((const hdo_json_pair[]){__VA_ARGS__}) / sizeof(hdo_json_pair))
#define HDO_JSON_INTS(j, ...)                                                                                          \
    hdo__json_ints((j), (const hdo_json_count[]){__VA_ARGS__},                                                         \
                   sizeof((const hdo_json_count[]){__VA_ARGS__}) / sizeof(hdo_json_count))

/* A document: an object that begins with its schema_version, and its text, which the caller frees; NULL: no memory. */
HDO_API void hdo__json_begin(hdo_json *j, bool pretty, int schema_version);
HDO_API char *hdo__json_finish(hdo_json *j);

/* Shortest decimal text that reads back to the same double; NaN and infinities as "nan", "inf", "-inf". Not for JSON:
 * hdo_json_number (<hdo/experimental/number.h>) is. */
HDO_API void hdo__real_text(double v, char buf[32]);

#ifdef __cplusplus
}
#endif

#endif
