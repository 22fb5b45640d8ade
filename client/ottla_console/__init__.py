"""The console in the browser, ``ottla console``: pages that are rendered here and need nothing from elsewhere.

It is a client like any other: it talks to the cluster as the person who is logged in, so the cluster's own access
control decides who sees and changes what. This package needs the extra ``web``.
"""
