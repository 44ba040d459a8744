"""A content-addressed store for sessions of AI agents: record, resume, prove, carry elsewhere.

The names a harness needs; everything else is imported from its module. They load when they are first used, so that a
command that needs none of them starts at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from agentsession_cas import entry
    from agentsession_cas.core.entry import Draft, Entry
    from agentsession_cas.core.header import ALL_RECORDS, Harness, Header
    from agentsession_cas.core.tree import Session
    from agentsession_cas.errors import AgentSessionError
    from agentsession_cas.exchange.files import read_file, scan_file, write_file
    from agentsession_cas.sessions.follow_changes import Appended, Head, Reset, Snapshot
    from agentsession_cas.sessions.handle import SessionWriter
    from agentsession_cas.sessions.reffile import RefTarget
    from agentsession_cas.store import Store

__all__ = [
    "ALL_RECORDS",
    "AgentSessionError",
    "Appended",
    "Draft",
    "Entry",
    "Harness",
    "Head",
    "Header",
    "RefTarget",
    "Reset",
    "Session",
    "SessionWriter",
    "Snapshot",
    "Store",
    "__version__",
    "entry",
    "read_file",
    "scan_file",
    "write_file",
]

__version__ = "0.1.0"

_HOMES: Final = {
    "ALL_RECORDS": "core.header",
    "AgentSessionError": "errors",
    "Appended": "sessions.follow_changes",
    "Draft": "core.entry",
    "Entry": "core.entry",
    "Harness": "core.header",
    "Head": "sessions.follow_changes",
    "Header": "core.header",
    "RefTarget": "sessions.reffile",
    "Reset": "sessions.follow_changes",
    "Session": "core.tree",
    "SessionWriter": "sessions.handle",
    "Snapshot": "sessions.follow_changes",
    "Store": "store",
    "read_file": "exchange.files",
    "scan_file": "exchange.files",
    "write_file": "exchange.files",
}


def __getattr__(name: str) -> Any:
    """A public name, from the module that defines it."""
    if name == "entry":
        return import_module("agentsession_cas.entry")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"agentsession_cas.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
