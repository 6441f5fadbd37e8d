/* SPDX-License-Identifier: Apache-2.0 — one value of the option table: text to value and back.
 *
 * Numbers go through a decimal without a point ("0.05" becomes 005e-2), so that strtod rounds correctly and never meets
 * a locale's comma. Range sentences quote what the user wrote, not what we made of it.
 */
#include "config/value.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- characters ---- */

bool hdo__text_char_ok(uint32_t v) {
    if (v < 0x20) return v == '\t' || v == '\n';
    if (v >= 0x7f && v <= 0x9f) return false;
    return v != 0x2028 && v != 0x2029 && v != 0xfeff && v != 0xfffe && v != 0xffff;
}

const char *hdo__shown(const char *text, char buf[HDO_SHOWN_MAX]) {
    size_t n = strlen(text), used = 0;
    for (size_t i = 0; i < n;) {
        uint32_t code;
        size_t len = hdo__utf8_next(text + i, n - i, &code);
        if (used + len + 4 >= HDO_SHOWN_MAX) {
            memcpy(buf + used, "...", 3);
            used += 3;
            break;
        }
        if (len == 0 || !hdo__text_char_ok(code) || code < 0x20) {
            buf[used++] = '?';
            i += len == 0 ? 1 : len;
            continue;
        }
        memcpy(buf + used, text + i, len);
        used += len;
        i += len;
    }
    buf[used] = '\0';
    return buf;
}

/* ---- numbers ---- */

#define DIGITS_MAX 64     /* longer numbers are typing accidents */
#define EXPONENT_MAX 9999 /* beyond any double: the result is 0 or infinite anyway */

typedef struct decimal {
    bool negative;
    char digits[DIGITS_MAX]; /* without the point */
    int n;
    int exponent; /* value = digits * 10^exponent */
} decimal;

static bool decimal_scan(const char *s, decimal *d) {
    memset(d, 0, sizeof *d);
    if (strlen(s) >= DIGITS_MAX) return false;
    d->negative = *s == '-';
    if (*s == '-' || *s == '+') s++;
    for (bool point = false; (*s >= '0' && *s <= '9') || (*s == '.' && !point); s++) {
        if (*s == '.') {
            point = true;
            continue;
        }
        d->digits[d->n++] = *s;
        if (point) d->exponent--;
    }
    if (d->n == 0) return false;
    if (*s == 'e' || *s == 'E') {
        s++;
        int sign = *s == '-' ? -1 : 1, e = 0;
        if (*s == '-' || *s == '+') s++;
        if (*s < '0' || *s > '9') return false;
        for (; *s >= '0' && *s <= '9'; s++) e = e > EXPONENT_MAX ? e : 10 * e + (*s - '0');
        d->exponent += sign * e;
    }
    return *s == '\0';
}

static double decimal_real(const decimal *d) {
    char buf[DIGITS_MAX + 16];
    snprintf(buf, sizeof buf, "%se%d", d->digits, d->exponent);
    double v = strtod(buf, NULL);
    return d->negative && v > 0 ? -v : v; /* no negative zero: it would print as -0 */
}

/* False when d is not a whole number. When it does not fit an int64_t, *range is infinite with its sign, else 0. */
static bool decimal_int(const decimal *d, int64_t *v, double *range) {
    int n = d->n, exponent = d->exponent;
    uint64_t u = 0;
    while (n > 0 && d->digits[n - 1] == '0') n--, exponent++;
    if (n > 0 && exponent < 0) return false;
    *range = 0;
    for (int i = 0; i < n + (n > 0 ? exponent : 0); i++) {
        unsigned digit = i < n ? (unsigned)(d->digits[i] - '0') : 0;
        if (u > ((uint64_t)INT64_MAX - digit) / 10) {
            *range = d->negative ? -HUGE_VAL : HUGE_VAL;
            return true;
        }
        u = 10 * u + digit;
    }
    *v = d->negative ? -(int64_t)u : (int64_t)u;
    return true;
}

bool hdo__real_parse(const char *s, double *v) {
    decimal d;
    if (!decimal_scan(s, &d)) return false;
    *v = decimal_real(&d);
    return true;
}

