/* SPDX-License-Identifier: Apache-2.0 — text in the languages of others. */
#include "base/quote.h"

#include <string.h>

size_t hdo__utf8_next(const char *s, size_t n, uint32_t *code) {
    const unsigned char *p = (const unsigned char *)s;
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    size_t len = p[0] < 0x80 ? 1 : p[0] < 0xc0 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf8 ? 4 : 0;
    if (len == 0 || len > n) return 0;
    uint32_t v = len == 1 ? p[0] : p[0] & (0x7fU >> len);
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80) return 0;
        v = v << 6 | (p[i] & 0x3fU);
    }
    if (v < least[len] || v > 0x10ffff || (v >= 0xd800 && v <= 0xdfff)) return 0;
    *code = v;
    return len;
}

/* Control characters, Unicode's own line breaks, marks that turn the reading direction, and no characters at all. */
static bool shown(uint32_t v) {
    if (v < 0x20 || (v >= 0x7f && v <= 0x9f)) return false;
    if (v >= 0x2028 && v <= 0x202e) return false;
    if (v >= 0x2066 && v <= 0x2069) return false;
    return v != 0xfeff && (v & 0xfffe) != 0xfffe;
}

/* The next character as it may be shown: ASCII in *c (and *c = 0 for others), bytes in [*a, *a + length). */
static size_t next_shown(const char **s, size_t *left, const char **a, char *c) {
    static const char replacement[] = "\xef\xbf\xbd";
    uint32_t code = 0;
    size_t n = hdo__utf8_next(*s, *left, &code), step = n > 0 ? n : 1;
    bool ok = n > 0 && shown(code);
    *a = ok ? *s : replacement;
    *c = ok && code < 0x80 ? (char)code : '\0';
    *s += step;
    *left -= step;
    return ok ? n : sizeof replacement - 1;
}

void hdo__quote_plain(FILE *f, const char *s) {
    for (size_t left = strlen(s); left > 0;) {
        const char *a;
        char c;
        size_t n = next_shown(&s, &left, &a, &c);
        fwrite(a, 1, n, f);
    }
}

static void put_html(FILE *f, char c, const char *a, size_t n) {
    switch (c) {
    case '&': fputs("&amp;", f); break;
    case '<': fputs("&lt;", f); break;
    case '>': fputs("&gt;", f); break;
    case '"': fputs("&quot;", f); break;
    case '\'': fputs("&#39;", f); break;
    default: fwrite(a, 1, n, f); break;
    }
}

void hdo__quote_html(FILE *f, const char *s) {
    for (size_t left = strlen(s); left > 0;) {
        const char *a;
        char c;
        if (*s == '\n' || *s == '\t') { /* harmless here, and stored files are shown as they are */
            fputc(*s++, f);
            left--;
            continue;
        }
        size_t n = next_shown(&s, &left, &a, &c);
        put_html(f, c, a, n);
    }
}

void hdo__quote_csv(FILE *f, const char *s) {
    bool quotes = s[strcspn(s, ",\"; \t")] != '\0' || s[0] == '#';
    if (quotes) fputc('"', f);
    for (size_t left = strlen(s); left > 0;) {
        const char *a;
        char c;
        size_t n = next_shown(&s, &left, &a, &c);
        if (c == '"') fputc('"', f);
        fwrite(a, 1, n, f);
    }
    if (quotes) fputc('"', f);
}

/* JSON is UTF-8: a byte that is not becomes U+FFFD. Terminals read control characters too, so C1 is escaped as well. */
size_t hdo__json_next(const char **s, size_t *left, char out[HDO_JSON_CHAR]) {
    uint32_t code = 0;
    size_t n = hdo__utf8_next(*s, *left, &code), step = n > 0 ? n : 1;
    if (n == 0) {
        memcpy(out, "\xef\xbf\xbd", 3);
        n = 3;
    } else if (code == '"' || code == '\\') {
        n = (size_t)snprintf(out, HDO_JSON_CHAR, "\\%c", (char)code);
    } else if (code == '\n' || code == '\t') {
        n = (size_t)snprintf(out, HDO_JSON_CHAR, "\\%c", code == '\n' ? 'n' : 't');
    } else if (code < 0x20 || (code >= 0x7f && code <= 0x9f)) {
        n = (size_t)snprintf(out, HDO_JSON_CHAR, "\\u%04x", (unsigned)code & 0xffff);
    } else {
        memcpy(out, *s, n);
    }
    *s += step;
    *left -= step;
    return n;
}

void hdo__quote_json(FILE *f, const char *s) {
    char out[HDO_JSON_CHAR];
    fputc('"', f);
    for (size_t left = strlen(s); left > 0;) {
        size_t n = hdo__json_next(&s, &left, out);
        fwrite(out, 1, n, f);
    }
    fputc('"', f);
}

/* A double-quoted string knows octal escapes; letters, digits and a few marks need none. A backquote would run a
 * command, a line break would end the string. gnuplot takes up to four digits for an escape that starts with 0, so a
 * digit behind an escape is escaped too. */
static void put_octal(FILE *f, const char *a, size_t n, bool *escaped) {
    static const char plain[] = " _-+./,:=()";
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)a[i];
        bool digit = c >= '0' && c <= '9', letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        *escaped = !(letter || (digit && !*escaped) || (c != '\0' && strchr(plain, c) != NULL));
        fprintf(f, *escaped ? "\\%03o" : "%c", c);
    }
}

void hdo__quote_gnuplot(FILE *f, const char *s) {
    bool escaped = false;
    fputc('"', f);
    for (size_t left = strlen(s); left > 0;) {
        const char *a;
        char c;
        size_t n = next_shown(&s, &left, &a, &c);
        put_octal(f, a, n, &escaped);
    }
    fputc('"', f);
}

void hdo__quote_gnuplot_file(FILE *f, const char *name, const char *ext) {
    bool escaped = false;
    fputs("\"./", f); /* a name may start with '|', '<' or '-' */
    put_octal(f, name, strlen(name), &escaped);
    put_octal(f, ext, strlen(ext), &escaped);
    fputc('"', f);
}

/* Would the word be the same without quotes? */
static bool bare_word(const char *s) {
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+./,:=@%^";
    return s[0] != '\0' && s[strspn(s, safe)] == '\0';
}

static bool all_shown(const char *s) {
    uint32_t code = 0;
    for (size_t left = strlen(s), n; left > 0; s += n, left -= n) {
        n = hdo__utf8_next(s, left, &code);
        if (n == 0 || !shown(code)) return false;
    }
    return true;
}

void hdo__quote_shell(FILE *f, const char *s) {
    if (bare_word(s)) {
        fputs(s, f);
        return;
    }
    bool plain = all_shown(s); /* otherwise $'...', which knows octal escapes */
    fputs(plain ? "'" : "$'", f);
    for (; *s != '\0'; s++) {
        unsigned char c = (unsigned char)*s;
        if (plain && c == '\'') {
            fputs("'\\''", f);
        } else if (!plain && (c < 0x20 || c >= 0x7f || c == '\'' || c == '\\')) {
            fprintf(f, "\\%03o", c);
        } else {
            fputc(c, f);
        }
    }
    fputc('\'', f);
}
