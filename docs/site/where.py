"""``python docs/site/where.py`` writes docs/where.md: what the packages' docstrings say, on one page to search.

A docstring may end with a list under "To change": ``- what: ``path`` ``name`` …``, with paths from the package's own
folder, or from the top of any package, such as ottla_protocol/acls.py. ``tests/structure/test_map.py`` checks them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from public import PACKAGES, ROOT

PAGE = ROOT / "docs/where.md"
_HEAD = """# Where things are

What each package holds, in what order to read it, and where to change what. Search it for the word that you have: a
config key, an error, a KIP. It is made of the packages' docstrings (`make format`). The whole in a few minutes is
[ARCHITECTURE.md](../ARCHITECTURE.md).
"""
CHANGE = "\n\nTo change\n\n"


def docstrings() -> Iterator[tuple[Path, str]]:
    """Each package's folder and docstring."""
    for root in PACKAGES:
        for file in sorted(root.rglob("__init__.py")):
            text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
            if text is not None:
                yield file.parent, text


def page() -> str:
    parts = [_HEAD]
    for folder, text in docstrings():
        name = ".".join(folder.parts[len(ROOT.parts) + 1 :])
        about, _, rows = text.partition(CHANGE)
        about = re.sub(r":\w+:`~?\.?([^`]+)`", r"`\1`", about.split("\n::\n")[0])
        parts.append(f"## {name}\n\n{about.strip()}\n")
        if rows:
            items = [" ".join(item.split()) for item in re.split(r"^- ", rows, flags=re.MULTILINE)[1:]]
            parts.append(
                "To change:\n\n"
                + "".join(f"- **{what}**: {where}\n" for what, _, where in (i.partition(": ") for i in items))
            )
    return re.sub(r"`*docs/decisions/(\d{4})`*", decision, "\n".join(parts)).replace("``", "`")


def decision(number: re.Match[str]) -> str:
    """A link to a decision's page."""
    (file,) = (ROOT / "docs/decisions").glob(f"{number[1]}-*.md")
    return f"[decision {int(number[1])}](decisions/{file.name})"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
