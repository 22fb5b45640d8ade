"""Who a client is, and what it may do.

:mod:`.authentication` stands before the dispatcher of a listener with SASL, which :mod:`.sasl_listeners` and
:mod:`.oauth_listeners` set up. :mod:`.authorization` decides, by ACLs with :mod:`.acl_authorizer`, which writes the
:mod:`.audit` log.

To change

- who a client is: ``security/authentication.py`` ``AuthenticatingService``, a table of states before the gate; its
  mechanisms are in ``ottla_protocol.sasl``; tokens: ``security/token_validation.py`` ``SignedTokens``, whose keys
  ``network/jwks.py`` ``Jwks`` reads; users' passwords: ``metadata/scram_credentials.py`` ``ScramCredentials``;
  delegation tokens: ``controller/delegation_tokens.py`` ``DelegationTokens``; certificates:
  ``network/tls_handshake.py`` ``principal_of``
- who may do what: AclRules.decide in ``ottla_protocol/acls.py``, asked by ``security/acl_authorizer.py``
  ``AclAuthorizer``; which operation a request needs: ``requests/api.py`` ``Api``, stated by its module; where they
  are kept and how they change: ``controller/acls.py`` ``Acls``
- which listeners may be open without a login: ``config/exposure.py`` ``exposures``
- where SCRAM's proof is checked: ``ottla_protocol/sasl/scram.py`` ``ScramServer``, called by
  ``security/authentication.py`` ``AuthenticatingService``
"""
