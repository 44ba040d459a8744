"""A seeded session as agents write them: calls, their outputs, messages, now and then the whole configuration.

The same seed and the same Python give the same drafts. Text is cut from the standard library's sources, so that it
compresses like text. Bodies have a median near 0.7 KB, a mean near 2.5 KB and a long tail up to 50 KB; a third of the
steps are messages, the others a call and its output; three outputs in ten say again what an earlier one said; every
hundredth entry is a config of about 29 KB. Reads no clock and touches no disk but those sources.
"""

from __future__ import annotations

import math
import random
import sysconfig
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from statistics import mean, median
from typing import Any, Final

from agentsession_cas import Draft, entry
from agentsession_cas.core.canonical import canonical

__all__ = ["CONFIG_EVERY", "Cuttings", "drafts", "sizes", "stream"]

CONFIG_EVERY: Final = 100
_TEXT_MAX: Final = 48_000
_TOOLS: Final = 24
_MESSAGE_STEPS: Final = 1 / 3
_REPEATED: Final = 0.3

Json = dict[str, Any]


def drafts(count: int, seed: int = 1) -> list[Draft]:
    """``count`` entries to append one after the other, below the universal root."""
    return list(islice(stream(seed), count))


def stream(seed: int = 1) -> Iterator[Draft]:
    """The entries of :func:`drafts`, without end."""
    return _steps(_Writer(random.Random(seed)))


def sizes(given: Sequence[Draft]) -> dict[str, int]:
    """What the canonical bodies weigh, in bytes: median, mean, p90, p99 and the largest."""
    found = sorted(len(canonical(draft.body)) for draft in given)
    return {
        "median": int(median(found)),
        "mean": int(mean(found)),
        "p90": found[len(found) * 9 // 10],
        "p99": found[len(found) * 99 // 100],
        "max": found[-1],
    }


def _steps(writer: _Writer) -> Iterator[Draft]:
    waiting: list[Draft] = []
    number = 0
    while True:
        if number % CONFIG_EVERY == 0:
            yield writer.config()
        else:
            waiting = waiting or writer.step()
            yield waiting.pop(0)
        number += 1


class Cuttings:
    """Texts cut from the standard library's sources, and tokens, as a source of chance has them."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
        self._text = "".join(path.read_text(encoding="utf-8", errors="replace") for path in files)

    def _cut(self, size: int) -> str:
        at = self._chance.randrange(len(self._text) - size)
        return self._text[at : at + size]

    def _token(self, digits: int) -> str:
        return f"{self._chance.getrandbits(4 * digits):0{digits}x}"


class _Writer(Cuttings):
    """Draws drafts from a source of chance."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._outputs: list[str] = []
        self._calls = 0

    def step(self) -> list[Draft]:
        """A message, or a call and its output."""
        if self._chance.random() < _MESSAGE_STEPS:
            return [self._message()]
        self._calls += 1
        call_id = f"call_{self._token(16)}{self._calls}"
        return [self._call(call_id), entry.function_call_output(call_id, self._output())]

    def config(self) -> Draft:
        """Every setting of a request, most of it tools and instructions."""
        tools = [
            {
                "type": "function",
                "name": f"tool_{number}",
                "description": self._cut(400),
                "strict": True,
                "parameters": {
                    "type": "object",
                    "properties": {f"p{at}": {"type": "string", "description": self._cut(90)} for at in range(3)},
                    "required": ["p0"],
                    "additionalProperties": False,
                },
            }
            for number in range(_TOOLS)
        ]
        return entry.config(
            model="gpt-5.1",
            instructions=self._cut(5_600),
            reasoning={"effort": "medium", "summary": "auto"},
            tools_added=tools,
            extra={"temperature": 1.0, "top_p": 0.95, "parallel_tool_calls": True},
            replace=True,
        )

    def _call(self, call_id: str) -> Draft:
        arguments = {"path": f"/src/{self._token(8)}.py", "text": self._cut(self._size(130, 1.35))}
        call = {
            "type": "function_call",
            "id": f"fc_{self._token(48)}",
            "call_id": call_id,
            "name": f"tool_{self._chance.randrange(_TOOLS)}",
            "arguments": canonical(arguments).decode(),
            "status": "completed",
        }
        return entry.item(call, response=f"resp_{self._token(48)}")

    def _output(self) -> str:
        if self._outputs and self._chance.random() < _REPEATED:
            return self._chance.choice(self._outputs)
        output = self._cut(self._size(1_450, 1.55))
        self._outputs.append(output)
        return output

    def _message(self) -> Draft:
        text = self._cut(self._size(530, 1.3))
        if self._chance.random() < 0.25:
            return entry.user(text)
        message = {
            "type": "message",
            "role": "assistant",
            "id": f"msg_{self._token(48)}",
            "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": []}],
        }
        return entry.item(message, response=f"resp_{self._token(48)}")

    def _size(self, typical: int, spread: float) -> int:
        return min(int(self._chance.lognormvariate(math.log(typical), spread)), _TEXT_MAX)
