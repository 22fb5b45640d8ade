"""The page on testing has programs in Go, Node and Java; they are run here as they stand there."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from harness import maven
from harness.java import Unavailable, find_java
from tests.docs.pages import ROOT, marked
from tests.interop.support import PROGRAMS, built, needed, run

JUNIT = "org.junit.platform:junit-platform-console-standalone:1.11.4"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the program, with ``ottla`` on the PATH."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def write(program: str, folder: Path) -> Path:
    file = folder / program
    file.write_text(marked(ROOT / "docs/testing.md", "file")[program])
    return file


def test_go(folder: Path) -> None:
    go = needed("go")
    # The modules are there once these are built.
    built("go", PROGRAMS / "go", "bin", [go, "build", "-o", "bin/", "./..."])
    for name in ("go.mod", "go.sum"):
        shutil.copy(PROGRAMS / "go" / name, folder)
    write("orders_test.go", folder)
    assert "PASS: TestAnOrderArrives" in run([go, "test", "-v", "."], cwd=folder)


def test_node(folder: Path) -> None:
    node, npm = needed("node"), needed("npm")
    command = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--prefer-offline"]
    modules = built("node", PROGRAMS / "node", "node_modules", command) / "node_modules"
    write("orders.test.js", folder)
    output = run([node, "--test"], cwd=folder, environment={"NODE_PATH": str(modules)})
    assert "# pass 1" in output


def test_java(folder: Path, java_libs: Path) -> None:
    try:
        junit = maven.jars("junit", [JUNIT])
    except Unavailable as lack:
        pytest.skip(str(lack))
    classes = f"{folder}:{java_libs}/*:{junit}/*"
    run([needed("javac"), "-cp", classes, "-d", str(folder), str(write("OrdersTest.java", folder))])
    command = [find_java(), "-cp", classes, "org.junit.platform.console.ConsoleLauncher", "execute"]
    output = run([*command, "--select-class", "OrdersTest", "--disable-banner"])
    assert "1 tests successful" in output
