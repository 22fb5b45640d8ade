"""Who a client is, and what it may do.

:mod:`.authentication` stands before the dispatcher of a listener with SASL, which :mod:`.sasl_listeners` and
:mod:`.oauth_listeners` set up. :mod:`.authorization` decides, by ACLs with :mod:`.acl_authorizer`, which writes the
:mod:`.audit` log.
"""
