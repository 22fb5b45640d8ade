"""DescribeUserScramCredentials: which SCRAM mechanisms users have (KIP-554).

Null and an empty list ask for all users. Errors have Kafka's words (``ZkAdminManager.describeUserScramCredentials``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from ottla_broker.requests.api import CLUSTER, DESCRIBE, LISTS, Api, MiB
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import pause
from ottla_broker.requests.made_later import made_later
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages import describe_user_scram_credentials as wire
from ottla_protocol.sasl.mechanism import CODES
from ottla_protocol.sasl.scram import ScramCredential

API = Api(50, (0, 0), needs={CLUSTER: DESCRIBE}, gate=CLUSTER, memory=2 * MiB, answer=LISTS, coded=200)

_NUMBERS: Final = {mechanism: number for number, mechanism in CODES.items()}


Asked = tuple[str, int, Mapping[str, ScramCredential] | None]


async def handle(
    ctx: RequestContext, request: wire.DescribeUserScramCredentialsRequest
) -> wire.DescribeUserScramCredentialsResponse:
    known = ctx.services.scram.describe()
    found: list[Asked] = []
    if request.users:
        for name, count in Counter(user.name for user in request.users).items():
            found.append((name, count, known.get(name)))
            await pause(1)
    else:
        for name, credentials in list(known.items()):
            found.append((name, 1, credentials))
            await pause(1)
    return wire.DescribeUserScramCredentialsResponse(results=made_later(found, _result))


def _result(asked: Asked) -> wire.DescribeUserScramCredentialsResult:
    name, count, found = asked
    code = ErrorCode.RESOURCE_NOT_FOUND
    if not name:
        message = "Username must not be empty"
    elif count > 1:
        code = ErrorCode.DUPLICATE_RESOURCE
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    elif found is None:
        message = f"Attempt to describe a user credential that does not exist: {name}"
    else:
        infos = [
            wire.CredentialInfo(mechanism=_NUMBERS[mechanism], iterations=each.iterations)
            for mechanism, each in found.items()
        ]
        return wire.DescribeUserScramCredentialsResult(user=name, credential_infos=infos)
    return wire.DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=message)
