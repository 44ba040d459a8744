"""A session's writer when what it takes comes from another store: entries as a set, then the head (store.md A11).

Owns what is tested of an entry from outside beside its own bytes: that it hangs where an own entry may, and that no
call_id comes to be there twice by the union alone; no other record rule is. Invariants: what is merged together is one
frame of the journal, whole or not at all; a merge moves no head; a header of the later format is in place before the
frame that needs it. The bodies ride in the frame, as an append's do, so the rows need no object. Whether entries are
what their names say was tested before.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from agentsession_cas.core.accept import check_convergence
from agentsession_cas.core.calls import is_call
from agentsession_cas.core.entry import Entry
from agentsession_cas.core.facts import Flag
from agentsession_cas.core.header import REDACTION_MINOR, Header
from agentsession_cas.core.leaf import check_rest
from agentsession_cas.core.rows import RowCode
from agentsession_cas.core.spans import check_redacted
from agentsession_cas.effects.durable import swap
from agentsession_cas.errors import BaseRule, CallIDRepeated, HeaderDiffers, NoEntry, NoRaise
from agentsession_cas.sessions.headerfile import HEADER_NAME, encode_header
from agentsession_cas.sessions.writer import Writer

__all__ = ["Receiver"]


class Receiver(Writer):
    """A session held to take what another store has of it. Raises Closed and WriterPoisoned as a writer does."""

    @property
    def rows(self) -> int:
        """How many rows the log has."""
        return len(self._source.table)

    @property
    def birth(self) -> bytes:
        """What tells the session from another of its id."""
        return self._journal.generation.birth

    @property
    def mark(self) -> int:
        """The mark in force."""
        return self._mark

    def merge(self, header: Header, entries: Sequence[Entry], known: Collection[str]) -> int:
        """Take the entries the session lacks, in this order, as one frame; how many those were. Not yet committed.

        ``header`` is the session's as the sender has it: the later format is kept. ``known`` are entries held here of
        calls that the sender has twice too. Raises HeaderDiffers, NoRaise, NoEntry, BaseRule, BadConvergence,
        CallIDRepeated (``where`` is the call held), NotRedacted; nothing is changed then.
        """
        with self._mutex:
            self._require_open()
            raised = self._later(header, entries)
            mark = self._tip.mark()
            try:
                for entry in entries:
                    self._merge_one(entry, mark.rows, known)
                records = self._source.table.since(mark.rows)
                if raised != self.header:
                    self._raise_to(raised)
                if records:
                    self._journal.append(records)
                    self._groups.append(len(records))
            except BaseException:
                self._tip.back_to(mark)
                raise
            return len(records)

    def _later(self, header: Header, entries: Sequence[Entry]) -> Header:
        """The header with the later of both formats. Raises HeaderDiffers; NoRaise where that would give a meaning."""
        held = self.header
        if header.ident != held.ident:
            raise HeaderDiffers(
                "the session is held with another header",
                where=held.id,
                next_step="it is not the same session: one of the two has to go by another id",
            )
        early = min(header.minor, held.minor)
        if early < REDACTION_MINOR <= max(header.minor, held.minor):
            brought = [entry.id for entry in entries if header.minor == early and entry.facts.flags & Flag.REDACTED]
            if brought or (held.minor == early and self._tip.newest.flags & Flag.REDACTED):
                raise NoRaise(
                    "an entry that holds redacted from before 0.13 would be given a meaning",
                    where=brought[0] if brought else held.id,
                    next_step="continue the session in a new one",
                )
        return held.raised(header.format)

    def _raise_to(self, raised: Header) -> None:
        self._journal.forswear()  # a process that finds the new header before its name is durable has to sync it
        swap(self._services.host, self._services.tmp, f"{self._directory}/{HEADER_NAME}", encode_header(raised))
        self.header = raised

    def _merge_one(self, entry: Entry, start: int, known: Collection[str]) -> None:
        source = self._source
        parent = self._parent_of(entry)
        if source.find_child(parent, entry.id) >= 0:
            return
        if entry.parents:
            check_convergence(source.find, self.header, entry.parents)
        if is_call(entry.facts):
            self._check_call(entry, start, known)
        if self._services.redacted_only:
            check_redacted(self.header, (entry,), source)
        self._tip.admit(entry, parent)

    def _parent_of(self, entry: Entry) -> int:
        """The position an entry hangs from (format.md §4): the base, an own entry, or, without a base, the root."""
        source = self._source
        parent = source.find(entry.parent) if entry.parent else -1
        if entry.parent and parent < 0:
            raise NoEntry("the parent is not in the session", where=entry.parent)
        if source.base_count and parent < source.base_count - 1:
            raise BaseRule("an entry hangs from above the base", where=entry.id)
        return parent

    def _check_call(self, entry: Entry, start: int, known: Collection[str]) -> None:
        """Refuse a call_id that is there already, but for a call that the sender has beside this one."""
        source = self._source
        for position in source.with_call(entry.call_id):
            held = position >= source.base_count and source.number(position) < start
            if held and is_call(source.facts(position)) and source.entry_id(position) not in known:
                raise CallIDRepeated(
                    f"both sides have a function call {entry.call_id}, and not the same",
                    where=source.entry_id(position),
                    next_step="fork one of the two sessions, and push the fork",
                )

    def move_head(self, to: str) -> bool:
        """Move the head, of a mirror too; whether that changed anything. Not yet committed.

        Raises NoEntry, BaseRule, HeadTarget.
        """
        with self._mutex:
            self._require_open()
            source = self._source
            if to == self._tip.head_id:
                return False
            check_rest(source, to)
            self._append_special(RowCode.HEAD, 0, source.ref_of(source.find(to) if to else -1))
            return True

    def land(self) -> None:
        """Commit what was taken, and wake who follows."""
        self.settle(self._journal.sequence)
