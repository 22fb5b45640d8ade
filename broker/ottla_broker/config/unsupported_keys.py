"""Keys of Kafka 3.9 for features that aren't built yet: refused unless they have their default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla_broker.config.model import BOOLEAN, CLASS, DOUBLE, LIST, LONG, SHORT, STRING

Row = tuple[str, str, Any, str]
"""Name, type, default, meaning."""

# fmt: off
UNSUPPORTED_KEYS: Final[Mapping[str, tuple[Row, ...]]] = {
    "Connections to ZooKeeper use TLS 1.2 or 1.3 with OpenSSL's choice of ciphers, and don't check for"
    " revoked certificates.": (
        ("zookeeper.clientCnxnSocket", STRING, None, "The Java class of ZooKeeper's connection."),
        ("zookeeper.ssl.cipher.suites", LIST, None, "Cipher suites for connections to ZooKeeper."),
        ("zookeeper.ssl.crl.enable", BOOLEAN, False, "Check ZooKeeper's certificates against revocation lists."),
        ("zookeeper.ssl.enabled.protocols", LIST, None, "TLS versions for connections to ZooKeeper."),
        ("zookeeper.ssl.ocsp.enable", BOOLEAN, False, "Check ZooKeeper's certificates by OCSP."),
        ("zookeeper.ssl.protocol", STRING, "TLSv1.2", "The TLS version for connections to ZooKeeper."),
    ),
    "There is no KRaft quorum: a broker is standalone, or in a cluster on ZooKeeper.": (
        ("zookeeper.metadata.migration.enable", BOOLEAN, False, "Move the cluster's state from ZooKeeper to a quorum."),
        ("process.roles", LIST, (), "The roles of this process in a cluster with a KRaft quorum."),
        ("controller.listener.names", STRING, None, "The listeners of a KRaft controller."),
        ("controller.quorum.voters", LIST, (), "The voters of a KRaft quorum."),
        ("controller.quorum.bootstrap.servers", LIST, (), "Servers that know the KRaft quorum."),
        ("sasl.mechanism.controller.protocol", STRING, "GSSAPI", "The SASL mechanism for connections to controllers."),
        ("early.start.listeners", STRING, None, "Listeners that open before the authorizer is ready."),
        ("metadata.log.dir", STRING, None, "The folder of a KRaft metadata log."),
        ("eligible.leader.replicas.enable", BOOLEAN, False, "Elect leaders from eligible replicas (KIP-966)."),
        ("unstable.api.versions.enable", BOOLEAN, False, "Serve unreleased API versions."),
        ("unstable.feature.versions.enable", BOOLEAN, False, "Allow unreleased feature levels."),
    ),
    "TLS is OpenSSL's; ssl.enabled.protocols chooses its versions, and new certificates may have other names.": (
        ("ssl.allow.dn.changes", BOOLEAN, False, "Let a new key store's certificate have another distinguished name."),
        ("ssl.allow.san.changes", BOOLEAN, False, "Let a new key store's certificate have other alternative names."),
        ("ssl.engine.factory.class", CLASS, None, "The Java class that makes TLS engines."),
        ("ssl.keymanager.algorithm", STRING, "SunX509", "The algorithm of Java's key manager."),
        ("ssl.protocol", STRING, "TLSv1.3", "The preferred TLS version."),
        ("ssl.provider", STRING, None, "The Java security provider for TLS."),
        ("ssl.secure.random.implementation", STRING, None, "The Java source of random numbers for TLS."),
        ("ssl.trustmanager.algorithm", STRING, "PKIX", "The algorithm of Java's trust manager."),
    ),
    "There is no separate listener for the controller's requests.": (
        ("control.plane.listener.name", STRING, None, "The listener for requests of the controller."),
    ),
    "Kerberos is not built yet.": (
        ("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", "The path of kinit."),
        ("sasl.kerberos.min.time.before.relogin", LONG, 60000,
         "The least time between two Kerberos logins, in milliseconds."),
        ("sasl.kerberos.principal.to.local.rules", LIST, ("DEFAULT",),
         "Rules that map Kerberos principals to user names."),
        ("sasl.kerberos.service.name", STRING, None, "The Kerberos service that the broker runs as."),
        ("sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05, "The random share of the time of a ticket's renewal."),
        ("sasl.kerberos.ticket.renew.window.factor", DOUBLE, 0.8,
         "The share of a ticket's life after which it is renewed."),
    ),
    "The broker requests a new OAuth token for its own logins when 80% of the old one's lifetime has passed.": (
        ("sasl.login.refresh.buffer.seconds", SHORT, 300, "Time before its expiry at which a credential is renewed."),
        ("sasl.login.refresh.min.period.seconds", SHORT, 60, "The least time between two renewals of a credential."),
        ("sasl.login.refresh.window.factor", DOUBLE, 0.8,
         "The share of a credential's life after which it is renewed."),
        ("sasl.login.refresh.window.jitter", DOUBLE, 0.05, "The random share of the time of that renewal."),
    ),
    "This broker can't load Java classes.": (
        ("principal.builder.class", CLASS,
         "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
         "The Java class that names a connection's user."),
        ("sasl.client.callback.handler.class", CLASS, None, "The Java class for a SASL client's callbacks."),
        ("sasl.login.class", CLASS, None, "The Java class of a SASL login."),
        ("security.providers", STRING, None, "Java classes that provide security algorithms."),
        ("alter.config.policy.class.name", CLASS, None, "The Java class that validates config changes."),
        ("create.topic.policy.class.name", CLASS, None, "The Java class that validates new topics."),
        ("client.quota.callback.class", CLASS, None, "The Java class that computes client quotas."),
        ("kafka.metrics.reporters", LIST, (), "Java classes that report metrics."),
        ("metric.reporters", LIST, (), "Java classes that report metrics."),
    ),
    "Tiered storage is not built yet.": (
        ("remote.log.storage.system.enable", BOOLEAN, False, "Enable tiered storage."),
        ("remote.log.storage.manager.class.name", STRING, None, "The Java class that stores segments remotely."),
        ("remote.log.storage.manager.class.path", STRING, None, "The class path of that class."),
        ("remote.log.metadata.manager.class.path", STRING, None,
         "The class path of the class for the metadata of remote segments."),
        ("remote.log.metadata.manager.listener.name", STRING, None,
         "The listener for the metadata of remote segments."),
        ("log.local.retention.bytes", LONG, -2, "Bytes of a tiered partition to keep on local disk."),
        ("log.local.retention.ms", LONG, -2, "Time to keep a tiered partition's segments on local disk."),
    ),
}
"""By the reason, which operators see."""
