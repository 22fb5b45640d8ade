"""The plugin for pytest: fixtures ``ottla_broker``, ``ottla_topic`` and ``ottla_broker_factory``.

pytest loads this in every session of an environment that has Ottla, so it imports nothing until a fixture is asked for.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ottla_broker.testing.embedded import EmbeddedBroker

LOG_LINES = 50
"""How many of the broker's last lines a failed test shows."""

_numbers = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ottla", "a Kafka broker for the tests (Ottla)")
    group.addoption(
        "--ottla-set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a config of the broker; goes before ottla_settings; may be given several times",
    )
    group.addoption(
        "--ottla-log",
        choices=["debug", "info", "warning", "error"],
        default="warning",
        help="the least level of what the broker logs (default: warning); a failed test shows the last lines",
    )
    parser.addini(
        "ottla_settings", "configs of the broker of ottla_broker, KEY=VALUE a line", type="linelist"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "ottla_topic(partitions=1, configs={}): how the topic of the fixture ottla_topic is made"
    )


@pytest.fixture(scope="session")
def ottla_broker(pytestconfig: pytest.Config) -> Iterator[EmbeddedBroker]:
    """A Kafka broker for the whole session: clients connect to ``ottla_broker.bootstrap_servers``."""
    with _new_broker(pytestconfig, {}) as broker:
        name = f"ottla-log-{broker.port}"
        pytestconfig.pluginmanager.register(_LogOfFailures(broker), name)
        yield broker
        pytestconfig.pluginmanager.unregister(name=name)


@pytest.fixture
def ottla_topic(request: pytest.FixtureRequest, ottla_broker: EmbeddedBroker) -> Iterator[str]:
    """The name of a new topic, deleted after the test; ``@pytest.mark.ottla_topic(partitions=3)`` says how it is."""
    mark = request.node.get_closest_marker("ottla_topic")
    given: dict[str, Any] = _topic_arguments(*mark.args, **mark.kwargs) if mark is not None else {}
    name = f"{_plain(request.node.name)}-{next(_numbers)}"
    ottla_broker.create_topic(name, **given)
    yield name
    from ottla_broker.testing.embedded import TopicMissingError

    # A test that has the broker down at its end, or has deleted the topic itself, has nothing to delete.
    if ottla_broker.running:
        with contextlib.suppress(TopicMissingError):
            ottla_broker.delete_topic(name)


@pytest.fixture
def ottla_broker_factory(pytestconfig: pytest.Config) -> Iterator[Callable[..., EmbeddedBroker]]:
    """Start brokers of the test's own: ``ottla_broker_factory(settings={…}, topics={…}, …)``.

    They take what :class:`ottla_broker.EmbeddedBroker` takes, and are closed after the test.
    """
    made: list[EmbeddedBroker] = []

    def make(settings: Mapping[str, object] | None = None, **options: Any) -> EmbeddedBroker:
        broker = _new_broker(pytestconfig, settings or {}, **options)
        made.append(broker)
        return broker.start()

    yield make
    for broker in made:
        broker.close()


class _LogOfFailures:
    """Shows what the broker has logged meanwhile beside a test that fails. Registered while there is a broker."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker
        self._shown = 0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed and "ottla_broker" in getattr(item, "fixturenames", ()):
            text = self._broker.log()[self._shown :]
            self._shown += len(text)
            if text.strip():
                lines = "\n".join(text.splitlines()[-LOG_LINES:])
                report.sections.append((f"Log of the Ottla broker, {report.when}", lines))
        return report


def _new_broker(config: pytest.Config, settings: Mapping[str, object], **options: Any) -> EmbeddedBroker:
    from ottla_broker.testing.embedded import EmbeddedBroker

    given: dict[str, object] = {}
    for line in [*config.getini("ottla_settings"), *config.getoption("--ottla-set")]:
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise pytest.UsageError(f"ottla_settings, --ottla-set: {line!r} is not KEY=VALUE")
        given[key.strip()] = value.strip()
    options.setdefault("log", config.getoption("--ottla-log"))
    return EmbeddedBroker({**given, **settings}, **options)


def _topic_arguments(partitions: int = 1, configs: Mapping[str, object] | None = None) -> dict[str, Any]:
    return {"partitions": partitions, "configs": configs}


def _plain(name: str) -> str:
    """A test's name as far as it may stand in a topic's."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name)[:200].strip(
        "-"
    )
