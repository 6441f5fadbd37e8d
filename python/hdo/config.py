# SPDX-License-Identifier: Apache-2.0
"""Configurations: a preset, a file or a dict, and keywords over it."""

import ctypes
import json
import os

from ._native import CError, check, hdo, text, words


def presets():
    """Names of the configurations that come with the library.

    >>> "e2" in presets()
    True
    """
    return words(hdo.hdo_names(b"preset"))


def _value(value):
    """A Python value as the text a configuration has."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):
        value = value.item()  # numpy scalars
    return repr(value) if isinstance(value, float) else str(value)


class Config:
    """What to run. `base` is the name of a preset, the path of a YAML or JSON file, a dict, or another Config; keywords are
    keys of the configuration, nested ones as dicts or with dots.

    >>> c = Config("e2", population="4fo+4zo", steps=20, **{"population.zo.rv": 8})
    >>> c["population.zo.rv"], c["steps"]
    ('8', '20')
    """

    def __init__(self, base=None, **keys):
        self._own = None  # keeps a function of one's own alive as long as its configuration
        self._c = None
        error = CError()
        if isinstance(base, Config):
            self._own = base._own
            self._c = hdo.hdo_config_copy(base._c)
            if not self._c:
                raise MemoryError("libhdo is out of memory")
        elif isinstance(base, str) and not os.path.exists(base) and not _looks_like_a_path(base):
            self._new(base.encode())
        else:
            self._new(None)
            if isinstance(base, dict):
                status = hdo.hdo_config_load_text(self._c, json.dumps(base).encode(), ctypes.byref(error))
            elif base is not None:
                status = hdo.hdo_config_load(self._c, os.fsencode(os.fspath(base)), ctypes.byref(error))
            else:
                status = 0
            check(status, error)
        # Counts first: they decide which classes there are.
        population = keys.pop("population", None)
        if isinstance(population, str):
            check(hdo.hdo_config_population(self._c, population.encode(), ctypes.byref(error)), error)
        elif population is not None:
            self._merge({"population": population})
        for key, value in keys.items():
            self._set(key, value)

    def _new(self, preset):
        error = CError()
        self._c = hdo.hdo_config_new(preset, ctypes.byref(error))
        if not self._c:
            check(error.code or -2, error)

    def _merge(self, tree):
        error = CError()
        check(hdo.hdo_config_load_text(self._c, json.dumps(tree).encode(), ctypes.byref(error)), error)

    def _set(self, key, value):
        if isinstance(value, dict):
            for name, inner in value.items():
                self._set(f"{key}.{name}", inner)
            return
        error = CError()
        check(hdo.hdo_config_set(self._c, key.encode(), _value(value).encode(), ctypes.byref(error)), error)

    def __setitem__(self, key, value):
        self._set(key, value)

    def __getitem__(self, key):
        """The value of one dotted key, as text."""
        buffer, error = ctypes.create_string_buffer(2048), CError()
        status = hdo.hdo_config_get(self._c, key.encode(), buffer, len(buffer), ctypes.byref(error))
        if status != 0:
            raise KeyError(error.msg.decode())
        return buffer.value.decode()

    def check(self):
        """Raises hdo.Error when the settings make no sense together, or one of them has no effect."""
        error = CError()
        check(hdo.hdo_config_check(self._c, ctypes.byref(error)), error)

    @property
    def text(self):
        """All settings as YAML."""
        return text(hdo.hdo_config_text(self._c))

    def __repr__(self):
        return f"<hdo.Config {self['name']}: {self['model.name']}, seed {self['seed']}, {self['steps']} steps>"

    def __del__(self):
        if getattr(self, "_c", None) and hdo is not None:
            hdo.hdo_config_free(self._c)
            self._c = None


def _looks_like_a_path(name):
    return os.sep in name or name.endswith((".yaml", ".yml", ".json"))
