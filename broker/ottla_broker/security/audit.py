"""The audit log: who wanted to do what, to which resource, from where, and whether it was allowed.

One event per decision, ``access denied`` or ``access allowed``, in the broker's log of events. A client that repeats a
request doesn't fill the disk: the same decision is logged again after a while, with the number of repeats.
"""

from __future__ import annotations

from typing import Final

from ottla_broker.clock import Clock
from ottla_broker.events import LimitedLogger
from ottla_broker.network.service import ClientConnection
from ottla_protocol.acls import AclOperation, AclResource, title

OFF: Final = "off"
DENIED: Final = "denied"
ALL: Final = "all"

_QUIET_SECONDS: Final = 10.0
"""For how long a repeated decision isn't logged."""
_REMEMBERED: Final = 4096
_SHOWN: Final = 256
"""Characters of a name that are logged and remembered."""


class AuditLog:
    """Owned by the loop thread.

    Attributes:
        allowed: whether decisions that allow are logged too.
    """

    def __init__(self, clock: Clock, what: str) -> None:
        """``what``: OFF, DENIED or ALL."""
        self._clock = clock
        self._off = what == OFF
        self.allowed = what == ALL
        # When each decision was logged, and how often it was repeated since.
        self._logged: dict[tuple[object, ...], tuple[float, int]] = {}
        # A client that makes up names can't flood the log.
        self._log = LimitedLogger(clock.monotonic)

    def record(
        self,
        client: ClientConnection,
        operation: AclOperation,
        resource: AclResource,
        name: str,
        *,
        allowed: bool,
    ) -> None:
        if self._off:
            return
        name = name[:_SHOWN]
        key = (client.principal, client.client_host, operation, resource, name, allowed)
        now = self._clock.monotonic()
        since, repeats = self._logged.get(key, (-_QUIET_SECONDS, 0))
        if now - since < _QUIET_SECONDS:
            self._logged[key] = (since, repeats + 1)
            return
        if len(self._logged) >= _REMEMBERED:
            self._logged.clear()
        self._logged[key] = (now, 0)
        more: dict[str, object] = {"repeats": repeats} if repeats else {}
        self._log.info(
            "access allowed" if allowed else "access denied",
            principal=str(client.principal),
            operation=title(operation),
            resource=f"{title(resource)}:{name}",
            host=client.client_host,
            listener=client.listener,
            connection=client.id,
            client_id=client.client_id and client.client_id[:_SHOWN],
            **more,
        )
