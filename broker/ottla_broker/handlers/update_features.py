"""UpdateFeatures: finalize features of the cluster (KIP-584). Only its controller answers."""

from __future__ import annotations

from ottla_broker.requests.api import ALTER, CLUSTER, Api, MiB
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import in_task
from ottla_protocol.acls import AclResource
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages import update_features as wire

API = Api(57, (0, 1), needs={CLUSTER: ALTER}, memory=MiB // 2)


async def handle(ctx: RequestContext, request: wire.UpdateFeaturesRequest) -> wire.UpdateFeaturesResponse:
    try:
        ctx.check(AclResource.CLUSTER)
        if not ctx.services.is_controller():
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
    except KafkaError as error:
        return wire.UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
    # Kafka reads a feature that is named twice once.
    updates = {update.feature: update for update in reversed(request.feature_updates)}
    wanted = list(reversed(updates.values()))
    outcomes = await in_task(ctx.services.features.update(wanted, validate_only=request.validate_only))
    return wire.UpdateFeaturesResponse(
        error_message=None,
        results=[
            wire.UpdatableFeatureResult(
                feature=update.feature, error_code=outcome.error, error_message=outcome.message
            )
            for update, outcome in zip(wanted, outcomes, strict=True)
        ],
    )
