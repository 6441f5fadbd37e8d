/* SPDX-License-Identifier: Apache-2.0 — hdo completion: scripts for shells, from the tables of the commands. */
#include <string.h>

#include "cli.h"
#include "options.h"

/* sim|mpi with blanks between; nothing for NULL. */
static void print_choices(const char *words) {
    for (const char *p = words; p != NULL && *p != '\0'; p++) putchar(*p == '|' ? ' ' : *p);
}

/* What the words of a command may be: its verbs, or the presets. */
static void print_words(const cli_command *c) {
    const char *gap = "";
    for (const cli_verb *v = c->verbs; v != NULL && v->name != NULL; v++, gap = " ") printf("%s%s", gap, v->name);
    for (const char *const *p = hdo_preset_names(); c->presets && *p != NULL; p++, gap = " ") printf("%s%s", gap, *p);
    if (strcmp(c->name, "help") != 0) return;
    for (const cli_command *const *o = cli_commands; *o != NULL; o++, gap = " ") printf("%s%s", gap, (*o)->name);
}

static bool has_words(const cli_command *c) {
    return c->verbs != NULL || c->presets || strcmp(c->name, "help") == 0;
}

/* For inside single quotes: characters in `special` get a backslash, a quote becomes `quote`. */
static void print_escaped(const char *text, const char *special, const char *quote) {
    for (; *text != '\0'; text++) {
        if (*text == '\'') {
            fputs(quote, stdout);
            continue;
        }
        if (strchr(special, *text) != NULL) putchar('\\');
        putchar(*text);
    }
}

/* ---- bash ---- */

static void bash_command(const cli_command *c) {
    const cli_option *o;
    printf("    %s)\n        case \"$prev\" in\n", c->name);
    for (int k = 0; (o = cli_option_at(c, k)) != NULL; k++) {
        if (o->arg == NULL) continue;
        printf("        --%s", o->name);
        if (o->letter != 0) printf(" | -%c", o->letter);
        printf(") _hdo_words '");
        print_choices(o->words);
        printf("'; return ;;\n");
    }
    printf("        esac\n        words='");
    print_words(c);
    printf("'\n        flags='");
    for (int k = 0; (o = cli_option_at(c, k)) != NULL; k++) {
        if (o->kind == CLI_HEADING) continue;
        if (o->letter != 0) printf("-%c ", o->letter);
        printf("--%s ", o->name);
    }
    printf("' ;;\n");
}

static void bash(void) {
    printf("# bash completion of hdo: source <(hdo completion bash)\n"
           "_hdo_words() {\n"
           "    local word\n"
           "    while read -r word; do [ -n \"$word\" ] && COMPREPLY+=(\"$word\"); done < <(compgen -W \"$1\" -- "
           "\"$cur\")\n"
           "}\n"
           "_hdo() {\n"
           "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} words='' flags=''\n"
           "    COMPREPLY=()\n"
           "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        _hdo_words '");
    for (const cli_command *const *c = cli_commands; *c != NULL; c++) printf("%s ", (*c)->name);
    printf("--help --version'\n        return\n    fi\n    case \"${COMP_WORDS[1]}\" in\n");
    for (const cli_command *const *c = cli_commands; *c != NULL; c++) bash_command(*c);
    printf("    esac\n"
           "    case \"$cur\" in\n    -*) _hdo_words \"$flags\" ;;\n    *) _hdo_words \"$words\" ;;\n    esac\n"
           "}\n"
           "complete -o default -F _hdo hdo # nothing of ours: files\n");
}

/* ---- zsh ---- */

static const char zsh_special[] = "[]:\\", zsh_quote[] = "'\\''";

static void zsh_option(const cli_option *o) {
    printf("            %s", o->kind == CLI_LIST ? "'*'" : "");
    if (o->letter != 0) {
        printf("{-%c,--%s}'[", o->letter, o->name);
    } else {
        printf("--%s'[", o->name);
    }
    print_escaped(o->help, zsh_special, zsh_quote);
    putchar(']');
    if (o->arg != NULL) {
        putchar(':');
        print_escaped(o->arg, zsh_special, zsh_quote);
        fputs(o->words != NULL ? ":(" : ":_files", stdout);
        print_choices(o->words);
        if (o->words != NULL) putchar(')');
    }
    printf("' \\\n");
}

