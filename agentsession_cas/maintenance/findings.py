"""What fsck reports: the table of its codes, one finding, the whole report (store.md A12, cli.md).

Owns the codes. They are stable: a code is never renamed or given another meaning. Severity belongs to the code; a store
is ``ok`` when nothing found is an error. Must not: read anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

__all__ = ["CODES", "Finding", "Findings", "FsckReport", "Meaning", "Severity"]

Severity = Literal["error", "warning", "note"]


class Meaning(NamedTuple):
    """What a code says: how bad it is, what is wrong, what to do about it."""

    severity: Severity
    says: str
    todo: str


_RESTORE: Final = "repair, which finds any other copy; else import a file of a session that holds it"
_REPAIR: Final = "repair the session; no other session is affected"
_MEND: Final = "repair"
_NONE: Final = "nothing"
_SWEEP: Final = "nothing; a sweep takes it away"
_REWRITTEN: Final = "nothing; the next open to write replaces it"
_CLEARED: Final = "nothing; gc, or a repair, removes it"
_REPORT: Final = "report it: its bytes are whole, so a program wrote it wrong; the session reads as far as it can"
_AUTHOR: Final = "ask whoever wrote the entry; what is recorded is never changed"

CODES: Final[dict[str, Meaning]] = {
    # the store
    "bad_settings": Meaning("error", "store.json cannot be read", "restore it: {\"layout\":1}"),
    "stray_file": Meaning("note", "a file that does not belong where it lies", "move it away"),
    "stale_tmp": Meaning("note", "left in tmp by a process that died", _SWEEP),
    "unreadable_file": Meaning("error", "the system refuses to read a file", "look at the disk and the file's rights"),
    # objects
    "corrupt_object": Meaning("error", "a loose object that cannot be read", _RESTORE),
    "misnamed_object": Meaning("error", "a loose object whose bytes hash to another name", _RESTORE),
    "corrupt_pack": Meaning("error", "a pack that does not hash to its name, or cannot be listed", _MEND),
    "corrupt_block": Meaning("error", "objects of a pack that cannot be read", _RESTORE),
    "missing_piece": Meaning("error", "no good copy of a large string that a body needs", _RESTORE),
    "broken_body": Meaning("error", "a body that does not hash to its name when it is put together", _RESTORE),
    "corrupt_dictionary": Meaning("error", "a dictionary without a whole copy: its blocks cannot be read", _RESTORE),
    "dictionary_copy": Meaning("warning", "one of a dictionary's two copies is gone or not whole", "repack"),
    "corrupt_idx": Meaning("warning", "a damaged idx; reads rebuild it", _MEND),
    "idx_mismatch": Meaning("warning", "an idx that hides objects of its pack", _MEND),
    "missing_idx": Meaning("note", "a pack without idx; reads rebuild it", _NONE),
    "bare_idx": Meaning("note", "an idx without its pack", "delete the idx"),
    "dangling_object": Meaning("note", "an object that no session needs", _SWEEP),
    "dangling_unknown": Meaning("note", "a session, ref or body does not read: what dangles cannot be told", _REPAIR),
    # a session's files
    "bad_header": Meaning("error", "the header is absent or damaged", _REPAIR),
    "misnamed_session": Meaning("error", "a directory by another name than its session's", _MEND),
    "journal_missing": Meaning("error", "there is no journal", _REPAIR),
    "journal_damaged": Meaning("error", "the journal's first blocks, or a frame's records, cannot be read", _REPAIR),
    "journal_cut": Meaning("error", "rows that were committed are not whole in the journal", _REPAIR),
    "lost_tail": Meaning("note", "an uncommitted tail was lost", _NONE),
    "lost_rows": Meaning("warning", "rows were lost for good, as a repair said", "see damaged/ beside the journal"),
    "log_missing": Meaning("error", "there is no log", _REPAIR),
    "log_short": Meaning("error", "the log is cut short", _REPAIR),
    "log_row": Meaning("error", "rows of the log fail their checksum", _REPAIR),
    "unreadable_head": Meaning("note", "HEAD, a hint, cannot be read", _REWRITTEN),
    "head_mismatch": Meaning("warning", "HEAD, a hint, names another entry than the rows", _REWRITTEN),
    "leftover_file": Meaning("note", "an earlier log, or a generation that never got its name", _CLEARED),
    # rows and entries
    "row_invalid": Meaning("error", "a whole row that makes no sense", _REPORT),
    "row_mismatch": Meaning("error", "a row that disagrees with its entry", _REPORT),
    "bad_mark": Meaning("error", "a row that marks the session neither record nor mirror", _REPORT),
    "bad_head": Meaning("error", "a row with a head that cannot be", _REPORT),
    "generation_mismatch": Meaning("error", "the journal's first block disagrees with the rows", _REPORT),
    "missing_entry": Meaning("error", "no good copy of an envelope that a session needs", _RESTORE),
    "missing_content": Meaning("error", "no good copy of a body that a session needs", _RESTORE),
    "missing_base": Meaning("error", "no good copy of the entry a fork continues from", _RESTORE),
    "missing_blob": Meaning("note", "a blob that an entry names is not held; legal", "put the blob"),
    "entry_hash": Meaning("error", "an envelope in the journal that does not hash to the entry's id", _REPORT),
    "content_hash": Meaning("error", "a body in the journal that does not hash to its name", _REPORT),
    "bad_entry": Meaning("error", "an entry that no reader of the format accepts", _REPORT),
    "repeated_entry": Meaning("error", "a session holds an entry twice", _REPORT),
    "base_rule": Meaning("error", "an entry hangs where the base rule forbids, or the base is a leaf label", _REPORT),
    "bad_convergence": Meaning("error", "parents that name no entry before it", _REPORT),
    # refs
    "ref_bad": Meaning("error", "a ref that does not read, or in another's place", _MEND),
    "ref_lost": Meaning("error", "a ref that is not there though its log has it", _MEND),
    "ref_unmade": Meaning("note", "a ref that only its log has: a crash came first, or it is lost", "repair makes it"),
    "ref_clash": Meaning("error", "two refs, one under the other, or alike but for case", "delete one of them"),
    "ref_dangling": Meaning("warning", "a ref whose session is gone", "move the ref, or delete it"),
    "ref_pin_missing": Meaning("error", "no good copy of an entry that a ref pins, or of one above it", _RESTORE),
    "ref_log_bad": Meaning("warning", "a ref log with records that do not read", _NONE),
    "ref_log_gap": Meaning("warning", "a ref log that lacks updates", _NONE),
    # what entries say; codes of the ``verify`` report
    "unchecked": Meaning("note", "records, requests and links were not checked: the session does not read", _REPAIR),
    "hash_mismatch": Meaning("error", "a response's request does not hash to what was recorded", _AUTHOR),
    "omit_divergence": Meaning("error", "a request was recorded without the omit in force", _AUTHOR),
    "other_form": Meaning("note", "a request matches in another form", _NONE),
    "first_kept": Meaning("error", "a compaction keeps from an entry off its path", _AUTHOR),
    "unknown_type": Meaning("error", "an entry's type is in no namespace", _AUTHOR),
    "unresolved_of": Meaning("warning", "a keep whose of names no omitted list of its path", _AUTHOR),
    "unresolved_part": Meaning("warning", "an instruction part its path cannot resolve", _AUTHOR),
    "call_id_empty": Meaning("error", "a function call without a call_id", _AUTHOR),
    "call_id_repeated": Meaning("error", "two function calls with one call_id", _AUTHOR),
    "bad_target": Meaning("error", "a decision or dispatch about no call before it", _AUTHOR),
    "call_answered": Meaning("error", "a decision or dispatch after an answer", _AUTHOR),
    "call_rejected": Meaning("error", "a decision or dispatch after a reject", _AUTHOR),
    "bad_withdrawal": Meaning("error", "a withdrawal not directly after a dispatch", _AUTHOR),
    "reject_dispatched": Meaning("error", "a reject after a dispatch", _AUTHOR),
    "call_completed": Meaning("error", "an answer, reject or dispatch after the output", _AUTHOR),
    "answer_not_dispatched": Meaning("error", "an answer to a call never dispatched, as promised", _AUTHOR),
    "callee_link": Meaning("error", "a link that breaks the callee rules", _AUTHOR),
    "record_missing": Meaning("error", "a call ran without the dispatch that the header promises", _AUTHOR),
    "reason_mismatch": Meaning("error", "a run's end disagrees with its segment", _AUTHOR),
    "source_mismatch": Meaning("error", "a run's source disagrees with its segment", _AUTHOR),
    "bad_from_link": Meaning("error", "from_link names no peer link before the item", _AUTHOR),
    "link_mismatch": Meaning("error", "a subsession's header names another parent or call than the link", _AUTHOR),
}
"""Every code fsck uses."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found. ``session`` is an id, ``object`` a hash, ``path`` a file or directory; "" stands for none."""

    code: str
    detail: str
    session: str = ""
    object: str = ""
    path: str = ""

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return CODES[self.code].severity

    def to_json(self) -> dict[str, Any]:
        """The members of a finding in the ``fsck`` shape (cli.md)."""
        members = {
            "code": self.code,
            "severity": self.severity,
            "session": self.session,
            "object": self.object,
            "path": self.path,
            "detail": self.detail,
        }
        return {name: _printable(value) for name, value in members.items() if value}


