"""``python harness/environment.py VENV EXTRAS`` makes an environment, if need be, with what the extras need.

``--project`` installs the project itself, too, editable, and compiles its sources to bytecode meanwhile. uv does the
work if it is on the PATH, pip otherwise, or if uv fails. Needs nothing but Python: `make` runs it before all else.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCES: Final = ("broker", "protocol", "client", "pipeline", "harness")
_LINE_SECONDS: Final = 4.0
"""Print what the installer does at least this often."""


class Failed(Exception):
    """A command failed; its output has been printed."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="environment.py")
    parser.add_argument("venv", type=Path)
    parser.add_argument("extras", help="with commas between them")
    parser.add_argument("--project", action="store_true", help="install the project itself, too")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    try:
        make_environment(options.venv)
        install(options.venv, options.extras, options.project)
    except Failed as failed:
        print(f"make: {failed}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    say(f"{options.venv} has {options.extras.replace(',', ', ')}, after {time.monotonic() - began:.0f} s")
    return 0


def make_environment(venv: Path) -> None:
    """Make the environment, unless it is there. Raises Failed."""
    if (venv / "bin/python").exists():
        return
    say(f"making {venv} with Python {platform.python_version()}, {sys.executable}")
    uv = shutil.which("uv")
    try:
        if uv is not None:
            run([uv, "venv", "--python", sys.executable, str(venv)])
        else:
            run([sys.executable, "-m", "venv", *(["--without-pip"] if has_pip() else []), str(venv)])
    except BaseException:
        shutil.rmtree(venv, ignore_errors=True)
        raise


def install(venv: Path, extras: str, project: bool) -> None:
    """Install what the extras need. Raises Failed."""
    python = str(venv / "bin/python")
    own_pip = any(venv.glob("lib/python*/site-packages/pip"))
    if project:
        wanted = ["-e", f"{ROOT}[{extras}]"]
    else:
        listing = [sys.executable, str(ROOT / ".ci/extras"), *extras.split(",")]
        wanted = subprocess.run(listing, check=True, capture_output=True, text=True).stdout.split("\n")
    wanted = [*filter(None, wanted), *([] if own_pip else ["pip"])]
    compiling = None
    if project:
        # Meanwhile, on another core. Later starts of the broker don't compile, even with PYTHONDONTWRITEBYTECODE.
        compiling = subprocess.Popen([python, "-m", "compileall", "-q", *SOURCES], cwd=ROOT)
    try:
        _install(python, wanted, extras.replace(",", ", "), own_pip)
    finally:
        if compiling is not None:
            compiling.wait()


def _install(python: str, wanted: list[str], extras: str, own_pip: bool) -> None:
    if uv := shutil.which("uv"):
        say(f"installing {extras} with uv")
        try:
            run([uv, "pip", "install", "--python", python, *wanted])
            return
        except Failed as failed:
            say(f"{failed}; trying pip")
    say(f"installing {extras} with pip; uv would be quicker, if it were on the PATH")
    pip = [python, "-m", "pip"] if own_pip else [sys.executable, "-m", "pip", "--python", python]
    quiet = ["--disable-pip-version-check", "--progress-bar", "off", "--no-compile"]
    run([*pip, "install", *quiet, *wanted])


def has_pip() -> bool:
    """Whether this Python's own pip can install into other environments, which is quicker than to make each its own."""
    try:
        version = importlib.metadata.version("pip").split(".")
    except importlib.metadata.PackageNotFoundError:
        return False
    return (int(version[0]), int(version[1])) >= (22, 3)


def run(command: list[str]) -> None:
    """Run a command, and print its latest line from time to time, all of them if it fails. Raises Failed."""
    began = time.monotonic()
    lines = ["starting"]  # and what it prints
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        reader = threading.Thread(target=lines.extend, args=(process.stdout,), daemon=True)
        reader.start()
        while reader.is_alive():
            reader.join(_LINE_SECONDS)
            if reader.is_alive():
                say(f"  {time.monotonic() - began:3.0f} s  {lines[-1].strip()[:100]}")
    if process.returncode:
        print("".join(lines[1:]), end="", file=sys.stderr)
        raise Failed(f"{Path(command[0]).name} failed with exit code {process.returncode}")


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
