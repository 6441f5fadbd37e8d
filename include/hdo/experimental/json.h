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

/* Shortest decimal text that reads back to the same double; NaN and infinities as "nan", "inf", "-inf". Not for JSON:
 * hdo_json_number (<hdo/json.h>) is. */
HDO_API void hdo__real_text(double v, char buf[32]);

#ifdef __cplusplus
}
#endif

#endif
