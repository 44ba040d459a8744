"""Every error this package raises, as one tree under :class:`AgentSessionError`.

A class has a stable ``code`` (the name scripts match on), an ``exit_status`` (what the command line exits with, cli.md)
and an ``http_status``. An instance says what was wrong, ``where``, and what to do ``next``. Nothing else in the package
defines an error, and nothing here imports anything.
"""

from __future__ import annotations

from typing import ClassVar, Final

__all__ = [
    "AgentSessionError",
    "AnswerNotDispatched",
    "AppendConflict",
    "BadBlob",
    "BadConfig",
    "BadConvergence",
    "BadEntry",
    "BadFile",
    "BadFromLink",
    "BadHeader",
    "BadID",
    "BadInput",
    "BadJSON",
    "BadNormalisation",
    "BadRedacted",
    "BadTarget",
    "BadTimestamp",
    "BadWithdrawal",
    "BaseRule",
    "BlobMismatch",
    "CallAnswered",
    "CallCompleted",
    "CallIDEmpty",
    "CallIDRepeated",
    "CallRejected",
    "CalleeLink",
    "Changed",
    "Closed",
    "CommitError",
    "ContinuationCycle",
    "ConversationClosed",
    "Corrupt",
    "Damaged",
    "DiskError",
    "DiskFull",
    "FileTaken",
    "FirstKept",
    "HashMismatch",
    "HeadMoved",
    "HeadTarget",
    "HeaderDiffers",
    "InstructionsJoin",
    "InvalidAppendId",
    "InvalidBatch",
    "InvalidConversationId",
    "InvalidReceipt",
    "InvalidWindow",
    "KeyCollision",
    "LimitExceeded",
    "LinkMismatch",
    "MediaDiffers",
    "MirrorError",
    "NoBlob",
    "NoEntry",
    "NoFile",
    "NoHash",
    "NoObject",
    "NoPlace",
    "NoRaise",
    "NoRef",
    "NoRemote",
    "NoSession",
    "NoStore",
    "NotGit",
    "NotRedacted",
    "NotRegular",
    "OmitDivergence",
    "OriginChain",
    "ProfileDiffers",
    "ReadOnly",
    "ReasonMismatch",
    "RecordMissing",
    "RedactedFrom",
    "RefMoved",
    "RefName",
    "RejectDispatched",
    "RemoteExists",
    "ReservedMember",
    "ScanMigrated",
    "SessionExists",
    "SessionLocked",
    "SourceMismatch",
    "StaleOriginal",
    "StoreExists",
    "StoreLocked",
    "Superseded",
    "SyntheticLabel",
    "TooManyFiles",
    "Truncated",
    "UnresolvedMigration",
    "UnsupportedFormat",
    "UnsupportedSystem",
    "Usage",
    "WindowTooSmall",
    "WriterPoisoned",
]

_POINTER_MAX: Final = 120
"""Characters of a pointer that a message shows."""


class AgentSessionError(Exception):
    """Base of every error here.

    ``what`` says what was wrong, ``where`` the place (a path, a line, an entry, a pointer), ``next_step`` what to do.
    ``code`` is stable; ``exit_status`` is the command line's exit code (cli.md).
    """

    code: ClassVar[str] = "error"
    exit_status: ClassVar[int] = 1
    http_status: ClassVar[int] = 400
    advice: ClassVar[str] = ""
    """The next step where whoever raises the error names none."""
    line: int = 0
    """The 1-based line of the file being read, 0 when the error is about no file."""

    def __init__(self, what: str, *, where: str = "", next_step: str = "") -> None:
        super().__init__(what, where, next_step)
        self.what = what
        self.where = where
        self.next_step = next_step or self.advice

    def __str__(self) -> str:
        place = self._place()
        text = f"{self.what} ({place})" if place else self.what
        return f"{text}; {self.next_step}" if self.next_step else text

    def _place(self) -> str:
        """``where`` as the message has it."""
        return self.where


# --- bad input -------------------------------------------------------------------------------------------------------


