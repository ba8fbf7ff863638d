"""pytest plugin: deselects exactly the names in deselected.txt.

For three servers the file is deselected-3.txt. Every other test that does not pass counts as
failed. With KAZOO_RETRY a failed test is run again; if it passes then, the plugin prints
`FLAKY: name`.
"""

import logging
import os
import pathlib

import pytest
from _pytest.runner import runtestprotocol

SERVERS = os.environ.get("ZOOKEEPER_CLUSTER_SIZE", "1")
LIST = pathlib.Path(__file__).with_name("deselected.txt" if SERVERS == "1" else f"deselected-{SERVERS}.txt")


RETRY = bool(os.environ.get("KAZOO_RETRY"))
# Both tries share the 60 s of pytest-timeout, so a long first try is not repeated.
FIRST_TRY_S_MAX = 30


class Strict:
    def __init__(self):
        self.passed = set()
        self.failed = {}
        self.flaky = []

    # After the suite's hooks: -k and paths on the command line must not make a listed name look
    # unknown.
    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config, items):
        names = [line.strip() for line in LIST.read_text().splitlines()]
        names = [name for name in names if name and not name.startswith("#")]
        found, kept, dropped = set(), [], []
        for item in items:
            nodeid = item.nodeid.rsplit("/", 1)[-1]
            name = next((n for n in names if nodeid == n or nodeid.startswith((n + "::", n + "["))), None)
            (dropped if name else kept).append(item)
            found.add(name)
        whole_suite = not config.option.keyword and config.args[0] == "kazoo.tests"
        if whole_suite and (unknown := [name for name in names if name not in found]):
            raise pytest.UsageError("deselected.txt names no test of this suite: " + ", ".join(unknown))
        items[:] = kept
        config.hook.pytest_deselected(items=dropped)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item, nextitem):
        if not RETRY:
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        if any(report.failed for report in reports) and sum(report.duration for report in reports) < FIRST_TRY_S_MAX:
            reports = runtestprotocol(item, nextitem=nextitem, log=False)
            if not any(report.failed for report in reports):
                self.flaky.append(item.nodeid)
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def pytest_runtest_logreport(self, report):
        if report.failed or report.skipped:
            why = report.when if report.failed else "skipped although not listed in deselected.txt"
            self.failed.setdefault(report.nodeid, why)
        elif report.when == "call":
            self.passed.add(report.nodeid)

    def pytest_collectreport(self, report):
        if report.failed or report.skipped:
            self.failed.setdefault(report.nodeid, "not collected")

    def pytest_sessionfinish(self, session, exitstatus):
        if self.failed:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self):
        for nodeid in self.flaky:
            print(f"FLAKY: {nodeid}")
        for nodeid, why in self.failed.items():
            print(f"FAILED {nodeid} ({why})")
        print(f"{len(self.passed - set(self.failed))} passed, {len(self.failed)} failed")


def pytest_configure(config):
    # Clients left by the suite log about their lost server until the process ends. Without this
    # handler the summary stays the last line.
    logging.lastResort = None
    config.pluginmanager.register(Strict())
