"""pytest plugin: deselects exactly what deselected.txt names (of three servers deselected-3.txt), and counts everything else that is not a pass as a failure."""

import logging
import os
import pathlib

import pytest

SERVERS = os.environ.get("ZOOKEEPER_CLUSTER_SIZE", "1")
LIST = pathlib.Path(__file__).with_name("deselected.txt" if SERVERS == "1" else f"deselected-{SERVERS}.txt")


class Strict:
    def __init__(self):
        self.passed = set()
        self.failed = {}

    # After the suite's own hooks: -k and paths on the command line must not make a listed name look unknown.
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
        for nodeid, why in self.failed.items():
            print(f"FAILED {nodeid} ({why})")
        print(f"{len(self.passed - set(self.failed))} passed, {len(self.failed)} failed")


def pytest_configure(config):
    # Clients that the suite leaves behind complain about their lost server until the process ends; the summary stays the last line.
    logging.lastResort = None
    config.pluginmanager.register(Strict())
