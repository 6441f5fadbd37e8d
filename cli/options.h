/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands as data. A command is a cli_command: its usage, its options, its examples. From it come the parser, --help,
 * the man page (hdo help --man) and completion (hdo completion), so that none of them can lack an option.
 *
 * The options of a command go into a struct of its own, whose first member is a cli_common. A row says where: offsetof.
 */
#ifndef HDO_CLI_OPTIONS_H
#define HDO_CLI_OPTIONS_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CLI_LIST_MAX = 64, CLI_THREADS_MAX = 4096 };
#define CLI_POSITIVE DBL_MIN /* least bound of a number that may not be 0 */

typedef struct cli_list {
    char *item[CLI_LIST_MAX];
    int n;
} cli_list;

typedef struct cli_seeds {
    int64_t first, last;
} cli_seeds;

typedef enum cli_kind {               /* what an option takes, and the type of its target */
                        CLI_FLAG,     /* nothing; bool */
                        CLI_INT,      /* a whole number in [lo, hi]; int64_t */
                        CLI_INT32,    /* the same; int */
                        CLI_REAL,     /* a number in [lo, hi]; double */
                        CLI_DURATION, /* 90, 90s, 15m or 2h, in seconds in [lo, hi]; double */
                        CLI_TEXT,     /* any word; const char * */
                        CLI_LIST,     /* any word, again and again; cli_list */
                        CLI_CHOICE,   /* one of words; const char * */
                        CLI_SEEDS,    /* A-B or A; cli_seeds */
                        CLI_KEY, /* a value of the configuration key `key`, as --set KEY=VALUE (no arg: true); cli_list
                                  */
                        CLI_HEADING /* not an option: help is a heading of those that follow */
} cli_kind;

typedef struct cli_option {
    const char *name; /* without the dashes; NULL ends a table */
    char letter;      /* the short form; 0: none */
    cli_kind kind;
    const char *arg; /* what its argument is called; NULL: none */
    const char *help;
    size_t target;     /* offset in the struct of options */
    double lo, hi;     /* bounds of a number, inclusive */
    const char *words; /* sim|mpi: of a choice; proposals for a text or key; of a number: words for the default */
    const char *key;   /* CLI_KEY */
    const char *takes; /* "--NAME takes ...", when the value is wrong; NULL: said from kind and bounds */
} cli_option;

/* Two rows for commands that make many runs at once: a process each, so that threads and processes are one number. */
#define CLI_JOBS(where)                                                                                                \
    {"jobs", 0, CLI_INT, "N", "processes at once (default: one for each CPU)", .target = (where), .lo = 1, .hi = 256}, \
    {                                                                                                                  \
        "threads", 0, CLI_INT, "N", "the same number: a process each while there are runs enough", .target = (where),  \
                                                                                                   .lo = 1, .hi = 256  \
    }

/* Common options: defined once (options.c), and a command names those it has. --help is everywhere. */
enum {
    CLI_SET = 1 << 0,
    CLI_POPULATION = 1 << 1,
    CLI_PIECEWISE = 1 << 2,
    CLI_THREADS = 1 << 3,
    CLI_FORCE = 1 << 4,
    CLI_JSON = 1 << 5,
    CLI_QUIET = 1 << 6,
    CLI_COLOUR = 1 << 7,
    CLI_CONFIG = CLI_SET | CLI_POPULATION, /* what makes a configuration */
    CLI_TALK = CLI_QUIET | CLI_COLOUR
};

typedef struct cli_common { /* first member of the options of every command */
    int n_words;
    char **word;    /* what is not an option, in order */
    int verb;       /* word 0 of a command with verbs: its index */
    uint64_t given; /* bit k: row k was on the command line */
    cli_list set;
    const char *population, *colour;
    int64_t threads; /* 0: not given */
    bool piecewise, force, json, quiet;
} cli_common;

typedef struct cli_verb { /* the first word of some commands: hdo data get */
    const char *name;     /* NULL ends the table */
    const char *usage;    /* what follows it: the options it has, or [OPTIONS] for all of the command's */
    const char *help;     /* NULL: understood, but not shown */
} cli_verb;

typedef struct cli_command {
    const char *name, *summary;
    int (*run)(int argc, char **argv); /* argv[0] is the command's name */
    const char *usage;                 /* lines of what follows its name; NULL: from verbs */
    const cli_verb *verbs;             /* NULL: none */
    const char *about;                 /* paragraphs, a line each */
    const cli_option *options;         /* NULL: none of its own */
    unsigned common;                   /* CLI_SET | ... */
    const char *notes;                 /* paragraphs after the options; may be NULL */
    const char *examples;              /* lines; may be NULL */
    const char *exit_codes;            /* NULL: those of all commands */
    bool presets;                      /* its first word is a configuration or preset */
    int least, most;                   /* words that are not options; most < 0: any number */
    const char *missing;               /* the sentence when there are fewer than `least` */
    const char *single;                /* "one configuration at a time": when there are too many */
    size_t size;                       /* of its struct of options */
} cli_command;

extern const cli_command *const cli_commands[]; /* ends with NULL */
const cli_command *cli_find(const char *name);
const char *cli_nearest_command(const char *name); /* NULL: none is near */
const char *cli_nearest_preset(const char *name);

/* Row k: the command's own, then the common ones it has, then --help; NULL after the last. */
const cli_option *cli_option_at(const cli_command *c, int k);

/* Reads the command line into `options`, which begins with a cli_common and holds the defaults. argv is left with the
 * words that are not options. Returns -1 to go on, otherwise the exit code: after --help, or after a sentence. */
int cli_parse(const cli_command *c, int argc, char **argv, void *options);

/* Puts the value of one option (text; NULL if it takes none) where its row says. Returns 0, or the exit code. */
int cli_take(const cli_command *c, const cli_option *o, const char *text, void *options); /* values.c */

/* help.c */
void cli_help(const cli_command *c);                            /* on stdout */
void cli_help_all(void);                                        /* of hdo itself */
void cli_man(const cli_command *c);                             /* the page for man; NULL: of hdo itself */
void cli_flag_text(const cli_option *o, char *buf, size_t cap); /* -o, --output DIR */
/* text from column `at` on, broken at blanks so that lines end before column 110; further lines start at `indent`. */
void cli_print_wrapped(int at, int indent, const char *text);

#endif
