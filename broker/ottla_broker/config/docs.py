"""The page docs/configuration.md, made from the declarations.

python -m ottla_broker.config.docs > docs/configuration.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from ottla_broker.config import cluster_keys, group_keys, log_keys, server_keys
from ottla_broker.config.model import IGNORED, READ_ONLY, UNSUPPORTED, Key, format_value, keys_of
from ottla_broker.config.other_keys import other_keys
from ottla_broker.config.topics import SYNONYMS, TOPIC_KEYS

_SECTIONS: tuple[tuple[str, type], ...] = (
    ("The broker", server_keys.ServerKeys),
    ("The network", server_keys.NetworkKeys),
    ("What topics have by default", log_keys.TopicDefaultKeys),
    ("The log", log_keys.LogKeys),
    ("Groups and offsets", group_keys.GroupKeys),
    ("In a cluster", cluster_keys.ClusterKeys),
)

_INTRODUCTION = """\
# Configuration

<!-- Made from the declarations by `python -m ottla_broker.config.docs`; change those, not this page. -->

`ottla broker [CONFIG.properties] [--set key=value]…` takes the keys of Kafka 3.9's own `server.properties`,
with its types, defaults and limits. A variable of the environment sets a key as well: `OTTLA_` and the key in
capitals, with `_` for each dot, so `OTTLA_NUM_PARTITIONS` is `num.partitions` (a broker with `--ephemeral` looks
at none). It goes before the file, and the command line before both. What is wrong is told in one line with the
key, and the broker does not start.

A key marked *dynamic* can be changed while the broker runs, for this broker or for all (`kafka-configs.sh
--entity-type brokers`), and acts at once. Sizes are bytes and times milliseconds where the name says nothing
else. Where a default differs from Kafka's, its meaning says so.

A key that is unknown, or can have no effect here, is accepted with a warning at start. One that asks for
something that isn't built yet is refused.
"""

_TOPICS = """\
## Topics

What a topic can have of its own (`kafka-configs.sh --entity-type topics`, CreateTopics); changes act at
once. What it doesn't set comes from the broker's key beside it.
"""

_NOT_YET = """\
## Not built yet

Refused when set to anything but their default.
"""

_NO_EFFECT = """\
## Without effect

Accepted; a value other than the default is warned of at start.
"""


def page() -> str:
    """The whole page."""
    parts = [_INTRODUCTION]
    for title, owner in _SECTIONS:
        parts.append(f"## {title}\n")
        parts.append(_table(keys_of(owner).values()))
    parts += [_TOPICS, _topic_table()]
    others = other_keys()
    for text, effect in ((_NOT_YET, UNSUPPORTED), (_NO_EFFECT, IGNORED)):
        parts.append(text)
        parts.append(_reasons([key for _, key in sorted(others.items()) if key.effect == effect]))
    return "\n".join(parts)


def _table(keys: Iterable[Key[Any]]) -> str:
    lines = ["| key | type | default | allowed | meaning |", "|---|---|---|---|---|"]
    for key in keys:
        dynamic = "" if key.mode == READ_ONLY or key.effect == UNSUPPORTED else " *Dynamic.*"
        lines.append(
            f"| `{key.name}` | {key.kind.lower()} | {_default(key)} | {_allowed(key)} |"
            f" {_cell(key.documentation)}{dynamic} |"
        )
    return "\n".join(lines) + "\n"


def _topic_table() -> str:
    lines = ["| config | type | default | allowed | broker's key | meaning |", "|---|---|---|---|---|---|"]
    for name, key in TOPIC_KEYS.items():
        synonyms = ", ".join(f"`{synonym.name}`" for synonym in SYNONYMS[name])
        refused = "*Refused unless it is the default:* " if key.effect == UNSUPPORTED else ""
        lines.append(
            f"| `{name}` | {key.kind.lower()} | {_default(key)} | {_allowed(key)} | {synonyms} |"
            f" {refused}{_cell(key.documentation)} |"
        )
    return "\n".join(lines) + "\n"


def _reasons(keys: Iterable[Key[Any]]) -> str:
    lines = ["| key | type | default | meaning | why |", "|---|---|---|---|---|"]
    lines += [
        f"| `{key.name}` | {key.kind.lower()} | {_default(key)} | {_cell(key.meaning)} | {_cell(key.note)} |"
        for key in keys
    ]
    return "\n".join(lines) + "\n"


def _default(key: Key[Any]) -> str:
    text = format_value(key.kind, key.default)
    return "" if not text else f"`{_cell(text)}`"


def _allowed(key: Key[Any]) -> str:
    return "" if key.validator is None else _cell(key.validator.describe)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page())