class BadInput(AgentSessionError):
    """What the caller handed over cannot be used."""

    code = "bad_input"


class Usage(BadInput):
    """A command or an argument that makes no sense."""

    code = "usage"
    exit_status = 2


class PointedAt(BadInput):
    """What is wrong at an RFC 6901 pointer, with which ``where`` ends. The message has a long one shortened."""

    code = "pointed_at"

    def __init__(self, what: str, *, where: str = "", next_step: str = "") -> None:
        super().__init__(what, where=where, next_step=next_step)
        self._pointer = where

    def _place(self) -> str:
        pointer = self._pointer
        if len(pointer) <= _POINTER_MAX or not self.where.endswith(pointer):
            return self.where
        half = _POINTER_MAX // 2
        return f"{self.where.removesuffix(pointer)}{pointer[:half]}…{pointer[-half:]}"


class BadJSON(PointedAt):
    """Bytes that are not JSON, or fail the I-JSON test (format.md §4): ``where`` holds the RFC 6901 pointer."""

    code = "bad_json"
    advice = "give what JSON can carry"


class LimitExceeded(PointedAt):
    """Past a limit of format.md §4: nesting over 256 levels, a line over 256 MiB."""

    code = "limit_exceeded"
    http_status = 413
    advice = "break a cycle, or keep deep or large data as a blob"


class BadTimestamp(BadInput):
    """A time that is no RFC 3339 time, or a ``ts`` in another than its one spelling (format.md §4)."""

    code = "bad_timestamp"


class BadHeader(BadInput):
    """A header that lacks a required member or holds one of the wrong kind (format.md §3)."""

    code = "bad_header"


class BadEntry(BadInput):
    """An entry that lacks a required member, or whose type is in no namespace (format.md §5)."""

    code = "bad_entry"
    advice = "the README lists what each type of entry holds"


class ReservedMember(BadEntry):
    """A body with a top-level member by one of the envelope's names (format.md §4)."""

    code = "reserved_member"
    advice = "give it another name"


class SyntheticLabel(BadEntry):
    """An append of a ``synthetic`` label: only a projection writes one (store.md A10)."""

    code = "synthetic_label"
    advice = "leave synthetic out"


class BadID(BadInput):
    """An id that is not the hash of its entry, or a ``ts`` in another spelling beside it (format.md §4)."""

    code = "bad_id"
    advice = "leave id, parent and ts out to have them filled in"
    exit_status = 3


class BadNormalisation(BadInput):
    """A ``normalised`` member the format cannot carry (format.md §4)."""

    code = "bad_normalisation"


class BadConvergence(BadInput):
    """``parents`` that break the convergence rules (format.md §4)."""

    code = "bad_convergence"


class UnsupportedFormat(BadInput):
    """A header naming a format, or a payload, this package does not read (format.md §11)."""

    code = "unsupported_format"
    advice = "use a release that reads it"
    exit_status = 3


class NoRaise(UnsupportedFormat):
    """A header that may not be raised to 0.13 or later (format.md §10)."""

    code = "no_raise"


class UnresolvedMigration(BadInput):
    """A file before 0.5 with entries that could not be rewritten (format.md §11)."""

    code = "unresolved_migration"


class ScanMigrated(BadInput):
    """A scan of a file before 0.5, which has no hashed ids to verify; read it."""

    code = "scan_migrated"


class RedactedFrom(BadHeader):
    """A malformed ``redacted_from`` (format.md §3)."""

    code = "redacted_from"


class BadRedacted(BadInput):
    """``redacted`` spans in another form than the format's (format.md §10)."""

    code = "bad_redacted"


class NotRedacted(BadInput):
    """What was not redacted where only that may be, or what no redaction reaches (format.md §10)."""

    code = "not_redacted"


class InstructionsJoin(BadInput):
    """Rewritten instructions that cannot be shown to be their parts joined."""

    code = "instructions_join"


class KeyCollision(BadInput):
    """A rewrite that makes two member names one."""

    code = "key_collision"


