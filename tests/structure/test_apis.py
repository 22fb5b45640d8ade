"""The checklist "A new API" of ARCHITECTURE.md: each API that is served has all of its parts."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from ottla_broker.handlers import IN_CLUSTERS, SERVED
from ottla_broker.handlers.authorization import GATES, RULES
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.registry import request_class, response_class

ROOT = Path(__file__).resolve().parents[2]
EVERY = {**SERVED, **IN_CLUSTERS}

each_api = pytest.mark.parametrize("key", [ApiKey(key) for key in EVERY], ids=lambda key: key.name.lower())


def title(key: ApiKey) -> str:
    """The name on pages: InitProducerId for INIT_PRODUCER_ID."""
    return "".join(map(str.capitalize, key.name.split("_")))


@each_api
def test_its_messages_know_all_versions_that_are_served(key: ApiKey) -> None:
    module = key.name.lower()
    assert (ROOT / f"protocol/ottla_protocol/messages/{module}.py").exists()
    served = EVERY[key]
    for version in range(served.min_version, served.max_version + 1):
        request, response = request_class(key, version), response_class(key)
        assert (request.__name__, response.__name__) == (f"{title(key)}Request", f"{title(key)}Response")
        first, last = request.VERSIONS
        assert first <= version <= last
        assert response().encode(version) is not None


@each_api
def test_its_handler_says_what_it_serves(key: ApiKey) -> None:
    served = EVERY[key]
    assert served.module == key.name.lower()
    module = import_module(f"ottla_broker.handlers.{served.module}")
    assert callable(module.handle)
    assert module.__doc__
    summary = " ".join(module.__doc__.split())
    versions = f"versions {served.min_version}-{served.max_version}"
    if served.min_version == served.max_version:
        versions = f"version {served.min_version}"
    assert re.match(rf"{title(key)}( \(key {int(key)}\))?, {versions}:", summary), summary[:80]


@each_api
def test_it_has_a_rule(key: ApiKey) -> None:
    """That APIs without a gate ask for authorization themselves is in tests/handlers/test_authorization.py."""
    rules = RULES[key]
    gate = GATES.get(key)
    assert gate is None or gate.resource in rules


@each_api
def test_it_is_on_the_page(key: ApiKey) -> None:
    page = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| {int(key)} \| {title(key)} \|", page, re.MULTILINE)


def test_the_checklist_names_files_that_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = text.partition("\n## A new API\n")[2].partition("\n## ")[0]
    paths = re.findall(r"`((?:[\w.-]+/)+[\w.-]*|\w+\.(?:md|toml))`", section)
    assert len(paths) > 15
    for path in paths:
        if path not in ("cluster/cluster_controller.py",):
            assert (ROOT / path).exists(), path
