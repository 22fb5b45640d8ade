"""Compiles the C modules into the wheel, if there is a C compiler.

Without one the wheel is the same for all platforms, and Python does their work: ``scan.py``, ``message_set.py`` and
``down_conversion.py`` of the protocol, ``recovery_scan.py`` of the log, and ``offset_map.py`` of its cleaner.
``OTTLA_EXTENSION=0`` skips the compiler, ``OTTLA_EXTENSION=1`` makes its failure an error. The binaries use the stable
ABI of Python 3.11, so they serve every later version. An editable install gets them where the modules are imported
from.
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

MODULES = {
    "protocol/ottla_protocol/records/_records.c": "protocol/ottla_protocol/records/_records.abi3.so",
    "protocol/ottla_protocol/records/_messages.c": "protocol/ottla_protocol/records/_messages.abi3.so",
    "broker/ottla_broker/log/_recovery.c": "broker/ottla_broker/log/_recovery.abi3.so",
    "broker/ottla_broker/log/cleaner/native/module.c": "broker/ottla_broker/log/cleaner/_cleaning.abi3.so",
}
"""Each module's source, and the binary it becomes."""


class CompileHook(BuildHookInterface):  # type: ignore[type-arg]
    """Hatchling's hook: it adds the binaries to what is built."""

    PLUGIN_NAME = "custom"
    _folder: str | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        wanted = os.environ.get("OTTLA_EXTENSION", "")
        if wanted == "0" or sysconfig.get_config_var("Py_GIL_DISABLED"):
            return
        self._folder = tempfile.mkdtemp(prefix="ottla-build-")
        for source, target in MODULES.items():
            binary = Path(self._folder, Path(target).name)
            try:
                compile_extension(Path(self.root, source), binary)
            except (OSError, subprocess.CalledProcessError) as error:
                if wanted == "1":
                    raise
                why = getattr(error, "stderr", None) or error
                self.app.display_warning(f"{source} wasn't compiled, Python does its work more slowly: {why}")
                continue
            if version == "editable":
                put(binary, Path(self.root, target))
                continue
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["force_include"][str(binary)] = target.partition("/")[2]
            build_data["pure_python"] = False
            build_data["tag"] = f"cp311-abi3-{platform}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder)


def compile_extension(source: Path, binary: Path) -> None:
    """Compile ``source``. Raises OSError without a compiler, CalledProcessError with the compiler's complaints."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    if shutil.which(compiler[0]) is None:
        compiler = ["cc"]
    link = ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]
    include = sysconfig.get_paths()["include"]
    command = [*compiler, "-O3", "-fPIC", *link, f"-I{include}", str(source), "-o", str(binary)]
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
        for source, target in MODULES.items():
            made = Path(folder, Path(target).name)
            compile_extension(root / source, made)
            put(made, root / target)
