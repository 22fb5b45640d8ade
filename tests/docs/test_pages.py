"""The pages say nothing that the code doesn't know: links, keys, make targets, APIs, events, configuration."""

from __future__ import annotations

import configparser
import inspect
import json
import re
from pathlib import Path

import pytest
from tests.docs.pages import PAGES, ROOT, blocks, inline_code, name, prose, text

import ottla_client.admin
import ottla_client.sync
from ottla_broker.config.broker import BrokerConfig, all_keys
from ottla_broker.config.group_configs import GROUP_KEYS
from ottla_broker.config.listener_settings import listener_setting
from ottla_broker.config.properties import read_properties
from ottla_broker.config.topics import TOPIC_KEYS
from ottla_broker.handlers.index import INDEX
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.sasl.mechanism import MECHANISMS

DASH = "\N{EN DASH}"

each_page = pytest.mark.parametrize("page", PAGES, ids=name)

# What looks like a key and is none: settings of clients, and names from elsewhere.
NO_KEYS = {
    "bootstrap.checkpoint",
    "transaction.version",
    "cluster.id",
    "metadata.log.dir",
    "os.sendfile",
    "allow.auto.create.topics",
    "auto.offset.reset",
    "consumer.heartbeat.interval.ms",
    "enable.metrics.push",
    "consumer.session.timeout.ms",
    "group.instance.id",
    "group.remote.assignor",
    "partition.assignment.strategy",
    "batch.num.messages",
    "batch.size",
    "bootstrap.servers",
    "group.protocol",
    "isolation.level",
    "linger.ms",
    "reconnect.backoff.ms",
    "retry.backoff.ms",
    "security.protocol",
    "ssl.ca.location",
    "metadata.recovery.strategy",
    "socket.max.fails",
    "transaction.timeout.ms",
    "transactional.id",
}
MIGRATION = ROOT / "docs/migration.md"
KEY = re.compile(r"[a-z]+(?:\.[a-z0-9]+)+")
NAMED = re.compile(r"\b([A-Za-z]\w*)(?=[(=]|$)")
"""Names in code that are called, set, or stand at its end."""
OTHERS = ("kafka.", "spark.", "ottla.")
"""Options of Spark and of its sources, and headers of records."""
SUFFIXES = (
    ".md",
    ".py",
    ".properties",
    ".env",
    ".lock",
    ".journal",
    ".toml",
    ".metadata",
    ".service",
    ".log",
    ".so",
    ".db",
)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE):
        plain = re.sub(r"[^\w\- ]", "", heading.lower())
        found.add(plain.replace(" ", "-"))
    return found


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{name(page)}: {target}"
        if anchor:
            assert anchor in anchors(there), f"{name(page)}: {target}"


@each_page
def test_paths_of_the_repository_exist(page: Path) -> None:
    for code in inline_code(page):
        if re.fullmatch(r"(broker|protocol|client|tests|bench|docs)/[\w./-]*", code):
            # What a run makes is not in a clone.
            assert (ROOT / code).exists() or code == "bench/results/", f"{name(page)}: {code}"


@each_page
def test_keys_exist(page: Path) -> None:
    if page == MIGRATION:
        return  # its keys are settings of clients
    known = all_keys().keys() | TOPIC_KEYS.keys() | GROUP_KEYS.keys() | NO_KEYS
    for code in inline_code(page):
        key, _, _ = code.removeprefix("--set ").partition("=")
        if KEY.fullmatch(key) and not key.startswith(OTHERS) and not key.endswith(SUFFIXES):
            assert key in known, f"{name(page)}: {code}"


def test_names_on_the_migration_page_exist() -> None:
    modules = (ottla_client, ottla_client.admin, ottla_client.sync)
    classes = [
        value
        for module in modules
        for name in dir(module)
        if name[0] != "_"
        for value in [getattr(module, name)]
    ]
    known = {name for module in modules for name in dir(module)}
    for each in classes:
        known.update(dir(each))
        if isinstance(each, type) and not issubclass(each, Exception):
            functions = [each, *(value for value in vars(each).values() if inspect.isfunction(value))]
            known.update(name for function in functions for name in inspect.signature(function).parameters)
    options = re.findall(r"^\| `(\w+)` \|", text(ROOT / "docs/client.md"), re.MULTILINE)
    rows = re.findall(r"^\| .* \| (.*) \|$", text(MIGRATION), re.MULTILINE)
    names = [name for cell in rows for code in re.findall(r"`([^`]+)`", cell) for name in NAMED.findall(code)]
    assert len(names) > 60
    elsewhere = {
        "ottla_client",
        "PLAIN",
        "PLAINTEXT",
        "SSL",
        "with",
        "ssl",
        "partitioner",
        "murmur2_random",
        "message",
    }
    assert set(names) <= known | set(options) | set(MECHANISMS) | elsewhere


