"""No package imports itself in a circle. Imports for type checking count."""

from __future__ import annotations

from collections.abc import Mapping

import grimp
import pytest

PACKAGES = ("ottla_protocol", "ottla_broker", "ottla_client", "ottla_cli", "ottla_console", "ottla_pipeline")


def imports(package: str) -> dict[str, set[str]]:
    """Return what each module of a package imports directly."""
    graph = grimp.build_graph(package, exclude_type_checking_imports=False, cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def cycles(graph: Mapping[str, set[str]]) -> list[frozenset[str]]:
    """Return the strongly connected components with more than one node (Tarjan)."""
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[frozenset[str]] = []

    def visit(node: str) -> None:
        index[node] = lowest[node] = len(index)
        stack.append(node)
        for target in graph.get(node, ()):
            if target not in index:
                visit(target)
                lowest[node] = min(lowest[node], lowest[target])
            elif target in stack:
                lowest[node] = min(lowest[node], index[target])
        if lowest[node] == index[node]:
            start = stack.index(node)
            component, stack[start:] = frozenset(stack[start:]), []
            if len(component) > 1:
                found.append(component)

    for node in graph:
        if node not in index:
            visit(node)
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_no_cycle_of_imports(package: str) -> None:
    found = cycles(imports(package))
    assert not found, "\n".join(" → ".join(sorted(each)) for each in found)


def test_cycles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set[str](), "f": {"g"}, "g": {"f"}}
    assert set(cycles(graph)) == {frozenset("abc"), frozenset("fg")}
