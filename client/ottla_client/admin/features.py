"""Admin's calls for the features of a cluster (KIP-584)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla_protocol.api_keys import ApiKey
from ottla_protocol.messages.api_versions import ApiVersionsRequest
from ottla_protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

from ..deadline import Deadline
from ..requests.driver import Node, Outcomes
from ..requests.outcomes import error_of, outcome_of
from .base import AdminBase
from .values import FeatureMetadata, FeatureUpdate, UpgradeType, VersionRange


class FeatureCalls(AdminBase):
    async def describe_features(
        self, nodes: Iterable[int] | None = None, *, timeout: float | None = None
    ) -> dict[int, FeatureMetadata]:
        """The features that brokers support, and the finalized ones, by broker; all brokers if none are named."""

        async def ask(node: Node, its: list[int], deadline: Deadline) -> Outcomes[int, FeatureMetadata]:
            version = await self._version(node, ApiKey.API_VERSIONS, deadline)
            request = ApiVersionsRequest(client_software_name="ottla", client_software_version="admin")
            answer = await self._call(node, request, deadline, version)
            features = FeatureMetadata(
                answer.finalized_features_epoch,
                {each.name: each.max_version_level for each in answer.finalized_features},
                {
                    each.name: VersionRange(each.min_version, each.max_version)
                    for each in answer.supported_features
                },
            )
            return dict.fromkeys(its, outcome_of(answer.error_code, features, f"broker {node}"))

        return await self._ask_nodes("describe features", nodes, ask, timeout)

    async def update_features(
        self,
        updates: Mapping[str, FeatureUpdate],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Finalize features at other levels, by name; level 0 finalizes one no longer (from Kafka 2.7 on).

        Raises BrokerError with INVALID_REQUEST for a level that some broker doesn't support, for a downgrade that the
        update doesn't allow, …; PartialError for several features.
        """

        async def ask(node: Node, names: list[str], deadline: Deadline) -> Outcomes[str, None]:
            version = await self._version(node, ApiKey.UPDATE_FEATURES, deadline)
            request = UpdateFeaturesRequest(
                timeout_ms=self._broker_ms(deadline),
                feature_updates=[_update(name, updates[name], version) for name in names],
                validate_only=validate_only,
            )
            answer = await self._call(node, request, deadline, version)
            if answer.error_code:
                return dict.fromkeys(names, error_of(answer.error_code, "features", answer.error_message))
            return {
                result.feature: outcome_of(
                    result.error_code, None, f"feature {result.feature}", result.error_message
                )
                for result in answer.results
            }

        await self._ask_each("update features", updates, self._controller(), ask, timeout)


def _update(name: str, update: FeatureUpdate, version: int) -> FeatureUpdateKey:
    key = FeatureUpdateKey(feature=name, max_version_level=update.max_version_level)
    if version == 0:
        key.allow_downgrade = update.upgrade_type is not UpgradeType.UPGRADE
    else:
        key.upgrade_type = update.upgrade_type
    return key
