"""The session on the page about the pipeline, run as it stands there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from tests.docs.pages import ROOT, blocks, inline_code
from tests.support.processes import BrokerProcess

from ottla_pipeline.commands import land as land_module
from ottla_pipeline.commands import pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = ROOT / "docs/pipeline.md"
COMMAND = re.compile(r"^\$ (.*)$", re.MULTILINE)


def without_times(text: str) -> str:
    """What is the same in every run."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.+]+\n", "…\n", text)
    text = re.sub(r"\d+(\.\d+)?(m?s| s)\b|(?<=in )\d+(:\d\d)+|[\d,]+ (records|rows)/s", "…", text)
    return re.sub(r" +", " ", text)


def test_the_session(
    spark: SparkSession,
    own_broker: Callable[..., BrokerProcess],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @contextmanager
    def session(*_: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(land_module, "session", session)
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVER", own_broker().bootstrap)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    shown = "".join(blocks(PAGE, "console"))
    for name, text in re.findall(r"^\$ cat (\S+)\n(.*?)(?=^\$ )", shown, re.MULTILINE | re.DOTALL):
        (tmp_path / name).write_text(text)
    seen = ""
    for line in COMMAND.findall(shown):
        if line.startswith("ottla pipeline "):
            # Here, in the session of all tests: another one would take ten seconds.
            output = CliRunner().invoke(pipeline, shlex.split(line)[2:], catch_exceptions=False).output
        else:
            output = subprocess.run(
                ["bash", "-c", line], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60
            ).stdout
        seen += f"$ {line}\n{output}"
    assert without_times(seen) == without_times(shown)


def test_options_of_the_page_exist() -> None:
    known = {
        option
        for name in pipeline.list_commands(None)  # type: ignore[arg-type]
        for parameter in pipeline.get_command(None, name).params  # type: ignore[arg-type,union-attr]
        for option in parameter.opts
    }
    for code in inline_code(PAGE):
        if code.startswith("-"):
            assert code.split()[0] in known, code
