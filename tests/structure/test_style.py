"""The broker's style, where ruff has no rule for it; see CONTRIBUTING.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BROKER = ROOT / "broker/ottla_broker"


def sources() -> Iterator[tuple[str, str]]:
    for path in sorted(BROKER.rglob("*.py")):
        yield str(path.relative_to(BROKER)), path.read_text(encoding="utf-8")


def test_no_rulers() -> None:
    ruled = [name for name, text in sources() if re.search(r"^ *# .*---", text, re.MULTILINE)]
    assert not ruled


def test_loggers_have_one_form() -> None:
    for name, text in sources():
        if name == "events.py":
            continue
        for declared in re.findall(r"^.*get_logger\(.*$", text, re.MULTILINE):
            assert declared == "_log = get_logger()", (name, declared)
