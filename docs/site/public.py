"""The modules with public names: those of the API reference, and those for packages that build on the client.

``build.py`` makes the reference of them, and ``tests/client/base/test_public_names.py`` lists their names.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = [ROOT / package for package in ("protocol", "client", "broker", "pipeline")]
DOCUMENTED = (
    "ottla_client",
    "ottla_client.admin",
    "ottla_client.errors",
    "ottla_client.group.assignors",
    "ottla_client.sync",
    "ottla_broker.testing",
    "ottla_pipeline.landing",
    "ottla_pipeline.source",
)
FOR_PACKAGES = ("ottla_cli", "ottla_client.lowlevel")
"""These may change in a minor release."""


def public_names(module: str) -> list[str]:
    """What a module offers, read from its source without importing it: the site needs no package of the project.

    ``__all__`` if it is a list of names; otherwise what it imports as itself; otherwise the public names it defines.
    """
    path = module.replace(".", "/")
    files = [package / path / "__init__.py" for package in PACKAGES] + [
        package / f"{path}.py" for package in PACKAGES
    ]
    tree = ast.parse(next(filter(Path.exists, files)).read_text(encoding="utf-8"))
    passed_on, own = set(), set()
    for node in [*tree.body, *(each for test in tree.body if isinstance(test, ast.If) for each in test.body)]:
        if isinstance(node, ast.ImportFrom):
            passed_on |= {each.name for each in node.names if each.asname == each.name}
        elif isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name[0] != "_":
            own.add(node.name)
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            if isinstance(node.value, ast.List):
                return sorted(ast.literal_eval(node.value))
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
            own |= {each.id for each in node.targets if isinstance(each, ast.Name)}
    return sorted(passed_on or own)
