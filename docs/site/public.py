"""The modules with public names: those of the API reference, and those for packages that build on the client.

``build.py`` makes the reference of them, and ``tests/client/base/test_public_names.py`` lists their names.
"""

DOCUMENTED = (
    "ottla_client",
    "ottla_client.admin",
    "ottla_client.errors",
    "ottla_client.group.assignors",
    "ottla_client.sync",
    "ottla_broker.testing",
    "ottla_pipeline.landing",
    "ottla_pipeline.source",
)
FOR_PACKAGES = ("ottla_cli", "ottla_client.lowlevel")
"""These may change in a minor release."""
