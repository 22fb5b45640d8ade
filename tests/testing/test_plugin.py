"""The pytest plugin, in its own pytest sessions."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _quiet(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")


SHARED = """
import pytest
from confluent_kafka.admin import AdminClient

seen = []

def test_one(ottla_broker, ottla_topic):
    seen.append((ottla_broker.pid, ottla_topic))
    assert partitions(ottla_broker, ottla_topic) == 1

@pytest.mark.ottla_topic(partitions=3, configs={"cleanup.policy": "compact"})
@pytest.mark.parametrize("what", ["ä/ö", "b" * 300])
def test_two(ottla_broker, ottla_topic, what):
    seen.append((ottla_broker.pid, ottla_topic))
    assert partitions(ottla_broker, ottla_topic) == 3

def test_deletes_it_itself(ottla_broker, ottla_topic):
    ottla_broker.delete_topic(ottla_topic)

def test_what_was_seen(ottla_broker):
    assert len({pid for pid, _ in seen}) == 1
    assert len({topic for _, topic in seen}) == 3
    for _, topic in seen:
        assert partitions(ottla_broker, topic) == 0

def partitions(broker, topic):
    topics = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=60).topics
    return len(topics[topic].partitions) if topic in topics else 0
"""

OWN = """
import socket

def listens(broker):
    with socket.create_connection((broker.bootstrap_servers.split(":")[0], broker.port), 5):
        return True

before = []

def test_one(ottla_broker_factory):
    one, other = ottla_broker_factory(), ottla_broker_factory({"num.partitions": 2}, topics={"t": 1})
    assert one.pid != other.pid
    other.kill()
    other.start()
    assert listens(one) and listens(other)
    before.extend([one, other])

def test_they_are_gone():
    assert not any(broker.running for broker in before)
"""

ASYNC = """
import asyncio
import pytest

@pytest.mark.asyncio
async def test_it(ottla_broker, ottla_topic):
    reader, writer = await asyncio.open_connection("127.0.0.1", ottla_broker.port)
    writer.close()
    await writer.wait_closed()
"""


def test_the_fixtures(pytester: pytest.Pytester) -> None:
    """A broker for the session, a topic for each test, brokers for one test; also with pytest-asyncio."""
    pytester.makepyfile(test_async=ASYNC, test_own=OWN, test_shared=SHARED)
    pytester.runpytest_subprocess("-W", "error").assert_outcomes(passed=8)


def test_settings(pytester: pytest.Pytester) -> None:
    pytester.makeini(
        """[pytest]
asyncio_default_fixture_loop_scope = function
ottla_settings =
    num.partitions = 3
    auto.create.topics.enable=false
"""
    )
    pytester.makepyfile(
        """
        def test_them(ottla_broker, ottla_broker_factory):
            assert ottla_broker._settings["num.partitions"] == "5"
            assert ottla_broker._settings["auto.create.topics.enable"] == "false"
            assert ottla_broker_factory({"num.partitions": 7})._settings["num.partitions"] == "7"
        """
    )
    pytester.runpytest_subprocess("--ottla-set", "num.partitions=5").assert_outcomes(passed=1)
    result = pytester.runpytest_subprocess("--ottla-set", "num.partitions")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines("*'num.partitions' is not KEY=VALUE*")


def test_a_failed_test_shows_the_brokers_log(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import socket, time

        def test_no_kafka(ottla_broker):
            with socket.create_connection(("127.0.0.1", ottla_broker.port)) as sock:
                sock.sendall(b"GET / HTTP/1.1")
                assert sock.recv(1) == b""
            end = time.monotonic() + 60
            while not ottla_broker.log():
                assert time.monotonic() < end
            assert False

        def test_another(ottla_broker):
            assert False
        """
    )
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(failed=2)
    output = result.stdout.str()
    assert output.count("Log of the Ottla broker, call") == 1, "what has been shown is not shown again"
    result.stdout.fnmatch_lines("*HTTP*")


def test_a_failed_test_shows_the_logs_of_its_own_brokers(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("how", ["running", "killed", "closed"])
        def test_it(ottla_broker_factory, how):
            broker = ottla_broker_factory({"no.such.key": how})
            if how != "running":
                broker.kill() if how == "killed" else broker.close()
            assert False

        def test_another(ottla_broker_factory):
            ottla_broker_factory({"no.such.key": "passed"})
        """
    )
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(failed=3, passed=1)
    output = result.stdout.str()
    assert (
        output.count("Log of the Ottla broker, call")
        == output.count("what='no.such.key is not a known key'")
        == 3
    )


def test_a_broker_that_does_not_start(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(ottla_topic): pass")
    result = pytester.runpytest_subprocess("--ottla-set", "num.partitions=many")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines("*settings: num.partitions: 'many' is not allowed*")


def test_each_worker_has_its_own_broker(pytester: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("number", range(6))
        def test_it(number, ottla_broker, ottla_topic, worker_id):
            with open(f"{worker_id}.txt", "a") as file:
                print(ottla_broker.pid, ottla_broker.port, file=file)
        """
    )
    pytester.runpytest_subprocess("-n", "2").assert_outcomes(passed=6)
    found = [set(file.read_text().splitlines()) for file in pytester.path.glob("gw*.txt")]
    assert [len(brokers) for brokers in found] == [1, 1]
    assert found[0] != found[1]


def test_a_session_without_a_broker_imports_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_it(request):
            loaded = {name for name in sys.modules if name.startswith(("ottla", "uvloop"))}
            assert loaded == {"ottla_broker", "ottla_broker.testing", "ottla_broker.testing.plugin"}
            plugins = request.config.pluginmanager
            hooks = [h for h in dir(plugins.get_plugin("ottla")) if h.startswith("pytest_")]
            assert hooks == ["pytest_addoption", "pytest_configure"]
        """
    )
    pytester.runpytest_subprocess("-W", "error").assert_outcomes(passed=1)
