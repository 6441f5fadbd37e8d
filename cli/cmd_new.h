/* SPDX-License-Identifier: Apache-2.0 — template projects that the program carries with it. */
#ifndef HDO_CMD_NEW_H
#define HDO_CMD_NEW_H

typedef struct cli_template {
    const char *kind, *file, *text; /* file and text with @NAME@, or NAME in file names */
} cli_template;
extern const cli_template cli_templates[]; /* ends with kind == NULL */

#endif
