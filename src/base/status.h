/* SPDX-License-Identifier: Apache-2.0 — also for the laboratory: <hdo/experimental/fail.h>. */
#include "hdo/experimental/fail.h"