class NoPlace(BadInput):
    """A member naming one entry with nothing in the place of the entry left out."""

    code = "no_place"


class StaleOriginal(BadInput):
    """The store's copy of the original is behind the version redacted."""

    code = "stale_original"


class NotGit(BadInput):
    """A directory that is in no git checkout."""

    code = "not_git"


class BadConfig(BadInput):
    """A ``config.toml`` that does not read, or is not written as it has to be."""

    code = "bad_config"


class BadBlob(BadInput):
    """A blob name that is no hash."""

    code = "bad_blob"


class BlobMismatch(BadInput):
    """A sidecar blob that does not hash to its name (store.md A10)."""

    code = "blob_mismatch"
    exit_status = 3


class MediaDiffers(BadInput):
    """A fork whose media form differs from that of the session owning its base (store.md A2)."""

    code = "media_differs"


class BadFile(BadInput):
    """A session file with a line that is malformed: ``where`` names the line (format.md §2)."""

    code = "bad_file"
    advice = "is this a session file?"
    exit_status = 3


class Truncated(BadFile):
    """A session file whose last line was cut short, where a whole file is required (store.md A10)."""

    code = "truncated"


class FirstKept(BadInput):
    """A compaction whose ``first_kept`` is not on its path before it (context.md §1.5)."""

    code = "first_kept"
    exit_status = 3


# --- record rules (format.md §9) -------------------------------------------------------------------------------------


class RecordRule(BadInput):
    """A record rule of format.md §9 that an entry breaks."""

    code = "record_rule"
    http_status = 409


class CallIDEmpty(RecordRule):
    """A function call with no call_id."""

    code = "call_id_empty"


class CallIDRepeated(RecordRule):
    """A function call whose call_id another one of the session has, on any branch."""

    code = "call_id_repeated"


class BadTarget(RecordRule):
    """A decision or dispatch whose target is not the function call with its call_id on the path."""

    code = "bad_target"


class CallAnswered(RecordRule):
    """A decision or dispatch after the answer to its call."""

    code = "call_answered"


class CallRejected(RecordRule):
    """A decision or dispatch after the reject of its call."""

    code = "call_rejected"


class BadWithdrawal(RecordRule):
    """A reject with ``withdrawn`` that does not directly follow a dispatch of its call."""

    code = "bad_withdrawal"


class RejectDispatched(RecordRule):
    """A reject for a call that was dispatched."""

    code = "reject_dispatched"


class CallCompleted(RecordRule):
    """An answer, a reject or a dispatch for a call that has its output."""

    code = "call_completed"


class AnswerNotDispatched(RecordRule):
    """An answer for a call that the record shows never started."""

    code = "answer_not_dispatched"


class CalleeLink(RecordRule):
    """A callee link or cancel notice the format does not allow."""

    code = "callee_link"


class Superseded(RecordRule):
    """A session that was already continued in a successor."""

    code = "superseded"


class RecordMissing(RecordRule):
    """A promised record that is missing where its event plainly happened."""

    code = "record_missing"


class ReasonMismatch(RecordRule):
    """A run end whose reason or pending list disagrees with its segment."""

    code = "reason_mismatch"


class SourceMismatch(RecordRule):
    """A run start whose source disagrees with its segment."""

    code = "source_mismatch"


class BadFromLink(RecordRule):
    """An item whose ``from_link`` names no peer link before it."""

    code = "bad_from_link"


class LinkMismatch(RecordRule):
    """A subsession link that disagrees with its target's header."""

    code = "link_mismatch"


# --- request hashes --------------------------------------------------------------------------------------------------


class NoHash(AgentSessionError):
    """A response that recorded no request hash: there was nothing to check."""

    code = "no_hash"


class HashMismatch(AgentSessionError):
    """A recorded request hash that the rebuilt request does not have (format.md §6)."""

    code = "hash_mismatch"
    exit_status = 3


class OmitDivergence(HashMismatch):
    """A recorded request hash that is the request without the omit in force applied (format.md §6)."""

    code = "omit_divergence"


# --- what is not there -----------------------------------------------------------------------------------------------


