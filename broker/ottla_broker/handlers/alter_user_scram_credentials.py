"""AlterUserScramCredentials: change users' passwords for SCRAM (KIP-554).

In a cluster only its controller does it.
"""

from __future__ import annotations

from ottla_broker.metadata.scram_credentials import Deletion, Upsertion
from ottla_broker.requests.api import ALTER, CLUSTER, Api, MiB
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import in_task
from ottla_broker.store.api import StoreError
from ottla_protocol.acls import AclResource
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

API = Api(51, (0, 0), needs={CLUSTER: ALTER}, memory=2 * MiB)


async def handle(
    ctx: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    outcomes: dict[str, KafkaError | None]
    try:
        ctx.check(AclResource.CLUSTER)
        if not ctx.services.is_controller():
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        outcomes = await in_task(
            ctx.services.scram.alter(
                [Deletion(each.name, each.mechanism) for each in request.deletions],
                [
                    Upsertion(each.name, each.mechanism, each.iterations, each.salt, each.salted_password)
                    for each in request.upsertions
                ],
            )
        )
    except (KafkaError, StoreError) as failure:
        error = (
            failure
            if isinstance(failure, KafkaError)
            else KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
        )
        names = [each.name for each in request.deletions] + [each.name for each in request.upsertions]
        outcomes = dict.fromkeys(names, error)
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=user)
            if error is None
            else AlterUserScramCredentialsResult(
                user=user, error_code=error.code, error_message=error.message
            )
            for user, error in outcomes.items()
        ]
    )
