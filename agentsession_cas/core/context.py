"""What a model call at a point on a path receives (format.md §6, context.md §1.5).

Owns which entries of a path are selected, the settings in force at its end, and the items sent once omit is applied.
Written against :class:`~agentsession_cas.core.source.EntrySource`: it walks back by parent and facts, as far as the
last compaction keeps, and loads the bodies of entries that contribute alone. What it costs depends on the context, not
on the history; a record entry's body is never loaded. Walks are iterative. Items are as recorded, never normal form.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.facts import Code, Facts, Flag
from agentsession_cas.core.normalform import Form
from agentsession_cas.core.omit import OTHER_MODELS, Slot, apply_omit
from agentsession_cas.core.reading import text
from agentsession_cas.core.request import compose, request_hash
from agentsession_cas.core.settings import Replay, Settings, Unresolved
from agentsession_cas.core.source import EntrySource, path_positions, walk_back
from agentsession_cas.errors import FirstKept

__all__ = ["Context", "build_context", "context_at", "settings_at", "unresolved_configs", "unresolved_of"]

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Context:
    """The settings in force and the items a model call receives. Shares values with its entries: do not change them.

    ``entries`` are the ids of every entry selected, those that contribute nothing included: after a compaction the
    compaction, then what it keeps, then what follows. ``item_entries`` is aligned with ``items``: a compaction repeats,
    for its summary and for each pin. ``omitted`` (``{entry, reason}``) and ``replaced`` (``{entry, reason, parts}``)
    report, in path order, what omit left out and what it put a placeholder in.
    """

    settings: Settings
    items: list[Json]
    entries: list[str]
    item_entries: list[str]
    omitted: list[Json]
    replaced: list[Json]

    def request(self, form: Form = Form.NORMAL) -> Json:
        """The canonical request R (openresponses.md §2): ``store`` false, no ``previous_response_id``."""
        return compose(self.settings, self.items, form)

    def request_json(self) -> bytes:
        """The canonical bytes of R, which its hash is taken over."""
        return canonical(self.request())

    def request_hash(self, form: Form = Form.NORMAL) -> str:
        """The hash a response to this context records (openresponses.md §2)."""
        return request_hash(self.request(form))


class _Selected(NamedTuple):
    """A path's selection: the compaction (-1: none), what it keeps and what follows it, root first, with facts."""

    compaction: int
    kept: list[tuple[int, Facts]]
    after: list[tuple[int, Facts]]

    @property
    def in_path_order(self) -> list[tuple[int, Facts]]:
        return self.kept + self.after


def context_at(source: EntrySource, position: int) -> Context:
    """The context at a position; empty for the universal root (-1).

    Raises FirstKept when the last compaction on the path keeps from an entry that is not on it before the compaction.
    """
    return build_context(source, position)


def build_context(
    source: EntrySource, position: int, *, without: Collection[int] = (), apply_rules: bool = True
) -> Context:
    """:func:`context_at` over a path without the entries at the positions ``without``, which are ``item`` entries.

    ``apply_rules`` False leaves the omit in force unapplied, as a harness that ignored it would have sent.
    """
    selected = _select(source, position, without)
    settings = _settings(source, selected)
    slots = _slots(source, selected)
    omitted: list[Json] = []
    replaced: list[Json] = []
    if settings.omit and apply_rules:
        foreign = _foreign(source, selected, settings)
        before = _position_before(source, selected, settings)
        slots, omitted, replaced = apply_omit(settings.omit, slots, foreign, before)
    entries = [source.entry_id(at) for at, _ in selected.in_path_order]
    if selected.compaction >= 0:
        entries.insert(0, source.entry_id(selected.compaction))
    return Context(settings, [slot.item for slot in slots], entries, [slot.entry for slot in slots], omitted, replaced)


def settings_at(source: EntrySource, position: int) -> Settings:
    """The settings in force at a position. Loads configs alone, back to the nearest checkpoint (context.md §1.1)."""
    return _replay_to(source, position).settings()


def unresolved_configs(source: EntrySource, position: int) -> list[tuple[int, Unresolved]]:
    """The configs on a path that name a part or a list their path cannot resolve, root first, each with what.

    Replays the whole path: verify warns of these (cli.md). A part kept as it was is its earlier config's to report.
    """
    found: list[tuple[int, Unresolved]] = []
    replay = Replay()
    for at in path_positions(source, position):
        code = source.facts(at).code
        if code == Code.CONFIG:
            entry = source.entry(at)
            unresolved = replay.config(entry.id, entry.body)
            if unresolved:
                found.append((at, unresolved))
        elif code == Code.COMPACTION:
            config = _checkpoint(source, at)
            if config is not None:
                replay.checkpoint(config)
    return found


def unresolved_of(source: EntrySource, position: int) -> list[int]:
    """The positions of the configs on a path that carry a keep whose ``of`` it cannot resolve (context.md §1.3)."""
    return [at for at, unresolved in unresolved_configs(source, position) if Unresolved.OF in unresolved]


