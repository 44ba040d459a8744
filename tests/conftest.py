"""Heavy tests look at thousands of disks or values, or start many processes: they begin first, and are not measured.

Coverage makes them three times as slow, and what only they reach is a few lines about what fails.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest
from coverage import Coverage

TO_CHILDREN = "COVERAGE_PROCESS_CONFIG"
"""What a process that is measured tells those that it starts."""


def is_heavy(item: pytest.Item) -> bool:
    """Whether a test is marked as heavy."""
    return item.get_closest_marker("heavy") is not None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long comes first, so that in the end no worker is left alone with it."""
    items.sort(key=lambda item: not is_heavy(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run a test with its set-up, measured or not."""
    measured = Coverage.current()
    if measured is None or not is_heavy(item):
        return (yield)
    with paused(measured):
        return (yield)


@contextmanager
def paused(measured: Coverage) -> Iterator[None]:
    """Neither this process nor those it starts are measured meanwhile."""
    measured.stop()
    os.environ.pop(TO_CHILDREN, None)
    try:
        yield
    finally:
        measured.start()
