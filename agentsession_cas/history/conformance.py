"""What every keeper of conversations has to do, as a test class to subclass (history.md H1).

A third party writes::

    class TestMine(StoreConformance):
        @pytest.fixture
        def reopen(self, tmp_path):
            return lambda: MyStore(tmp_path)

``reopen()`` gives a store over one and the same storage each time, empty at first. The class needs no test runner to be
imported, and its methods hold plain assertions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from agentsession_cas.errors import AgentSessionError, AppendConflict, ConversationClosed, InvalidConversationId
from agentsession_cas.history.batch import Batch, Message, Receipt
from agentsession_cas.history.protocols import ConversationStore

__all__ = ["Reopen", "StoreConformance"]

Reopen = Callable[[], ConversationStore]

ONE: Final = "customer-42"
IDS: Final = ("customer-42", "Customer-42", "a/b", "../x", "CON", "\u6d4b\u8bd5 \U0001f600", "x" * 512)


def _user(text: str) -> Message:
    return {"type": "message", "role": "user", "content": text}


def _turn(text: str) -> list[Message]:
    """A turn with a tool exchange; its call id is the same in every turn."""
    return [
        _user(text),
        {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"},
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": '{"a": 1.0,  "b":[]}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "\u2028 done"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": f"re: {text}"}]},
    ]


def _batch(name: str, *texts: str, conversation: str = ONE) -> Batch:
    return Batch(conversation, name, [_user(text) for text in texts or (name,)])


def _raised(act: Callable[[Any], Any], argument: object) -> type[BaseException] | None:
    try:
        act(argument)
    except AgentSessionError as error:
        return type(error)
    return None


class StoreConformance:
    """Each method is a property; a backend that lacks it fails that method."""

    def test_the_unknown_reads_as_empty(self, reopen: Reopen) -> None:
        """And is not listed, before and after."""
        store = reopen()
        assert (store.read(ONE), store.conversations()) == ([], [])
        assert store.conversations() == []

    def test_ids_are_checked(self, reopen: Reopen) -> None:
        """By whoever takes one."""
        store = reopen()
        for wrong in ("", "a\nb", "x" * 513):
            assert _raised(store.read, wrong) is InvalidConversationId
            assert _raised(store.clear, wrong) is InvalidConversationId

    def test_messages_come_back_in_order(self, reopen: Reopen) -> None:
        """Batches in the order they were accepted, messages as they stand in them."""
        store = reopen()
        batches = [Batch(ONE, f"a{n}", _turn(f"turn {n}")) for n in range(4)]
        for batch in batches:
            store.append(batch)
        wanted = [message for batch in batches for message in batch.messages]
        assert store.read(ONE) == wanted == reopen().read(ONE)

    def test_what_is_strange_comes_back_as_it_is(self, reopen: Reopen) -> None:
        """Numbers past 2^53, items nobody knows, outputs of calls that are not there."""
        batch = Batch(
            ONE,
            "a",
            [
                {"type": "mine:odd", "numbers": [2**53 + 1, 2**70, 1.0, -0.0, 1e-7, 1e300], "null": None, "": {}},
                {"type": "function_call_output", "call_id": "never", "output": ""},
                {"role": "user", "content": "a\0b \u2028 e\u0301 \U0001f600"},
                {"type": "item_reference", "id": "msg_1"},
            ],
        )
        reopen().append(batch)
        found = reopen().read(ONE)
        assert repr(found) == repr(batch.messages)

    def test_a_receipt_is_the_batchs(self, reopen: Reopen) -> None:
        """Conversation, append id and digest."""
        batch = _batch("a")
        receipt = reopen().append(batch)
        receipt.validate_for(batch)
        assert receipt == Receipt(ONE, "a", batch.digest)

    def test_a_retry_gives_the_receipt_and_appends_nothing(self, reopen: Reopen) -> None:
        """At once, later, and by another handle; also when it was spelled otherwise."""
        first = reopen().append(_batch("a"))
        reopen().append(_batch("b"))
        for store in (reopen(), reopen()):
            assert store.append(_batch("a")) == first
            assert store.append(Batch.from_json(_batch("a").to_json().replace(":", ": "))) == first
        assert reopen().read(ONE) == [_user("a"), _user("b")]

    def test_another_batch_under_a_name_conflicts(self, reopen: Reopen) -> None:
        """And changes nothing, the receipt of the first included."""
        store = reopen()
        first = store.append(_batch("a"))
        for other in (_batch("a", "other"), _batch("a", "a", "more"), _batch("a", "A")):
            assert _raised(store.append, other) is AppendConflict
            assert _raised(reopen().append, other) is AppendConflict
        assert store.read(ONE) == [_user("a")]
        assert store.append(_batch("a")) == first

    def test_append_ids_are_the_conversations_own(self, reopen: Reopen) -> None:
        """One name in two conversations names two appends."""
        store = reopen()
        for id in IDS:
            store.append(_batch("a", id, conversation=id))
        for id in IDS:
            assert reopen().read(id) == [_user(id)]
        assert reopen().conversations() == sorted(IDS)

    def test_what_is_handed_out_is_a_copy(self, reopen: Reopen) -> None:
        """Changing it changes nothing that is kept."""
        store = reopen()
        store.append(_batch("a"))
        found = store.read(ONE)
        found[0]["content"] = "changed"
        found.clear()
        store.conversations().clear()
        assert store.read(ONE) == [_user("a")]
        assert store.conversations() == [ONE]

    def test_a_cleared_conversation_is_empty_and_takes_nothing(self, reopen: Reopen) -> None:
        """No append, no retry of an accepted one, by no handle, for ever; it is not listed."""
        store = reopen()
        store.append(_batch("a"))
        store.append(_batch("b", conversation="other"))
        store.clear(ONE)
        for each in (store, reopen()):
            for batch in (_batch("a"), _batch("new"), _batch("a", "other")):
                assert _raised(each.append, batch) is ConversationClosed
            assert each.read(ONE) == []
            assert each.conversations() == ["other"]

    def test_a_conversation_never_written_can_be_closed(self, reopen: Reopen) -> None:
        """It takes nothing from then on."""
        reopen().clear(ONE)
        store = reopen()
        assert _raised(store.append, _batch("a")) is ConversationClosed
        assert (store.read(ONE), store.conversations()) == ([], [])

    def test_clear_again_is_fine(self, reopen: Reopen) -> None:
        """As often as somebody does."""
        store = reopen()
        store.append(_batch("a"))
        for each in (store, store, reopen()):
            each.clear(ONE)
        assert _raised(store.append, _batch("a")) is ConversationClosed

    def test_threads_append_each_batch_once(self, reopen: Reopen) -> None:
        """Four of them try the same sixteen batches; each lands once and whole."""
        batches = [Batch(ONE, f"a{n}", _turn(f"turn {n}")) for n in range(16)]
        store = reopen()
        failed: list[BaseException] = []

        def work(begin: int) -> None:
            try:
                for at in range(len(batches)):
                    batch = batches[(begin + at) % len(batches)]
                    store.append(batch).validate_for(batch)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(4 * number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        found = reopen().read(ONE)
        order = sorted(batches, key=lambda batch: found.index(batch.messages[0]))
        assert found == [message for batch in order for message in batch.messages]
