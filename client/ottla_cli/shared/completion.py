"""What a shell completes: names of topics, groups and features, which a cluster is asked for while the user waits."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

import click
from click.shell_completion import CompletionItem

from ottla_client.settings import DEFAULT_BOOTSTRAP

from .client_options import ClientOptions
from .terminal import ENVIRONMENT

if TYPE_CHECKING:
    from ottla_client.admin import Admin

_NamesOf: TypeAlias = "Callable[[Admin], Awaitable[Iterable[str]]]"
_Complete: TypeAlias = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

# Seconds that the cluster may take while the user waits after pressing Tab.
_PATIENCE = 1.0


def completing(names_of: _NamesOf) -> _Complete:
    """The ``shell_complete`` of a parameter: the names that the cluster has; none if no broker answers at once."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _complete(context, incomplete, names_of)

    return complete


async def _features(admin: Admin) -> Iterable[str]:
    found = await admin.describe_features()
    return {f"{name}=" for each in found.values() for name in each.supported}


complete_topics = completing(lambda admin: admin.list_topics())
complete_groups = completing(lambda admin: admin.list_groups())
complete_features = completing(_features)
"""Names of features, as NAME=."""


def _complete(context: click.Context, incomplete: str, names_of: _NamesOf) -> list[CompletionItem]:
    servers = context.params.get("bootstrap_server") or os.environ.get(ENVIRONMENT) or DEFAULT_BOOTSTRAP
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        options = ClientOptions(servers, _PATIENCE, context.params.get("client_settings") or ())
        names = asyncio.run(_names(options, names_of))
    except Exception:
        return []  # a shell's prompt is no place for an error
    finally:
        logging.disable(disabled)
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


async def _names(options: ClientOptions, names_of: _NamesOf) -> Iterable[str]:
    from ottla_client.admin import Admin
    from ottla_client.admin.base import AdminSettings
    from ottla_client.consumer.settings import ConsumerSettings
    from ottla_client.producer.settings import ProducerSettings

    async with asyncio.timeout(_PATIENCE):
        admin = Admin(**options.of(AdminSettings, (ConsumerSettings, ProducerSettings)))
        await admin.start(_PATIENCE)
        try:
            return await names_of(admin)
        finally:
            await admin.close()
