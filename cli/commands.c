/* SPDX-License-Identifier: Apache-2.0 — the commands of hdo, in the order of its help. */
#include "cli.h"

const cli_command *const cli_commands[] = {
    &cmd_run,     &cmd_demo,   &cmd_paper,  &cmd_plot,       &cmd_report,  &cmd_compare,  &cmd_verify,
    &cmd_eval,    &cmd_sweep,  &cmd_theory, &cmd_plan,       &cmd_predict, &cmd_spectrum, &cmd_check,
    &cmd_explain, &cmd_config, &cmd_node,   &cmd_fleet,      &cmd_data,    &cmd_bench,    &cmd_weights,
    &cmd_new,     &cmd_doctor, &cmd_help,   &cmd_completion, &cmd_version, NULL,
};
