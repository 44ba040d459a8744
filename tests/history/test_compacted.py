"""Conversations that are summarised: budgets, what is behind a summary, crashes, order, shutdown, archive."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas import Store
from agentsession_cas.errors import AgentSessionError, BadInput, Closed
from agentsession_cas.history import (
    Batch,
    Budget,
    CasStore,
    Compacted,
    DAGConfig,
    EstimateCounter,
    MemoryStore,
    Message,
    Note,
    Reading,
    SummaryNode,
    SummaryStore,
    Transcript,
    build_summary_index,
)
from agentsession_cas.history.archive import archive, load_manifest
from agentsession_cas.history.dag import SummaryDAG
from agentsession_cas.history.protocols import Notes, Placed, note_id
from agentsession_cas.layout import Layout
from agentsession_cas.testing.simfs import Sim

COUNTER = EstimateCounter()
CONFIG = DAGConfig(chunk_size=4, condense_threshold=3, condense_group_size=2, token_budget=200)


def _user(text: str) -> Message:
    return {"type": "message", "role": "user", "content": text}


def _said(text: str) -> Message:
    return {"type": "message", "role": "assistant", "content": text}


def _turns(begin: int, end: int) -> list[Message]:
    return [message for n in range(begin, end) for message in (_user(f"question {n}"), _said(f"answer {n}"))]


def summarize(items: list[Message], instructions: str) -> str:
    """A summary that says which numbers it covers."""
    return f"{len(items)} items"


@pytest.fixture(params=["memory", "store"])
def transcript(request: pytest.FixtureRequest) -> Transcript:
    return MemoryStore() if request.param == "memory" else CasStore(Store.memory())


def _filled(transcript: Transcript, turns: int, config: DAGConfig = CONFIG) -> Compacted:
    history = Compacted(transcript, summarize, config)
    for number in range(turns):
        history.append("c", _turns(number, number + 1))
    history.settle()
    return history


def test_a_transcript_is_read_in_parts(transcript: Transcript) -> None:
    """By number and from the end, as slices of it whole."""
    everything = _turns(0, 7)
    for at in range(0, len(everything), 2):
        transcript.append(Batch("c", f"{at}", everything[at : at + 2]))
    reading = transcript.reading("c")
    assert reading.count() == len(everything)
    assert list(reading.tail()) == everything[::-1]
    for start, end in ((0, 3), (3, 9), (-5, 2), (12, 99), (5, 5), (9, 3), (99, 100)):
        assert reading.range(start, end) == everything[max(start, 0) : max(end, 0)]
    unknown = transcript.reading("d")
    assert (unknown.count(), unknown.range(0, 5), list(unknown.tail())) == (0, [], [])
    assert (unknown.latest("x"), unknown.note("x", "y"), unknown.notes("x").bodies) == (None, None, [])


def test_notes_are_kept_once_and_found_again(transcript: Transcript) -> None:
    notes = [Note("x", {"n": n, "content": []}) for n in range(3)]
    transcript.keep("c", [notes[0], Note("y", {})])
    transcript.append(Batch("c", "a", [_user("hi")]))
    transcript.keep("c", notes[1:])
    transcript.keep("c", notes)
    reading = transcript.reading("c")
    assert [body["n"] for body in reading.notes("x").bodies] == [0, 1, 2]
    latest = reading.latest("x")
    assert latest is not None
    for note in notes:
        found = reading.note("x", note_id(note))
        assert found is not None
        assert found.body == note.body
        for place in (found.place, latest.place, -1, 99):
            assert reading.note("x", note_id(note), place) == found
        assert reading.note("y", note_id(note)) is None
    end = reading.notes("x").end
    transcript.keep("c", [Note("x", {"n": 3})])
    assert transcript.reading("c").notes("x", end).bodies == [{"n": 3}]
    assert transcript.read("c") == [_user("hi")]


def test_a_short_conversation_is_given_as_it_is(transcript: Transcript) -> None:
    history = _filled(transcript, 3)
    assert history.load("c") == _turns(0, 3)
    assert history.load("unknown") == []


@given(turns=st.integers(0, 30), budget=st.integers(20, 300), size=st.integers(1, 120))
@settings(deadline=None, max_examples=25)
def test_every_load_stays_within_its_budget(turns: int, budget: int, size: int) -> None:
    """And ends with the newest messages, whole turns of them, when one fits."""
    store = MemoryStore()
    dag = SummaryDAG(store, lambda items, _: "s" * (len(items) * size), CONFIG, COUNTER)
    for number in range(turns):
        store.append(Batch("c", f"{number}", _turns(number, number + 1)))
        dag.ingest("c")
    found = dag.assemble("c", budget)
    assert COUNTER.count_messages(found) <= budget
    recent = [message for message in found if message["role"] != "system"]
    assert recent == (_turns(0, turns)[-len(recent) :] if recent else [])
    assert not recent or recent[0]["role"] == "user"
    assert found == [*(message for message in found if message["role"] == "system"), *recent]


class _Counted(MemoryStore):
    """Counts the messages and notes that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.read_count = 0

    def reading(self, conversation: str) -> Reading:
        return _CountedReading(super().reading(conversation), self)


