"""Users' credentials for SCRAM, in the store where Kafka keeps them: ``/config/users/<name>``.

A user's node also has quotas, which stay. The credentials are kept in memory, so that a login never waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla_broker.events import get_logger
from ottla_broker.metadata.client_quotas import desanitize, sanitize
from ottla_broker.store.api import BadVersionError, NodeExistsError, NoNodeError, Store
from ottla_broker.store.keys import BadNodeError, ConfigChangeNode, ConfigNode
from ottla_broker.tasks import unhurried
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.sasl.mechanism import CODES, DIGESTS, MAX_ITERATIONS, MIN_ITERATIONS
from ottla_protocol.sasl.salts import SaltForms

if TYPE_CHECKING:
    from ottla_protocol.sasl.scram import ScramCredential

_log = get_logger()

USERS: Final = "users"
_PATH: Final = "/config/users"


class Deletion(NamedTuple):
    """A credential to remove, by the mechanism's number."""

    user: str
    mechanism: int


class Upsertion(NamedTuple):
    """A new credential, by the mechanism's number."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


class ScramCredentials:
    """Owned by the loop thread.

    Attributes:
        forms: by mechanism, what the users' salts look like.
    """

    def __init__(self, store: Store, *, notifies: bool) -> None:
        """``notifies``: other brokers have to learn of changes."""
        self._store = store
        self._notifies = notifies
        self._users: dict[str, dict[str, ScramCredential]] = {}
        self.forms: Mapping[str, SaltForms] = {mechanism: SaltForms() for mechanism in DIGESTS}

    async def load(self) -> None:
        """Read all users. Raises StoreError."""
        for name in await self._store.children(_PATH):
            await self.reload(name)

    async def reload(self, name: str) -> None:
        """Read the user whose node is called ``name``. Raises StoreError."""
        user = desanitize(name)
        try:
            settings, _ = await self._read(name)
        except BadNodeError as error:
            _log.error("a user's settings can't be read", reason=str(error))
            self._keep(user, {})
            return
        self._put(user, settings)

    def find(self, mechanism: str, user: str) -> ScramCredential | None:
        """A user's credential for a mechanism."""
        return self._users.get(user, {}).get(mechanism)

    def describe(self) -> Mapping[str, Mapping[str, ScramCredential]]:
        """The credentials by mechanism of all users that have any."""
        return self._users

    async def alter(
        self, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]
    ) -> dict[str, KafkaError | None]:
        """Change credentials: the error of each user, None if its changes are durable.

        The checks and messages are those of Kafka's ``ZkAdminManager.alterUserScramCredentials``. Raises StoreError.
        """
        changes: list[Deletion | Upsertion] = [*deletions, *upsertions]
        named = Counter((change.user, change.mechanism) for change in changes)
        outcomes: dict[str, KafkaError | None] = {}
        by_user: dict[str, list[Deletion | Upsertion]] = {}
        for change in changes:
            by_user.setdefault(change.user, []).append(change)
        async for user, own in unhurried(by_user.items()):
            gone = [change for change in own if isinstance(change, Deletion)]
            new = [change for change in own if isinstance(change, Upsertion)]
            try:
                for change in own:
                    self._check(change, named[change.user, change.mechanism])
                await self._change(user, gone, new)
            except KafkaError as error:
                # Its frame refers to the outcomes, and they to it.
                outcomes[user] = error.with_traceback(None)
            except BadNodeError as error:
                outcomes[user] = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
            else:
                outcomes[user] = None
        return outcomes

    def _check(self, change: Deletion | Upsertion, times: int) -> None:
        if not change.user:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
        if change.mechanism not in CODES:
            raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
        if times > 1:
            raise KafkaError(
                ErrorCode.DUPLICATE_RESOURCE,
                "A user credential cannot be altered twice in the same request",
            )
        mechanism = CODES[change.mechanism]
        if isinstance(change, Deletion):
            if self.find(mechanism, change.user) is None:
                raise KafkaError(
                    ErrorCode.RESOURCE_NOT_FOUND,
                    "Attempt to delete a user credential that does not exist",
                )
            return
        if change.iterations < MIN_ITERATIONS:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
        if change.iterations > MAX_ITERATIONS:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
        if not change.salt or not change.salted_password:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Salt and salted password must not be empty")

    async def _change(self, user: str, gone: Sequence[Deletion], new: Sequence[Upsertion]) -> None:
        from ottla_protocol.sasl.scram import credential, encode_credential

        name = sanitize(user)
        path = ConfigNode.path(USERS, name)
        while True:
            settings, version = await self._read(name)
            for deletion in gone:
                settings.pop(CODES[deletion.mechanism], None)
            for each in new:
                mechanism = CODES[each.mechanism]
                settings[mechanism] = encode_credential(
                    credential(mechanism, each.salted_password, each.salt, each.iterations)
                )
            data = ConfigNode.encode(settings)
            try:
                if version is None:
                    await self._store.create(path, data, parents=True)
                else:
                    await self._store.set(path, data, version)
                break
            except (NodeExistsError, NoNodeError, BadVersionError):
                continue  # another broker has changed it meanwhile
        self._put(user, settings)
        if self._notifies:
            await self._store.create(
                ConfigChangeNode.PREFIX, ConfigChangeNode.encode(USERS, name), sequence=True
            )

    async def _read(self, name: str) -> tuple[dict[str, str], int | None]:
        """A user's settings and their version. Raises StoreError, BadNodeError."""
        path = ConfigNode.path(USERS, name)
        try:
            data, version = await self._store.get(path)
        except NoNodeError:
            return {}, None
        return ConfigNode.decode(path, data), version

    def _put(self, user: str, settings: Mapping[str, str]) -> None:
        found: dict[str, ScramCredential] = {}
        for mechanism in DIGESTS:
            text = settings.get(mechanism)
            if text is None:
                continue
            # Imported here because a broker without such users needs no hashes.
            from ottla_protocol.sasl.scram import decode_credential

            try:
                found[mechanism] = decode_credential(text)
            except ValueError:
                _log.error("a user's credential can't be read", user=user, mechanism=mechanism)
        self._keep(user, found)

    def _keep(self, user: str, found: dict[str, ScramCredential]) -> None:
        for mechanism, gone in self._users.get(user, {}).items():
            self.forms[mechanism].remove(gone.salt, gone.iterations)
        for mechanism, new in found.items():
            self.forms[mechanism].add(new.salt, new.iterations)
        if found:
            self._users[user] = found
        else:
            self._users.pop(user, None)
