"""The request a recorded response answered, and whether its hash holds (format.md §6, context.md §1).

Owns which items are a response's own output, the context without them, and the verdict on a recorded hash. Everything
else, entries written between two output items included, stays in the context.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from agentsession_cas.core.context import Context, build_context
from agentsession_cas.core.facts import Code
from agentsession_cas.core.normalform import Form
from agentsession_cas.core.reading import text
from agentsession_cas.core.source import EntrySource, walk_back
from agentsession_cas.errors import BadInput, HashMismatch, NoHash, OmitDivergence

__all__ = [
    "Verdict",
    "Verification",
    "output_positions",
    "request_context",
    "request_hash_for",
    "verify_response",
]


class Verdict(Enum):
    """What comparing a recorded request hash with the rebuilt request says."""

    VERIFIED = "verified"
    OTHER_FORM = "other_form"
    """The request matches in another form than the normal one: it is the request, spelled otherwise."""
    NO_HASH = "no_hash"
    OMIT_DIVERGENCE = "omit_divergence"
    """The request matches with the omit in force not applied."""
    MISMATCH = "mismatch"


@dataclass(frozen=True, slots=True)
class Verification:
    """A verdict on one response: the entry, the hashes compared ("" when none was recorded), the form that matched."""

    verdict: Verdict
    entry: str
    recorded: str = ""
    rebuilt: str = ""
    form: Form | None = None

    @property
    def ok(self) -> bool:
        """Whether the request was checked and is the one recorded, in whatever form."""
        return self.verdict in (Verdict.VERIFIED, Verdict.OTHER_FORM)

    def require(self) -> None:
        """Raise NoHash, OmitDivergence or HashMismatch unless the request was checked and is the one recorded."""
        if self.verdict is Verdict.NO_HASH:
            raise NoHash("the response recorded no request hash, so there was nothing to check", where=self.entry)
        if self.verdict is Verdict.OMIT_DIVERGENCE:
            raise OmitDivergence(
                f"the recorded hash {self.recorded} is of the request without the omit in force",
                where=self.entry,
                next_step="apply the omit to what is sent, or clear it before the call",
            )
        if self.verdict is Verdict.MISMATCH:
            raise HashMismatch(
                f"the recorded hash is {self.recorded}, the rebuilt request has {self.rebuilt}",
                where=self.entry,
                next_step="compare the request that was sent with the context at the response",
            )


def output_positions(source: EntrySource, position: int) -> list[int]:
    """The positions of the output items of the response at ``position``, in path order (format.md §6)."""
    return _outputs(source, source.parent(position), text(source.entry(position).body, "response_id"))


def request_context(source: EntrySource, position: int) -> Context:
    """The context of the request that the response at ``position`` answered.

    Raises BadInput when the entry is no response, FirstKept as :func:`~agentsession_cas.core.context.context_at` does.
    """
    _check_response(source, position)
    return build_context(source, source.parent(position), without=frozenset(output_positions(source, position)))


def request_hash_for(source: EntrySource, parent: int, response_id: str) -> str:
    """The hash a response not yet appended would verify with below the entry at ``parent`` (-1: the universal root).

    Items on that path that name ``response_id`` are its output, which a writer appends before it.
    """
    outputs = frozenset(_outputs(source, parent, response_id))
    return build_context(source, parent, without=outputs).request_hash()


def verify_response(source: EntrySource, position: int) -> Verification:
    """Rebuild the request of the response at ``position`` and compare it with the hash it recorded.

    The normal form is tried first, then the others, then the request without the omit in force (openresponses.md §2,
    context.md §1.5). Raises BadInput when the entry is no response, FirstKept when its context cannot be built.
    """
    _check_response(source, position)
    entry = source.entry(position)
    recorded = text(entry.body, "request_hash")
    if not recorded:
        return Verification(Verdict.NO_HASH, entry.id)
    context = request_context(source, position)
    rebuilt = context.request_hash()
    form = _matching_form(context, recorded)
    if form is not None:
        verdict = Verdict.VERIFIED if form is Form.NORMAL else Verdict.OTHER_FORM
    elif context.omitted or context.replaced:
        outputs = frozenset(output_positions(source, position))
        whole = build_context(source, source.parent(position), without=outputs, apply_rules=False)
        form = _matching_form(whole, recorded)
        verdict = Verdict.MISMATCH if form is None else Verdict.OMIT_DIVERGENCE
    else:
        verdict = Verdict.MISMATCH
    return Verification(verdict, entry.id, recorded, rebuilt, form)


def _matching_form(context: Context, recorded: str) -> Form | None:
    return next((form for form in Form if context.request_hash(form) == recorded), None)


def _outputs(source: EntrySource, position: int, response_id: str) -> list[int]:
    """Walk back from ``position``: the items naming the response, up to the first that names another or none."""
    outputs: list[int] = []
    if not response_id:
        return outputs
    for at in walk_back(source, position):
        if source.facts(at).code != Code.ITEM:
            continue
        if source.entry(at).body.get("response") != response_id:
            break
        outputs.append(at)
    outputs.reverse()
    return outputs


def _check_response(source: EntrySource, position: int) -> None:
    if source.facts(position).code != Code.RESPONSE:
        raise BadInput("only a response entry has a request to rebuild", where=source.entry_id(position))
