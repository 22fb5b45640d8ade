"""What the packages' docstrings name exists, and docs/where.md has it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs/site"))

from where import CHANGE, PACKAGES, PAGE, docstrings, page  # noqa: E402

DOCSTRINGS = dict(docstrings())


def found(name: str, package: Path) -> Path | None:
    """The file or folder that a docstring of the package names."""
    top = next(root / package.relative_to(root).parts[0] for root in PACKAGES if root in package.parents)
    return next((each / name for each in (package, top, *PACKAGES, ROOT) if (each / name).exists()), None)


def test_every_package_says_what_it_holds() -> None:
    silent = [
        file for root in PACKAGES for file in root.rglob("__init__.py") if file.parent not in DOCSTRINGS
    ]
    assert not silent


@pytest.mark.parametrize("package", DOCSTRINGS, ids=lambda package: package.name)
def test_what_a_docstring_names_exists(package: Path) -> None:
    about, _, rows = DOCSTRINGS[package].partition(CHANGE)
    for name in re.findall(r"``(\w[\w/]*(?:\.py|\.c|/))``|\b(docs/[\w/.-]+\w)", about):
        assert found(name[0] or name[1], package) or list(ROOT.glob(f"{name[1] or '-'}*")), name
    for row in re.split(r"^- ", rows, flags=re.MULTILINE)[1:]:
        source = ""
        names = re.findall(r"``([^`]+)``", row.partition(":")[2])
        assert names, row
        for name in names:
            if "/" in name or name.endswith((".py", ".c")):
                path = found(name, package) or next(iter(ROOT.glob(f"{name}*")), None)
                assert path is not None, name
                source = path.read_text(encoding="utf-8") if path.is_file() else source
            elif name.isidentifier() and source:
                assert re.search(rf"\b(def|class) {name}\b|^\s*{name}\b", source, re.M), (name, row)


def test_the_page_has_what_the_docstrings_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make format`"
