/* SPDX-License-Identifier: Apache-2.0
 *
 * Text in the languages of others. A folder, class, label or path may be called anything: line breaks, quotes,
 * backquotes, $(...), tags, bytes that are not UTF-8. Whatever is put into a gnuplot script, a page, a table or a
 * command goes through one of these, so that it stays text. JSON: hdo/experimental/json.h.
 *
 * Experimental: may change or vanish in any version.
 */
#ifndef HDO_EXPERIMENTAL_QUOTE_H
#define HDO_EXPERIMENTAL_QUOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "hdo/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of the UTF-8 character at s (n > 0 bytes left), or 0 if it is not valid. */
HDO_API size_t hdo__utf8_next(const char *s, size_t n, uint32_t *code);

/* For people to read: control characters and broken bytes become U+FFFD. */
HDO_API void hdo__quote_plain(FILE *f, const char *s);
/* Inside an element or an attribute's quotes. */
HDO_API void hdo__quote_html(FILE *f, const char *s);
/* One field (RFC 4180), without line breaks. Quotes only where they are needed. */
HDO_API void hdo__quote_csv(FILE *f, const char *s);
/* A JSON string with its quotes; documents are built by hdo/experimental/json.h. */
HDO_API void hdo__quote_json(FILE *f, const char *s);
/* The next character of such a string, escaped, into out; returns its bytes. */
enum { HDO_JSON_CHAR = 8 };
HDO_API size_t hdo__json_next(const char **s, size_t *left, char out[HDO_JSON_CHAR]);
/* A string with its quotes, to be shown: set title, title. */
HDO_API void hdo__quote_gnuplot(FILE *f, const char *s);
/* The name of a file beside the script, byte for byte, followed by ext; with its quotes. Never a pipe or an option. */
HDO_API void hdo__quote_gnuplot_file(FILE *f, const char *name, const char *ext);
/* One word of a command for bash, byte for byte. */
HDO_API void hdo__quote_shell(FILE *f, const char *s);

#ifdef __cplusplus
}
#endif

#endif
