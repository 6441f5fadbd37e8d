/* SPDX-License-Identifier: Apache-2.0
 *
 * Which version these headers are of, and what may be relied upon.
 *
 * Stable: <hdo/hdo.h> and what it includes (status, version, the tables), <hdo/plugin.h>, <hdo/test.h>. Inside one
 * HDO_ABI nothing is taken away and no meaning changes: functions, status codes and configuration keys are added;
 * tables grow at their end only, which is why each begins with its size. A program built against an older version of
 * the same HDO_ABI runs without being built again. Whoever must take something away raises HDO_ABI, and with it the
 * number in the name of the shared library (libhdo.so.HDO_ABI), so that old programs keep finding the old library.
 *
 * Not stable: <hdo/experimental/...> and <hdo/lab/...>, which may change in any version.
 */
#ifndef HDO_VERSION_H
#define HDO_VERSION_H

/* Of these headers; hdo_version() says that of the library in use. */
#define HDO_VERSION_MAJOR 0
#define HDO_VERSION_MINOR 1
#define HDO_VERSION_PATCH 0

/* One number to compare: HDO_VERSION_NUMBER >= 102 is version 0.1.2 or later. */
#define HDO_VERSION_NUMBER (HDO_VERSION_MAJOR * 10000 + HDO_VERSION_MINOR * 100 + HDO_VERSION_PATCH)

/* Of the binary interface: tables, plug-ins, the shared library. hdo_abi() says that of the library in use. */
#define HDO_ABI 0

#endif
