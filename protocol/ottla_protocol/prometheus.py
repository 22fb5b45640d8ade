"""Parts of whatever serves metrics to Prometheus: the text format's pieces, and how its address is written.

::

    # HELP name what it means
    # TYPE name counter | gauge | summary
    name{label="value",…} 1.5
"""

from __future__ import annotations

import re
from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

# HOST:PORT, with an IPv6 address in brackets, or a port alone.
_ADDRESS: Final = re.compile(r"(?:(?:\[([0-9a-fA-F:%.]+)\]|([0-9a-zA-Z\-._]+)):)?([0-9]{1,5})")
_LOOPBACK: Final = "127.0.0.1"
_HIGHEST_PORT: Final = 65535


def escape(value: str) -> str:
    """A label's value between its quotes."""
    return value.translate(_ESCAPES)


def labels(**values: object) -> str:
    """Labels with their braces."""
    return "{" + ",".join(f'{name}="{escape(str(value))}"' for name, value in values.items()) + "}"


def head(name: str, kind: str, meaning: str) -> str:
    """The lines before a metric's samples; ``kind`` is ``counter``, ``gauge`` or ``summary``."""
    text = meaning.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def parse_address(text: str) -> tuple[str, int] | None:
    """Host and port of a listener; a port alone is one of 127.0.0.1. None: it is neither."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match[3]) > _HIGHEST_PORT:
        return None
    return match[1] or match[2] or _LOOPBACK, int(match[3])