@each_page
def test_keys_in_commands_exist(page: Path) -> None:
    for key in re.findall(r"--set[ =]\"?([a-z][a-z.]*)=", text(page)):
        known = key in all_keys() or key in TOPIC_KEYS or key in GROUP_KEYS or key == "key"
        assert known or listener_setting(key) is not None, f"{name(page)}: {key}"


@each_page
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = [*inline_code(page), *"".join(blocks(page, "sh")).splitlines()]
    for command in commands:
        found = re.match(r"make ([a-z-]+)", command)
        if found:
            assert found[1] in targets, f"{name(page)}: {command}"


@each_page
def test_configurations_are_accepted(page: Path, tmp_path: Path) -> None:
    for body in blocks(page, "properties"):
        file = tmp_path / "server.properties"
        file.write_text(body)
        config = BrokerConfig.from_properties(read_properties(file))
        unexpected = [line for line in config.warnings if "allow.anonymous.network" not in line]
        assert not unexpected, f"{name(page)}: {unexpected}"


@each_page
def test_other_blocks_parse(page: Path) -> None:
    for body in blocks(page, "python"):
        compile(body, name(page), "exec")
    for body in blocks(page, "json"):
        json.loads(body)
    for body in blocks(page, "ini"):
        parser = configparser.ConfigParser(interpolation=None)
        parser.optionxform = str  # type: ignore[assignment, method-assign]
        parser.read_string(body)
        assert parser.has_option("Service", "ExecStart")
    for body in blocks(page, "text"):
        for line in body.splitlines():
            if line.startswith("{"):
                assert {"event", "level", "timestamp"} <= json.loads(line).keys()


def test_the_tables_of_apis_are_those_that_are_served() -> None:
    alone, in_clusters = text(ROOT / "docs/protocol.md").split("A broker in a cluster also serves")
    row = re.compile(rf"^\| (\d+) \| (\w+) \| (\d+){DASH}(\d+) \|", re.MULTILINE)
    for part, in_cluster in ((alone, False), (in_clusters, True)):
        rows = [(int(key), api, int(low), int(high)) for key, api, low, high in row.findall(part)]
        assert rows == [
            (key, "".join(map(str.capitalize, ApiKey(key).name.split("_"))), api.min_version, api.max_version)
            for key, api in INDEX.items()
            if api.in_clusters == in_cluster
        ]


def test_every_other_api_is_listed_as_not_served() -> None:
    listed: set[int] = set()
    for cell in re.findall(
        rf"^\| [^|0-9]+[^|]* \| ([\d, {DASH}]+) \|$", text(ROOT / "docs/protocol.md"), re.MULTILINE
    ):
        for part in cell.split(", "):
            low, _, high = part.partition(DASH)
            listed.update(range(int(low), int(high or low) + 1))
    assert not listed & INDEX.keys()
    assert {int(key) for key in ApiKey} <= listed | INDEX.keys()


def test_events_in_operations_are_logged_somewhere() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "broker").rglob("*.py"))
    table = re.findall(
        r"^\| (`.*`) \| (?:error|warning|info) \|", text(ROOT / "docs/operations.md"), re.MULTILINE
    )
    events = [event for cell in table for event in re.findall(r"`([^`]+)`", cell)]
    assert len(events) > 15
    for event in events:
        assert f'"{event}' in sources, event


def test_every_page_is_in_the_index() -> None:
    index = text(ROOT / "docs/README.md")
    for page in PAGES:
        if page.parent == ROOT / "docs/decisions" or (
            page.parent == ROOT / "docs" and page.name != "README.md"
        ):
            assert f"({page.relative_to(ROOT / 'docs')})" in index, name(page)
