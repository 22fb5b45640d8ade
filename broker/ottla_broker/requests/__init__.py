"""From a frame to its handler and back. Read :mod:`.dispatch` first.

:mod:`.api` says what an API's facts are, :mod:`.route` finds its module; :mod:`.serving` runs the handler's coroutine
(:mod:`.inline`), at once or in turns with everything else (:mod:`.turns`); :mod:`.waits` has what it may wait for;
:mod:`.responder` counts what it cost, and encodes the answer. Handlers get a :mod:`.context` with the broker's
:mod:`.services`.
"""
