/* SPDX-License-Identifier: Apache-2.0 — --help and man pages, from the tables of the commands. */
#include <string.h>

#include "cli.h"
#include "options.h"

enum { FLAGS_CAP = 64, COLUMN_MAX = 24 };

static const char exit_codes[] = "0 ok, 1 failed, 2 usage or configuration, 3 data missing or damaged.";
static const char all_codes[] =
    "0 ok, 1 failed, 2 usage or configuration, 3 data missing or damaged, 4 diverged, 5 engine, 6 objective, 7 a "
    "process of --seeds, sweep or paper was killed, 130 and 143 after a signal with everything saved.";
static const char about_all[] =
    "Trains one model with a population in which some nodes back-propagate and others only run the model forward; "
    "nodes take local steps and average with random partners.";

void cli_print_wrapped(int at, int indent, const char *text) {
    enum { WIDTH = 110 };
    while (*text != '\0') {
        int len = (int)strcspn(text, " ");
        if (at > indent && at + len + 1 > WIDTH) {
            printf("\n%*s", indent, "");
            at = indent;
        } else if (at > indent) {
            putchar(' ');
            at++;
        }
        printf("%.*s", len, text);
        at += len;
        text += len;
        while (*text == ' ') text++;
    }
    putchar('\n');
}

void cli_flag_text(const cli_option *o, char *buf, size_t cap) {
    char letter[8] = "";
    if (o->letter != 0) snprintf(letter, sizeof letter, "-%c, ", o->letter);
    snprintf(buf, cap, "%s--%s%s%s", letter, o->name, o->arg != NULL ? " " : "", o->arg != NULL ? o->arg : "");
}

/* The next line of text, without its end; false after the last. */
static bool next_line(const char **text, char *buf, size_t cap) {
    if (*text == NULL || **text == '\0') return false;
    size_t len = strcspn(*text, "\n");
    snprintf(buf, cap, "%.*s", (int)len, *text);
    *text += len + ((*text)[len] == '\n');
    return true;
}

/* What stands after `hdo NAME`, a line for every way to call it; i counts them. */
static bool usage_at(const cli_command *c, int i, char *buf, size_t cap) {
    const char *text = c->usage;
    if (c->verbs == NULL || text != NULL) {
        while (next_line(&text, buf, cap)) {
            if (i-- == 0) return true;
        }
        return false;
    }
    for (const cli_verb *v = c->verbs; v->name != NULL; v++) {
        if (v->help == NULL || i-- > 0) continue;
        snprintf(buf, cap, "%s%s%s", v->name, v->usage != NULL ? " " : "", v->usage != NULL ? v->usage : "");
        return true;
    }
    return false;
}

/* ---- text ---- */

static void print_item(const char *name, int column, const char *help) {
    int at = printf("  %-*s  ", column, name);
    if (at > column + 4) {
        printf("\n%*s", column + 4, "");
    }
    cli_print_wrapped(column + 4, column + 4, help);
}

static void print_paragraphs(const char *text) {
    char line[2048];
    while (next_line(&text, line, sizeof line)) cli_print_wrapped(0, 0, line);
}

static void print_options(const cli_command *c) {
    char flags[FLAGS_CAP];
    int column = 0;
    const cli_option *o;
    for (int k = 0; (o = cli_option_at(c, k)) != NULL; k++) {
        if (o->kind == CLI_HEADING) continue;
        cli_flag_text(o, flags, sizeof flags);
        int len = (int)strlen(flags);
        if (len > column && len <= COLUMN_MAX) column = len;
    }
    printf("\nOptions:\n");
    for (int k = 0; (o = cli_option_at(c, k)) != NULL; k++) {
        if (o->kind == CLI_HEADING) {
            printf(" %s\n", o->help);
            continue;
        }
        cli_flag_text(o, flags, sizeof flags);
        print_item(flags, column, o->help);
    }
}

static void print_verbs(const cli_command *c) {
    int column = 0;
    for (const cli_verb *v = c->verbs; v->name != NULL; v++) {
        if ((int)strlen(v->name) > column) column = (int)strlen(v->name);
    }
    printf("\n");
    for (const cli_verb *v = c->verbs; v->name != NULL; v++) {
        if (v->help != NULL) print_item(v->name, column, v->help);
    }
}

void cli_help(const cli_command *c) {
    char line[1024];
    for (int i = 0; usage_at(c, i, line, sizeof line); i++)
        printf("%s hdo %s%s%s\n", i == 0 ? "Usage:" : "      ", c->name, line[0] != '\0' ? " " : "", line);
    printf("\n");
    print_paragraphs(c->about);
    if (c->verbs != NULL) print_verbs(c);
    print_options(c);
    if (c->notes != NULL) {
        printf("\n");
        print_paragraphs(c->notes);
    }
    const char *text = c->examples;
    if (text != NULL) printf("\nExample%s:\n", strchr(text, '\n') != NULL ? "s" : "");
    while (next_line(&text, line, sizeof line)) printf("  %s\n", line);
    printf("\n");
    snprintf(line, sizeof line, "Exit codes: %s", c->exit_codes != NULL ? c->exit_codes : exit_codes);
    cli_print_wrapped(0, 0, line);
    if (!c->presets) return;
    printf("\nPresets:");
    for (const char *const *p = hdo_preset_names(); *p != NULL; p++) printf(" %s", *p);
    printf("\n");
}

