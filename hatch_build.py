"""Compiles the record engine into the wheel, if there is a C compiler.

Without one the wheel is the same for all platforms, and Python does its work: ``scan.py``, ``message_set.py`` and
``down_conversion.py`` of the protocol, ``recovery_scan.py`` of the log, and ``offset_map.py`` of its cleaner.
``OTTLA_EXTENSION=0`` skips the compiler, ``OTTLA_EXTENSION=1`` makes its failure an error. The binary uses the stable
ABI of Python 3.11, so it serves every later version. An editable install gets it where it is imported from.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = "protocol/ottla_protocol/records"
SOURCES = ("_records.c", "_messages.c", "_recovery.c", "_cleaning.c", "_crc32c.c")
TARGET = f"{FOLDER}/_records.abi3.so"
"""The record engine, one module of these sources."""


class CompileHook(BuildHookInterface):  # type: ignore[type-arg]
    """Hatchling's hook: it adds the binaries to what is built."""

    PLUGIN_NAME = "custom"
    _folder: str | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        wanted = os.environ.get("OTTLA_EXTENSION", "")
        if wanted == "0" or sysconfig.get_config_var("Py_GIL_DISABLED"):
            return
        self._folder = tempfile.mkdtemp(prefix="ottla-build-")
        binary = Path(self._folder, Path(TARGET).name)
        try:
            compile_engine(Path(self.root), binary)
        except (OSError, subprocess.CalledProcessError) as error:
            if wanted == "1":
                raise
            why = getattr(error, "stderr", None) or error
            self.app.display_warning(f"{FOLDER} wasn't compiled, Python does its work more slowly: {why}")
            return
        if version == "editable":
            put(binary, Path(self.root, TARGET))
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["force_include"][str(binary)] = TARGET.partition("/")[2]
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{platform}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder)


def compile_engine(root: Path, binary: Path, *options: str) -> None:
    """Compile the engine, with more of the compiler's ``options``.

    Raises OSError without a compiler, CalledProcessError with the compiler's complaints.
    """
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    if shutil.which(compiler[0]) is None:
        compiler = ["cc"]
    link = ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]
    include = sysconfig.get_paths()["include"]
    sources = [str(root / FOLDER / source) for source in SOURCES]
    flags = ["-O3", "-fPIC", "-fvisibility=hidden", *options, f"-I{include}"]
    command = [*compiler, *flags, *link, *sources, "-o", str(binary)]
    subprocess.run(command, check=True, capture_output=True, text=True)


def put(binary: Path, target: Path) -> None:
    """Copy a binary to its place, over an older one, which a running process may have mapped."""
    beside = target.with_name(target.name + ".new")
    shutil.copy(binary, beside)
    beside.replace(target)


if __name__ == "__main__":
    # In their places, as an editable install does, for those who change the sources.
    root = Path(__file__).resolve().parent
    with tempfile.TemporaryDirectory(prefix="ottla-build-") as folder:
        made = Path(folder, Path(TARGET).name)
        compile_engine(root, made)
        put(made, root / TARGET)
