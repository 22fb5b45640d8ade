"""ApiVersions: the APIs and versions that this broker serves.

The dispatcher answers an unknown version in version 0, with UNSUPPORTED_VERSION and this API's own range (KIP-511).
From version 3 on, they come with the cluster's features (KIP-584).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ottla_broker.controller.features import SUPPORTED
from ottla_broker.requests.api import Api, Served
from ottla_broker.requests.context import RequestContext
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

API = Api(18, (0, 4))

# KIP-511: the software names and versions that are accepted.
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")

_HAS_LEVEL_0 = 4
_INVALID = ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)


async def handle(ctx: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if ctx.version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return _INVALID
    telemetry = ctx.services.telemetry
    if telemetry is not None and ctx.version >= 3:
        telemetry.introduce(ctx.connection, request.client_software_name, request.client_software_version)
    finalized = ctx.services.features.finalized
    return ApiVersionsResponse(
        api_keys=_ranges(ctx.services.served),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
            for name, (lowest, highest) in SUPPORTED.items()
            # Older clients fail on a feature that may have level 0 (KIP-1022).
            if lowest > 0 or ctx.version >= _HAS_LEVEL_0
        ],
        finalized_features_epoch=finalized.epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in finalized.levels.items()
        ],
    )


def unsupported(served: Mapping[int, Served]) -> ApiVersionsResponse:
    """The answer to an unknown version; encode it in version 0."""
    own = [r for r in _ranges(served) if r.api_key == ApiKey.API_VERSIONS]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=own)


def _ranges(served: Mapping[int, Served]) -> list[ApiVersion]:
    return [
        ApiVersion(api_key=key, min_version=each.min_version, max_version=each.max_version)
        for key, each in sorted(served.items())
    ]