void cli_help_all(void) {
    char line[512];
    printf("hdo %s: hybrid decentralised optimisation\n\n", hdo_version());
    cli_print_wrapped(0, 0, about_all);
    printf("\nUsage: hdo COMMAND [ARGUMENTS]\n\nCommands:\n");
    for (const cli_command *const *c = cli_commands; *c != NULL; c++) printf("  %-10s %s\n", (*c)->name, (*c)->summary);
    printf("\nStart with:\n"
           "  hdo demo                                        a hybrid population in a minute\n"
           "  hdo run demo --population 8fo+24zo -o runs/a    one run of your own\n"
           "  hdo COMMAND --help                              everything about a command\n\n");
    snprintf(line, sizeof line, "Exit codes: %s", all_codes);
    cli_print_wrapped(0, 0, line);
}

/* ---- pages ---- */

/* Text for roff: backslashes and hyphens are escaped, and a line does not begin with a request. */
static void roff(const char *text) {
    for (bool start = true; *text != '\0'; text++) {
        if (start && (*text == '.' || *text == '\'')) fputs("\\&", stdout);
        if (*text == '\\') {
            fputs("\\e", stdout);
        } else if (*text == '-') {
            fputs("\\-", stdout);
        } else {
            putchar(*text);
        }
        start = *text == '\n';
    }
}

static void roff_line(const char *request, const char *text) {
    fputs(request, stdout);
    roff(text);
    putchar('\n');
}

static void roff_item(const char *name, const char *help) {
    roff_line(".TP\n", name);
    roff_line("", help);
}

static void roff_paragraphs(const char *text) {
    char line[2048];
    while (next_line(&text, line, sizeof line)) roff_line(line[0] != '\0' ? "" : ".PP", line);
}

static void roff_head(const char *name, const char *summary) {
    printf(".TH ");
    for (const char *p = name; *p != '\0'; p++) putchar(*p >= 'a' && *p <= 'z' ? *p - 'a' + 'A' : *p);
    printf(" 1 \"\" \"hdo %s\" \"HDO\"\n.SH NAME\n", hdo_version());
    roff(name);
    roff_line(" \\- ", summary);
}

static void man_all(void) {
    roff_head("hdo", "hybrid decentralised optimisation");
    printf(".SH SYNOPSIS\n.B hdo\nCOMMAND [ARGUMENTS]\n.SH DESCRIPTION\n");
    roff_paragraphs(about_all);
    printf(".SH COMMANDS\n");
    for (const cli_command *const *c = cli_commands; *c != NULL; c++) roff_item((*c)->name, (*c)->summary);
    roff_line(".SH EXIT STATUS\n", all_codes);
    printf(".SH SEE ALSO\nhdo.yaml(5)");
    for (const cli_command *const *c = cli_commands; *c != NULL; c++) printf(",\nhdo\\-%s(1)", (*c)->name);
    printf("\n");
}

static void man_options(const cli_command *c) {
    char flags[FLAGS_CAP];
    const cli_option *o;
    printf(".SH OPTIONS\n");
    for (int k = 0; (o = cli_option_at(c, k)) != NULL; k++) {
        if (o->kind == CLI_HEADING) {
            roff_line(".PP\n", o->help);
            continue;
        }
        cli_flag_text(o, flags, sizeof flags);
        roff_item(flags, o->help);
    }
}

void cli_man(const cli_command *c) {
    char text[1024];
    if (c == NULL) {
        man_all();
        return;
    }
    snprintf(text, sizeof text, "hdo-%s", c->name);
    roff_head(text, c->summary);
    printf(".SH SYNOPSIS\n.nf\n");
    for (int i = 0; usage_at(c, i, text, sizeof text); i++) {
        printf("hdo %s%s", c->name, text[0] != '\0' ? " " : "");
        roff_line("", text);
    }
    printf(".fi\n.SH DESCRIPTION\n");
    roff_paragraphs(c->about);
    for (const cli_verb *v = c->verbs; v != NULL && v->name != NULL; v++) {
        if (v->help != NULL) roff_item(v->name, v->help);
    }
    man_options(c);
    if (c->notes != NULL) printf(".SH NOTES\n");
    roff_paragraphs(c->notes);
    if (c->examples != NULL) {
        roff_line(".SH EXAMPLES\n.nf\n", c->examples);
        printf(".fi\n");
    }
    roff_line(".SH EXIT STATUS\n", c->exit_codes != NULL ? c->exit_codes : exit_codes);
    printf(".SH SEE ALSO\nhdo(1), hdo.yaml(5)\n");
}
