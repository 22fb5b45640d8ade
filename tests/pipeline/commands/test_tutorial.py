"""The tutorial for Spark: its programs and commands, run in the order of the page, print what it shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from tests.docs.pages import ROOT, marked, text
from tests.pipeline.commands.test_page import COMMAND, without_times
from tests.support.processes import BrokerProcess
from tests.support.spark import patiently

from ottla_pipeline.commands import land as land_module
from ottla_pipeline.commands import pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = ROOT / "docs/spark-tutorial.md"
STEP = re.compile(r"^(?:<!-- file: (\S+) -->\n)?```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_steps(
    spark: SparkSession,
    own_broker: Callable[..., BrokerProcess],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    @contextmanager
    def session(*_: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(land_module, "session", session)
    broker = own_broker()
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVER", broker.bootstrap)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    outputs = marked(PAGE, "output")
    for name, language, body in STEP.findall(text(PAGE)):
        if language == "console":
            assert without_times("".join(map(answered, COMMAND.findall(body)))) == without_times(body)
        elif name != "before.py":
            # Java has another working folder.
            source = body.replace("127.0.0.1:9092", broker.bootstrap).replace(
                '"archive/', f'"{tmp_path}/archive/'
            )
            program = compile(source, f"<{name}>", "exec")
            patiently(partial(exec, program, {"__name__": "__main__"}))
            # ``show`` ends with an empty line.
            assert capsys.readouterr().out.rstrip() == outputs.get(name, "").rstrip(), name


def answered(line: str) -> str:
    """A command with its output. Those that need Spark run here: another session would take ten seconds."""
    if line.startswith("ottla pipeline "):
        output = CliRunner().invoke(pipeline, shlex.split(line)[2:], catch_exceptions=False).output
    else:
        output = subprocess.run(
            ["bash", "-c", line], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60
        ).stdout
    return f"$ {line}\n{output}"


def test_the_job_changes_in_one_word() -> None:
    programs = marked(PAGE, "file")
    assert programs["before.py"].replace('format("kafka")', 'format("ottla")') == programs["after.py"]
    assert programs["before.py"] != programs["after.py"]
