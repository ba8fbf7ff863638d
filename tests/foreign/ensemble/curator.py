"""curator.py SERVER_COMMAND SUITE_COMMAND...: kills three servers in turn under Curator's recipes.

The suite is Recipes.java. Its command receives the hosts and its duration in seconds. The last line
is the suite's: `N passed, N failed`.
"""

import os
import subprocess
import sys
import time

from servers import Ensemble

SECONDS = int(os.environ.get("SECONDS_UNDER_KILLS", "40"))
# Between two kills: clients reconnect and make some calls.
PAUSE_S = 4


def main():
    with Ensemble(sys.argv[1], int(os.environ.get("PORT", "22500"))) as ensemble:
        suite = subprocess.Popen([*sys.argv[2:], ensemble.hosts, str(SECONDS)])
        until, kills = time.monotonic() + SECONDS, 0
        try:
            while time.monotonic() < until and suite.poll() is None:
                time.sleep(PAUSE_S)
                # The leader every other time.
                victim = ensemble.leader() if kills % 2 == 0 else ensemble.in_turn()[kills // 2 % 2]
                victim.kill()
                time.sleep(1)
                victim.start()
                ensemble.wait_until_serving()
                kills += 1
            code = suite.wait(180)
        finally:
            suite.kill()
        print(f"{kills} kills", file=sys.stderr)
        if code != 0:
            ensemble.tell_last_words()
    sys.exit(code)


main()
