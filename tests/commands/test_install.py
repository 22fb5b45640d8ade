"""The README's ``pip install`` makes an environment whose ``ottla`` works, without the sources it came from."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHECK = """
import importlib.metadata, pathlib, sys
import ottla_broker, ottla_cli, ottla_client, ottla_console, ottla_pipeline, ottla_protocol, pyspark_ottla
for package in (ottla_broker, ottla_cli, ottla_client, ottla_console, ottla_pipeline, ottla_protocol, pyspark_ottla):
    assert pathlib.Path(package.__file__).is_relative_to(sys.prefix), package.__file__
    assert pathlib.Path(package.__file__).with_name("py.typed").exists() or package is pyspark_ottla
print(sorted(point.name for point in importlib.metadata.entry_points(group="ottla.commands") if point.load()))
"""


def test_an_installed_wheel_works(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    python = venv / "bin/python"
    # Dependencies come from this environment, whose own (editable) Ottla must not be found: only pip's are linked in.
    packages = Path(sysconfig.get_path("purelib"))
    target = venv / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    for entry in packages.iterdir():
        if not entry.name.startswith(("ottla", "_editable_impl_ottla")) and entry.suffix != ".pth":
            (target / entry.name).symlink_to(entry)
    install = [
        str(python),
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        str(ROOT),
    ]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(install, check=True, cwd=tmp_path, env=environment)

    def run(*command: str) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    commands = (
        "acls",
        "bench",
        "broker",
        "cluster",
        "completion",
        "configs",
        "console",
        "consume",
        "features",
        "groups",
        "log",
        "pipeline",
        "produce",
        "quotas",
        "security",
        "tokens",
        "topics",
        "transactions",
    )
    assert run(str(python), "-W", "error", "-c", CHECK) == f"{list(commands)}\n"
    shown = run(str(venv / "bin/ottla"), "--help")
    assert all(f"  {command} " in shown for command in commands)