class NotFound(AgentSessionError):
    """Something named that is not there."""

    code = "not_found"
    http_status = 404


class NoStore(NotFound):
    """A path that holds no store."""

    code = "no_store"
    exit_status = 10


class NoSession(NotFound):
    """A session the store does not hold.

    ``target`` is what a dangling ref holds (store.md A6), a ``RefTarget``; None when no ref led here.
    """

    code = "no_session"
    advice = "name one that the store lists"

    def __init__(
        self, what: str, *, target: tuple[str, str] | None = None, where: str = "", next_step: str = ""
    ) -> None:
        super().__init__(what, where=where, next_step=next_step)
        self.target = target


class NoEntry(NotFound):
    """An entry the session does not hold."""

    code = "no_entry"
    advice = "name an entry the session holds"


class BaseRule(NoEntry):
    """An entry, or a head, that breaks the base rule (format.md §4)."""

    code = "base_rule"
    advice = "name the base, or an entry after it"
    exit_status = 3
    http_status = 400


class NoBlob(NotFound):
    """A blob the store does not hold."""

    code = "no_blob"
    advice = "put the blob first"


class NoObject(NotFound):
    """An object the store does not hold."""

    code = "no_object"
    advice = "run fsck to see what else is missing"


class NoRef(NotFound):
    """A ref the store does not hold."""

    code = "no_ref"
    advice = "name one that the store lists"


class NoRemote(NotFound):
    """A remote the store does not know, whose name is no path to a store either."""

    code = "no_remote"
    advice = "add it: remote add NAME PATH, or name a path"


class ContinuationCycle(AgentSessionError):
    """Sessions continued in one another in a circle: none of them is the current one (store.md A6)."""

    code = "continuation_cycle"


class OriginChain(AgentSessionError):
    """A chain of forks that does not end."""

    code = "origin_chain"


# --- conflicts -------------------------------------------------------------------------------------------------------


class Conflict(AgentSessionError):
    """Somebody else got there first."""

    code = "conflict"
    exit_status = 4
    http_status = 409


class SessionExists(Conflict):
    """A session id the store already holds."""

    code = "session_exists"


class StoreExists(Conflict):
    """A directory that already holds a store, or something else."""

    code = "store_exists"


class RemoteExists(Conflict):
    """A remote of a name that is taken, for another place."""

    code = "remote_exists"


class HeadMoved(Conflict):
    """A head that is not the expected entry. ``current`` is the head held ("" for the universal root)."""

    code = "head_moved"

    def __init__(self, what: str, *, current: str, where: str = "", next_step: str = "") -> None:
        super().__init__(what, where=where, next_step=next_step)
        self.current = current


class HeadTarget(BadInput):
    """A head move to a leaf label, on which the head never rests."""

    code = "head_target"


class HeaderDiffers(Conflict):
    """A held id with another header (store.md A11)."""

    code = "header_differs"


class Changed(Conflict):
    """What the other side of an exchange held when it was asked is there no more, however often it is asked again."""

    code = "changed"


class ProfileDiffers(Conflict):
    """A redacted session that holds what its profile's rules, as they are now, do not give (format.md §10)."""

    code = "profile_differs"


class RefMoved(Conflict):
    """A ref that does not hold the expected target. ``current`` is the ``RefTarget`` it holds, None for no ref.

    ``successor`` is the id of the session that a continuation made before it found the ref moved, else "".
    """

    code = "ref_moved"

    def __init__(self, what: str, *, current: tuple[str, str] | None, where: str = "", next_step: str = "") -> None:
        super().__init__(what, where=where, next_step=next_step)
        self.current = current
        self.successor = ""


class RefName(BadInput):
    """A name that is no ref name, or conflicts with a ref the store holds (store.md A6)."""

    code = "ref_name"


class MirrorError(Conflict):
    """A local append to, or a head move of, a mirror (store.md A11)."""

    code = "mirror"
    exit_status = 1


# --- handles and locks -----------------------------------------------------------------------------------------------


