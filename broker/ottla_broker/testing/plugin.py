"""The pytest plugin: fixtures ``ottla_broker``, ``ottla_topic`` and ``ottla_broker_factory``.

pytest loads it in every session of an environment with Ottla, so it imports nothing until a test uses a fixture.
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
"""Last lines of the broker's log that a failed test shows."""

_numbers = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ottla", "Ottla, a Kafka broker for tests")
    group.addoption(
        "--ottla-set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set a configuration key of the broker, overriding ottla_settings; repeatable",
    )
    group.addoption(
        "--ottla-log",
        choices=["debug", "info", "warning", "error"],
        default="warning",
        help="level of the broker's log, of which a failed test shows the last lines (default: warning)",
    )
    parser.addini(
        "ottla_settings", "configuration keys of the broker, one KEY=VALUE per line", type="linelist"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "ottla_topic(partitions=1, configs={}): partitions and configs of the fixture ottla_topic"
    )


@pytest.fixture(scope="session")
def ottla_broker(pytestconfig: pytest.Config) -> Iterator[EmbeddedBroker]:
    """A Kafka broker for the whole session. Clients connect to ``ottla_broker.bootstrap_servers``."""
    with _new_broker(pytestconfig, {}) as broker, _log_shown(pytestconfig, broker, "ottla_broker"):
        yield broker


@pytest.fixture
def ottla_topic(request: pytest.FixtureRequest, ottla_broker: EmbeddedBroker) -> Iterator[str]:
    """The name of a new topic, deleted after the test. ``@pytest.mark.ottla_topic(partitions=3)`` configures it."""
    mark = request.node.get_closest_marker("ottla_topic")
    given: dict[str, Any] = _topic_arguments(*mark.args, **mark.kwargs) if mark is not None else {}
    name = f"{_plain(request.node.name)}-{next(_numbers)}"
    ottla_broker.create_topic(name, **given)
    yield name
    from ottla_broker.testing.embedded import TopicMissingError

    # The test may have stopped the broker, or deleted the topic itself.
    if ottla_broker.running:
        with contextlib.suppress(TopicMissingError):
            ottla_broker.delete_topic(name)


@pytest.fixture
def ottla_broker_factory(pytestconfig: pytest.Config) -> Iterator[Callable[..., EmbeddedBroker]]:
    """Start brokers for one test: ``ottla_broker_factory(settings={…}, topics={…}, …)``.

    The arguments are those of :class:`ottla_broker.EmbeddedBroker`. The brokers are closed after the test.
    """
    with contextlib.ExitStack() as made:

        def make(settings: Mapping[str, object] | None = None, **options: Any) -> EmbeddedBroker:
            broker = _new_broker(pytestconfig, settings or {}, **options)
            made.enter_context(_log_shown(pytestconfig, broker, "ottla_broker_factory"))
            made.callback(broker.close)
            return broker.start()

        yield make


@contextlib.contextmanager
def _log_shown(config: pytest.Config, broker: EmbeddedBroker, fixture: str) -> Iterator[None]:
    """Meanwhile the report of a failed test with this fixture has the broker's log."""
    shown = _LogOfFailures(broker, fixture)
    config.pluginmanager.register(shown)
    try:
        yield
    finally:
        config.pluginmanager.unregister(shown)


class _LogOfFailures:
    """Adds the broker's log during a failed test to its report. Registered while the broker exists."""

    def __init__(self, broker: EmbeddedBroker, fixture: str) -> None:
        self._broker = broker
        self._fixture = fixture
        self._shown = 0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed and self._fixture in getattr(item, "fixturenames", ()):
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
    """Turn a test's name into a valid topic name."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name)[:200].strip(
        "-"
    )