static void zsh_command(const cli_command *c) {
    const cli_option *o;
    printf("    %s)\n        _arguments -s \\\n", c->name);
    for (int k = 0; (o = cli_option_at(c, k)) != NULL; k++) {
        if (o->kind != CLI_HEADING) zsh_option(o);
    }
    printf("            '*:argument:{");
    if (has_words(c)) {
        printf("compadd -- ");
        print_words(c);
        printf("; ");
    }
    printf("_files}' ;;\n");
}

static void zsh(void) {
    printf("#compdef hdo\n# zsh completion of hdo: hdo completion zsh > a folder of $fpath, as _hdo\n"
           "_hdo() {\n    local -a commands\n    commands=(\n");
    for (const cli_command *const *c = cli_commands; *c != NULL; c++) {
        printf("        '%s:", (*c)->name);
        print_escaped((*c)->summary, zsh_special, zsh_quote);
        printf("'\n");
    }
    printf("    )\n    if (( CURRENT == 2 )); then\n        _describe command commands\n        return\n    fi\n"
           "    shift words\n    (( CURRENT-- ))\n    case $words[1] in\n");
    for (const cli_command *const *c = cli_commands; *c != NULL; c++) zsh_command(*c);
    printf("    esac\n}\ncompdef _hdo hdo\n");
}

/* ---- fish ---- */

static const char fish_special[] = "\\", fish_quote[] = "\\'";

static void fish_command(const cli_command *c) {
    const cli_option *o;
    printf("complete -c hdo -f -n __fish_use_subcommand -a %s -d '", c->name);
    print_escaped(c->summary, fish_special, fish_quote);
    printf("'\n");
    if (has_words(c)) {
        printf("complete -c hdo -n '__fish_seen_subcommand_from %s' -a '", c->name);
        print_words(c);
        printf("'\n");
    }
    for (int k = 0; (o = cli_option_at(c, k)) != NULL; k++) {
        if (o->kind == CLI_HEADING) continue;
        printf("complete -c hdo -n '__fish_seen_subcommand_from %s' -l %s", c->name, o->name);
        if (o->letter != 0) printf(" -s %c", o->letter);
        if (o->arg != NULL && o->words == NULL) printf(" -r");
        if (o->arg != NULL && o->words != NULL) {
            printf(" -x -a '");
            print_choices(o->words);
            printf("'");
        }
        printf(" -d '");
        print_escaped(o->help, fish_special, fish_quote);
        printf("'\n");
    }
}

static void fish(void) {
    printf("# fish completion of hdo: hdo completion fish > ~/.config/fish/completions/hdo.fish\n");
    for (const cli_command *const *c = cli_commands; *c != NULL; c++) fish_command(*c);
}

/* ---- the command ---- */

static const cli_verb verbs[] = {
    {"bash", NULL, "for bash: source <(hdo completion bash), in ~/.bashrc"},
    {"zsh", NULL, "for zsh: hdo completion zsh > _hdo in a folder of $fpath"},
    {"fish", NULL, "for fish: hdo completion fish > ~/.config/fish/completions/hdo.fish"},
    {NULL, NULL, NULL},
};

static int run_completion(int argc, char **argv) {
    static void (*const script[])(void) = {bash, zsh, fish};
    cli_common o = {0};
    int code = cli_parse(&cmd_completion, argc, argv, &o);
    if (code >= 0) return code;
    script[o.verb]();
    return 0;
}

const cli_command cmd_completion = {
    .name = "completion",
    .summary = "a script that completes commands, options and presets in your shell",
    .run = run_completion,
    .verbs = verbs,
    .about = "Prints the script; it knows every command, option and preset of this build.",
    .examples = "source <(hdo completion bash)",
    .least = 1,
    .most = 1,
    .missing = "for which shell? Give bash, zsh or fish",
    .single = "one shell at a time",
    .size = sizeof(cli_common),
};