class Closed(AgentSessionError):
    """A handle used after it was closed, or in a child process that inherited it."""

    code = "closed"


class ReadOnly(AgentSessionError):
    """A write to a store opened read-only."""

    code = "read_only"
    http_status = 403


class SessionLocked(AgentSessionError):
    """A session another writer holds. ``session`` names it, ``holder`` says who holds it ("" when unknown)."""

    code = "session_locked"
    exit_status = 11
    http_status = 423

    def __init__(self, what: str, *, session: str, holder: str = "", where: str = "", next_step: str = "") -> None:
        super().__init__(what, where=where, next_step=next_step)
        self.session = session
        self.holder = holder


class StoreLocked(AgentSessionError):
    """The store-wide lock could not be taken."""

    code = "store_locked"
    exit_status = 11
    http_status = 423


class WriterPoisoned(AgentSessionError):
    """A writer whose write or sync failed half-way: reopen the session (store.md A5)."""

    code = "writer_poisoned"
    http_status = 500


# --- the disk --------------------------------------------------------------------------------------------------------


class DiskError(AgentSessionError):
    """The operating system refused an operation (EIO and the like). ``where`` names the operation and the path."""

    code = "disk_error"
    http_status = 500


class DiskFull(DiskError):
    """No space left, or a quota reached."""

    code = "disk_full"
    http_status = 507


class TooManyFiles(DiskError):
    """The process or the system has no file descriptor left."""

    code = "too_many_files"


class NoFile(DiskError):
    """A path that leads to nothing."""

    code = "no_file"
    advice = "check the path"


class FileTaken(DiskError):
    """A name that is taken where a new one was to be made, or a directory that is not empty."""

    code = "file_exists"


class NotRegular(DiskError):
    """A path that is not the kind of file it has to be."""

    code = "not_regular"
    advice = "check the path"


class UnsupportedSystem(AgentSessionError):
    """An operating system without the calls the store is built on (store.md Part B, File systems)."""

    code = "unsupported_system"
    http_status = 500


# --- integrity -------------------------------------------------------------------------------------------------------


class Corrupt(AgentSessionError):
    """Bytes that do not hash to their name, or do not decode: never served (store.md A1)."""

    code = "corrupt"
    advice = "run fsck to see what is damaged"
    exit_status = 3
    http_status = 500


class Damaged(Corrupt):
    """A session whose files are damaged, not merely cut short: ``where`` names session, file and offset (A5)."""

    code = "damaged"
    advice = "run repair, with --dry-run to see what it would keep; no other session is affected"


# --- conversations (history.md) --------------------------------------------------------------------------------------


class InvalidConversationId(BadInput):
    """A text that can name no conversation."""

    code = "invalid_conversation_id"


class InvalidAppendId(BadInput):
    """A text that can name no append."""

    code = "invalid_append_id"


class InvalidBatch(BadInput):
    """Messages that are no batch."""

    code = "invalid_batch"


class InvalidReceipt(BadInput):
    """A receipt that is not that batch's."""

    code = "invalid_receipt"


class AppendConflict(Conflict):
    """An append id that already names other messages."""

    code = "append_conflict"


class ConversationClosed(Conflict):
    """An append to a conversation that was cleared, which no retry brings back."""

    code = "conversation_closed"


class InvalidWindow(BadInput):
    """A window of less than one message."""

    code = "invalid_window"


class WindowTooSmall(BadInput):
    """A window into which the newest turn does not fit, which is never split."""

    code = "window_too_small"


class CommitError(AgentSessionError):
    """A model answered, and the answer could not be kept: append ``batch`` again, and do not ask the model again.

    ``response`` is what the model gave, whole; ``receipt`` that the batch is kept for all that went wrong, or None.
    """

    code = "commit_failed"

    def __init__(
        self,
        what: str,
        *,
        batch: object,
        response: object,
        receipt: object = None,
        where: str = "",
        next_step: str = "",
    ) -> None:
        super().__init__(what, where=where, next_step=next_step)
        self.batch = batch
        self.response = response
        self.receipt = receipt