def _select(source: EntrySource, position: int, without: Collection[int]) -> _Selected:
    after: list[tuple[int, Facts]] = []
    compaction = -1
    for at in walk_back(source, position):
        facts = source.facts(at)
        if facts.code == Code.COMPACTION:
            compaction = at
            break
        if at not in without:
            after.append((at, facts))
    after.reverse()
    kept = _kept(source, compaction, without) if compaction >= 0 else []
    return _Selected(compaction, kept, after)


def _kept(source: EntrySource, compaction: int, without: Collection[int]) -> list[tuple[int, Facts]]:
    """The entries from ``first_kept`` up to the compaction: found on the way back, so that no index is needed."""
    entry = source.entry(compaction)
    named = entry.body.get("first_kept")
    kept: list[tuple[int, Facts]] = []
    for at in walk_back(source, source.parent(compaction)):
        if at not in without:
            kept.append((at, source.facts(at)))
        if source.entry_id(at) == named:
            kept.reverse()
            return kept
    raise FirstKept(f"first_kept {named} is not on the path before the compaction", where=entry.id)


def _checkpoint(source: EntrySource, compaction: int) -> Mapping[str, Any] | None:
    """The settings checkpoint of a compaction, None when it has none (``{}`` is one)."""
    config = source.entry(compaction).body.get("config")
    return config if isinstance(config, dict) else None


def _replay_to(source: EntrySource, position: int) -> Replay:
    replay = Replay()
    configs: list[int] = []
    for at in walk_back(source, position):
        code = source.facts(at).code
        if code == Code.CONFIG:
            configs.append(at)
        elif code == Code.COMPACTION:
            config = _checkpoint(source, at)
            if config is not None:
                replay.checkpoint(config)
                break
    for at in reversed(configs):
        entry = source.entry(at)
        replay.config(entry.id, entry.body)
    return replay


def _settings(source: EntrySource, selected: _Selected) -> Settings:
    """Settings at the end of a selected path: the configs it keeps are before the compaction, and not replayed."""
    replay = _replay_to(source, selected.compaction)
    for at, facts in selected.after:
        if facts.code == Code.CONFIG:
            entry = source.entry(at)
            replay.config(entry.id, entry.body)
    return replay.settings()


def _slots(source: EntrySource, selected: _Selected) -> list[Slot]:
    """The items selected, each with its entry, before omit is applied."""
    slots: list[Slot] = []
    if selected.compaction >= 0:
        entry = source.entry(selected.compaction)
        pinned = entry.body.get("pinned")
        for item in [entry.body.get("summary"), *(pinned if isinstance(pinned, list) else ())]:
            if isinstance(item, dict):
                slots.append(Slot(selected.compaction, entry.id, item, reached=False))
    for at, facts in selected.in_path_order:
        if facts.code == Code.ITEM:
            member = "item"
        elif facts.code == Code.BRANCH_SUMMARY:
            member = "summary"
        else:
            continue
        entry = source.entry(at)
        item = entry.body.get(member)
        if isinstance(item, dict):
            slots.append(Slot(at, entry.id, item, reached=member == "item"))
    return slots


def _foreign(source: EntrySource, selected: _Selected, settings: Settings) -> set[int]:
    """Positions of reasoning items written under a known model other than the one in force at the end."""
    path = selected.in_path_order
    ruled = settings.omit.get("reasoning") == OTHER_MODELS and settings.model
    if not ruled or not any(facts.flags & Flag.REASONING_FROM for _, facts in path):
        return set()
    if selected.compaction >= 0:
        path.insert(len(selected.kept), (selected.compaction, source.facts(selected.compaction)))
    foreign: set[int] = set()
    model: str | None = None  # not known until an item asks
    for at, facts in path:
        if facts.flags & Flag.REASONING_FROM:
            if model is None:
                model = _model_at(source, path[0][0])
            if model not in ("", settings.model):
                foreign.add(at)
        else:
            changed = _model_set(source, at, facts)
            model = model if changed is None else changed
    return foreign


def _model_at(source: EntrySource, position: int) -> str:
    """The model in force at a position, replaying the model alone; "" when none is known."""
    for at in walk_back(source, position):
        model = _model_set(source, at, source.facts(at))
        if model is not None:
            return model
    return ""


def _model_set(source: EntrySource, position: int, facts: Facts) -> str | None:
    """The model an entry puts in force ("" none), or None when it leaves the one before it."""
    if facts.code == Code.CONFIG:
        body = source.entry(position).body
        model = body.get("model")
        if isinstance(model, str) and model:
            return model
        return "" if body.get("replace") is True else None
    if facts.code == Code.COMPACTION:
        config = _checkpoint(source, position)
        if config is None:
            return None
        return text(config, "model")
    return None


def _position_before(source: EntrySource, selected: _Selected, settings: Settings) -> int:
    """Where the entry that the images rule names stands on the selected path, -1 when it does not."""
    named = settings.omit.get("images", {}).get("before")
    position = source.find(named) if isinstance(named, str) else -1
    on_path = position == selected.compaction or any(at == position for at, _ in selected.in_path_order)
    return position if on_path else -1
