"""From a frame to its handler and back. Read :mod:`.dispatch` first.

:mod:`.api` says what an API's facts are, :mod:`.route` finds its module; :mod:`.serving` runs the handler's coroutine
(:mod:`.inline`), at once or in turns with everything else (:mod:`.turns`); :mod:`.waits` has what it may wait for;
:mod:`.responder` counts what it cost, and encodes the answer. Handlers get a :mod:`.context` with the broker's
:mod:`.services`.

To change

- how much memory answers take: while they are made: ``requests/api.py`` ``Api`` (the answer of an API), and
  ``requests/made_later.py`` ``made_later`` for elements that are made while they are encoded; while clients don't
  take them: ``network/answer_memory.py`` ``AnswerMemory``; who is closed when memory is short: ``network/account.py``
  ``Account``
- how many elements a request may have, how long one keeps the loop: ``requests/api.py`` ``Api`` (its memory);
  ``requests/serving.py`` ``Serving``, ``requests/turns.py`` ``Turns``; how much may be under way: ``client_queue.py``
  ``Budget``; other long work: ``tasks.py`` ``TimeSlice``, ``unhurried``, ``YieldEvery``
- when a quota mutes a client's connection, how large quotas are: ``requests/responder.py`` ``throttle`` →
  ``metadata/client_quotas.py`` ``ClientQuotas`` ``record`` → ``network/connection.py`` ``throttle``; where they are
  kept: ``controller/client_quotas.py`` ``QuotaAdmin``
"""
