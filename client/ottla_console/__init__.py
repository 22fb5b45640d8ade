"""The console in the browser, ``ottla console``: pages that are rendered here and need nothing from elsewhere.

It is a client like any other: it talks to the cluster as the person who is logged in, so the cluster's own access
control decides who sees and changes what. This package needs the extra ``web``.

Read ``site.py`` first: sessions, protection against other sites, and live pages; then a page in ``pages/`` with its
template in ``templates/``. ``command.py`` is `ottla console`, ``server.py`` runs it, ``app.py`` lists its routes.
What commands compute (lag, problems, findings) comes from ``ottla_cli``, which never imports this package.

To change

- a page of ``ottla console``, such as messages: ``pages/``, a module per area, with its template in ``templates/``;
  sessions, protection and live pages: ``site.py`` ``Site``
- how much of a value or a batch the console decodes: ``avro_values.py`` ``write``, ``protobuf_values.py`` ``Types``,
  ``reading.py`` ``bound``; its connections: ``connections.py`` ``Connections``
- how records are searched: ``search.py`` ``search``
- what is known of the cluster between two views: ``watch.py`` ``ClusterWatch``
- logins: ``login.py`` ``Login``, by OpenID Connect ``oidc.py`` ``OidcProvider``
"""
