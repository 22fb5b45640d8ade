from tests.support.kills import chance as chance
from tests.support.kills import rounds as rounds
