"""The checks of `ottla security check`: pure functions from what was gathered to findings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from ottla_protocol.acls import WILDCARD, AclBinding, AclOperation, AclPermission, title
from ottla_protocol.loopback import is_loopback

from ..shared.findings import CRITICAL, NOTE, WARNING, Finding, brokers_named, some_of, worst_first
from .certificates import certificate_findings
from .probe import Probe

LISTENER_KEYS: Final = ("advertised.listeners", "listener.security.protocol.map", "listeners")
"""The settings that :func:`listeners_of` reads."""
EVERYONE: Final = ("User:*", "User:ANONYMOUS")
_MANY_SUPER_USERS: Final = 5
_ENDPOINT: Final = re.compile(r"(?P<name>[^:/]+)://\[?(?P<host>[^\]]*?)\]?:(?P<port>[0-9]+)")
_OLD_TLS: Final = frozenset({"SSLv3", "TLSv1", "TLSv1.1"})
_UNLIMITED: Final = str(2**31 - 1)
_HARMLESS: Final = frozenset({AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS})

Settings = Mapping[str, str]


@dataclass(slots=True, frozen=True)
class Listener:
    """A broker's listener: where it is bound, and the address that it advertises."""

    broker: str
    name: str
    protocol: str
    bound: str
    host: str
    port: int
    settings: Settings

    @property
    def subject(self) -> str:
        return f"broker {self.broker}, {self.name}"

    @property
    def local(self) -> bool:
        """Whether only the broker's machine reaches it."""
        return is_loopback(self.bound)

    @property
    def tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def sasl(self) -> bool:
        return self.protocol.startswith("SASL_")

    def value(self, key: str, default: str = "") -> str:
        own = self.settings.get(f"listener.name.{self.name.lower()}.{key}")
        return self.settings.get(key, default) if own is None else own

    @property
    def proves(self) -> bool:
        """Whether its clients have to prove who they are."""
        return self.sasl or (self.tls and self.value("ssl.client.auth", "none") == "required")

    @property
    def mechanisms(self) -> list[str]:
        return [each.strip() for each in self.value("sasl.enabled.mechanisms").split(",") if each.strip()]


@dataclass(slots=True)
class Seen:
    """All that was found out.

    Attributes:
        brokers: settings by broker id.
        probes: what was tried, by host and port.
        acls: None if they couldn't be read, or there is no access control.
        unchecked: what couldn't be found out, and why.
    """

    now: datetime
    brokers: Mapping[str, Settings] = field(default_factory=dict)
    listeners: Sequence[Listener] = ()
    probes: Mapping[tuple[str, int], Probe] = field(default_factory=dict)
    acls: Sequence[AclBinding] | None = None
    unchecked: list[str] = field(default_factory=list)

    def probe(self, listener: Listener) -> Probe:
        return self.probes.get((listener.host, listener.port), Probe())


def listeners_of(broker: str, settings: Settings) -> list[Listener]:
    """A broker's listeners, as its settings have them. Listeners that aren't advertised are of controllers."""
    protocols = {}
    for part in settings.get("listener.security.protocol.map", "").split(","):
        name, _, protocol = part.strip().partition(":")
        protocols[name.upper()] = protocol
    bound = _endpoints(settings.get("listeners", ""))
    advertised = _endpoints(settings.get("advertised.listeners", "")) or bound
    found = []
    for name, (host, port) in bound.items():
        shown, shown_port = advertised.get(name, (host, port))
        protocol = protocols.get(name, name)
        found.append(Listener(broker, name, protocol, host, shown or host, shown_port or port, settings))
    return found


def _endpoints(text: str) -> dict[str, tuple[str, int]]:
    found = {}
    for part in text.split(","):
        match = _ENDPOINT.fullmatch(part.strip())
        if match is not None:
            found[match["name"].upper()] = (match["host"], int(match["port"]))
    return found


def anonymous(seen: Seen) -> Iterator[Finding]:
    for listener in seen.listeners:
        if listener.proves and not seen.probe(listener).anonymous:
            continue
        limited = bool(listener.settings.get("authorizer.class.name"))
        severity = NOTE if listener.local else WARNING if limited else CRITICAL
        who = "ACLs for User:ANONYMOUS say what they may do" if limited else "and may do everything"
        yield Finding(
            severity,
            "anonymous-listener",
            listener.subject,
            f"Clients need no login ({listener.protocol}), {who}."
            + (" Only this machine reaches it." if listener.local else ""),
            "Give the listener SASL, or TLS with ssl.client.auth=required"
            + ("." if listener.local else "; or bind it to 127.0.0.1."),
        )


