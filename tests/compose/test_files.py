"""The files of the container image and of its clusters, where no engine is at hand to run them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ottla_broker.config import BrokerConfig
from ottla_broker.config.broker import all_keys
from ottla_broker.config.environment import read_environment
from ottla_broker.config.properties import read_properties
from ottla_cli.security.trial_files import make_files

ROOT = Path(__file__).resolve().parents[2]
FILES = ("docker-compose.yml", "docker-compose.secure.yml")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def services(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / name).read_text())["services"]
    return found


@pytest.mark.parametrize("name", FILES)
def test_the_brokers_settings_are_accepted(name: str, tmp_path: Path) -> None:
    """As the broker reads them: a file, the environment, the command line."""
    make_files(tmp_path, [("broker-1",)], "localhost:19092")
    given = services(name)
    for number in (1, 2, 3):
        service = given[f"broker-{number}"]
        command = service.get("command", ["broker"])
        settings: dict[str, str] = {}
        for argument in command[1:]:
            if argument.endswith(".properties"):
                settings |= read_properties(tmp_path / Path(argument).name)
        environment = {key: text.replace("$$", "$") for key, text in service["environment"].items()}
        found = read_environment(environment, all_keys())
        assert found.warnings == []
        assert {key for key in environment if key.startswith("OTTLA_")} == set(found.variables.values())
        settings |= found.settings
        settings |= dict(text.split("=", 1) for option, text in pairwise(command) if option == "--set")
        config = BrokerConfig.from_properties(settings)
        assert config.broker_id == number
        assert all("allow.anonymous.network" in line for line in config.warnings), config.warnings
        ports = [port.split(":")[-1] for port in service["ports"]]
        assert ports == [str(config.endpoints[-1].port)]
        assert service["hostname"] == f"broker-{number}"
        if name == "docker-compose.secure.yml":
            assert config.warnings == []
            assert {endpoint.protocol for endpoint in config.endpoints} == {"SSL", "SASL_SSL"}
            (made,) = [each for each in given["certificates"]["command"] if f"broker-{number}" in each]
            hosts = {endpoint.advertised_host for endpoint in config.endpoints}
            assert hosts <= set(made.removeprefix("--broker=").split(","))


@pytest.mark.parametrize("name", FILES)
def test_images_are_named_in_one_place(name: str) -> None:
    """``make pin-images`` gives the variables digests."""
    for service in services(name).values():
        if "build" in service:
            assert service["image"] in ("ottla", "ottla-console")
            assert service["build"]["args"]["PYTHON_IMAGE"] == "${PYTHON_IMAGE:-python:3.11-slim}"
        elif service["image"] != "ottla":
            assert service["image"] == "${ZOOKEEPER_IMAGE:-zookeeper:3.9}"
    assert re.findall(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE) == [
        "${PYTHON_IMAGE}",
        "${PYTHON_IMAGE}",
    ]


@pytest.mark.parametrize("name", FILES)
def test_the_client_is_a_shell_script(name: str) -> None:
    (script,) = services(name)["client"]["command"]
    subprocess.run(["sh", "-n"], input=script.replace("$$", "$").encode(), check=True, timeout=60)


@pytest.mark.parametrize("name", ["run.sh", "secure.sh", "common.sh"])
def test_the_tests_are_shell_scripts(name: str) -> None:
    subprocess.run(["bash", "-n", str(ROOT / "tests/compose" / name)], check=True, timeout=60)


def locked(name: str) -> dict[str, Requirement]:
    """The requirements of a lock file, each of which has hashes."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / name).read_text(), flags=re.MULTILINE)
    assert "://" not in text
    assert "index" not in text
    found = {}
    for line in text.replace("\\\n", " ").splitlines():
        requirement, *hashes = line.split(" --hash=")
        assert hashes, line
        assert all(each.strip().startswith("sha256:") for each in hashes), line
        parsed = Requirement(requirement.strip())
        assert str(parsed.specifier).startswith("=="), line
        found[canonicalize_name(parsed.name)] = parsed
    return found