def _printable(text: str) -> str:
    """Text that JSON can carry: a file's name need not be UTF-8."""
    return text.encode(errors="surrogateescape").decode(errors="replace")


class Findings:
    """What one look at one place finds, in order: ``session`` and ``path`` are those of whatever says no other."""

    def __init__(self, session: str, path: str) -> None:
        self.session = session
        self.path = path
        self.all: list[Finding] = []

    def add(self, code: str, detail: str, *, object: str = "", path: str = "") -> None:
        """Note a finding; ``path`` "" is the place's own."""
        self.all.append(Finding(code, detail, self.session, object, path or self.path))

    def has_errors(self, since: int) -> bool:
        """Whether an error is among the findings from number ``since`` on."""
        return any(each.severity == "error" for each in self.all[since:])


@dataclass(frozen=True, slots=True)
class FsckReport:
    """A whole check: sessions, own entries and distinct objects looked at, and everything found."""

    sessions: int
    entries: int
    objects: int
    findings: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing found is an error."""
        return all(each.severity != "error" for each in self.findings)

    def to_json(self) -> dict[str, Any]:
        """The ``fsck`` shape of cli.md, without ``schema``."""
        return {
            "ok": self.ok,
            "sessions": self.sessions,
            "entries": self.entries,
            "objects": self.objects,
            "findings": [each.to_json() for each in self.findings],
        }
