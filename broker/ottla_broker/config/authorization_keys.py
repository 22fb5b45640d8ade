"""Keys of access control. Kafka reads ``super.users`` and the next one itself; they are its authorizer's own."""

from __future__ import annotations

from typing import Final

from ottla_broker.config.model import Validator, boolean, one_of, string

ACL_AUTHORIZER: Final = "kafka.security.authorizer.AclAuthorizer"


def _authorizer(name: str) -> str | None:
    return None if name in ("", ACL_AUTHORIZER) else f"The only authorizer is {ACL_AUTHORIZER}"


def _principals(text: str) -> str | None:
    for part in parse_principals(text):
        kind, colon, name = part.partition(":")
        if not (kind and colon and name):
            return f"{part!r} has no type: write User:{part}"
    return None


def parse_principals(text: str) -> frozenset[str]:
    """The principals in ``User:admin;User:ops``."""
    return frozenset(part.strip() for part in text.split(";") if part.strip())


class AuthorizationKeys:
    """Keys of authorization."""

    authorizer_class_name = string(
        "",
        "Turns on access control lists (ACLs): what no ACL allows is denied.",
        Validator(_authorizer, f"{ACL_AUTHORIZER}, or empty for no access control"),
    )
    super_users = string(
        "",
        "Principals that may do everything, as User:admin;User:ops. Name the brokers' own here.",
        Validator(_principals, "TYPE:NAME;…"),
    )
    allow_everyone_if_no_acl_found = boolean(False, "Allow everyone to use a resource that no ACL is about.")
    ottla_audit_log = string(
        "denied",
        "Which decisions of the access control to log: off, denied or all.",
        one_of("off", "denied", "all"),
        note="Kafka has no such key; its log levels do this.",
    )
