/* SPDX-License-Identifier: Apache-2.0
 *
 * Status codes and error sentences.
 *
 * Every fallible function returns an hdo_status: zero is success, negative is failure. Functions that can fail for a
 * reason the user can mend also take an hdo_error (may be NULL) and write one full sentence into it: what was wrong,
 * where, and what would be right. Outcomes of an experiment (diverged, target reached) are not errors: see hdo_stop.
 */
#ifndef HDO_STATUS_H
#define HDO_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HDO_API __attribute__((visibility("default")))
#define HDO_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define HDO_API
#define HDO_PRINTF(fmt, args)
#endif

/* Seen by libhdo-lab of the same version, and by nobody else: declared in headers that are not installed. */
#define HDO_LAB HDO_API

/* name, value, exit code of the command line, short text */
#define HDO_STATUS_LIST(X)                                                                                             \
    X(OK, 0, 0, "ok")                                                                                                  \
    X(E_FAILED, -1, 1, "the operation failed")                                                                         \
    X(E_MEMORY, -2, 1, "out of memory")                                                                                \
    X(E_IO, -3, 1, "input or output failed")                                                                           \
    X(E_CONFIG, -4, 2, "the configuration or command line is not valid")                                               \
    X(E_UNSUPPORTED, -5, 2, "this combination is not supported")                                                       \
    X(E_DATA, -6, 3, "data or weights are missing, damaged or do not match")                                           \
    X(E_ENGINE, -7, 5, "a peer or the communication engine failed")                                                    \
    X(E_OBJECTIVE, -8, 6, "the objective failed")                                                                      \
    X(E_STOPPED, -9, 130, "somebody asked to stop")                                                                    \
    X(E_MISUSE, -10, 1, "a function was called in a way that has no meaning")                                          \
    X(E_SKIPPED, -11, 6, "an evaluation failed and was left out")

/* What a function says: HDO_OK, or why not. */
typedef enum hdo_status {
#define HDO_X(name, value, exit_code, text) HDO_##name = (value),
    HDO_STATUS_LIST(HDO_X)
#undef HDO_X
} hdo_status;

#define HDO_MSG_MAX 1024 /* bytes of a sentence, the ending 0 included */

/* The sentence of a failure. */
typedef struct hdo_error {
    hdo_status code;       /* the status the function returned */
    char msg[HDO_MSG_MAX]; /* one sentence, NUL-terminated, cut if too long */
} hdo_error;

/* A few words on a status, static. Never NULL: also for numbers that are none. */
HDO_API const char *hdo_status_text(hdo_status code);
/* The exit code `hdo` ends with for it; 1 for numbers that are none. */
HDO_API int hdo_status_exit_code(hdo_status code);

#ifdef __cplusplus
}
#endif

#endif
