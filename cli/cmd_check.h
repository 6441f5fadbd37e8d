/* SPDX-License-Identifier: Apache-2.0 — hdo check: what its files share. */
#ifndef HDO_CMD_CHECK_H
#define HDO_CMD_CHECK_H

#include "cli.h"
#include "hdo/lab/check.h"

void check_print(const hdo_check_result *r);

#endif