def test_the_lock_satisfies_the_project() -> None:
    check("requirements.lock", requirements("broker", "console", "security"))
    check("requirements-web.lock", requirements("broker", "console", "security", "web"))
    check("requirements-build.lock", PYPROJECT["build-system"]["requires"])
    # One image has both.
    others = locked("requirements-web.lock")
    assert {name: others[name] for name in locked("requirements.lock")} == locked("requirements.lock")


def test_all_that_an_image_installs_has_hashes() -> None:
    text = (ROOT / "Dockerfile").read_text()
    installs = re.findall(r"pip (?:(?!&&|;|\|\|).)*?\binstall\b(?:(?!&&|;|\|\|).)*", text, re.DOTALL)
    assert len(installs) == 4
    for each in installs:
        assert "--no-deps" in each
        assert "--require-hashes" in each or "--no-index" in each
    for name in FILES:
        for service in services(name).values():
            extras = service.get("build", {}).get("args", {}).get("EXTRAS", "").split(",")
            for extra in {*extras} - {"", "broker", "console", "security"}:
                assert (ROOT / f"requirements-{extra}.lock").exists()


ENGINE = """#!/bin/sh
case "$1" in
info) exit 0 ;;
pull) test -n "$REGISTRY" || { echo "dial tcp: no such host" >&2; exit 125; } ;;
image) echo "registry/$5@sha256:$(printf '%064d' 7)" ;;
esac
"""


@pytest.mark.parametrize("answers", [True, False])
def test_the_images_digests_are_pinned_or_nothing_is_changed(tmp_path: Path, answers: bool) -> None:
    (tmp_path / "bin").mkdir()
    engine = tmp_path / "bin" / "docker"
    engine.write_text(ENGINE)
    engine.chmod(0o755)
    (tmp_path / ".ci").mkdir()
    script = shutil.copy(ROOT / ".ci" / "pin-images", tmp_path / ".ci")
    before = (ROOT / "images.env").read_text()
    (tmp_path / "images.env").write_text(before)
    environment = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "REGISTRY": "yes" if answers else ""}
    done = subprocess.run([script], env=environment, capture_output=True, text=True, timeout=60, check=False)
    found = (tmp_path / "images.env").read_text()
    if not answers:
        assert done.returncode == 1
        assert found == before
        assert done.stderr == (
            "pin-images: docker can't fetch docker.io/library/python:3.11-slim; images.env is as it was\n"
        )
        return
    assert done.returncode == 0, done.stderr
    pinned = [[line for line in text.splitlines() if line[0] != "#"] for text in (before, found)]
    assert pinned[1] == [re.sub("sha256:[0-9a-f]{64}$", f"sha256:{7:064}", line) for line in pinned[0]]


def test_the_pinned_images_are_those_that_are_used_without_pins() -> None:
    pinned = dict(
        line.split("=", 1) for line in (ROOT / "images.env").read_text().splitlines() if line[0] != "#"
    )
    assert {name: re.sub("@sha256:[0-9a-f]{64}$", "", image) for name, image in pinned.items()} == {
        "PYTHON_IMAGE": "python:3.11-slim",
        "ZOOKEEPER_IMAGE": "zookeeper:3.9",
    }
    assert all("@sha256:" in image for image in pinned.values())


def requirements(*extras: str) -> list[str]:
    """What the project needs with these extras, which may name others."""
    project = PYPROJECT["project"]
    found = list(project["dependencies"])
    for extra in extras:
        for each in project["optional-dependencies"][extra]:
            parsed = Requirement(each)
            found += requirements(*parsed.extras) if parsed.name == "ottla" else [each]
    return found


def check(name: str, wanted: list[str]) -> None:
    there = locked(name)
    for requirement in map(Requirement, wanted):
        version = str(there[canonicalize_name(requirement.name)].specifier).removeprefix("==")
        assert requirement.specifier.contains(version), f"{requirement}: run make lock"
