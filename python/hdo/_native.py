# SPDX-License-Identifier: Apache-2.0
"""The C library: where it is, its tables and functions as ctypes sees them. Nothing here is for users."""

import ctypes
import ctypes.util
import os
import pathlib
from ctypes import CFUNCTYPE, POINTER, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint, \
    c_uint64, c_void_p

ABI = 0  # HDO_ABI of <hdo/version.h>

ANY_THREAD, WANT_DATA, WANT_INDICES, HAS_ACCURACY = 1, 2, 4, 8  # flags of <hdo/objective.h>

RUNNING = 0
STOPS = ("running", "completed", "target", "timeout", "diverged", "stopped")


class Error(RuntimeError):
    """The library refused or failed. The text is one sentence: what was wrong, where, what to do.

    `status` is the library's status (negative), `code` the exit code the command would have ended with.
    """

    def __init__(self, message, status=-1, code=1):
        super().__init__(message)
        self.status = status
        self.code = code


class CError(ctypes.Structure):
    _fields_ = [("code", c_int), ("msg", c_char * 1024)]


class Call(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("node", c_int64), ("step", c_int64), ("seed", c_uint64), ("thread", c_int),
                ("message", c_void_p), ("message_cap", c_size_t)]


class Samples(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("count", c_int), ("index", POINTER(c_int64)), ("inputs", POINTER(c_float)),
                ("tokens", POINTER(c_int32)), ("labels", POINTER(c_int32)), ("n_in", c_size_t), ("train", c_int)]


class TensorDef(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("n_dim", c_int), ("dim", c_int64 * 4)]


_f = POINTER(c_float)
# Callbacks get addresses as plain numbers: making pointer objects would cost more than a small function itself.
StartFn = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p)
LossFn = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p)
LossesFn = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_void_p)
GradientFn = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p)
SlopesFn = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_void_p, c_void_p)
MetricsFn = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p)
DestroyFn = CFUNCTYPE(None, c_void_p)


class ObjectiveDef(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("identity", c_char_p), ("flags", c_uint),
                ("dim", c_size_t), ("n_tensors", c_int), ("tensors", POINTER(TensorDef)), ("train_count", c_int64),
                ("val_count", c_int64), ("usual_loss", c_double), ("start", StartFn), ("loss", LossFn),
                ("losses", LossesFn), ("gradient", GradientFn), ("slopes", SlopesFn), ("metrics", MetricsFn),
                ("destroy", DestroyFn)]


LogFn = CFUNCTYPE(None, c_void_p, c_int, c_char_p)

_err = POINTER(CError)
# Functions of <hdo/hdo.h>: result, arguments.
_FUNCTIONS = {
    "hdo_version": (c_char_p, []),
    "hdo_abi": (c_int, []),
    "hdo_free": (None, [c_void_p]),
    "hdo_status_exit_code": (c_int, [c_int]),
    "hdo_names": (POINTER(c_char_p), [c_char_p]),
    "hdo_config_new": (c_void_p, [c_char_p, _err]),
    "hdo_config_copy": (c_void_p, [c_void_p]),
    "hdo_config_free": (None, [c_void_p]),
    "hdo_config_load": (c_int, [c_void_p, c_char_p, _err]),
    "hdo_config_load_text": (c_int, [c_void_p, c_char_p, _err]),
    "hdo_config_set": (c_int, [c_void_p, c_char_p, c_char_p, _err]),
    "hdo_config_get": (c_int, [c_void_p, c_char_p, c_char_p, c_size_t, _err]),
    "hdo_config_population": (c_int, [c_void_p, c_char_p, _err]),
    "hdo_config_check": (c_int, [c_void_p, _err]),
    "hdo_config_text": (c_void_p, [c_void_p]),
    "hdo_config_use_objective": (c_int, [c_void_p, POINTER(ObjectiveDef), c_void_p, _err]),
    "hdo_run_free": (None, [c_void_p]),
    "hdo_run_advance": (c_int, [c_void_p, c_int64, POINTER(c_int), _err]),
    "hdo_run_stop": (c_int, [c_void_p, _err]),
    "hdo_run_open_dir": (c_int, [c_void_p, c_char_p, ctypes.c_bool, _err]),
    "hdo_run_write_summary": (c_int, [c_void_p, _err]),
    "hdo_run_on_log": (c_int, [c_void_p, LogFn, c_void_p, _err]),
    "hdo_run_nodes": (c_int64, [c_void_p]),
    "hdo_run_dim": (c_size_t, [c_void_p]),
    "hdo_run_step": (c_int64, [c_void_p]),
    "hdo_run_params": (_f, [c_void_p, c_int64, POINTER(c_size_t)]),
    "hdo_run_mean": (c_int, [c_void_p, _f, _err]),
    "hdo_run_fingerprint": (None, [c_void_p, c_char_p]),
    "hdo_run_summary": (c_void_p, [c_void_p]),
    "hdo_run_config": (c_void_p, [c_void_p]),
    "hdo_run_row_count": (c_size_t, [c_void_p]),
    "hdo_run_row": (c_void_p, [c_void_p, c_size_t]),
    "hdo_run_columns": (POINTER(c_char_p), [c_void_p]),
    "hdo_row_value": (c_double, [c_void_p, c_char_p]),
}
# Functions of <hdo/lab/answers.h>.
_LAB_FUNCTIONS = {
    "hdo_lab_check": (c_void_p, [c_void_p, _err]),
    "hdo_lab_predict": (c_void_p, [c_void_p, POINTER(c_char_p), c_int64, _err]),
    "hdo_lab_plan": (c_void_p, [c_void_p, POINTER(c_char_p), _err]),
    "hdo_lab_run_open": (c_int, [POINTER(c_void_p), c_void_p, c_char_p, _err]),
}


