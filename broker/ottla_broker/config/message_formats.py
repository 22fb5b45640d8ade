"""``message.format.version``: the versions that Kafka accepts, and the message format that each asks for.

Logs have format 2 whatever it says, as in Kafka 3.9 with ``inter.broker.protocol.version`` 3.0 or later
(``LogConfig.shouldIgnoreMessageFormatVersion``).
"""

from __future__ import annotations

from typing import Final

from ottla_broker.config.model import Validator

DEFAULT: Final = "3.0-IV1"

# Kafka's MetadataVersion: each release with the number of its versions, or 0 if it has a single one.
_RELEASES: Final = {
    "0.8.0": 0, "0.8.1": 0, "0.8.2": 0, "0.9.0": 0, "0.10.0": 2, "0.10.1": 3, "0.10.2": 1, "0.11.0": 3,
    "1.0": 1, "1.1": 1, "2.0": 2, "2.1": 3, "2.2": 2, "2.3": 2, "2.4": 2, "2.5": 1, "2.6": 1, "2.7": 3, "2.8": 2,
    "3.0": 2, "3.1": 1, "3.2": 1, "3.3": 4, "3.4": 1, "3.5": 3, "3.6": 3, "3.7": 5, "3.8": 1, "3.9": 1, "4.0": 2,
}  # fmt: skip
_VERSIONS: Final = {
    version: release
    for release, count in _RELEASES.items()
    for version in (release, *(f"{release}-IV{number}" for number in range(count)))
    if version != "4.0"  # Kafka 3.9 knows what it was to have, but not yet the release.
}
_RELEASE_ORDER: Final = tuple(_RELEASES)


def _release(version: str) -> str | None:
    """The release of a version such as 0.10.2, 0.10.2-IV0, 0.10.2.1, 2.8 or 2.8.1; None for an unknown one."""
    parts = version.split(".")
    return _VERSIONS.get(".".join(parts[: 3 if version.startswith("0.") else 2]))


def message_format(version: str) -> int:
    """The format of records that a known version asks for."""
    release = _release(version)
    assert release is not None
    at = _RELEASE_ORDER.index(release)
    if at < _RELEASE_ORDER.index("0.10.0"):
        return 0
    return 1 if at < _RELEASE_ORDER.index("0.11.0") else 2


IS_VERSION: Final = Validator(
    lambda version: None if _release(version) else f"Version {version} is not a valid version",
    "a version of Kafka",
)

HARMLESS: Final = tuple(version for version in _VERSIONS if message_format(version) == 2)
"""The versions that ask for what logs have."""