def plaintext(seen: Seen) -> Iterator[Finding]:
    for listener in seen.listeners:
        if listener.tls or listener.local:
            continue
        plain = "PLAIN" in (seen.probe(listener).mechanisms or listener.mechanisms) and listener.sasl
        yield Finding(
            CRITICAL if plain else WARNING,
            "plain-passwords" if plain else "plaintext-listener",
            listener.subject,
            "Passwords cross the network in plain text (PLAIN without TLS)."
            if plain
            else f"Records cross the network in plain text ({listener.protocol}).",
            "Give the listener TLS: SSL or SASL_SSL in listener.security.protocol.map, with ssl.keystore.location.",
        )


def mechanisms(seen: Seen) -> Iterator[Finding]:
    for listener in seen.listeners:
        offered = seen.probe(listener).mechanisms or listener.mechanisms
        if not listener.sasl or "OAUTHBEARER" not in offered:
            continue
        prefix = f"listener.name.{listener.name.lower()}.oauthbearer."
        handler, url = (
            listener.settings.get(prefix + key) or listener.value(key)
            for key in ("sasl.server.callback.handler.class", "sasl.oauthbearer.jwks.endpoint.url")
        )
        if "Unsecured" in handler or not (handler or url):
            yield Finding(
                CRITICAL,
                "unsecured-tokens",
                listener.subject,
                "OAUTHBEARER accepts tokens without signatures, which anyone can write for any user.",
                "Set sasl.oauthbearer.jwks.endpoint.url and the handler OAuthBearerValidatorCallbackHandler.",
            )


def passwords(seen: Seen) -> Iterator[Finding]:
    for listener in seen.listeners:
        for mechanism, user in seen.probe(listener).guessed:
            yield Finding(
                CRITICAL,
                "default-password",
                listener.subject,
                f"{user} logs in by {mechanism} with a password that is in everybody's documentation.",
                f"Change it: ottla security password {user} for SCRAM, the listener's sasl.jaas.config for PLAIN.",
            )


def between_brokers(seen: Seen) -> Iterator[Finding]:
    for broker, settings in seen.brokers.items():
        wanted = settings.get("inter.broker.listener.name") or settings.get(
            "security.inter.broker.protocol", ""
        )
        used = next(
            (each for each in seen.listeners if each.broker == broker and each.name == wanted.upper()), None
        )
        if used is None or used.local or (len(seen.brokers) < 2 and not settings.get("zookeeper.connect")):
            continue
        if not used.tls or not used.proves:
            lacks = " and ".join(
                ([] if used.tls else ["encryption"]) + ([] if used.proves else ["authentication"])
            )
            yield Finding(
                WARNING if used.proves else CRITICAL,
                "inter-broker",
                used.subject,
                f"Brokers talk to each other without {lacks} ({used.protocol}).",
                "Name a listener with SASL_SSL, or SSL with ssl.client.auth=required, in inter.broker.listener.name.",
            )


def certificates(seen: Seen) -> Iterator[Finding]:
    for listener in seen.listeners:
        probe = seen.probe(listener)
        if probe.untrusted:
            yield Finding(
                WARNING,
                "certificate-untrusted",
                listener.subject,
                f"Its certificate is not trusted here: {probe.untrusted}.",
                "Name its authority by -X ssl_cafile=…, or issue a certificate for the name that it advertises.",
            )
        if probe.certificate is not None:
            yield from certificate_findings(listener.subject, probe.certificate, seen.now)


def tls_versions(seen: Seen) -> Iterator[Finding]:
    for listener in seen.listeners:
        if not listener.tls:
            continue
        enabled = {each.strip() for each in listener.value("ssl.enabled.protocols").split(",")}
        old = sorted((enabled & _OLD_TLS) | set(seen.probe(listener).old_versions))
        if old:
            yield Finding(
                WARNING,
                "old-tls",
                listener.subject,
                f"It accepts {', '.join(old)}, which are broken.",
                "Set ssl.enabled.protocols=TLSv1.2,TLSv1.3.",
            )
        stores = ("ssl.truststore.location", "ssl.truststore.certificates")
        if listener.value("ssl.client.auth") == "required" and not any(map(listener.value, stores)):
            yield Finding(
                WARNING,
                "no-truststore",
                listener.subject,
                "Client certificates of every public authority are accepted.",
                "Set ssl.truststore.location to the authority that signs your clients' certificates.",
            )


def host_names(seen: Seen) -> Iterator[Finding]:
    for broker, settings in seen.brokers.items():
        tls = any(listener.tls for listener in seen.listeners if listener.broker == broker)
        if tls and settings.get("ssl.endpoint.identification.algorithm", "https") == "":
            yield Finding(
                WARNING,
                "host-names-unchecked",
                f"broker {broker}",
                "It doesn't check other brokers' host names against their certificates.",
                "Issue certificates with the brokers' names, and set ssl.endpoint.identification.algorithm=https.",
            )


