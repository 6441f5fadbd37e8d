/* SPDX-License-Identifier: Apache-2.0 — hdo data: what its files share. */
#ifndef HDO_CMD_DATA_H
#define HDO_CMD_DATA_H

#include "cli.h"

void data_print_stats(const hdo_data_stats *t, const char *name, const char *which);
int data_json_stats(const hdo_data_stats *t, const char *name, const char *which);

#endif
