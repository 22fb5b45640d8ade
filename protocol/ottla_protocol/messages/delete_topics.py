"""DeleteTopics, key 20: remove topics.

Version 4 is flexible, 5 has messages with its errors (KIP-599), 6 takes topic ids (KIP-516).
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import ZERO_UUID, Int16, Int32, Message, String, Struct, Uuid, field


class DeleteTopicState(Struct):
    """A topic by name, or by id with a null name."""

    name: String | None = field("6+", default=None)
    topic_id: Uuid = field("6+", default=ZERO_UUID)


class DeleteTopicsRequest(Message, key=ApiKey.DELETE_TOPICS, versions="0-6", flexible="4+"):
    """By name, or since version 6 by name or id."""

    topics: list[DeleteTopicState] = field("6+", default_factory=list)
    topic_names: list[String] = field("0-5", default_factory=list, ignorable=True)
    timeout_ms: Int32 = field(default=0)


class DeletableTopicResult(Struct):
    name: String | None = field(default="", nullable="6+")
    topic_id: Uuid = field("6+", default=ZERO_UUID, ignorable=True)
    error_code: Int16 = field(default=0)
    error_message: String | None = field("5+", default=None, ignorable=True)


class DeleteTopicsResponse(Message, key=ApiKey.DELETE_TOPICS, versions="0-6", flexible="4+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    responses: list[DeletableTopicResult] = field(default_factory=list)
