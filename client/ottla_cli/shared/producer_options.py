"""The options of the commands that produce."""

from __future__ import annotations

from typing import Any

import click

ACKS = click.option(
    "--acks",
    type=click.Choice(["0", "1", "all"]),
    default="all",
    show_default=True,
    help="Wait for no acknowledgement, the leader's, or all in-sync replicas'.",
)
COMPRESSION = click.option(
    "-z",
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
    help="Compress batches with this codec.",
)
LINGER = click.option(
    "--linger",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    metavar="MS",
    help="Set how long a batch waits for more records.",
)


def producer_options(acks: str, compression: str, linger: int) -> dict[str, Any]:
    """The producer's options for these of the command."""
    return {
        "acks": acks if acks == "all" else int(acks),
        "compression_type": None if compression == "none" else compression,
        "linger_ms": linger,
    }
