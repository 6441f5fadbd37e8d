/* SPDX-License-Identifier: Apache-2.0 — also for the laboratory: <hdo/experimental/quote.h>. */
#include "hdo/experimental/quote.h"
