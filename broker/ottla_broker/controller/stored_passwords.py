"""The passwords among a broker's settings: encrypted in the store, as Kafka has them, and plain in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla_broker.config.broker import key_of
from ottla_broker.events import get_logger
from ottla_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from random import Random

    from ottla_broker.config import BrokerConfig
    from ottla_broker.config.password_encoder import PasswordEncoder

_log = get_logger()


class StoredPasswords:
    """Owned by the loop thread. Keys are derived in a thread, because that takes milliseconds."""

    def __init__(self, config: BrokerConfig, random: Random) -> None:
        self._config = config
        self._random = random

    def check(self, settings: Mapping[str, str]) -> None:
        """Check that the passwords among a broker's settings can be stored. Raises KafkaError(INVALID_REQUEST)."""
        if _passwords(settings):
            try:
                self._encoder()
            except ValueError as error:
                raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error

    async def encrypted(self, settings: Mapping[str, str]) -> dict[str, str]:
        """A broker's checked settings as they are stored."""
        found = dict(settings)
        for name in _passwords(settings):
            found[name] = await asyncio.to_thread(self._encoder().encode, settings[name])
        return found

    async def decrypted(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Stored settings as they come into force, without passwords that can't be decrypted."""
        found = dict(settings)
        for name in _passwords(settings):
            try:
                found[name] = await asyncio.to_thread(self._encoder().decode, settings[name])
            except ValueError as error:
                _log.error("password ignored, it can't be decrypted", name=name, reason=str(error))
                del found[name]
        return found

    def _encoder(self) -> PasswordEncoder:
        """Raises PasswordError."""
        # Imported here because most brokers never need it.
        from ottla_broker.config.password_encoder import PasswordEncoder

        return PasswordEncoder(self._config, self._random)


def without_passwords(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings that aren't passwords."""
    passwords = _passwords(settings)
    return {name: text for name, text in settings.items() if name not in passwords}


def _passwords(settings: Mapping[str, str]) -> list[str]:
    return [name for name in settings if (key := key_of(name)) is not None and key.sensitive]
