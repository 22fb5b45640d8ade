"""``ottla features``: describe, upgrade, downgrade."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click

from .shared.admin import admin_of, ranges_of
from .shared.client_options import option_group, pair
from .shared.completion import complete_features
from .shared.findings import brokers_named
from .shared.tables import Column
from .shared.terminal import Console, options, unknown

if TYPE_CHECKING:
    from ottla_client.admin import FeatureMetadata, UpgradeType

_UPDATE = option_group(
    click.option(
        "--feature",
        "texts",
        multiple=True,
        required=True,
        metavar="NAME=LEVEL",
        shell_complete=complete_features,
        help="Finalize this feature at this level. Repeat it for several features.",
    ),
    click.option("--dry-run", is_flag=True, help="Let the cluster validate the changes without making them."),
)


@click.group()
def features() -> None:
    """Show and change the levels at which the brokers of a cluster work together (KIP-584).

    A feature that is finalized at a level needs brokers that support this level; others can't join the cluster any
    more. These are the commands and options of kafka-features.sh.

    \b
    ottla features describe
    ottla features upgrade --feature transaction.version=2
    ottla features downgrade --feature transaction.version=0
    """


@features.command(short_help="Show the supported and the finalized levels.")
@options
async def describe(console: Console) -> None:
    """Show each feature's lowest and highest supported level, the finalized level, and which brokers support it so.

    A feature that isn't finalized has level 0. Brokers that don't support a feature have a row without levels.

    \b
    ottla features describe
    """
    async with admin_of(console) as admin:
        found = await admin.describe_features()
    console.table(
        [
            "Feature",
            Column("Lowest", "supported_min", right=True),
            Column("Highest", "supported_max", right=True),
            Column("Finalized", right=True),
            Column("Epoch", right=True),
            Column("Brokers", show=ranges_of),
        ],
        _rows(found),
        empty="the brokers have no features",
    )


def _rows(found: Mapping[int, FeatureMetadata]) -> Iterator[tuple[object, ...]]:
    # A broker learns of a change a moment after the controller has made it.
    newest = max(found.values(), key=lambda each: each.epoch)
    for name in sorted({*newest.finalized, *(name for each in found.values() for name in each.supported)}):
        alike: dict[tuple[int, int] | None, list[int]] = {}
        for node, each in found.items():
            alike.setdefault(each.supported.get(name), []).append(node)
        for levels, nodes in alike.items():
            epoch = newest.epoch if newest.epoch >= 0 else None
            yield (name, *(levels or (None, None)), newest.finalized.get(name, 0), epoch, nodes)


@features.command(short_help="Finalize features at higher levels.")
@_UPDATE
@options
async def upgrade(console: Console, texts: tuple[str, ...], dry_run: bool) -> None:
    """Finalize features at higher levels, which all brokers must support.

    From then on, brokers that don't support the level can't join the cluster.

    \b
    ottla features upgrade --feature transaction.version=2 --dry-run
    ottla features upgrade --feature transaction.version=2
    """
    from ottla_client.admin import UpgradeType

    await _update(console, texts, UpgradeType.UPGRADE, dry_run)


@features.command(short_help="Finalize features at lower levels.")
@_UPDATE
@click.option("--unsafe", is_flag=True, help="Allow a downgrade that loses what the feature keeps.")
@options
async def downgrade(console: Console, texts: tuple[str, ...], unsafe: bool, dry_run: bool) -> None:
    """Finalize features at lower levels; level 0 finalizes one no longer.

    \b
    ottla features downgrade --feature transaction.version=0
    """
    from ottla_client.admin import UpgradeType

    kind = UpgradeType.UNSAFE_DOWNGRADE if unsafe else UpgradeType.SAFE_DOWNGRADE
    await _update(console, texts, kind, dry_run)


async def _update(console: Console, texts: tuple[str, ...], kind: UpgradeType, dry_run: bool) -> None:
    from ottla_client.admin import FeatureUpdate

    levels = dict(map(_level, texts))
    if len(levels) < len(texts):
        raise click.BadParameter("a feature is named twice", param_hint="--feature")
    async with admin_of(console) as admin:
        found = await admin.describe_features()
        known = {name for each in found.values() for name in each.supported}
        for name, level in levels.items():
            if name not in known:
                raise unknown("feature", name, known)
            _check_supported(found, name, level)
        updates = {name: FeatureUpdate(level, kind) for name, level in levels.items()}
        await admin.update_features(updates, validate_only=dry_run)
    if dry_run:
        accepted = "the cluster accepts this; nothing was changed"
        console.report({"accepted": levels}, accepted, aside=True)
        return
    console.report({"finalized": levels}, *(f"finalized {name} at {levels[name]}" for name in levels))


def _check_supported(found: Mapping[int, FeatureMetadata], name: str, level: int) -> None:
    """Raises click.ClickException that names the brokers; their controller's refusal doesn't."""
    lacking = [
        node
        for node, each in found.items()
        if level and not (name in each.supported and each.supported[name].covers(level))
    ]
    if lacking:
        brokers = brokers_named(len(lacking), ranges_of(lacking))
        raise click.ClickException(
            f"{name} can't be finalized at {level}: {brokers} can't work at this level"
        )


def _level(text: str) -> tuple[str, int]:
    name, level = pair(text, "--feature")
    if not level.isdecimal() or int(level) > 0x7FFF:
        raise click.BadParameter(f"{text!r} is not NAME=LEVEL with a level such as 2", param_hint="--feature")
    return name, int(level)
