"""``python docs/site/build.py [FOLDER]`` builds the site, in ``dist/site``, with search and an API reference.

The pages are copied as they lie in the repository, so that their relative links hold; the API reference is made from
the docstrings of the public names. Zensical checks links and anchors: a broken one fails the build.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from public import DOCUMENTED, PACKAGES, ROOT, public_names

PAGES = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "SECURITY.md")


def main(target: Path) -> int:
    with tempfile.TemporaryDirectory(prefix="ottla-site-") as name:
        folder = Path(name)
        lay_out(folder / "pages")
        (folder / "mkdocs.yml").write_text(yaml.dump(configuration(folder / "pages"), sort_keys=False))
        build = subprocess.run(
            [sys.executable, "-m", "zensical", "build", "--clean", "--strict"], cwd=folder, check=False
        )
        if build.returncode:
            return 1
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(folder / "site", target)
    print(
        f"{sum(1 for _ in target.rglob('*.html'))} pages in {target}; to read them at http://127.0.0.1:8000/:"
    )
    print(f"  python3 -m http.server -b 127.0.0.1 -d {target}")
    return 0


def lay_out(pages: Path) -> None:
    """Copy the pages and write one page of API reference per public module."""
    shutil.copytree(ROOT / "docs", pages / "docs", ignore=shutil.ignore_patterns("site"))
    for page in PAGES:
        shutil.copy(ROOT / page, pages / page)
    (pages / "api").mkdir()
    for module in DOCUMENTED:
        reference = "\n\n".join(f"::: {module}.{name}" for name in public_names(module))
        (pages / "api" / f"{module}.md").write_text(f"# {module}\n\n{reference}\n")


def configuration(pages: Path) -> dict[str, Any]:
    """``mkdocs.yml`` with the folders in its navigation replaced by their pages."""
    # BaseLoader would turn the fence's function into text; the loader for it is Zensical's own business.
    loaded: dict[str, Any] = yaml.unsafe_load((ROOT / "docs/site/mkdocs.yml").read_text())
    for plugin in loaded["plugins"]:
        if isinstance(plugin, dict) and "mkdocstrings" in plugin:
            plugin["mkdocstrings"]["handlers"]["python"]["paths"] = [str(package) for package in PACKAGES]
    loaded["nav"] = [expand(item, pages) for item in loaded["nav"]]
    return loaded


def expand(item: Any, pages: Path) -> Any:
    if isinstance(item, dict):
        return {title: expand(below, pages) for title, below in item.items()}
    if isinstance(item, list):
        return [expand(below, pages) for below in item]
    folder = pages / item
    return [str(page.relative_to(pages)) for page in sorted(folder.glob("*.md"))] if folder.is_dir() else item


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist/site")))
