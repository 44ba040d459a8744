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

:class:`CasStore` keeps conversations in a store, as sessions.
"""

from __future__ import annotations

from agentsession_cas.history.batch import Batch, Message, Receipt
from agentsession_cas.history.cas import CasStore
from agentsession_cas.history.ids import AppendId, ConversationId
from agentsession_cas.history.memory import MemoryStore
from agentsession_cas.history.middleware import Middleware
from agentsession_cas.history.protocols import Clearer, ConversationStore, Lister, Reader, ReadWriter, Writer
from agentsession_cas.history.window import WindowReader

__all__ = [
    "AppendId",
    "Batch",
    "CasStore",
    "Clearer",
    "ConversationId",
    "ConversationStore",
    "Lister",
    "MemoryStore",
    "Message",
    "Middleware",
    "ReadWriter",
    "Reader",
    "Receipt",
    "WindowReader",
    "Writer",
]
