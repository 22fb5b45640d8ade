"""The command ``ottla`` and its subcommands that need no broker package: they work with any Kafka cluster.

``ottla.py`` is the command; it finds subcommands by the entry points ``ottla.commands``. Each is a module or a folder
of its name: `ottla topics` is ``topics.py``, `ottla groups` is ``groups/command.py``; read that first, it has the
options. Commands import ``shared/``, which imports no command; a contract in pyproject.toml says which commands use
others. ``pages.py`` writes docs/cli.

A package that adds its own subcommands, by the entry-point group ``ottla.commands``, finds here what commands share:
the common options, the Console, completion, and the way errors end a command. It may change in a minor release.

To change

- a command: its module or folder, such as ``topics.py``, which the entry points in pyproject.toml name
- exit codes: ``shared/terminal.py``; an error of a command, such as a topic that exists: ``topics.py`` ``create``
- how subcommands are found, and the sections of ``ottla --help``: ``ottla.py`` ``Commands``, ``SECTIONS``
- what Ctrl-C does before a command is loaded: ``start.py`` ``loading``
- the pages in docs/cli: ``pages.py`` ``pages``
- what other packages' subcommands may import: ``__init__.py`` ``_HOMES``
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla_client.lazy import lazy_names

if TYPE_CHECKING:
    from .shared.client_options import ClientOptions as ClientOptions
    from .shared.client_options import option_group as option_group
    from .shared.completion import complete_groups as complete_groups
    from .shared.progress import Progress as Progress
    from .shared.progress import amount_of_bytes as amount_of_bytes
    from .shared.tables import Column as Column
    from .shared.terminal import Console as Console
    from .shared.terminal import one_line as one_line
    from .shared.terminal import one_line_errors as one_line_errors
    from .shared.terminal import options as options
    from .shared.terminal import run as run
    from .shared.terminal import unknown as unknown
    from .shared.timefmt import parse_duration as parse_duration
    from .shared.topic_checks import TOPIC as TOPIC

_HOMES = {
    ".shared.client_options": "ClientOptions option_group",
    ".shared.completion": "complete_groups",
    ".shared.terminal": "Console one_line one_line_errors options run unknown",
    ".shared.progress": "Progress amount_of_bytes",
    ".shared.tables": "Column",
    ".shared.timefmt": "parse_duration",
    ".shared.topic_checks": "TOPIC",
}

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
