"""Every command of ``make help`` works in a fresh clone with a fresh home, at least in its quick form."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from harness.java import Unavailable, find_java
from harness.ports import free_port
from tests.support.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("broker", "protocol", "client", "pipeline")

# The commands that end, the longest first: arguments, and the files that they make.
END: Mapping[str, tuple[tuple[str, ...], str]] = {
    "bench": (("ARGS=--quick --only start --brokers ottla",), "bench/results/*.json"),
    "test": (("ARGS=tests/protocol/test_properties.py -q",), ""),
    "format": ((), ""),
    "help": ((), ""),
}
# `tests/interop` runs what is behind the last one.
SERVE = {"run", "cluster", "secure-cluster"}
# These ask package and image registries, so no test runs them; tests/compose checks what they made.
ASK = {"lock", "sbom", "pin-images"}
# The gate runs these itself, in its own fresh clone.
IN_GATE = set(re.findall(r"^ *step ([a-z-]+)", (ROOT / ".ci/run").read_text(), re.MULTILINE))


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the files under version control, with the environment of this test as its ``.venv``."""
    folder = tmp_path_factory.mktemp("clone")
    if (ROOT / ".git").exists():
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        for name in filter(None, listed.stdout.split("\0")):
            if (ROOT / name).exists():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
    else:
        ignored = [line.strip("/\n") for line in (ROOT / ".gitignore").open()]
        names = shutil.ignore_patterns(*(name.rpartition("/")[2] for name in ignored))
        shutil.copytree(ROOT, folder, ignore=names, dirs_exist_ok=True)
    copy_made(folder)
    return folder


def copy_made(folder: Path) -> None:
    """Copy what was compiled of the clone's files: the extension modules, which `make` would compile, and bytecode.

    With these, thousands of modules needn't be compiled again; they are what Python would write itself.
    """
    for parent in {source.parent for source in folder.rglob("*.py")}:
        for file in (ROOT / parent.relative_to(folder) / "__pycache__").glob("*.pyc"):
            if (parent / f"{file.name.partition('.')[0]}.py").exists():
                (parent / file.parent.name).mkdir(exist_ok=True)
                shutil.copy2(file, parent / file.parent.name / file.name)
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.so"):
            shutil.copy2(file, folder / file.relative_to(ROOT))


