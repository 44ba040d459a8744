"""Every response of a session checked against its request, at a cost linear in the session (format.md §6).

:func:`~agentsession_cas.core.outputs.verify_response` rebuilds one request whole. Along a path each request is the one
before it and a little more, so a :class:`RequestWalk` keeps the SHA-256 of a request's canonical bytes as far as the
items go, and adds what is new; an item is read when it is added, and not kept. It finds what ``verify_response`` finds;
where a request is no continuation of the one before (an ``images`` rule, an output between other items) it asks that.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, NamedTuple

from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.facts import Code, Facts, Flag
from agentsession_cas.core.identity import HASH_PREFIX, hash_bytes
from agentsession_cas.core.normalform import Form, form_item
from agentsession_cas.core.omit import IMAGES, ITEMS, OTHER_MODELS, OUTPUTS
from agentsession_cas.core.outputs import Verdict, Verification, output_positions, verify_response
from agentsession_cas.core.reading import text
from agentsession_cas.core.request import compose
from agentsession_cas.core.settings import Replay, Settings, Unresolved
from agentsession_cas.core.source import EntrySource, walk_back

__all__ = ["RequestWalk", "SavedWalk"]

Json = dict[str, Any]


class _Given(NamedTuple):
    """An item that the compaction at ``position`` gives; no omit reaches it."""

    position: int
    item: Json


_Slot = int | _Given
"""What gives an item of a request: the entry at a position, or a compaction."""


class _Rules(NamedTuple):
    """The omit in force, as far as it says which items are sent: what a track was hashed under."""

    listed: frozenset[str]
    model: str
    """The model of the request when reasoning of other models is left out, else ""."""
    muted: frozenset[str]
    text: str


class _Frame(NamedTuple):
    """The canonical bytes of a request around its items; ``bare`` is the whole of it when there are none."""

    head: bytes
    tail: bytes
    bare: bytes


class _Track(NamedTuple):
    """A request's hash as far as its items go: the first ``read`` slots, of which ``sent`` are in it and ``changed``
    were left out or replaced. ``rules`` is None for a request with nothing left out."""

    head: bytes
    rules: _Rules | None
    digest: Any
    read: int
    sent: int
    changed: int


class SavedWalk(NamedTuple):
    """A walk at an entry that several others hang from, to come back to. ``size`` is how many slots it had."""

    settings: Settings
    rules: _Rules
    frames: dict[Form, _Frame]
    tracks: dict[tuple[Form, bool], _Track]
    slots: list[_Slot]
    size: int
    model: str
    broken: bool


_CONTRIBUTING = frozenset({Code.ITEM, Code.BRANCH_SUMMARY})
"""What gives one item each."""
_NO_RULES = _Rules(frozenset(), "", frozenset(), "")


class RequestWalk:
    """Reads a path of one session. ``broken`` is whether its last compaction keeps from no entry of the path."""

    def __init__(self, source: EntrySource) -> None:
        self._source = source
        self._replay = Replay()
        self._settings: Settings | None = None  # None: something changed since they were taken
        self._rules = _NO_RULES
        self._frames: dict[Form, _Frame] = {}
        self._tracks: dict[tuple[Form, bool], _Track] = {}
        self._slots: list[_Slot] = []
        self._model = ""
        self._written_under: dict[int, str] = {}
        self.broken = False

    def save(self) -> SavedWalk:
        """The walk as it is, to :meth:`restore` once per entry that hangs from here."""
        settings = self._settings_now()
        return SavedWalk(
            settings,
            self._rules,
            self._frames,
            dict(self._tracks),
            self._slots,
            len(self._slots),
            self._model,
            self.broken,
        )

    def restore(self, saved: SavedWalk) -> None:
        """Go back to where ``saved`` was taken, further up the path."""
        self._replay = Replay(saved.settings)
        self._settings = saved.settings
        self._rules = saved.rules
        self._frames = saved.frames
        self._tracks = dict(saved.tracks)
        self._slots = saved.slots
        del self._slots[saved.size :]
        self._model = saved.model
        self.broken = saved.broken

    def read(self, position: int, facts: Facts) -> Unresolved:
        """Read the next entry of the path; what a config names that its path cannot resolve."""
        if facts.code == Code.CONFIG:
            return self._read_config(position)
        if facts.code == Code.COMPACTION:
            self._read_compaction(position)
        elif facts.code in _CONTRIBUTING:
            if facts.flags & Flag.REASONING_FROM:
                self._written_under[position] = self._model
            self._slots.append(position)
        return Unresolved.NONE

    def verify(self, position: int) -> Verification:
        """The verdict on the response next on the path, as :func:`verify_response` has it. Raises what that raises."""
        entry = self._source.entry(position)
        recorded = entry.body.get("request_hash")
        if not isinstance(recorded, str) or not recorded:
            return Verification(Verdict.NO_HASH, entry.id)
        count = self._sent_count(position)
        if count < 0 or self.broken or IMAGES in self._settings_now().omit:
            return verify_response(self._source, position)
        rebuilt = self._hash(Form.NORMAL, count, whole=False)
        for form in Form:
            if self._hash(form, count, whole=False) == recorded:
                verdict = Verdict.VERIFIED if form is Form.NORMAL else Verdict.OTHER_FORM
                return Verification(verdict, entry.id, recorded, rebuilt, form)
        if self._tracks[Form.NORMAL, False].changed:
            for form in Form:
                if self._hash(form, count, whole=True) == recorded:
                    return Verification(Verdict.OMIT_DIVERGENCE, entry.id, recorded, rebuilt, form)
        return Verification(Verdict.MISMATCH, entry.id, recorded, rebuilt)

    def _read_config(self, position: int) -> Unresolved:
        entry = self._source.entry(position)
        model = entry.body.get("model")
        if isinstance(model, str) and model:
            self._model = model
        elif entry.body.get("replace") is True:
            self._model = ""
        self._settings = None
        return self._replay.config(entry.id, entry.body)

    def _read_compaction(self, position: int) -> None:
        entry = self._source.entry(position)
        config = entry.body.get("config")
        if isinstance(config, dict):
            self._replay.checkpoint(config)
            self._model = text(config, "model")
            self._settings = None
        pinned = entry.body.get("pinned")
        items = [entry.body["summary"], *(pinned if isinstance(pinned, list) else ())]
        self._slots = [_Given(position, item) for item in items if isinstance(item, dict)]
        self._tracks = {}
        kept = self._kept(position, entry.body["first_kept"])
        self.broken = kept is None
        self._slots += [each for each in kept or () if self._source.facts(each).code in _CONTRIBUTING]

    def _kept(self, compaction: int, first_kept: str) -> list[int] | None:
        """The entries from ``first_kept`` to a compaction, root first; None when it is not on the path before it."""
        first = self._source.find(first_kept)
        kept = []
        for each in walk_back(self._source, self._source.parent(compaction)):
            if each < first or first < 0:
                break
            kept.append(each)
        if not kept or kept[-1] != first:
            return None
        kept.reverse()
        return kept

    def _settings_now(self) -> Settings:
        if self._settings is None:
            self._settings = self._replay.settings()
            self._frames = {}
            rules = _rules(self._settings)
            if rules != self._rules:
                self._rules = rules
        return self._settings

    def _sent_count(self, position: int) -> int:
        """How many slots the request of a response has: all but its own outputs; -1 when those are not the last."""
        outputs = output_positions(self._source, position)
        count = len(self._slots) - len(outputs)
        return count if count >= 0 and self._slots[count:] == outputs else -1

    def _frame(self, form: Form) -> _Frame:
        settings = self._settings_now()
        frame = self._frames.get(form)
        if frame is None:
            members = compose(settings, [], form)
            before = {name: value for name, value in members.items() if name < "input"}
            after = {name: value for name, value in members.items() if name > "input"}
            head = canonical(before)[:-1] + (b"," if before else b"") + b'"input":['
            frame = _Frame(head, b"]," + canonical(after)[1:], canonical(members))
            self._frames[form] = frame
        return frame

    def _hash(self, form: Form, count: int, *, whole: bool) -> str:
        """The hash of the request with the first ``count`` slots; ``whole``: with nothing left out."""
        frame = self._frame(form)
        rules = None if whole else self._rules
        track = self._tracks.get((form, whole))
        if track is None or track.head != frame.head or track.rules is not rules or track.read > count:
            track = _Track(frame.head, rules, sha256(frame.head), 0, 0, 0)
        track = self._extended(track, form, count)
        self._tracks[form, whole] = track
        if not track.sent:
            return hash_bytes(frame.bare)
        digest = track.digest.copy()
        digest.update(frame.tail)
        return HASH_PREFIX + str(digest.hexdigest())

    def _extended(self, track: _Track, form: Form, count: int) -> _Track:
        digest, sent, changed = track.digest.copy(), track.sent, track.changed
        for slot in self._slots[track.read : count]:
            given = self._item(slot)
            item = given if track.rules is None or given is None else self._under(track.rules, slot, given)
            changed += item is not given
            if item is None:
                continue
            digest.update((b"," if sent else b"") + canonical(form_item(item, form)))
            sent += 1
        return track._replace(digest=digest, read=count, sent=sent, changed=changed)

    def _item(self, slot: _Slot) -> Json | None:
        """The item that a slot gives; None for an entry without one, which no reader accepts."""
        if isinstance(slot, _Given):
            return slot.item
        name = "item" if self._source.facts(slot).code == Code.ITEM else "summary"
        item = self._source.entry(slot).body.get(name)
        return item if isinstance(item, dict) else None

    def _under(self, rules: _Rules, slot: _Slot, item: Json) -> Json | None:
        """The item a slot sends under an omit; None when it sends none (context.md §1.4, rules 1 to 3)."""
        if rules is _NO_RULES or isinstance(slot, _Given) or self._source.facts(slot).code != Code.ITEM:
            return item
        entry_id = self._source.entry_id(slot)
        if entry_id in rules.listed:
            return None
        if rules.model and self._written_under.get(slot, "") not in ("", rules.model):
            return None
        if entry_id in rules.muted and item.get("type") == "function_call_output":
            return {**item, "output": rules.text}
        return item


def _rules(settings: Settings) -> _Rules:
    omit = settings.omit
    if not omit:
        return _NO_RULES
    outputs = omit.get(OUTPUTS, {})
    return _Rules(
        frozenset(omit.get(ITEMS, ())),
        settings.model if omit.get("reasoning") == OTHER_MODELS else "",
        frozenset(outputs.get("items", ())),
        outputs.get("text", ""),
    )
