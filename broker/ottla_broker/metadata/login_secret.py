"""The secret that makes the salts of unknown SCRAM users.

A salt that changes would show that there is no such user. So the secret lasts: alone, a broker keeps it in its store.
In a cluster it comes from a setting that the brokers share, because there is no place for it among Kafka's nodes.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from ottla_broker.store.api import NoNodeError
from ottla_broker.store.keys import LoginSecretNode

if TYPE_CHECKING:
    from random import Random

    from ottla_broker.store.api import Store


async def login_secret(store: Store, random: Random, *, shared: str | None, in_cluster: bool) -> bytes:
    """The secret. ``shared`` is a secret setting that all brokers have. Raises StoreError."""
    if shared:
        return hmac.digest(shared.encode(), b"salts of unknown users", "sha256")
    made = random.getrandbits(256).to_bytes(32, "big")
    if in_cluster:
        return made
    try:
        data, _ = await store.get(LoginSecretNode.PATH)
    except NoNodeError:
        await store.create(LoginSecretNode.PATH, made, parents=True)
        return made
    return data