@pytest.fixture(scope="module")
def make(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.Popen[str]]:
    """Starts ``make TARGET`` in the clone. Packages come from the clone, everything else from this environment."""
    venv = clone / ".venv"
    venv.mkdir()
    for entry in Path(sys.prefix).iterdir():
        if not entry.name.startswith("."):
            (venv / entry.name).symlink_to(entry)
    for stamp in (".broker", ".dev", ".web"):
        (venv / stamp).touch()
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OTTLA_", "PYTEST_", "MAKE", "MFLAGS"))
    }
    environment |= {
        "HOME": str(tmp_path_factory.mktemp("home")),
        "PYTHONPATH": os.pathsep.join(str(clone / package) for package in PACKAGES),
    }

    def start(target: str, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["make", target, *arguments],
            cwd=clone,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    return start


def output_of(process: subprocess.Popen[str], seconds: float) -> str:
    """Wait for the end of a process, and kill its whole session if it takes longer."""
    try:
        return process.communicate(timeout=seconds)[0]
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def without_java() -> str | None:
    try:
        find_java()
    except Unavailable as lack:
        return str(lack)
    return None


@pytest.mark.parametrize("target", END)
def test_it_ends_well(target: str, clone: Path, make: Callable[..., subprocess.Popen[str]]) -> None:
    arguments, made = END[target]
    process = make(target, *arguments)
    output = output_of(process, 300)
    assert process.returncode == 0, output
    assert not made or list(clone.glob(made)), output


def test_faults_runs_tests_that_exist(clone: Path, make: Callable[..., subprocess.Popen[str]]) -> None:
    """It takes minutes, so only what it would run is printed."""
    process = make("faults", "MINUTES=1", "PYTEST=echo")
    output = output_of(process, 60)
    assert process.returncode == 0, output
    runs = [line.split() for line in output.splitlines()]
    for run in runs:
        paths = [word for word in run if not word.startswith("-")]
        assert paths, run
        assert all((clone / path).exists() for path in paths), run
    recipe = re.search(r"^faults:.*\n((?:\t.*\n)+)", (clone / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    assert len(runs) == recipe[1].count("$(PYTEST)")
    read = "".join(file.read_text() for file in (clone / "tests").rglob("*.py"))
    for name in re.findall(r"\b(OTTLA_\w+)=", recipe[1]):
        assert f'"{name}"' in read, name


def test_run_serves_until_it_is_stopped(make: Callable[..., subprocess.Popen[str]]) -> None:
    """With the console, and says what to try and where both are."""
    port, console = free_port(), free_port()
    process = make("run", f"LISTEN=127.0.0.1:{port}", f"CONSOLE=127.0.0.1:{console}")
    output = stop_when_serving(process, [port, console])
    assert f"export OTTLA_BOOTSTRAP_SERVER=127.0.0.1:{port}\n  ottla topics create orders\n" in output
    assert f"the console is at http://127.0.0.1:{console}/\n" in output


def test_run_leaves_the_console_out(make: Callable[..., subprocess.Popen[str]]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port, console = free_port(), taken.getsockname()[1]
        process = make("run", f"LISTEN=127.0.0.1:{port}", f"CONSOLE=127.0.0.1:{console}")
        assert f"the console is left out: port {console} is taken" in stop_when_serving(process, [port])


@pytest.mark.parametrize("uv", ["works", "fails"])
def test_an_environment_is_made_by_uv_where_it_is_there(uv: str, clone: Path, tmp_path: Path) -> None:
    """uv is a script that keeps its arguments; where it fails, pip comes next."""
    fake = tmp_path / "bin/uv"
    fake.parent.mkdir()
    fake.write_text(
        f'#!/bin/sh\necho "$@" >>{tmp_path}/calls\n'
        'test "$1" = pip || exec python3 -m venv --without-pip "$4"\n'
        f"echo no index; {'exit 2' if uv == 'fails' else ''}\n"
    )
    fake.chmod(0o755)
    environment = os.environ | {"PATH": f"{fake.parent}:{os.environ['PATH']}", "PIP_NO_INDEX": "1"}
    environment.pop("PIP_FIND_LINKS", None)
    made = subprocess.run(
        [sys.executable, "harness/environment.py", str(tmp_path / "venv"), "sbom"],
        cwd=clone,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    venv, install = (tmp_path / "calls").read_text().splitlines()
    assert venv == f"venv --python {sys.executable} {tmp_path}/venv"
    assert "cyclonedx-bom" in install
    assert install.endswith(" pip")
    assert made.stdout.startswith(f"making {tmp_path}/venv with Python 3.")
    assert "installing sbom with uv\n" in made.stdout
    if uv == "works":
        assert made.returncode == 0, made.stderr
    else:
        assert made.returncode == 1
        assert made.stderr.startswith("no index\n")
        assert made.stderr.endswith("failed with exit code 1\n")
        assert "uv failed with exit code 2; trying pip" in made.stdout


def test_cluster_serves_until_it_is_stopped(make: Callable[..., subprocess.Popen[str]]) -> None:
    if lack := without_java():
        pytest.skip(lack)
    ports = successive_ports(3)
    process = make("cluster", f"ARGS=--port {ports[0]} --zookeeper-port {free_port()} --console-port 0")
    stop_when_serving(process, ports)


def successive_ports(count: int) -> list[int]:
    while True:
        first = free_port()
        ports = list(range(first, first + count))
        with suppress(OSError):
            for port in ports:
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            return ports


def stop_when_serving(process: subprocess.Popen[str], ports: list[int]) -> str:
    """Wait until all ports accept connections, then send SIGTERM as a service manager does, to the whole session.

    Returns what was printed.
    """

    def accepts() -> bool:
        assert process.poll() is None, process.communicate()[0]
        with suppress(OSError):
            for port in ports:
                socket.create_connection(("127.0.0.1", port), 1).close()
            return True
        return False

    family: list[psutil.Process] = []
    try:
        wait_for(accepts, f"ports {ports}", 120)
        time.sleep(0.2)
        family = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, signal.SIGTERM)
    finally:
        output = output_of(process, 60)
    assert not [each for each in psutil.wait_procs(family, 60)[1] if each.status() != psutil.STATUS_ZOMBIE]
    return output


def test_clean_leaves_what_was_cloned(
    clone: Path, tmp_path: Path, make: Callable[..., subprocess.Popen[str]]
) -> None:
    """Against a folder of its own, as the environment is shared."""
    environment = tmp_path / "venv"
    (environment / "bin").mkdir(parents=True)
    process = make("clean", f"VENV={environment}")
    output = output_of(process, 60)
    assert process.returncode == 0, output
    assert not environment.exists()
    assert not list((clone / "broker").rglob("__pycache__"))
    assert (clone / "Makefile").exists()


def test_every_target_is_covered() -> None:
    """Targets in the help, and commands on the pages for beginners."""
    covered = END.keys() | SERVE | IN_GATE | ASK | {"clean", "faults"}
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert targets == covered
    for page in ("README.md", "CONTRIBUTING.md", "docs/getting-started.md"):
        text = (ROOT / page).read_text()
        assert set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE)) <= targets, page
