"""The conformance suite against every backend, and against backends that are broken on purpose."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentsession_cas import Store
from agentsession_cas.errors import AgentSessionError
from agentsession_cas.history import Batch, CasStore, MemoryStore, Message, Receipt
from agentsession_cas.history.conformance import Reopen, StoreConformance


class TestMemory(StoreConformance):
    @pytest.fixture
    def reopen(self) -> Reopen:
        store = MemoryStore()
        return lambda: store


class TestStore(StoreConformance):
    @pytest.fixture
    def reopen(self, tmp_path: Path) -> Reopen:
        return lambda: CasStore(Store.open(tmp_path, create=True))


class TestStoreInMemory(StoreConformance):
    @pytest.fixture
    def reopen(self) -> Reopen:
        store = Store.memory()
        return lambda: CasStore(store)


class _DropsReceipts(MemoryStore):
    """Accepts a retry as if it were new."""

    def append(self, batch: Batch) -> Receipt:
        for held in self._open.values():
            held.digests.clear()
        return super().append(batch)


class _SplitsBatches(MemoryStore):
    """Appends message by message, so that others come between."""

    def append(self, batch: Batch) -> Receipt:
        for number, message in enumerate(batch.messages):
            super().append(Batch(batch.conversation, f"{batch.append_id}.{number}", [message]))
        return Receipt.of(batch)


class _Reopens(MemoryStore):
    """Takes a closed conversation up again."""

    def append(self, batch: Batch) -> Receipt:
        self._closed.discard(batch.conversation)
        return super().append(batch)


class _ClosesWhatWasWritten(MemoryStore):
    def clear(self, conversation: str) -> None:
        if self.read(conversation):
            super().clear(conversation)


class _ListsClosed(MemoryStore):
    def conversations(self) -> list[str]:
        return sorted({*self._open, *self._closed})


class _OrdersByName(MemoryStore):
    """As one that orders by time would, were the clock to go back."""

    def read(self, conversation: str) -> list[Message]:
        found = self._open.get(conversation)
        batches = sorted(found.batches, key=lambda batch: batch.append_id, reverse=True) if found else []
        super().read(conversation)
        return [message for batch in batches for message in batch.messages]


class _HandsOutItsOwn(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self._cache: dict[str, list[Message]] = {}

    def append(self, batch: Batch) -> Receipt:
        self._cache.pop(batch.conversation, None)
        return super().append(batch)

    def read(self, conversation: str) -> list[Message]:
        return self._cache.setdefault(conversation, super().read(conversation))


class _IgnoresTheDigest(MemoryStore):
    def append(self, batch: Batch) -> Receipt:
        held = self._open.get(batch.conversation)
        if held is not None and batch.append_id in held.digests:
            return Receipt(batch.conversation, batch.append_id, held.digests[batch.append_id])
        return super().append(batch)


class _OneNameForAll(MemoryStore):
    """Looks an append id up in every conversation."""

    def append(self, batch: Batch) -> Receipt:
        if any(batch.append_id in held.digests for held in self._open.values()):
            return Receipt.of(batch)
        return super().append(batch)


class _FoldsCase(MemoryStore):
    def append(self, batch: Batch) -> Receipt:
        return super().append(Batch(batch.conversation.lower(), batch.append_id, batch.messages))


class _RoundsNumbers(MemoryStore):
    def read(self, conversation: str) -> list[Message]:
        def rounded(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: rounded(each) for name, each in value.items()}
            if isinstance(value, list):
                return [rounded(each) for each in value]
            return float(value) if isinstance(value, int) and abs(value) > 2**53 else value

        return [rounded(each) for each in super().read(conversation)]


def _failing(make: Callable[[], MemoryStore]) -> set[str]:
    failed = set()
    for name, test in inspect.getmembers(StoreConformance, inspect.isfunction):
        store = make()
        try:
            test(StoreConformance(), lambda store=store: store)
        except (AssertionError, AgentSessionError, ValueError):
            failed.add(name)
    return failed


@pytest.mark.parametrize(
    ("broken", "property_"),
    [
        (_DropsReceipts, "test_a_retry_gives_the_receipt_and_appends_nothing"),
        (_SplitsBatches, "test_another_batch_under_a_name_conflicts"),
        (_Reopens, "test_a_cleared_conversation_is_empty_and_takes_nothing"),
        (_ClosesWhatWasWritten, "test_a_conversation_never_written_can_be_closed"),
        (_ListsClosed, "test_a_cleared_conversation_is_empty_and_takes_nothing"),
        (_OrdersByName, "test_messages_come_back_in_order"),
        (_HandsOutItsOwn, "test_what_is_handed_out_is_a_copy"),
        (_IgnoresTheDigest, "test_another_batch_under_a_name_conflicts"),
        (_OneNameForAll, "test_append_ids_are_the_conversations_own"),
        (_FoldsCase, "test_append_ids_are_the_conversations_own"),
        (_RoundsNumbers, "test_what_is_strange_comes_back_as_it_is"),
    ],
)
def test_a_broken_backend_fails_the_property_it_breaks(broken: type[MemoryStore], property_: str) -> None:
    assert property_ in _failing(broken)


def test_a_sound_backend_fails_none() -> None:
    assert _failing(MemoryStore) == set()
