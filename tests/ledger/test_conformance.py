"""The conformance suite against every backend, and against backends that are broken on purpose."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentsession_cas import Store
from agentsession_cas.ledger import CasRepository, FileRepository, Hydrated, JournalEntry, MemoryRepository, TxType
from agentsession_cas.ledger.conformance import Reopen, RepositoryConformance
from agentsession_cas.ledger.journal import replay


class TestMemory(RepositoryConformance):
    @pytest.fixture
    def reopen(self) -> Reopen:
        repository = MemoryRepository()
        return lambda: repository


class TestFiles(RepositoryConformance):
    @pytest.fixture
    def reopen(self, tmp_path: Path) -> Reopen:
        return lambda: FileRepository(tmp_path / "new" / "threads")


class TestStore(RepositoryConformance):
    @pytest.fixture
    def reopen(self, tmp_path: Path) -> Reopen:
        return lambda: CasRepository(Store.open(tmp_path, create=True))


class TestStoreInMemory(RepositoryConformance):
    @pytest.fixture
    def reopen(self) -> Reopen:
        store = Store.memory()
        return lambda: CasRepository(store)


class _Broken(MemoryRepository):
    """A backend with its journals changed on the way in or on the way out."""

    def into(self, entry: JournalEntry) -> list[JournalEntry]:
        return [entry]

    def _record(self, thread_id: str, entry: JournalEntry) -> None:
        for each in self.into(entry):
            super()._record(thread_id, each)


class _SaveMovesTheTip(_Broken):
    def into(self, entry: JournalEntry) -> list[JournalEntry]:
        if entry.tx_type != TxType.ADD_TURN:
            return [entry]
        payload = {"timestamp": entry.timestamp, "current_tip": entry.payload["turn"]["id"]}
        return [entry, JournalEntry(TxType.UPDATE_TIP, entry.timestamp, payload)]


class _ForgetsUnknownMembers(_Broken):
    def into(self, entry: JournalEntry) -> list[JournalEntry]:
        if entry.tx_type != TxType.ADD_TURN:
            return [entry]
        turn = {name: value for name, value in entry.payload["turn"].items() if name != "more"}
        return [JournalEntry(entry.tx_type, entry.timestamp, {"turn": turn})]


class _DropsControl(_Broken):
    def into(self, entry: JournalEntry) -> list[JournalEntry]:
        return [] if entry.tx_type == TxType.UPDATE_CONTROL else [entry]


class _KeepsTheFirst(_Broken):
    def hydrate_thread(self, thread_id: str) -> Hydrated:
        seen: set[str] = set()
        kept = []
        for entry in self.journal(thread_id):
            if entry.tx_type == TxType.ADD_TURN:
                if entry.payload["turn"]["id"] in seen:
                    continue
                seen.add(entry.payload["turn"]["id"])
            kept.append(entry)
        return replay(kept)


class _NewestFirst(_Broken):
    def journal(self, thread_id: str) -> list[JournalEntry]:
        return super().journal(thread_id)[::-1]


class _MixesThreads(_Broken):
    def _record(self, thread_id: str, entry: JournalEntry) -> None:
        super()._record(thread_id[0], entry)

    def journal(self, thread_id: str) -> list[JournalEntry]:
        return super().journal(thread_id[0])


class _WantsItsParent(_Broken):
    def save_turn(self, thread_id: str, turn: Any) -> None:
        if not turn.parent_id or turn.parent_id in self.hydrate_thread(thread_id).turns:
            super().save_turn(thread_id, turn)


class _HandsOutItsOwn(_Broken):
    def __init__(self) -> None:
        super().__init__()
        self._cache: dict[str, Hydrated] = {}

    def _record(self, thread_id: str, entry: JournalEntry) -> None:
        self._cache.pop(thread_id, None)
        super()._record(thread_id, entry)

    def hydrate_thread(self, thread_id: str) -> Hydrated:
        return self._cache.setdefault(thread_id, super().hydrate_thread(thread_id))


def _failing(make: Callable[[], MemoryRepository]) -> set[str]:
    failed = set()
    for name, test in inspect.getmembers(RepositoryConformance, inspect.isfunction):
        repository = make()
        try:
            test(RepositoryConformance(), lambda repository=repository: repository)
        except (AssertionError, KeyError):
            failed.add(name)
    return failed


@pytest.mark.parametrize(
    ("broken", "property_"),
    [
        (_SaveMovesTheTip, "test_a_save_leaves_the_tip"),
        (_ForgetsUnknownMembers, "test_a_turn_comes_back_whole"),
        (_DropsControl, "test_control_and_parent_change"),
        (_KeepsTheFirst, "test_a_save_of_an_id_replaces"),
        (_NewestFirst, "test_changes_of_unknown_turns_change_nothing"),
        (_MixesThreads, "test_threads_are_apart"),
        (_WantsItsParent, "test_a_parent_need_not_be_there"),
        (_HandsOutItsOwn, "test_what_is_handed_out_is_a_copy"),
    ],
)
def test_a_broken_backend_fails_the_property_it_breaks(broken: type[MemoryRepository], property_: str) -> None:
    assert property_ in _failing(broken)


def test_a_sound_backend_fails_none() -> None:
    assert _failing(MemoryRepository) == set()
