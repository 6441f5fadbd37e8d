/* SPDX-License-Identifier: Apache-2.0 — libFuzzer target: reading a configuration and writing it again.
 *
 * Any bytes may be refused, but only with a sentence, and then the configuration is as before. What loads must dump to
 * a text that loads again and dumps to the same text.
 */
#include "config/options.h"
#include "fuzz.h"

static void require_said(bool ok, const char *what, const hdo_error *e) {
    if (!ok) fprintf(stderr, "%s\n", e->msg);
    require(ok, what);
}

/* The input as "key=value" for hdo_config_set, and as a population. */
static void set_some(hdo_config *c, const uint8_t *data, size_t size, hdo_error *e) {
    char *text = text_of(data, size), *value = strchr(text, '=');
    if (value != NULL) {
        *value++ = '\0';
        (void)hdo_config_set_from(c, text, value, HDO_FROM_FLAG, e);
    }
    (void)hdo_config_population(c, text, e);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static hdo_config before, c, again;
    hdo_error e = {HDO_OK, ""};
    hdo_config_default(&before);
    c = before;
    hdo_status st = hdo_config_load_bytes(&c, "fuzz.yaml", (const char *)data, size, &e);
    if (st != HDO_OK) {
        require_sentence(st, &e);
        require_said(memcmp(&c, &before, sizeof c) == 0, "failed, but changed the configuration", &e);
        set_some(&c, data, size, &e);
    }
    char *first = hdo_config_dump(&c, size % 2 == 0);
    if (first == NULL) return 0;
    hdo_config_default(&again);
    st = hdo_config_load_bytes(&again, "dump.yaml", first, strlen(first), &e);
    require_said(st == HDO_OK, "the dump does not load", &e);
    char *plain = hdo_config_dump(&c, false), *second = hdo_config_dump(&again, false);
    require_said(plain != NULL && second != NULL && strcmp(plain, second) == 0, "the dump loads to something else", &e);
    free(first);
    free(plain);
    free(second);
    return 0;
}