/* The fewest digits of |v| that read back to it: digits[0].digits[1]... times 10^exponent. */
static void shortest(double v, decimal *d) {
    for (int precision = 1; precision <= 17; precision++) {
        char buf[64];
        snprintf(buf, sizeof buf, "%.*e", precision - 1, v);
        const char *p = buf;
        memset(d, 0, sizeof *d);
        for (; *p != 'e'; p++) /* skips the decimal point, whatever the locale calls it */
            if (*p >= '0' && *p <= '9') d->digits[d->n++] = *p;
        d->exponent = (int)strtol(p + 1, NULL, 10) - (d->n - 1);
        if (decimal_real(d) == v) break;
    }
    d->exponent += d->n - 1;
}

void hdo__real_format(double v, char *buf, size_t cap) {
    decimal d;
    const char *sign = v < 0 ? "-" : "";
    if (!isfinite(v)) {
        snprintf(buf, cap, "%s", isnan(v) ? ".nan" : v < 0 ? "-.inf" : ".inf");
        return;
    }
    if (v == 0) {
        snprintf(buf, cap, "0");
        return;
    }
    shortest(fabs(v), &d);
    if (d.exponent < -4 || d.exponent > 9) { /* point and sign always there: YAML 1.1 reads 1e5 as a text */
        snprintf(buf, cap, "%s%c.%se%+d", sign, d.digits[0], d.n > 1 ? d.digits + 1 : "0", d.exponent);
    } else if (d.exponent < 0) {
        snprintf(buf, cap, "%s0.%.*s%s", sign, -d.exponent - 1, "000000", d.digits);
    } else if (d.exponent >= d.n - 1) {
        snprintf(buf, cap, "%s%s%.*s", sign, d.digits, d.exponent - d.n + 1, "0000000000");
    } else {
        snprintf(buf, cap, "%s%.*s.%s", sign, d.exponent + 1, d.digits, d.digits + d.exponent + 1);
    }
}

void hdo__bound_format(const hdo_option *o, double bound, char *buf, size_t cap) {
    if (o->type == HDO_OPT_INT && bound >= 0x1p63)
        snprintf(buf, cap, "%lld", (long long)INT64_MAX);
    else if (o->type == HDO_OPT_INT)
        snprintf(buf, cap, "%.0f", bound);
    else
        hdo__real_format(bound, buf, cap);
}

/* ---- parsing ---- */

#define BLANKS " \t\r\n"

static const char *unit_text(const hdo_option *o, char *buf, size_t cap) {
    snprintf(buf, cap, "%s%s", o->unit != NULL ? " " : "", o->unit != NULL ? o->unit : "");
    return buf;
}

typedef struct limits {
    double lo, hi;
    bool lo_open; /* lo itself is not allowed */
} limits;

/* The sentence for a number v, written as text, against the range. NaN cannot come here: decimals have none. */
static hdo_status check_range(const hdo_option *o, const char *key, const char *text, double v, limits r,
                              hdo_error *e) {
    char bound[HDO_REAL_MAX], unit[32], shown[HDO_SHOWN_MAX];
    if (r.lo_open ? v <= r.lo : v < r.lo) {
        hdo__bound_format(o, r.lo, bound, sizeof bound);
        return hdo__fail(e, HDO_E_CONFIG, "%s is %s, but must be %s %s%s", key, hdo__shown(text, shown),
                         r.lo_open ? "more than" : "at least", bound, unit_text(o, unit, sizeof unit));
    }
    if (v > r.hi) {
        hdo__bound_format(o, r.hi, bound, sizeof bound);
        return hdo__fail(e, HDO_E_CONFIG, "%s is %s, but must be at most %s%s", key, hdo__shown(text, shown), bound,
                         unit_text(o, unit, sizeof unit));
    }
    return HDO_OK;
}

static hdo_status parse_bool(const char *key, const char *text, void *dst, hdo_error *e) {
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on"};
    char shown[HDO_SHOWN_MAX];
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcasecmp(text, words[i]) == 0) {
            *(bool *)dst = i % 2 == 1;
            return HDO_OK;
        }
    }
    return hdo__fail(e, HDO_E_CONFIG, "%s is '%s', but must be true or false", key, hdo__shown(text, shown));
}

