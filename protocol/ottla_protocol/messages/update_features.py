"""UpdateFeatures, key 57: finalize features of the cluster at a level (KIP-584).

Version 0 may allow a downgrade; 1+ says of which kind. All versions are flexible. Kafka: ``UpdateFeaturesRequest``.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Bool, Int8, Int16, Int32, Message, String, Struct, field


class FeatureUpdateKey(Struct):
    """Upgrade type 1 is an upgrade, 2 a safe downgrade, 3 an unsafe one."""

    feature: String = field(default="")
    max_version_level: Int16 = field(default=0)
    allow_downgrade: Bool = field("0", default=False)
    upgrade_type: Int8 = field("1+", default=1)


class UpdateFeaturesRequest(Message, key=ApiKey.UPDATE_FEATURES, versions="0-1", flexible="0+"):
    timeout_ms: Int32 = field(default=60000)
    feature_updates: list[FeatureUpdateKey] = field(default_factory=list)
    validate_only: Bool = field("1+", default=False)


class UpdatableFeatureResult(Struct):
    feature: String = field(default="")
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default="")


class UpdateFeaturesResponse(Message, key=ApiKey.UPDATE_FEATURES, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default="")
    results: list[UpdatableFeatureResult] = field(default_factory=list)
