"""``python -m tests.structure.index_apis`` writes the index of what the handlers' modules say of their APIs."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import ottla_broker.handlers
from ottla_protocol.api_keys import ApiKey

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "broker/ottla_broker/handlers/index.py"
_HEAD = '''"""Where and in which versions each API is served. ``make format`` writes it from each ``API``."""

from __future__ import annotations

from typing import Final

from ottla_broker.requests.api import Served

INDEX: Final[dict[int, Served]] = {
'''


def index() -> str:
    """The text of ``handlers/index.py``."""
    lines = []
    for key in ApiKey:
        name = key.name.lower()
        if not FILE.with_name(f"{name}.py").exists():
            continue
        api = import_module(f"ottla_broker.handlers.{name}").API
        assert api.key == key, f"{name}.py has the key {api.key}, of {ApiKey(api.key).name}"
        facts = {
            "coordinated": api.coordinated,
            "of_groups": api.of_groups,
            "in_clusters": api.senders == "brokers",
            "feature": api.feature,
        }
        usual = ottla_broker.handlers.Served._field_defaults
        unusual = [f", {fact}={value!r}" for fact, value in facts.items() if value != usual[fact]]
        first, last = api.versions
        lines.append(f'    {key:d}: Served("{name}", {first}, {last}{"".join(unusual)}),\n'.replace("'", '"'))
    return "".join([_HEAD, *lines, "}\n"])


if __name__ == "__main__":
    FILE.write_text(index(), encoding="utf-8")
