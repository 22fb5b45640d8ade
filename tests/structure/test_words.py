"""Code and pages use plain words."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
AVOIDED = re.compile(r"\b(told|whoever|nobody|anew|mend|mended|let go|no more)\b", re.IGNORECASE)
MOST = 40
"""Uses that are the plain word, such as "accept no more records"."""


def test_words_that_read_as_translated_are_rare() -> None:
    found = []
    for folder in ("broker", "client", "protocol", "pipeline", "bench", "harness", "docs", "tests", ".ci"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".py", ".md"} and path != Path(__file__).resolve():
                found += [
                    f"{path.relative_to(ROOT)}: {word}" for word in AVOIDED.findall(path.read_text("utf-8"))
                ]
    for page in ROOT.glob("*.md"):
        found += [f"{page.name}: {word}" for word in AVOIDED.findall(page.read_text("utf-8"))]
    assert len(found) < MOST, found
