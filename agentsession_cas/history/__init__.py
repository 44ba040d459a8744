"""Conversations over the store (history.md): appended exactly once, read back whole or in windows, put around a model.

A model that remembers, in five lines::

    from agentsession_cas import Store
    from agentsession_cas.history import CasStore, Middleware
    store = CasStore(Store.open("conversations", create=True))
    ask = Middleware(store, store, "customer-42").call(lambda request: client.responses.create(**request).model_dump())
    ask({"model": "gpt-5", "input": "hello"})

Names of the Go package ``scope/core/history`` and what stands for them here:

===========================================  ==========================================================================
``AppendID``, ``NewAppendID``, ``Validate``  :class:`AppendId`; making one checks it
``Batch``, ``NewBatch`` and its methods      :class:`Batch`; ``EncodedMessages`` is ``encoded``
``Clearer``, ``Lister``, ``Reader``,         protocols of the same names; ``Store`` is :class:`ConversationStore`
``Writer``, ``ReadWriter``, ``Store``
``CommitError``                              ``errors.CommitError``
``ConversationID``, ``NewConversationID``    :class:`ConversationId`
``ErrInvalidAppendID`` and the other errors  ``errors.InvalidAppendId`` and so on; for a nil reader or writer, BadInput
``Middleware``, ``NewMiddleware``,           :class:`Middleware`; ``Call`` is ``call`` and ``call_async``, ``Stream`` is
``MiddlewareConfig``                         ``stream`` and ``stream_async``
``Receipt``, ``ValidateFor``                 :class:`Receipt`, ``validate_for``
``WindowReader``, ``NewWindowReader``        :class:`WindowReader`
package ``inmemory``                         :class:`MemoryStore`
package ``storetest``                        ``history.conformance``
===========================================  ==========================================================================

Names of the Go package ``sdk/history`` and what stands for them here:

==============================================  =======================================================================
``ApplyLoadOptions``, ``LoadFiltered``,         :func:`apply_load_options`, :func:`load_filtered`, :class:`LoadOptions`;
``LoadOptions``, ``FilterableHistory``          a history with a ``load_filtered`` of its own is asked
``Archive``, ``ArchiveManifest``,               ``Compacted.archive``, :class:`ArchiveManifest`,
``ArchiveSegment``, ``ArchiveResult``,          :class:`ArchiveSegment`, :class:`ArchiveResult`, ``Compacted.manifest``
``LoadManifest``
``ArchiveConfig``, ``CompactConfig``,           :class:`DAGConfig`, one flat set of options, which ``Compacted`` takes
``DAGConfig``, ``DefaultDAGConfig``,            by name too; ``ArchivePrefix`` and ``WithStoragePrefix`` name files
``WithChunkSize`` and its like                  that a store has not
``LoadArchivedMessages``                        ``Reading.range``, which finds a message wherever it lies
``Budget``, ``IsZero``                          :class:`Budget`
``NewBuffer``, ``WithBufferMax``                :class:`Buffer`
``BuildSummaryIndex``                           :func:`build_summary_index`
``CompactResult``                               :class:`CompactResult`
``ConversationIDFrom``,                         none: a conversation is named in each call
``WithConversationID``
``Coordinator``, ``ErrClosed``                  :class:`Coordinator`, which :class:`Compacted` is; ``errors.Closed``
``EstimateCounter``, ``TiktokenCounter``,       the same; a counter of an encoding is one of its name
``TokenCounter``
``FileStore``, ``FileSummaryStore``             :class:`CasStore`, and :class:`SummaryStore` over it, with its LRU
``History``, ``NewCompacted``                   :class:`History`, :class:`Compacted`; ``summarizer`` is the ``llm.LLM``
``InMemoryStore``, ``WithMaxConversations``,    :class:`MemoryStore`, which evicts nothing: what is appended is kept
``WithTTL``
``MessageAppender``, ``RangeReader``,           :class:`Transcript` and its :class:`Reading`
``RecentReader``, ``Store``
``NewSummaryNodeID``                            none: a node's id follows from what it summarises
``SummaryDAG``, ``SummaryNode``,                the same; ``SummaryListOptions`` are the arguments of ``list``
``SummaryStore``, ``SummaryListOptions``
==============================================  =======================================================================

:class:`CasStore` keeps conversations in a store, as sessions; ``Compacted.expand`` and ``Compacted.compact`` are what
tools for a model call.
"""

from __future__ import annotations

from agentsession_cas.history.archive import ArchiveManifest, ArchiveResult, ArchiveSegment
from agentsession_cas.history.batch import Batch, Message, Receipt
from agentsession_cas.history.cas import CasStore
from agentsession_cas.history.compacted import Compacted, Coordinator, build_summary_index
from agentsession_cas.history.dag import CompactResult, DAGConfig, Summarizer, SummaryDAG
from agentsession_cas.history.fitting import Budget
from agentsession_cas.history.ids import AppendId, ConversationId
from agentsession_cas.history.memory import MemoryStore
from agentsession_cas.history.middleware import Middleware
from agentsession_cas.history.protocols import (
    Clearer,
    ConversationStore,
    Lister,
    Note,
    Reader,
    Reading,
    ReadWriter,
    Transcript,
    Writer,
)
from agentsession_cas.history.summaries import SummaryNode, SummaryStore
from agentsession_cas.history.tokens import EstimateCounter, TiktokenCounter, TokenCounter
from agentsession_cas.history.views import Buffer, History, LoadOptions, apply_load_options, load_filtered
from agentsession_cas.history.window import WindowReader

__all__ = [
    "AppendId",
    "ArchiveManifest",
    "ArchiveResult",
    "ArchiveSegment",
    "Batch",
    "Budget",
    "Buffer",
    "CasStore",
    "Clearer",
    "CompactResult",
    "Compacted",
    "ConversationId",
    "ConversationStore",
    "Coordinator",
    "DAGConfig",
    "EstimateCounter",
    "History",
    "Lister",
    "LoadOptions",
    "MemoryStore",
    "Message",
    "Middleware",
    "Note",
    "ReadWriter",
    "Reader",
    "Reading",
    "Receipt",
    "Summarizer",
    "SummaryDAG",
    "SummaryNode",
    "SummaryStore",
    "TiktokenCounter",
    "TokenCounter",
    "Transcript",
    "WindowReader",
    "Writer",
    "apply_load_options",
    "build_summary_index",
    "load_filtered",
]