static hdo_status parse_number(const hdo_option *o, const char *key, const char *text, void *dst, hdo_error *e) {
    decimal d;
    int64_t whole = 0;
    double v = 0;
    bool is_int = o->type == HDO_OPT_INT, ok = decimal_scan(text, &d);
    if (ok && is_int) {
        ok = decimal_int(&d, &whole, &v);
        if (v == 0) v = (double)whole;
    } else if (ok) {
        v = decimal_real(&d);
    }
    if (!ok) {
        char range[HDO_VALUE_MAX], unit[32], shown[HDO_SHOWN_MAX];
        hdo__value_range(o, range, sizeof range);
        return hdo__fail(e, HDO_E_CONFIG, "%s is '%s', but must be a %s number, %s%s", key, hdo__shown(text, shown),
                         is_int ? "whole" : "finite", range, unit_text(o, unit, sizeof unit));
    }
    hdo_status st = check_range(o, key, text, v, (limits){o->lo, o->hi, o->lo_open}, e);
    if (st != HDO_OK) return st;
    if (is_int)
        *(int64_t *)dst = whole;
    else
        *(double *)dst = v;
    return HDO_OK;
}

static hdo_status parse_text(const hdo_option *o, const char *key, const char *text, void *dst, hdo_error *e) {
    size_t n = strlen(text);
    if (n >= o->cap) return hdo__fail(e, HDO_E_CONFIG, "%s is %zu bytes long, but at most %zu fit", key, n, o->cap - 1);
    for (size_t i = 0, len; i < n; i += len) {
        uint32_t code;
        len = hdo__utf8_next(text + i, n - i, &code);
        if (len == 0) return hdo__fail(e, HDO_E_CONFIG, "%s is not valid UTF-8 text", key);
        if (!hdo__text_char_ok(code))
            return hdo__fail(e, HDO_E_CONFIG, "%s contains the control character U+%04X", key, (unsigned)code);
    }
    memset(dst, 0, o->cap);
    memcpy(dst, text, n);
    return HDO_OK;
}

static hdo_status choice_fail(const hdo_option *o, const char *key, const char *text, hdo_error *e) {
    char range[HDO_VALUE_MAX], shown[HDO_SHOWN_MAX];
    const char *names[32] = {NULL}; /* no list of words comes near; the last stays NULL */
    for (size_t i = 0; i < 31 && o->words[i].name != NULL; i++) names[i] = o->words[i].name;
    const char *near = hdo__suggest(text, names);
    hdo__value_range(o, range, sizeof range);
    return hdo__fail(e, HDO_E_CONFIG, "%s is '%s', but must be one of %s%s%s%s", key, hdo__shown(text, shown), range,
                     near != NULL ? "; did you mean '" : "", near != NULL ? near : "", near != NULL ? "'?" : "");
}

/* `name(number)`, the number already between the brackets of text. */
static hdo_status parse_word_arg(const hdo_option *o, const hdo_word *w, const char *key, const char *text, double *arg,
                                 hdo_error *e) {
    char inner[DIGITS_MAX], what[HDO_KEY_MAX + 64];
    size_t skip = strlen(w->name) + 1, n = strlen(text) - skip - 1;
    double v = 0;
    if (n >= sizeof inner) return choice_fail(o, key, text, e);
    memcpy(inner, text + skip, n);
    inner[n] = '\0';
    if (!w->takes_arg)
        return hdo__fail(e, HDO_E_CONFIG, "%s is '%s(...)', but '%s' takes no number", key, w->name, w->name);
    snprintf(what, sizeof what, "the number of '%s' in %s", w->name, key);
    if (!hdo__real_parse(inner, &v) || (w->whole && v != floor(v))) {
        char shown[HDO_SHOWN_MAX];
        return hdo__fail(e, HDO_E_CONFIG, "%s is '%s', but must be a %s number, as in %s(%s)", what,
                         hdo__shown(inner, shown), w->whole ? "whole" : "finite", w->name, w->whole ? "2" : "0.5");
    }
    hdo_status st = check_range(o, what, inner, v, (limits){w->lo, w->hi, false}, e);
    if (st == HDO_OK) *arg = v;
    return st;
}

