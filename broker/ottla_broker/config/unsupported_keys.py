"""Keys of Kafka 3.9 that ask for something this broker does not have yet: refused unless they say nothing."""

from __future__ import annotations

from typing import Any, Final

from ottla_broker.config.model import BOOLEAN, CLASS, DOUBLE, INT, LIST, LONG, PASSWORD, SHORT, STRING

Row = tuple[str, str, Any, str]
"""Name, type, default, meaning."""

# Details of TLS towards ZooKeeper.
ZOOKEEPER: Final[tuple[Row, ...]] = (
    ("zookeeper.clientCnxnSocket", STRING, None, "The Java class of ZooKeeper's connection."),
    ("zookeeper.ssl.cipher.suites", LIST, None, "Cipher suites towards ZooKeeper."),
    ("zookeeper.ssl.crl.enable", BOOLEAN, False, "Whether revocation lists are consulted towards ZooKeeper."),
    ("zookeeper.ssl.enabled.protocols", LIST, None, "TLS versions towards ZooKeeper."),
    ("zookeeper.ssl.ocsp.enable", BOOLEAN, False, "Whether OCSP is consulted towards ZooKeeper."),
    ("zookeeper.ssl.protocol", STRING, "TLSv1.2", "The TLS version towards ZooKeeper."),
)

# A KRaft quorum, and what only it has.
KRAFT: Final[tuple[Row, ...]] = (
    (
        "zookeeper.metadata.migration.enable",
        BOOLEAN,
        False,
        "Whether the cluster's state moves from ZooKeeper to a quorum.",
    ),
    ("process.roles", LIST, (), "The roles of this process in a cluster with a KRaft quorum."),
    ("controller.listener.names", STRING, None, "The listeners of a KRaft controller."),
    ("controller.quorum.voters", LIST, (), "The voters of a KRaft quorum."),
    ("controller.quorum.bootstrap.servers", LIST, (), "Where a KRaft quorum is found."),
    ("early.start.listeners", STRING, None, "Listeners that open before the authorizer is ready."),
    ("metadata.log.dir", STRING, None, "The folder of a KRaft metadata log."),
    (
        "eligible.leader.replicas.enable",
        BOOLEAN,
        False,
        "Whether leaders may be elected from eligible replicas (KIP-966).",
    ),
    ("unstable.api.versions.enable", BOOLEAN, False, "Whether unreleased API versions are served."),
    ("unstable.feature.versions.enable", BOOLEAN, False, "Whether unreleased feature levels are allowed."),
)

