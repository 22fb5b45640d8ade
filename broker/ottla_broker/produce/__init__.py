"""What :mod:`ottla_broker.handlers.produce` calls for requests that aren't small, new and plain.

Records that take long to check (:mod:`.slow_produce`), or are in an old format (:mod:`.old_produce`); transactions that
have to be verified (:mod:`.produce_verification`); very many partitions (:mod:`.sliced_produce`).

To change

- how partitions become part of a transaction of version 2: ``produce/produce_verification.py`` ``verification_of`` →
  ``replica/transaction_verifier.py`` ``TransactionVerifier`` → ``coordinator/transaction/coordinator.py``
  ``add_for_leader``
"""