static hdo_status parse_choice(const hdo_option *o, const char *key, const char *text, void *dst, hdo_error *e) {
    hdo_choice *out = dst;
    double v = 0;
    size_t n = strlen(text);
    for (const hdo_word *w = o->words; w->name != NULL; w++) { /* whole first: eta/sqrt(d) is one word */
        if (strcmp(text, w->name) == 0) {
            out->id = w->id;
            out->arg = w->takes_arg ? w->arg : 0;
            return HDO_OK;
        }
    }
    for (const hdo_word *w = o->words; w->name != NULL; w++) {
        size_t len = strlen(w->name);
        if (n < len + 2 || strncmp(text, w->name, len) != 0 || text[len] != '(' || text[n - 1] != ')') continue;
        hdo_status st = parse_word_arg(o, w, key, text, &v, e);
        if (st != HDO_OK) return st;
        out->id = w->id;
        out->arg = v;
        return HDO_OK;
    }
    if (!o->number || !hdo__real_parse(text, &v)) return choice_fail(o, key, text, e);
    hdo_status st = check_range(o, key, text, v, (limits){o->lo, o->hi, o->lo_open}, e);
    if (st != HDO_OK) return st;
    out->id = HDO_NUMBER;
    out->arg = v;
    return HDO_OK;
}

hdo_status hdo__value_parse(const hdo_option *o, const char *key, const char *text, void *dst, hdo_error *e) {
    if (o->type == HDO_OPT_TEXT) return parse_text(o, key, text, dst, e);
    char word[128]; /* longer is no number and no word; a cut one gives the same sentence */
    snprintf(word, sizeof word, "%s", text + strspn(text, BLANKS));
    for (size_t n = strlen(word); n > 0 && strchr(BLANKS, word[n - 1]) != NULL; n--) word[n - 1] = '\0';
    switch (o->type) {
    case HDO_OPT_BOOL: return parse_bool(key, word, dst, e);
    case HDO_OPT_INT:
    case HDO_OPT_REAL: return parse_number(o, key, word, dst, e);
    case HDO_OPT_CHOICE: return parse_choice(o, key, word, dst, e);
    case HDO_OPT_TEXT: break;
    }
    assert(false && "option type");
    return HDO_E_FAILED;
}

/* ---- formatting ---- */

void hdo__value_format(const hdo_option *o, const void *src, char *buf, size_t cap) {
    const hdo_choice *choice = src;
    switch (o->type) {
    case HDO_OPT_BOOL: snprintf(buf, cap, "%s", *(const bool *)src ? "true" : "false"); return;
    case HDO_OPT_INT: snprintf(buf, cap, "%lld", (long long)*(const int64_t *)src); return;
    case HDO_OPT_REAL: hdo__real_format(*(const double *)src, buf, cap); return;
    case HDO_OPT_TEXT: snprintf(buf, cap, "%s", (const char *)src); return;
    case HDO_OPT_CHOICE: break;
    }
    char arg[HDO_REAL_MAX];
    hdo__real_format(choice->arg, arg, sizeof arg);
    if (o->number && choice->id == HDO_NUMBER) {
        snprintf(buf, cap, "%s", arg);
        return;
    }
    snprintf(buf, cap, "?");
    for (const hdo_word *w = o->words; w->name != NULL; w++) {
        if (w->id != choice->id) continue;
        snprintf(buf, cap, w->takes_arg ? "%s(%s)" : "%s", w->name, arg);
        return;
    }
}

void hdo__value_range(const hdo_option *o, char *buf, size_t cap) {
    char lo[HDO_REAL_MAX], hi[HDO_REAL_MAX];
    size_t used = 0;
    const char *const *names = o->kind != NULL ? hdo_names(o->kind) : NULL;
    buf[0] = '\0';
#define ADD(...) (used = used < cap ? used + (size_t)snprintf(buf + used, cap - used, __VA_ARGS__) : used)
    if (o->type == HDO_OPT_BOOL) ADD("true | false");
    if (o->type == HDO_OPT_TEXT && names == NULL) ADD("text");
    for (size_t i = 0; names != NULL && names[i] != NULL; i++) ADD("%s%s", i > 0 ? " | " : "", names[i]);
    if (o->type == HDO_OPT_INT || o->type == HDO_OPT_REAL || o->number) {
        hdo__bound_format(o, o->lo, lo, sizeof lo);
        hdo__bound_format(o, o->hi, hi, sizeof hi);
        if (o->number) ADD("number ");
        ADD(o->lo_open ? "above %s, at most %s" : "%s to %s", lo, hi);
    }
    for (size_t i = 0; o->type == HDO_OPT_CHOICE && o->words[i].name != NULL; i++)
        ADD("%s%s%s", i > 0 || o->number ? " | " : "", o->words[i].name, o->words[i].takes_arg ? "(number)" : "");
#undef ADD
}
