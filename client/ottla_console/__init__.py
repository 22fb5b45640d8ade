"""The console in the browser, ``ottla console``: pages that are rendered here and need nothing from elsewhere.

It is a client like any other: it talks to the cluster as the person who is logged in, so the cluster's own access
control decides who sees and changes what. This package needs the extra ``web``.

To change

- a page of ``ottla console``, such as messages: ``pages/``, a module per area, with its template in ``templates/``;
  sessions, protection and live pages: ``site.py`` ``Site``
- how much of a value or a batch the console decodes: ``avro_values.py`` ``write``, ``protobuf_values.py`` ``Types``,
  ``reading.py`` ``bound``; its connections: ``connections.py`` ``Connections``
"""
