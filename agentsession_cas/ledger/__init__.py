"""Threads with traversal control (ledger.md): a tree of turns, a tip, and the path a model reads.

A thread that is kept, in five lines::

    from agentsession_cas import Store
    from agentsession_cas.ledger import CasRepository, RecordedThread, Role, Text
    with Store.open("threads", create=True) as store:
        thread = RecordedThread(CasRepository(store), "chat-1")
        thread.append(Role.USER, Text("hello"))

Names of the Go package ``ledger`` and what stands for them here:

=======================================  ==============================================================================
``AddTurnPayload``, ``UpdateTip-``,      the ``payload`` of a :class:`JournalEntry`: its members, which need no type;
``UpdateControl-``,                      ``journal.add_turn``, ``update_tip``, ``update_control`` and ``update_parent``
``UpdateParentPayload``                  make them
``Clock``, ``ClockFunc``,                :data:`Clock`: a function is one; ``Thread(clock=…)``
``WithThreadClock``
``FileRepository``,                      :class:`FileRepository`; the constructor is the class
``NewFileRepository``
``GenerateTurnID``                       :func:`generate_turn_id`
``JournalEntry``, ``TxType``             :class:`JournalEntry`, :class:`TxType`
``MemoryRepository``,                    :class:`MemoryRepository`; ``Journal`` is ``journal``
``NewMemoryRepository``
``Meta`` (``Get``, ``Set``, ``All``)     :class:`Meta` (``get`` gives None for no value)
``Metadata``                             :class:`Metadata`, which keeps members it does not know
``Repository``                           :class:`Repository`; without a context, and errors are raised
``Role``, ``TraversalControl``           :class:`Role`, :class:`TraversalControl`
``State``                                :class:`State`
``Thread``, ``NewThread``                :class:`Thread`; ``CurrentTip`` is ``current_tip``, set by ``set_current_tip``
``Turn`` and its JSON methods            :class:`Turn`, ``to_json`` and ``from_json``
``View``, ``NewView``, ``Prepend``       :class:`View`, :func:`prepend`
=======================================  ==============================================================================

Beyond it: :class:`CasRepository`, :class:`RecordedThread`, :class:`Hydrated`, and the artifacts, which are a package of
their own there: :class:`Artifact`, its views and :func:`register`.
"""

from __future__ import annotations

from agentsession_cas.ledger.cas import CasRepository
from agentsession_cas.ledger.files import FileRepository
from agentsession_cas.ledger.journal import Hydrated, JournalEntry, TxType
from agentsession_cas.ledger.recorded import RecordedThread
from agentsession_cas.ledger.repository import MemoryRepository, Repository
from agentsession_cas.ledger.thread import Clock, Meta, State, Thread, View, prepend
from agentsession_cas.ledger.turn import (
    Artifact,
    Metadata,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    TraversalControl,
    Turn,
    generate_turn_id,
    register,
)

__all__ = [
    "Artifact",
    "CasRepository",
    "Clock",
    "FileRepository",
    "Hydrated",
    "JournalEntry",
    "MemoryRepository",
    "Meta",
    "Metadata",
    "Reasoning",
    "RecordedThread",
    "Repository",
    "Role",
    "State",
    "Text",
    "Thread",
    "ToolCall",
    "ToolResult",
    "TraversalControl",
    "Turn",
    "TxType",
    "View",
    "generate_turn_id",
    "prepend",
    "register",
]