def access_control(seen: Seen) -> Iterator[Finding]:
    without = [broker for broker, each in seen.brokers.items() if not each.get("authorizer.class.name")]
    if without:
        local = all(listener.local for listener in seen.listeners)
        yield Finding(
            NOTE if local else WARNING,
            "no-access-control",
            brokers_named(len(without), some_of(without)),
            "There are no ACLs: anyone who may connect may read, write and delete everything.",
            "Set authorizer.class.name (kafka.security.authorizer.AclAuthorizer) and super.users.",
        )
    lenient = [
        broker
        for broker, each in seen.brokers.items()
        if each.get("authorizer.class.name") and each.get("allow.everyone.if.no.acl.found") == "true"
    ]
    if lenient:
        yield Finding(
            WARNING,
            "allow-everyone",
            brokers_named(len(lenient), some_of(lenient)),
            "Everyone may use a resource that no ACL is about (allow.everyone.if.no.acl.found=true).",
            "Add ACLs for what your clients use, and set it to false.",
        )


def open_acls(seen: Seen) -> Iterator[Finding]:
    for pattern, entry in seen.acls or ():
        if entry.permission is not AclPermission.ALLOW or entry.principal not in EVERYONE:
            continue
        if entry.operation in _HARMLESS and entry.principal != "User:ANONYMOUS":
            continue
        everything = entry.operation is AclOperation.ALL and pattern.name in (WILDCARD, "kafka-cluster")
        operation = entry.operation.name.lower().replace("_", "-")
        where = "" if entry.host == WILDCARD else f" from {entry.host}"
        yield Finding(
            CRITICAL if everything else WARNING,
            "acl-for-everyone",
            f"{title(pattern.resource)} {pattern.name}",
            f"An ACL allows {operation} to {entry.principal}{where}.",
            "Allow it to the users who need it, and remove it: ottla acls remove",
        )


def super_users(seen: Seen) -> Iterator[Finding]:
    named: dict[str, list[str]] = {}
    for broker, settings in seen.brokers.items():
        for user in settings.get("super.users", "").split(";"):
            if user.strip():
                named.setdefault(user.strip(), []).append(broker)
    if "User:ANONYMOUS" in named:
        yield Finding(
            CRITICAL,
            "anonymous-super-user",
            brokers_named(len(named["User:ANONYMOUS"]), some_of(named["User:ANONYMOUS"])),
            "Clients without a login are super users.",
            "Take User:ANONYMOUS out of super.users.",
        )
    if named:
        yield Finding(
            WARNING if len(named) > _MANY_SUPER_USERS else NOTE,
            "super-users",
            "cluster",
            f"ACLs don't hold for {some_of(sorted(named))}.",
            "Keep super.users to the brokers and one administrator; give others ACLs.",
        )


def zookeeper(seen: Seen) -> Iterator[Finding]:
    for broker, settings in seen.brokers.items():
        servers = settings.get("zookeeper.connect", "")
        if not servers:
            continue
        hosts = [each.strip().rpartition(":")[0] for each in servers.partition("/")[0].split(",")]
        local = all(is_loopback(host) for host in hosts)
        if settings.get("zookeeper.set.acl") != "true":
            yield Finding(
                NOTE if local else WARNING,
                "zookeeper-open",
                f"broker {broker}",
                "Anyone who reaches ZooKeeper can change topics, ACLs and passwords (zookeeper.set.acl is false).",
                "Give ZooKeeper a login, set zookeeper.set.acl=true, and let only brokers reach it.",
            )
        if settings.get("zookeeper.ssl.client.enable") != "true" and not local:
            yield Finding(
                WARNING,
                "zookeeper-plaintext",
                f"broker {broker}",
                "Its connection to ZooKeeper is in plain text.",
                "Set zookeeper.ssl.client.enable=true, with the stores.",
            )


def metrics(seen: Seen) -> Iterator[Finding]:
    for broker, settings in seen.brokers.items():
        address = settings.get("metrics.listener", "")
        host = address.rpartition(":")[0].strip("[]") or "127.0.0.1"
        if address and not is_loopback(host):
            yield Finding(
                WARNING,
                "metrics-open",
                f"broker {broker}",
                f"Anyone who reaches {address} reads the names of topics and groups.",
                "Bind metrics.listener to 127.0.0.1, or let only Prometheus reach it.",
            )


def limits(seen: Seen) -> Iterator[Finding]:
    keys = ("max.connections", "max.connections.per.ip")
    without = [
        broker
        for broker, settings in seen.brokers.items()
        if settings and all(settings.get(key, _UNLIMITED) == _UNLIMITED for key in keys)
    ]
    if without:
        yield Finding(
            NOTE,
            "no-connection-limits",
            brokers_named(len(without), some_of(without)),
            "One client can open connections until the broker has no descriptors left.",
            "Set max.connections and max.connections.per.ip, and quotas: ottla quotas",
        )


CHECKS: Final = (
    anonymous,
    plaintext,
    mechanisms,
    passwords,
    between_brokers,
    certificates,
    tls_versions,
    host_names,
    access_control,
    open_acls,
    super_users,
    zookeeper,
    metrics,
    limits,
)


def findings_of(seen: Seen) -> list[Finding]:
    return worst_first(CHECKS, seen)
