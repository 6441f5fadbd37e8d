/* SPDX-License-Identifier: Apache-2.0 — also for the laboratory: <hdo/experimental/file.h>. */
#include "hdo/experimental/file.h"
