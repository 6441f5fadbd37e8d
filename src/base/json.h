/* SPDX-License-Identifier: Apache-2.0 — also for the laboratory: <hdo/experimental/json.h>. */
#include "hdo/experimental/json.h"