# Listeners with TLS or SASL, and who may do what.
SECURITY: Final[tuple[Row, ...]] = (
    ("authorizer.class.name", STRING, "", "The Java class that decides who may do what."),
    (
        "principal.builder.class",
        CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        "The Java class that names a connection's user.",
    ),
    ("security.providers", STRING, None, "Java classes that provide security algorithms."),
    ("security.inter.broker.protocol", STRING, "PLAINTEXT", "The security protocol between brokers."),
    ("control.plane.listener.name", STRING, None, "The listener for requests of the controller."),
    ("delegation.token.master.key", PASSWORD, None, "The older name of delegation.token.secret.key."),
    ("delegation.token.secret.key", PASSWORD, None, "The secret that delegation tokens are signed with."),
    ("password.encoder.secret", PASSWORD, None, "The secret that dynamic passwords are encrypted with."),
    ("password.encoder.old.secret", PASSWORD, None, "The former such secret, while it is being replaced."),
    ("connections.max.reauth.ms", LONG, 0, "How long a SASL session lasts before it must be renewed."),
    (
        "sasl.client.callback.handler.class",
        CLASS,
        None,
        "The Java class that answers a SASL client's questions.",
    ),
    ("sasl.enabled.mechanisms", LIST, ("GSSAPI",), "The SASL mechanisms that listeners offer."),
    ("sasl.jaas.config", PASSWORD, None, "The JAAS login of a SASL listener."),
    ("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", "The path of kinit."),
    (
        "sasl.kerberos.min.time.before.relogin",
        LONG,
        60000,
        "The least time between two Kerberos logins, in milliseconds.",
    ),
    (
        "sasl.kerberos.principal.to.local.rules",
        LIST,
        ("DEFAULT",),
        "How Kerberos principals become user names.",
    ),
    ("sasl.kerberos.service.name", STRING, None, "The Kerberos service that the broker runs as."),
    ("sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05, "How much chance goes into the renewal of tickets."),
    (
        "sasl.kerberos.ticket.renew.window.factor",
        DOUBLE,
        0.8,
        "The share of a ticket's life after which it is renewed.",
    ),
    (
        "sasl.login.callback.handler.class",
        CLASS,
        None,
        "The Java class that answers a SASL login's questions.",
    ),
    ("sasl.login.class", CLASS, None, "The Java class of a SASL login."),
    ("sasl.login.connect.timeout.ms", INT, None, "How long connecting to an OAuth provider may take."),
    ("sasl.login.read.timeout.ms", INT, None, "How long reading from an OAuth provider may take."),
    ("sasl.login.refresh.buffer.seconds", SHORT, 300, "How long before its end a credential is renewed."),
    (
        "sasl.login.refresh.min.period.seconds",
        SHORT,
        60,
        "The least time between two renewals of a credential.",
    ),
    (
        "sasl.login.refresh.window.factor",
        DOUBLE,
        0.8,
        "The share of a credential's life after which it is renewed.",
    ),
    ("sasl.login.refresh.window.jitter", DOUBLE, 0.05, "How much chance goes into that renewal."),
    ("sasl.login.retry.backoff.max.ms", LONG, 10000, "The longest wait between two attempts to log in."),
    ("sasl.login.retry.backoff.ms", LONG, 100, "The first wait between two attempts to log in."),
    ("sasl.mechanism.controller.protocol", STRING, "GSSAPI", "The SASL mechanism towards controllers."),
    ("sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", "The SASL mechanism between brokers."),
    ("sasl.oauthbearer.clock.skew.seconds", INT, 30, "How far an OAuth provider's clock may be off."),
    ("sasl.oauthbearer.expected.audience", LIST, None, "The audiences that a token may be for."),
    ("sasl.oauthbearer.expected.issuer", STRING, None, "The issuer that a token must come from."),
    (
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        LONG,
        3600000,
        "How often an OAuth provider's keys are fetched again.",
    ),
    (
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        LONG,
        10000,
        "The longest wait between two attempts at that.",
    ),
    (
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        LONG,
        100,
        "The first wait between two attempts at that.",
    ),
    ("sasl.oauthbearer.jwks.endpoint.url", STRING, None, "Where an OAuth provider's keys are."),
    ("sasl.oauthbearer.scope.claim.name", STRING, "scope", "The claim that holds a token's scope."),
    ("sasl.oauthbearer.sub.claim.name", STRING, "sub", "The claim that holds a token's subject."),
    ("sasl.oauthbearer.token.endpoint.url", STRING, None, "Where an OAuth provider issues tokens."),
    (
        "sasl.server.callback.handler.class",
        CLASS,
        None,
        "The Java class that answers a SASL server's questions.",
    ),
    ("sasl.server.max.receive.size", INT, 524288, "The largest SASL message that is read."),
    (
        "ssl.allow.dn.changes",
        BOOLEAN,
        False,
        "Whether a new key store's certificate may have another distinguished name.",
    ),
    (
        "ssl.allow.san.changes",
        BOOLEAN,
        False,
        "Whether a new key store's certificate may have other alternative names.",
    ),
    ("ssl.cipher.suites", LIST, (), "The cipher suites of TLS listeners."),
    ("ssl.client.auth", STRING, "none", "Whether TLS clients must show a certificate."),
    ("ssl.enabled.protocols", LIST, ("TLSv1.2", "TLSv1.3"), "The TLS versions of listeners."),
    (
        "ssl.endpoint.identification.algorithm",
        STRING,
        "https",
        "How a peer's host name is checked against its certificate.",
    ),
    ("ssl.engine.factory.class", CLASS, None, "The Java class that makes TLS engines."),
    ("ssl.key.password", PASSWORD, None, "The password of the private key."),
    ("ssl.keymanager.algorithm", STRING, "SunX509", "The algorithm of Java's key manager."),
    ("ssl.keystore.certificate.chain", PASSWORD, None, "The certificate chain, in PEM."),
    ("ssl.keystore.key", PASSWORD, None, "The private key, in PEM."),
    ("ssl.keystore.location", STRING, None, "The key store's file."),
    ("ssl.keystore.password", PASSWORD, None, "The key store's password."),
    ("ssl.keystore.type", STRING, "JKS", "The key store's type."),
    (
        "ssl.principal.mapping.rules",
        STRING,
        "DEFAULT",
        "How a certificate's distinguished name becomes a user name.",
    ),
    ("ssl.protocol", STRING, "TLSv1.3", "The TLS version that is preferred."),
    ("ssl.provider", STRING, None, "The Java security provider for TLS."),
    ("ssl.secure.random.implementation", STRING, None, "The Java source of random numbers for TLS."),
    ("ssl.trustmanager.algorithm", STRING, "PKIX", "The algorithm of Java's trust manager."),
    ("ssl.truststore.certificates", PASSWORD, None, "The trusted certificates, in PEM."),
    ("ssl.truststore.location", STRING, None, "The trust store's file."),
    ("ssl.truststore.password", PASSWORD, None, "The trust store's password."),
    ("ssl.truststore.type", STRING, "JKS", "The trust store's type."),
)

# Java classes.
PLUGINS: Final[tuple[Row, ...]] = (
    ("alter.config.policy.class.name", CLASS, None, "The Java class that may refuse changes of configs."),
    ("create.topic.policy.class.name", CLASS, None, "The Java class that may refuse new topics."),
    ("client.quota.callback.class", CLASS, None, "The Java class that computes clients' quotas."),
    ("kafka.metrics.reporters", LIST, (), "Java classes that metrics are reported to."),
    ("metric.reporters", LIST, (), "Java classes that metrics are reported to."),
)

# Tiered storage.
REMOTE: Final[tuple[Row, ...]] = (
    (
        "remote.log.storage.system.enable",
        BOOLEAN,
        False,
        "Whether closed segments may be moved to remote storage.",
    ),
    ("remote.log.storage.manager.class.name", STRING, None, "The Java class that stores segments remotely."),
    ("remote.log.storage.manager.class.path", STRING, None, "Where that class is loaded from."),
    (
        "remote.log.metadata.manager.class.path",
        STRING,
        None,
        "Where the class for metadata of remote segments is loaded from.",
    ),
    (
        "remote.log.metadata.manager.listener.name",
        STRING,
        None,
        "The listener that the metadata of remote segments goes through.",
    ),
    ("log.local.retention.bytes", LONG, -2, "How much of a tiered partition stays on local disk."),
    ("log.local.retention.ms", LONG, -2, "How long a tiered partition's segments stay on local disk."),
)

# Older record formats.
CONVERSION: Final[tuple[Row, ...]] = (
    (
        "log.message.downconversion.enable",
        BOOLEAN,
        True,
        "Whether records are converted for clients that know only older formats.",
    ),
)

# The newer group protocols.
GROUPS: Final[tuple[Row, ...]] = (
    ("group.coordinator.rebalance.protocols", LIST, ("classic",), "The group protocols that are served."),
    ("group.coordinator.new.enable", BOOLEAN, False, "Whether Kafka's rewritten group coordinator is used."),
    ("group.share.enable", BOOLEAN, False, "Whether share groups (KIP-932) are served."),
)
