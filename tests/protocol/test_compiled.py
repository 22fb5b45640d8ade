"""Which modules count as compiled."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

import ottla_protocol
from ottla_protocol.compiled import INTERFACE, load_engine


def test_a_binary_from_other_sources_and_one_that_is_switched_off_are_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = ModuleType("ottla_protocol.records._records")
    monkeypatch.delenv("OTTLA_EXTENSION", raising=False)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    module.INTERFACE = INTERFACE  # type: ignore[attr-defined]
    assert load_engine() is module
    monkeypatch.setenv("OTTLA_EXTENSION", "0")
    assert load_engine() is None
    monkeypatch.delenv("OTTLA_EXTENSION")
    module.INTERFACE = INTERFACE - 1  # type: ignore[attr-defined]
    assert load_engine() is None


@pytest.mark.skipif(load_engine() is None or sys.platform != "linux", reason="the engine isn't compiled here")
def test_it_is_found_in_a_zip_file(tmp_path: Path) -> None:
    """As Spark's executors get Ottla."""
    made = tmp_path / "ottla.zip"
    folder = Path(ottla_protocol.__path__[0])
    with zipfile.ZipFile(made, "w") as archive:
        for file in folder.rglob("*"):
            if file.suffix in (".py", ".so"):
                archive.write(file, file.relative_to(folder.parent))
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "from ottla_protocol.compiled import load_engine; print(load_engine())"
    )
    done = subprocess.run([sys.executable, "-c", program, made], capture_output=True, text=True, cwd=tmp_path)
    assert "/proc/self/fd/" in done.stdout, done
