"""The page on landing: its programs and commands do what it shows, and its table has every setting."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from tests.docs.pages import ROOT, marked, text
from tests.support.processes import BrokerProcess

from ottla_pipeline.commands import pipeline
from ottla_pipeline.landing import Landing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = ROOT / "docs/landing.md"


def test_the_programs_and_commands_in_the_pages_order(
    spark: SparkSession,
    own_broker: Callable[..., BrokerProcess],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    broker = own_broker()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVER", broker.bootstrap)

    @contextmanager
    def same(*_: object) -> Iterator[SparkSession]:
        yield spark

    # A session for each command takes ten seconds.
    monkeypatch.setattr("ottla_pipeline.commands.land.session", same)
    programs, outputs = marked(PAGE, "file"), marked(PAGE, "output")
    assert text(PAGE).count("```python\n") == len(programs)
    assert outputs.keys() == programs.keys() - {"produce.py"}
    for name, program in programs.items():
        source = program.replace("127.0.0.1:9092", broker.bootstrap)
        exec(compile(source, f"<{name}>", "exec"), {"__name__": "__main__"})
        assert capsys.readouterr().out == outputs.get(name, ""), name
    for name, command in marked(PAGE, "command").items():
        program, group, *arguments = shlex.split(command)
        assert (program, group) == ("ottla", "pipeline")
        done = CliRunner().invoke(pipeline, arguments)
        assert done.exit_code == 0, (name, done.output)


def test_every_setting_is_told_with_its_default() -> None:
    reported = dict(re.findall(r"^\| `(\w+)` \|\s*(.*?)\s*\|", text(PAGE), re.MULTILINE))
    for one in fields(Landing):
        assert one.name in reported, one.name
        default = reported[one.name].strip("`")
        if one.default is not MISSING:
            wanted = repr(one.default).replace("'", '"')
            assert default == wanted or (one.name, default) in {("topics", ""), ("pattern", "")}, one.name
        elif one.default_factory is not MISSING:
            assert default in ("{}", "Names()"), one.name
        else:
            assert default == "(needed)", one.name
