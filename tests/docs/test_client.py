"""The page on the client: its programs do what it shows, and its tables say what the code says."""

from __future__ import annotations

import inspect
import re
from ast import literal_eval
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from tests.client.admin.waiting import eventually
from tests.docs.pages import ROOT, marked, text

from ottla_client import Admin, BatchDeliveryError, Consumer, NewTopic, PartialError, Producer, errors

if TYPE_CHECKING:
    from tests.support.processes import BrokerProcess

PAGE = ROOT / "docs/client.md"
OF_ALL_THREE = "Options of all three"


def run(program: str, bootstrap_servers: str) -> None:
    """In this process, as a script of its own would run."""
    source = program.replace("127.0.0.1:9092", bootstrap_servers)
    exec(compile(source, "<docs/client.md>", "exec"), {"__name__": "__main__"})


@pytest.fixture
def settled(is_kafka: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's brokers learn of topics, and of their end, a moment later; the page's programs don't wait for that."""
    if not is_kafka:
        return
    create, delete = Admin.create_topics, Admin.delete_topics

    async def create_topics(self: Admin, topics: Sequence[NewTopic], **options: Any) -> Any:
        names = {topic.name for topic in topics}
        try:
            return await create(self, topics, **options)
        finally:
            await eventually(self.list_topics, lambda known: names <= known.keys())

    async def delete_topics(self: Admin, topics: Sequence[str], **options: Any) -> None:
        await delete(self, topics, **options)
        await eventually(self.list_topics, lambda known: not set(topics) & known.keys())

    monkeypatch.setattr(Admin, "create_topics", create_topics)
    monkeypatch.setattr(Admin, "delete_topics", delete_topics)


@pytest.mark.usefixtures("settled")
def test_the_programs_in_the_pages_order(
    own_broker: Callable[..., BrokerProcess], capsys: pytest.CaptureFixture[str]
) -> None:
    broker = own_broker()
    programs = marked(PAGE, "file")
    assert programs.keys() == marked(PAGE, "output").keys()
    assert text(PAGE).count("```python\n") == len(programs), "a program without a name is not run"
    for name, program in programs.items():
        run(program, broker.bootstrap)
        assert capsys.readouterr().out == marked(PAGE, "output")[name], name


def section(heading: str) -> str:
    """What stands under a heading, up to the next one."""
    found = re.search(rf"^#+ {re.escape(heading)}$(.*?)(?=^#|\Z)", text(PAGE), re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    return found[1]


def options(heading: str) -> dict[str, str]:
    """The options in the table under a heading, and their defaults as they are written there."""
    return dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", section(heading), re.MULTILINE))


def defaults(client: type) -> dict[str, object]:
    return {
        name: parameter.default
        for name, parameter in inspect.signature(client).parameters.items()
        if parameter.kind is not parameter.VAR_POSITIONAL
    }


@pytest.mark.parametrize("client", [Producer, Consumer, Admin])
def test_every_option_is_told_with_its_default(client: type) -> None:
    name = client.__name__
    reported = options("Options of Producer") if client is Producer else {}
    if client is Consumer:
        reported = options("Options of Consumer")
    if client is Admin:
        reported = dict(re.findall(r"own option is `(\w+)` \((`\d+`)\)", text(PAGE)))
    shared = options(OF_ALL_THREE)
    assert not reported.keys() & shared.keys()
    assert reported.keys() | shared.keys() == defaults(client).keys()
    for option, default in defaults(client).items():
        cell = {**reported, **shared}[option]
        own = re.search(rf"{name}: `(.+?)`", cell)
        values = [literal_eval(each) for each in ([own[1]] if own else re.findall(r"`(.+?)`", cell))]
        if option == "client_id":
            assert default in values
        else:
            assert default == values[0], option


def test_every_error_has_its_line() -> None:
    reported = set(re.findall(r"^\| (\w+Error) \|", section("Errors"), re.MULTILINE))
    there = {
        name for name, value in vars(errors).items() if isinstance(value, type) and name.endswith("Error")
    }
    beside = {BatchDeliveryError.__name__, PartialError.__name__}
    # What only the annotations name, and the base of all.
    assert reported == (there | beside) - {"ClientError"} - {
        name for name in there if getattr(errors, name).__module__ != errors.__name__
    }


def test_every_call_of_admin_is_told() -> None:
    reported = set(
        re.findall(r"`(\w+)`", section("Managing a cluster").partition("| about |")[2].partition("\n\n")[0])
    )
    calls = {
        name
        for name, member in inspect.getmembers(Admin, inspect.iscoroutinefunction)
        if not name.startswith("_") and name not in ("start", "close")
    }
    assert reported == calls