class _CountedReading:
    def __init__(self, reading: Reading, to: _Counted) -> None:
        self._reading = reading
        self._to = to

    def _counted(self, found: Iterable[Any]) -> Iterator[Any]:
        for each in found:
            self._to.read_count += 1
            yield each

    def count(self) -> int:
        return self._reading.count()

    def tail(self) -> Iterator[Message]:
        return self._counted(self._reading.tail())

    def range(self, start: int, end: int) -> list[Message]:
        return list(self._counted(self._reading.range(start, end)))

    def notes(self, kind: str, start: int = 0) -> Notes:
        found = self._reading.notes(kind, start)
        return Notes(list(self._counted(found.bodies)), found.end)

    def latest(self, kind: str) -> Placed | None:
        self._to.read_count += 1
        return self._reading.latest(kind)

    def note(self, kind: str, id: str, place: int = -1) -> Placed | None:
        self._to.read_count += 1
        return self._reading.note(kind, id, place)


def test_a_load_reads_what_it_gives_however_long_the_conversation() -> None:
    """A few summaries and the newest messages: of 2,000 messages no more than of 200."""
    store = _Counted()
    dag = SummaryDAG(store, summarize, CONFIG, COUNTER)
    read = []
    for turns in (100, 1000):
        store.append(Batch("c", f"{turns}", _turns(store.reading("c").count() // 2, turns)))
        dag.ingest("c")
        store.read_count = 0
        dag.assemble("c")
        read.append(store.read_count)
    assert read[1] <= read[0] + 2 * CONFIG.condense_threshold


def test_summaries_come_before_what_they_do_not_repeat(transcript: Transcript) -> None:
    history = _filled(transcript, 40)
    found = history.load("c")
    summaries = [message["content"] for message in found if message["role"] == "system"]
    assert summaries
    begin = 80 - (len(found) - len(summaries))
    ranges = [tuple(int(word) for word in each.split(" (")[0].split() if word.isdigit()) for each in summaries]
    assert ranges == sorted(ranges)
    assert all(first <= last and first < begin for first, last in ranges)


def test_a_summary_expands_to_the_messages_behind_it(transcript: Transcript) -> None:
    """At every depth; together the top ones cover all that is summarised, once."""
    history = _filled(transcript, 40)
    everything = _turns(0, 40)
    nodes = history.dag.summaries.list("c")
    assert {node.depth for node in nodes} >= {0, 1, 2}
    for node in nodes:
        assert history.expand("c", node.id) == everything[node.earliest_seq : node.latest_seq + 1]
    tops = history.dag.tops("c")
    assert [seq for node in tops for seq in range(node.earliest_seq, node.latest_seq + 1)] == list(range(80))
    for node in nodes:
        for source in node.source_ids:
            below = history.dag.summaries.get("c", source)
            assert below is not None
            assert below.depth == node.depth - 1
    with pytest.raises(BadInput):
        history.expand("c", "nothing")


def test_another_process_goes_on(tmp_path: Path) -> None:
    with Store.open(tmp_path, create=True) as store:
        _filled(CasStore(store), 10).shutdown()
    with Store.open(tmp_path) as store:
        history = _filled(CasStore(store), 1)
        assert store.fsck().ok
        tops = history.dag.tops("c")
        assert sum(node.latest_seq - node.earliest_seq + 1 for node in tops) == 20
        assert history.load("c")[-1] == _said("answer 0")


def test_an_async_summarizer_and_one_that_fails(transcript: Transcript, caplog: pytest.LogCaptureFixture) -> None:
    """What fails is told, loses nothing, and is tried again."""
    fails = [ConnectionError("gone")]

    async def summarizer(items: list[Message], instructions: str) -> str:
        await asyncio.sleep(0)
        if fails:
            raise fails.pop()
        return "short"

    history = Compacted(transcript, summarizer, CONFIG)
    history.append("c", _turns(0, 4))
    history.settle()
    assert "gone" in caplog.text
    assert history.load("c") == _turns(0, 4)
    history.append("c", _turns(4, 5))
    history.settle()
    assert [node.content for node in history.dag.summaries.list("c")] == ["short", "short"]


def test_compaction_forgets_the_deleted_and_empties_leaves(transcript: Transcript) -> None:
    config = DAGConfig(chunk_size=4, condense_threshold=3, condense_group_size=2, prune_leaf_content=True)
    history = _filled(transcript, 12, config)
    summaries = history.dag.summaries
    gone = summaries.list("c", depth=1)[0]
    summaries.delete("c", gone.id)
    leaves = summaries.list("c", depth=0)
    with_parent = {source for node in summaries.list("c") for source in node.source_ids}
    result = history.compact("c")
    assert result.deleted_removed == 1
    assert result.leaf_pruned == sum(1 for leaf in leaves if leaf.id in with_parent) > 0
    assert result.total_remaining == len(summaries.list_all("c"))
    assert summaries.get("c", gone.id) is None
    assert history.compact("c") == (0, 0, result.total_remaining)
    assert history.expand("c", leaves[0].id) == _turns(0, 2)


def test_a_summary_store(transcript: Transcript) -> None:
    """Saved, listed, searched, replaced; what another one does is seen."""
    transcript.append(Batch("c", "a", [_user("hi")]))
    store, other = SummaryStore(transcript, cached_max=1), SummaryStore(transcript)

    def node(id: str, depth: int, first: int, last: int, content: str) -> SummaryNode:
        return SummaryNode(id, "c", depth, content, first, last, 5, "2026-01-31T12:00:00Z")

    a, b, top = node("a", 0, 0, 3, "the red fox"), node("b", 0, 4, 7, "red red wine"), node("t", 1, 0, 7, "all")
    for each in (b, a, top):
        store.save(each)
    assert other.list_all("c") == [a, top, b]
    assert other.list("c", depth=0) == [a, b]
    assert other.list("c", min_seq=4) == [top, b]
    assert other.list("c", max_seq=3) == [a, top]
    assert other.list("c", limit=1) == [b]
    assert other.search("c", "RED fox") == [b, a]
    assert other.search("c", "red", 1) == [b]
    assert other.search("c", "nothing") == []
    other.delete("c", "a")
    assert store.get("c", "a") is None
    assert [each.deleted for each in store.list_all("c")] == [True, False, False]
    store.rewrite("c", [b])
    assert other.list_all("c") == [b]
    other.save(top)
    assert store.list_all("c") == [top, b]
    assert SummaryNode.from_json(top.to_json() | {"unknown": 1}) == top
    assert store.list_all("unknown") == []


def test_an_index_of_summaries(transcript: Transcript) -> None:
    history = _filled(transcript, 14)
    tops = history.dag.tops("c")
    index = build_summary_index(history.dag.summaries, "c", 10_000)
    assert [node.id in index for node in tops] == [True] * len(tops)
    short = build_summary_index(history.dag.summaries, "c", 90)
    assert len(short) <= 90
    assert tops[-1].id in short
    assert "left out" in short
    assert build_summary_index(None, "c", 100) == ""
    assert build_summary_index(history.dag.summaries, "unknown", 100) == ""


@pytest.mark.parametrize("options", [{"chunk_size": 0}, {"recent_ratio": 0}, {"condense_group_size": 9}, {"unknown": 1},
                                     {"token_budget": 0}, {"mid_ratio": 2}, {"chunk_size": "x"}])  # fmt: skip
def test_options_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        Compacted(MemoryStore(), summarize, **options)
    with pytest.raises(BadInput):
        Compacted(MemoryStore(), None)  # type: ignore[arg-type]


# --- order and shutdown


class _Gate:
    """A summarizer that waits until it is let go."""

    def __init__(self) -> None:
        self.entered, self.open = threading.Event(), threading.Event()

    def __call__(self, items: list[Message], instructions: str) -> str:
        self.entered.set()
        assert self.open.wait(60)
        return "done"


def test_shutdown_drains_and_cancels_nothing() -> None:
    """A timeout says that it goes on; reading works; new work is refused; the second call waits for the same."""
    gate = _Gate()
    history = Compacted(MemoryStore(), gate, CONFIG)
    history.append("c", _turns(0, 2))
    assert gate.entered.wait(60)
    assert history.shutdown(timeout=0.01) is False
    refused: list[Callable[[], object]] = [
        lambda: history.append("c", _turns(2, 3)),
        lambda: history.compact("c"),
        lambda: history.archive("c"),
        lambda: history.clear("c"),
    ]
    for act in refused:
        with pytest.raises(Closed):
            act()
    assert history.load("c") == _turns(0, 2)
    gate.open.set()
    assert history.shutdown() is True
    assert [node.content for node in history.dag.summaries.list("c")] == ["done"]


def _only(gate: _Gate, word: str) -> Callable[[list[Message], str], str]:
    return lambda items, text: gate(items, text) if word in str(items) else "x"


def test_work_on_one_conversation_is_in_turn_and_on_others_is_not_held_up() -> None:
    gate = _Gate()
    history = Compacted(MemoryStore(), _only(gate, "slow"), CONFIG)
    history.append("c", [_user("slow")] * 4)
    assert gate.entered.wait(60)
    waiting = threading.Thread(target=lambda: history.compact("c"))
    waiting.start()
    history.append("d", [_user("quick")] * 4)
    history.compact("d")
    assert waiting.is_alive()
    gate.open.set()
    waiting.join(60)
    assert not waiting.is_alive()
    assert history.shutdown()


def test_threads_append_and_load(transcript: Transcript) -> None:
    """An append that returned is in the next load; nothing is lost."""
    history = Compacted(transcript, summarize, CONFIG)
    failed: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for number in range(8):
                history.append(name, _turns(number, number + 1))
                assert history.load(name)[-1] == _said(f"answer {number}")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(f"c{n}",)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert history.shutdown()
    assert [transcript.read(f"c{n}") for n in range(3)] == [_turns(0, 8)] * 3


# --- archive


def test_an_archive_changes_nothing_that_is_read(transcript: Transcript) -> None:
    history = Compacted(transcript, summarize, CONFIG, archive_batch_size=6)
    history.append("c", _turns(0, 10))
    history.settle()
    before = history.load("c")
    assert history.archive("c")[::2] == (6, 6)
    assert history.archive("c")[::2] == (6, 12)
    manifest = history.manifest("c")
    assert [(each.start_seq, each.end_seq, each.count) for each in manifest.segments] == [(0, 5, 6), (6, 11, 6)]
    assert manifest.hot_start_seq == 12
    assert manifest.to_json()["segments"][0]["created_at"]
    assert transcript.reading("c").range(0, 20) == transcript.read("c") == _turns(0, 10)
    assert history.load("c") == before
    assert [history.archive("c").messages_archived for _ in range(3)] == [6, 2, 0]


def test_an_archive_is_a_pack(tmp_path: Path) -> None:
    with Store.open(tmp_path, create=True) as store:
        history = Compacted(CasStore(store), summarize, CONFIG, archive_threshold=12, archive_batch_size=10)
        history.append("c", [_user(f"{n} " * 300) for n in range(12)])
        history.settle()
        (segment,) = history.manifest("c").segments
        assert (tmp_path / "objects" / "pack" / segment.file).is_file()
        assert store.fsck().ok
        store.repack()
        store.repack(all=True)
        assert store.fsck().ok
        assert len(CasStore(store).read("c")) == 12


def _store(sim: Sim, *, create: bool = False) -> Store:
    layout = Layout.create(sim.host, "/store") if create else Layout.open(sim.host, "/store")
    return Store(layout, background=False)


@pytest.mark.parametrize("kind", ["archive", "ingest"])
def test_power_cut_at_every_effect(kind: str) -> None:
    """Nothing is lost and nothing twice; what was cut off is taken up, to the same end."""
    sim = Sim(seed=5)
    store = _store(sim, create=True)
    transcript = CasStore(store)
    everything = _turns(0, 6)
    transcript.append(Batch("c", "a", everything))

    def work(of: Store) -> None:
        transcript = CasStore(of)
        if kind == "archive":
            archive(transcript, "c", 5)
        else:
            SummaryDAG(transcript, summarize, CONFIG, COUNTER).ingest("c")

    images = 0

    def look(effect: str, path: str) -> None:
        nonlocal images
        for image in sim.images(2):
            images += 1
            again = _store(image)
            here = CasStore(again)
            assert here.read("c") == everything, f"{effect} {path}: {image.story}"
            work(again)
            assert here.read("c") == everything
            if kind == "archive":
                segments = load_manifest(here, "c").segments
                assert [seq for each in segments for seq in range(each.start_seq, each.end_seq + 1)] in (
                    list(range(5)),
                    list(range(10)),
                ), f"{effect} {path}: {image.story}"
            else:
                tops = SummaryDAG(here, summarize, CONFIG, COUNTER).tops("c")
                covered = [seq for node in tops for seq in range(node.earliest_seq, node.latest_seq + 1)]
                assert covered == list(range(12)), f"{effect} {path}: {image.story}"
            assert again.fsck().ok

    sim.watch(look)
    work(store)
    sim.watch(None)
    assert images >= 10


def test_wrong_values_at_the_door() -> None:
    history: Any = Compacted(MemoryStore(), summarize)
    wrong: tuple[Any, ...] = (None, 5, "", b"x", [], object())
    for value in wrong:
        acts: list[Callable[[Any], object]] = [
            history.load, history.compact, history.archive, history.clear, history.manifest,
            lambda x: history.append(x, [_user("a")]), lambda x: history.append("c", x),
            lambda x: history.expand("c", x), lambda x: history.load("c", x or 0),
        ]  # fmt: skip
        for act in acts:
            with pytest.raises(AgentSessionError):
                act(value)
    assert history.load("c", Budget()) == []
