"""The subcommands of ``ottla`` that need no broker package: they work with any Kafka cluster.

A package that adds its own subcommands, by the entry-point group ``ottla.commands``, finds here what commands share:
the common options, the Console, completion, and the way errors end a command. It may change in a minor release.

To change

- a command: its module, such as ``topics.py``, which the entry points in pyproject.toml name
- exit codes: ``console.py``; an error of a command, such as a topic that exists: ``topics.py`` ``create``
- how long a command may take to end after Ctrl-C: ``ending.py`` ``Ending``
- where a group's place is kept, for lag and resetting: ``group_places.py`` ``kept``, for commands and the console
- what ``ottla security check`` finds: ``security_checks.py`` ``CHECKS``; what it tries: ``security_probe.py``
  ``Prober``
- what certificates for trials have: ``trial_files.py`` ``make_files``
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla_client.lazy import lazy_names

if TYPE_CHECKING:
    from .client_options import ClientOptions as ClientOptions
    from .client_options import option_group as option_group
    from .completion import complete_groups as complete_groups
    from .console import Console as Console
    from .console import one_line as one_line
    from .console import one_line_errors as one_line_errors
    from .console import options as options
    from .console import run as run
    from .console import unknown as unknown
    from .progress import Progress as Progress
    from .progress import amount_of_bytes as amount_of_bytes
    from .tables import Column as Column
    from .timefmt import parse_duration as parse_duration
    from .topic_checks import TOPIC as TOPIC

_HOMES = {
    ".client_options": "ClientOptions option_group",
    ".completion": "complete_groups",
    ".console": "Console one_line one_line_errors options run unknown",
    ".progress": "Progress amount_of_bytes",
    ".tables": "Column",
    ".timefmt": "parse_duration",
    ".topic_checks": "TOPIC",
}

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
