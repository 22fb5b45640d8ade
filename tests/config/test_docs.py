"""docs/configuration.md is up to date."""

from __future__ import annotations

from pathlib import Path

from ottla_broker.config.docs import page


def test_the_page_is_up_to_date() -> None:
    path = Path(__file__).parents[2] / "docs" / "configuration.md"
    assert path.read_text() == page(), "run: python -m ottla_broker.config.docs > docs/configuration.md"
