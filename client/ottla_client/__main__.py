"""``python -m ottla_client`` names the command, which is a package of its own."""

import sys

sys.exit("the command is `ottla`, also as `python -m ottla_cli`")
