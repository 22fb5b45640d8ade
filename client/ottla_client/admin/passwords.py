"""Admin's calls for users' passwords with SCRAM (KIP-554)."""

from __future__ import annotations

import asyncio
from secrets import token_bytes
from typing import Final

from ottla_protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla_protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from ottla_protocol.sasl.mechanism import CODES, SCRAM_SHA_512
from ottla_protocol.sasl.salts import ITERATIONS, SALT_BYTES
from ottla_protocol.sasl.scram import salt_password

from ..deadline import Deadline
from ..errors import ConfigurationError
from ..requests.driver import Node, Outcomes
from ..requests.outcomes import outcome_of
from .base import AdminBase

_NUMBERS: Final = {name: number for number, name in CODES.items()}


class PasswordCalls(AdminBase):
    async def list_passwords(self, *, timeout: float | None = None) -> dict[str, dict[str, int]]:
        """The users who can log in by SCRAM: for each the iterations by mechanism."""
        request = DescribeUserScramCredentialsRequest()
        answer = await self._ask_once("users", request, timeout)
        return {
            each.user: {
                CODES.get(info.mechanism, str(info.mechanism)): info.iterations
                for info in each.credential_infos
            }
            for each in sorted(answer.results, key=lambda result: str(result.user))
        }

    async def set_password(
        self,
        user: str,
        password: str,
        *,
        mechanism: str = SCRAM_SHA_512,
        iterations: int = ITERATIONS,
        timeout: float | None = None,
    ) -> None:
        """Let a user log in with a password by SCRAM-SHA-512 or SCRAM-SHA-256; another one is replaced.

        The broker gets it salted and hashed ``iterations`` times, 4,096 to 16,384.

        Raises BrokerError: UNACCEPTABLE_CREDENTIAL, …
        """
        number = _number(mechanism)
        if not password:
            raise ConfigurationError("the password is empty")
        salt = token_bytes(SALT_BYTES)
        salted = await asyncio.to_thread(salt_password, mechanism, password, salt, iterations)
        change = ScramCredentialUpsertion(
            name=user, mechanism=number, iterations=iterations, salt=salt, salted_password=salted
        )
        await self._change(user, AlterUserScramCredentialsRequest(upsertions=[change]), timeout)

    async def delete_password(
        self, user: str, *, mechanism: str = SCRAM_SHA_512, timeout: float | None = None
    ) -> None:
        """Keep a user from logging in by a mechanism; connections that are open stay.

        Raises BrokerError: RESOURCE_NOT_FOUND, …
        """
        change = ScramCredentialDeletion(name=user, mechanism=_number(mechanism))
        await self._change(user, AlterUserScramCredentialsRequest(deletions=[change]), timeout)

    async def _change(
        self, user: str, request: AlterUserScramCredentialsRequest, timeout: float | None
    ) -> None:
        async def ask(node: Node, _: list[str], deadline: Deadline) -> Outcomes[str, None]:
            (result,) = (await self._call(node, request, deadline)).results
            return {user: outcome_of(result.error_code, None, f"user {user}", result.error_message)}

        await self._ask_each("change a password", [user], self._controller(), ask, timeout)


def _number(mechanism: str) -> int:
    if mechanism not in _NUMBERS:
        raise ConfigurationError(f"{mechanism!r} is not one of {', '.join(_NUMBERS)}")
    return _NUMBERS[mechanism]
