/* SPDX-License-Identifier: Apache-2.0 — also for the laboratory: <hdo/experimental/spawn.h>. */
#include "hdo/experimental/spawn.h"
