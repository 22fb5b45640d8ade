"""The page on Spark: its programs print what it shows, and its tables match the code."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.docs.pages import ROOT, marked, text
from tests.support.spark import patiently

from ottla_pipeline.source import kafka
from ottla_pipeline.source.names import OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.support.processes import BrokerProcess

PAGE = ROOT / "docs/spark.md"


def test_the_programs_in_the_pages_order(
    spark: SparkSession, own_broker: Callable[..., BrokerProcess], capsys: pytest.CaptureFixture[str]
) -> None:
    broker = own_broker()
    programs = marked(PAGE, "file")
    assert programs.keys() == marked(PAGE, "output").keys()
    for name, program in programs.items():
        source = program.replace("127.0.0.1:9092", broker.bootstrap)
        patiently(partial(exec, compile(source, PAGE.name, "exec"), {"__name__": "__main__"}))
        # ``show`` ends with an empty line.
        assert capsys.readouterr().out.rstrip() == marked(PAGE, "output")[name].rstrip(), name


def test_every_option_is_told_as_it_is_declared() -> None:
    rows = [
        re.sub(
            r"\|  (?=\|)",
            "| ",
            f"| `{option.name}` | {option.default} | {option.meaning} | {option.differs} |",
        )
        for option in OPTIONS
    ]
    assert "| option | default | meaning | differs |\n|---|---|---|---|\n" + "\n".join(rows) + "\n\n" in text(
        PAGE
    )


def test_every_setting_of_the_client_is_told() -> None:
    page = text(PAGE)
    for name in (*kafka.CONNECTING, *kafka.READING, *kafka.REFUSED):
        assert f"`kafka.{name}`" in page or f"`kafka.{name}=" in page, name
