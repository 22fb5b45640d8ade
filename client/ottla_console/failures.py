"""A page's words about a failure: one line that says what happened, and what to do."""

from __future__ import annotations

from typing import Final, NamedTuple

import click

from ottla_cli.shared.terminal import one_line
from ottla_client.admin import PartialError
from ottla_client.errors import (
    AuthenticationError,
    BrokerError,
    ClientError,
    ClosedError,
    ConfigurationError,
    ConnectError,
    ConnectionLostError,
    CorruptBatchError,
    RequestTimeoutError,
    UnknownTopicError,
    UnsupportedApiError,
)
from ottla_protocol.errors import ErrorCode


class Failure(NamedTuple):
    status: int
    what: str
    action: str


_REFUSED: Final = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_NO_GROUP: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INVALID_GROUP_ID})
_MOST: Final = 500


def failure_of(error: BaseException) -> Failure:
    """For ClientError, TimeoutError, and the errors of usage that commands raise."""
    what = one_line(error)
    if isinstance(error, click.ClickException):
        return Failure(400, error.format_message()[:_MOST], "Go back and correct it.")
    if isinstance(error, PartialError):
        first = failure_of(next(iter(error.errors.values())))
        return Failure(first.status, what[:_MOST], first.action)
    return _failure(error, what[:_MOST])


def _failure(error: BaseException, what: str) -> Failure:
    if isinstance(error, BrokerError) and error.code in _REFUSED:
        return Failure(
            403,
            what,
            "You have no right to this. Ask an administrator for an ACL; `ottla acls explain`, run by an administrator,"
            " says which one decides.",
        )
    if isinstance(error, BrokerError) and error.code is ErrorCode.INVALID_TOPIC_EXCEPTION:
        return Failure(404, what, "No topic has such a name.")
    if isinstance(error, UnknownTopicError):
        return Failure(
            404,
            what,
            "It doesn't exist, or you have no right to see it. The list of topics has all that you may see.",
        )
    if isinstance(error, BrokerError) and error.code in _NO_GROUP:
        return Failure(404, what, "It may have been deleted. The list of groups has all that you may see.")
    if isinstance(error, AuthenticationError):
        return Failure(401, what, "Log in again; the password may have been changed.")
    if isinstance(error, ClosedError):
        return Failure(401, "The connection to the cluster was closed.", "Log in again. Nothing was changed.")
    if isinstance(error, UnsupportedApiError):
        return Failure(501, what, "The brokers are too old for this, or don't support it.")
    if isinstance(error, (ConnectError, ConnectionLostError)):
        return Failure(
            503, what, "Check that the brokers run and that this machine reaches them; then reload."
        )
    if isinstance(error, (RequestTimeoutError, TimeoutError)):
        return Failure(
            504,
            what or "The cluster took too long.",
            "A broker may be down, or a new controller be elected: try again.",
        )
    if isinstance(error, ConfigurationError):
        return Failure(400, what, "Go back and correct it.")
    if isinstance(error, CorruptBatchError):
        return Failure(502, what, "Lists leave it out. Add /value to the address of a record to download it.")
    if isinstance(error, ClientError):
        return Failure(502, what, "Try again; `ottla cluster doctor` shows what is wrong with the cluster.")
    return Failure(500, "The console failed.", "Its log has the reason; please report it.")
