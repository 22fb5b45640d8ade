"""Topics and brokers as clients see them, in memory; the controller fills it.

``client_quotas.py`` says which quota applies, ``epoch_fencing.py`` which controller is obeyed,
``scram_credentials.py`` keeps the users' passwords (SCRAM).
"""
