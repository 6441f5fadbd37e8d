# SPDX-License-Identifier: Apache-2.0
"""Builds the C library and packs it, with what it needs beside the system's C library, into the package.

The sources are in the folder above. HDO_BUILD names a build folder to take the libraries from instead of building anew.
"""

import os
import pathlib
import re
import shutil
import subprocess

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:
    from wheel.bdist_wheel import bdist_wheel

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
VERSION = re.search(r"version: '([^']+)'", (ROOT / "meson.build").read_text()).group(1)
SYSTEM = re.compile(r"(linux-vdso|ld-linux|libc|libm|libdl|libpthread|librt)[-.]")


def run(*command):
    try:
        subprocess.run(command, check=True)
    except FileNotFoundError:
        raise SystemExit(f"{command[0]} is needed to build libhdo: run `make deps` in the folder above, or apt install meson ninja-build "
                         "gcc pkg-config libyaml-dev libjansson-dev zlib1g-dev libpng-dev")


def library_folder(temporary):
    if os.environ.get("HDO_BUILD"):
        return pathlib.Path(os.environ["HDO_BUILD"])
    build = pathlib.Path(temporary).resolve() / "libhdo"
    if not (build / "build.ninja").exists():
        run("meson", "setup", str(build), str(ROOT))
    run("ninja", "-C", str(build), f"libhdo.so.{VERSION}", f"libhdo-lab.so.{VERSION}")
    return build


def needed(library):
    """Libraries it loads that a system may not have, deepest first."""
    lines = subprocess.run(["ldd", str(library)], check=True, capture_output=True, text=True).stdout.splitlines()
    found = []
    for line in lines:
        parts = line.split()
        if len(parts) >= 3 and parts[1] == "=>" and not SYSTEM.match(parts[0]) and not parts[0].startswith("libhdo"):
            found.append((parts[0], parts[2]))
    return found[::-1]


class Build(build_py):
    def run(self):
        super().run()
        build = library_folder(self.get_finalized_command("build").build_temp)
        to = pathlib.Path(self.build_lib) / "hdo" / "_native"
        shutil.rmtree(to, ignore_errors=True)
        to.mkdir(parents=True)
        order = []
        for name in ("libhdo.so.0", "libhdo-lab.so.0"):
            source = (build / name).resolve()
            for soname, path in needed(source):
                if soname not in order:
                    shutil.copy(path, to / soname)
                    order.append(soname)
            shutil.copy(source, to / name)
        (to / "preload.txt").write_text("\n".join(order + ["libhdo.so.0"]) + "\n")


class Wheel(bdist_wheel):
    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class Native(Distribution):
    def has_ext_modules(self):
        return True


setup(version=VERSION, packages=["hdo"], distclass=Native, cmdclass={"build_py": Build, "bdist_wheel": Wheel})