def _places():
    """Folders that may hold the libraries, the most wanted first."""
    if os.environ.get("HDO_LIBRARY_DIR"):
        yield pathlib.Path(os.environ["HDO_LIBRARY_DIR"])
        return
    yield pathlib.Path(__file__).parent / "_native"


def _open(name):
    for place in _places():
        for path in (place / f"lib{name}.so.{ABI}", place / f"lib{name}.so"):
            if path.exists():
                return ctypes.CDLL(str(path))
    try:
        return ctypes.CDLL(f"lib{name}.so.{ABI}")
    except OSError:
        pass
    raise ImportError(
        f"lib{name}.so.{ABI} was not found: install the package with `pip install ./python`, which brings it, or HDO "
        f"itself (`make install`), or set HDO_LIBRARY_DIR to the folder that holds it, for example build/ of the sources")


def _declare(library, functions):
    for name, (result, arguments) in functions.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise ImportError(f"the library has no {name}: it is older than this package; install both again") from None
        function.restype = result
        function.argtypes = arguments
    return library


def _preload():
    """What a wheel carries beside the libraries: the dynamic linker takes what is loaded already under its name."""
    order = pathlib.Path(__file__).parent / "_native" / "preload.txt"
    if order.exists() and not os.environ.get("HDO_LIBRARY_DIR"):
        for name in order.read_text().split():
            ctypes.CDLL(str(order.parent / name), mode=ctypes.RTLD_GLOBAL)


_preload()
hdo = _declare(_open("hdo"), _FUNCTIONS)
if hdo.hdo_abi() != ABI:
    raise ImportError(f"libhdo has interface {hdo.hdo_abi()}, this package needs {ABI}: install versions that belong together")

_lab = None


def lab():
    """libhdo-lab, loaded when it is asked for."""
    global _lab
    if _lab is None:
        _lab = _declare(_open("hdo-lab"), _LAB_FUNCTIONS)
    return _lab


def check(status, error):
    """Raises what a function of the library said."""
    if status != 0:
        raise Error(error.msg.decode("utf-8", "replace") or "the library failed without a sentence", status,
                    hdo.hdo_status_exit_code(status))


def text(pointer, error=None):
    """A text the library made: copied and freed."""
    if not pointer:
        if error is not None and error.code:
            check(error.code, error)
        raise MemoryError("libhdo is out of memory")
    value = ctypes.string_at(pointer).decode()
    hdo.hdo_free(pointer)
    return value


def words(list_of_texts):
    """A NULL-terminated list of texts."""
    out = []
    while list_of_texts and list_of_texts[len(out)] is not None:
        out.append(list_of_texts[len(out)].decode())
    return out
