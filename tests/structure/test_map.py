"""The map in ARCHITECTURE.md names files, classes and functions that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "B": "broker/ottla_broker",
    "C": "client/ottla_client",
    "L": "client/ottla_cli",
    "W": "client/ottla_console",
    "P": "pipeline/ottla_pipeline",
}


def table(heading: str) -> list[str]:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = page.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("| ") and "|---" not in line][1:]


def test_what_the_map_names_exists() -> None:
    rows = table("To change X, go to Y")
    assert len(rows) > 20
    missing = []
    for row in rows:
        package, source = "", ""
        for letter, code in re.findall(r"(?:\b([BCLWP]) )?`([^`]+)`", row.split("|")[2]):
            package = PACKAGES.get(letter, package)
            path = ROOT / package / code
            if "/" in code or code.endswith(".py"):
                if not path.exists():
                    missing.append(str(path.relative_to(ROOT)))
                elif path.is_file():
                    source = path.read_text(encoding="utf-8")
            elif re.fullmatch(r"\w+", code) and not re.search(
                rf"\b(def|class) {code}\b|^{code}\b", source, re.M
            ):
                missing.append(f"{code} in {row}")
    assert not missing
