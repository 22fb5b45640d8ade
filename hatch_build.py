"""Compiles protocol/ottla_protocol/records/_scan.c into the wheel, if there is a C compiler.

Without one the wheel is the same for all platforms, and scan.py does the work in Python. ``OTTLA_EXTENSION=0`` skips
the compiler, ``OTTLA_EXTENSION=1`` makes its failure an error. The binary uses the stable ABI of Python 3.11, so one
serves every later version. An editable install gets the binary beside its source.
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

SOURCE = "protocol/ottla_protocol/records/_scan.c"
BINARY = "_scan.abi3.so"


class CompileHook(BuildHookInterface):  # type: ignore[type-arg]
    """Hatchling's hook: it adds the binary to what is built."""

    PLUGIN_NAME = "custom"
    _folder: str | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        wanted = os.environ.get("OTTLA_EXTENSION", "")
        if wanted == "0" or sysconfig.get_config_var("Py_GIL_DISABLED"):
            return
        source = Path(self.root, SOURCE)
        self._folder = tempfile.mkdtemp(prefix="ottla-build-")
        binary = Path(self._folder, BINARY)
        try:
            compile_extension(source, binary)
        except (OSError, subprocess.CalledProcessError) as error:
            if wanted == "1":
                raise
            why = getattr(error, "stderr", None) or error
            self.app.display_warning(f"{SOURCE} wasn't compiled, Python does its work more slowly: {why}")
            return
        if version == "editable":
            # Renamed over an older one, which a running process may have mapped.
            beside = source.with_name(BINARY + ".new")
            shutil.copy(binary, beside)
            beside.replace(source.with_name(BINARY))
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["force_include"][str(binary)] = f"ottla_protocol/records/{BINARY}"
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


if __name__ == "__main__":
    # Beside its source, as an editable install does, for whoever changes it.
    here = Path(__file__).resolve().parent / SOURCE
    compile_extension(here, here.with_name(BINARY))
