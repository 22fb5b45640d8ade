"""UpdateFeatures (key 57), versions 0-1: Ottla has no features to update, like a Kafka 3.9 with ZooKeeper (KIP-584).

So every update is refused, with the error that such a Kafka finds first. In a cluster only its controller answers.
"""

from __future__ import annotations

from typing import Final

from ottla_broker.handlers.context import RequestContext
from ottla_protocol.acls import AclResource
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages import update_features as wire

_UPGRADE: Final = 1
_UPGRADE_TYPES: Final = (_UPGRADE, 2, 3)


async def handle(ctx: RequestContext, request: wire.UpdateFeaturesRequest) -> wire.UpdateFeaturesResponse:
    try:
        ctx.check(AclResource.CLUSTER)
        if not ctx.services.is_controller():
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
    except KafkaError as error:
        return wire.UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
    # Kafka reads a feature that is named twice once.
    updates = {update.feature: update for update in reversed(request.feature_updates)}
    return wire.UpdateFeaturesResponse(
        error_message=None,
        results=[
            wire.UpdatableFeatureResult(
                feature=name, error_code=ErrorCode.INVALID_REQUEST, error_message=_refusal(update)
            )
            for name, update in reversed(updates.items())
        ],
    )


def _refusal(update: wire.FeatureUpdateKey) -> str:
    """Why the update is invalid; Kafka's ``KafkaController.validateFeatureUpdate``."""
    if not update.feature:
        return "Feature name can not be empty."
    if update.upgrade_type not in _UPGRADE_TYPES:
        return "Received unknown upgrade type."
    if update.max_version_level < 1:
        if update.allow_downgrade or update.upgrade_type != _UPGRADE:
            return "Can not delete non-existing finalized feature."
        return (
            f"Can not provide versionLevel: {update.max_version_level} less than 1 without setting the SAFE"
            " downgradeType in the request."
        )
    return "Could not apply finalized feature update because the provided feature is not supported."
