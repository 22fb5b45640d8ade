"""The page on share groups: its program does what it shows, and its table of options says what the code says."""

from __future__ import annotations

import re
from ast import literal_eval
from typing import TYPE_CHECKING

import pytest
from tests.docs.pages import ROOT, marked, text
from tests.docs.test_client import OF_ALL_THREE, defaults, options, run

from ottla_client import ShareConsumer

if TYPE_CHECKING:
    from tests.support.processes import BrokerProcess

PAGE = ROOT / "docs/share-groups.md"


def test_the_program_prints_what_the_page_shows(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    run(marked(PAGE, "file")["wrappers.py"], broker.bootstrap)
    assert capsys.readouterr().out == marked(PAGE, "output")["wrappers.py"]


def test_every_option_is_there_with_its_default() -> None:
    own = dict(re.findall(r"^\| `(\w+)` \| (`.+?`) \|", text(PAGE), re.MULTILINE))
    shared = options(OF_ALL_THREE)
    assert own.keys() | shared.keys() == defaults(ShareConsumer).keys()
    for option, default in own.items():
        assert literal_eval(default.strip("`")) == defaults(ShareConsumer)[option], option
