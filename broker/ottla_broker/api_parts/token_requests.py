"""Parts that the requests about delegation tokens share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ottla_broker.controller.delegation_tokens import DelegationTokens
from ottla_broker.events import get_logger
from ottla_broker.network.service import ANONYMOUS
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import in_task
from ottla_broker.security.authentication import Session
from ottla_broker.store.api import StoreError
from ottla_protocol.errors import ErrorCode, KafkaError

_log = get_logger()


def tokens_of(ctx: RequestContext) -> DelegationTokens:
    """The tokens, for a client that may ask for them (``KafkaApis.allowTokenRequests``).

    A client has to have proved who it is, and not by a token. Raises KafkaError:
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, DELEGATION_TOKEN_AUTH_DISABLED.
    """
    connection = ctx.connection
    protocols = {endpoint.name: endpoint.protocol for endpoint in ctx.services.config.endpoints}
    protocol = protocols.get(connection.listener, "PLAINTEXT")
    session = connection.session
    by_token = isinstance(session, Session) and session.token_authenticated
    anonymous = protocol == "PLAINTEXT" or (protocol == "SSL" and connection.principal == ANONYMOUS)
    if by_token or anonymous:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if ctx.services.tokens is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    return ctx.services.tokens


async def changed(
    ctx: RequestContext, change: Callable[[DelegationTokens, str], Awaitable[int]]
) -> tuple[ErrorCode, int]:
    """Change when a token expires. Returns the error code, and when it does in milliseconds since the epoch or -1.

    ``change`` gets the tokens and the client's principal.
    """
    try:
        return ErrorCode.NONE, await in_task(change(tokens_of(ctx), principal_of(ctx)))
    except KafkaError as error:
        return error.code, -1
    except StoreError as error:
        return not_stored(error), -1


def not_stored(error: StoreError) -> ErrorCode:
    """The code of a change that couldn't be stored; the reason is logged, as the answer has no text."""
    _log.error("a delegation token can't be stored", reason=str(error))
    return ErrorCode.KAFKA_STORAGE_ERROR


def principal_of(ctx: RequestContext) -> str:
    """The client's principal, such as ``User:alice``."""
    return str(ctx.connection.principal)
