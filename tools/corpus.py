"""Seeded sessions of coding agents, for measuring what keeping them costs: ``python -m tools.corpus DIR``.

The same arguments and the same Python give the same sessions. Several projects, each some real source files that change
as sessions edit them, are worked on by one session after the other. An agent is asked for something, thinks,
reads files (mostly those it read before), searches, edits, runs the tests, reports. So outputs repeat as they do in
life: about three in ten are, letter for letter, one that was there before, and many more are nearly one. One session in
ten forks an earlier one. Prose and new code come out of word chains over the standard library's texts, so that they
compress as text does and do not repeat by themselves; ids are random, times have nanoseconds; requests are recorded
without their hashes. Reads no clock.

Run as a program it writes the sessions as session files into a directory.
"""

from __future__ import annotations

import json
import keyword
import math
import random
import re
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from agentsession_cas import Draft, Store, entry
from agentsession_cas.core.timestamps import ts_from_ns

__all__ = ["Script", "fill", "main", "scripts"]

_EPOCH_NS: Final = 1_767_225_600_000_000_000  # 2026-01-01
_SECOND_NS: Final = 1_000_000_000
_READ_LINES: Final = 250
_AGAIN: Final = 0.8
_FOLLOWS: Final = 0.5
_TOOLS: Final = ("read_file", "grep", "edit_file", "run", "list_dir", "fetch")
_FORKED: Final = 0.1
_ENCRYPTED: Final = 0.1
"""Thoughts that come along encrypted, which nothing compresses."""

_WORD: Final = re.compile(r"[A-Za-z_]{4,}")

Json = dict[str, Any]


class Script(NamedTuple):
    """A session to record. ``base`` is (session, how many of its own entries come before the fork), None for none."""

    id: str
    cwd: str
    created_at: str
    base: tuple[str, int] | None
    drafts: list[Draft]


def scripts(count: int, entries: int, seed: int = 1) -> Iterator[Script]:
    """``count`` sessions of about ``entries`` entries each: some are a quarter as long, some three times."""
    chance = random.Random(seed)
    library = Library()
    chance.shuffle(library.files)
    projects = [Project(library, chance, number) for number in range(max(1, round(count / 8)))]
    lengths: list[tuple[str, int, Project]] = []
    clock = _EPOCH_NS
    for _ in range(count):
        project = chance.choice(projects)
        same = [each for each in lengths if each[2] is project and each[1] > 40]
        base: tuple[str, int] | None = None
        if same and chance.random() < _FORKED:
            origin, length, _ = chance.choice(same)
            base = (origin, int(length * chance.uniform(0.3, 0.95)))
        clock += int(chance.expovariate(1 / 5000) * _SECOND_NS)
        name = f"{chance.getrandbits(128):032x}"
        session = Agent(project, library, chance, clock)
        wanted = max(20, int(entries * min(3.0, chance.lognormvariate(-0.18, 0.6))))
        drafts = session.work(wanted, fork=base is not None)
        yield Script(name, project.root, ts_from_ns(clock), base, drafts)
        lengths.append((name, len(drafts), project))
        clock = session.clock


def fill(store: Store, given: Iterator[Script]) -> Iterator[str]:
    """Record sessions in a store, one after the other; yields the id of each when it is closed."""
    own: dict[str, list[str]] = {}
    for script in given:
        base = own[script.base[0]][script.base[1]] if script.base else ""
        with store.create(
            id=script.id,
            cwd=script.cwd,
            created_at=script.created_at,
            base=base,
            parent_session=script.base[0] if script.base else "",
        ) as session:
            own[script.id] = [session.append(draft, durable=False).id for draft in script.drafts]
        yield script.id


# --- what texts are made of ------------------------------------------------------------------------------------------


class Library:
    """Source files and word chains, read from the standard library."""

    def __init__(self) -> None:
        root = Path(sysconfig.get_path("stdlib"))
        found = [
            path
            for path in sorted(root.rglob("*.py"))
            if "site-packages" not in path.parts and 1_500 <= path.stat().st_size <= 60_000
        ]
        texts = ((path, path.read_text(encoding="utf-8", errors="replace")) for path in found)
        self.files = [(path.relative_to(root).as_posix(), text.splitlines()) for path, text in texts]
        self._topics = (root / "pydoc_data" / "topics.py").read_text(encoding="utf-8", errors="replace")

    @cached_property
    def words(self) -> list[str]:
        """Names that code uses."""
        return sorted({word for _, lines in self.files[::9] for line in lines for word in _WORD.findall(line)})

    @cached_property
    def prose(self) -> Chain:
        """Chains of English words."""
        words = [word for word in self._topics.replace("\\n", " ").split() if word.strip("'\"*.,:;()").isalpha()]
        return Chain(words)

    @cached_property
    def code(self) -> Chain:
        """Chains of words of code; a line's end is a word."""
        words: list[str] = []
        for _, lines in self.files[::7]:
            for line in lines:
                indent = len(line) - len(line.lstrip())
                words += [" " * indent + word if at == 0 else word for at, word in enumerate(line.split())] + ["\n"]
        return Chain(words)


class Chain:
    """Words, and which follow which."""

    def __init__(self, words: list[str]) -> None:
        self._words = words
        self._after: dict[str, list[int]] = {}
        for at, word in enumerate(words[:-1]):
            self._after.setdefault(word, []).append(at + 1)

    def draw(self, chance: random.Random, count: int) -> list[str]:
        """``count`` words, some of them one that follows the one before somewhere."""
        at = chance.randrange(len(self._words) - 1)
        drawn: list[str] = []
        for _ in range(count):
            word = self._words[at]
            drawn.append(word)
            follows = self._after[word] if chance.random() < _FOLLOWS else ()
            at = chance.choice(follows) if follows else chance.randrange(len(self._words) - 1)
        return drawn


# --- what is worked on -----------------------------------------------------------------------------------------------


class Project:
    """Files under work, shared by the sessions of a project, and what every request there says first."""

    def __init__(self, library: Library, chance: random.Random, number: int) -> None:
        self._chance = chance
        self._library = library
        self.root = f"/home/dev/project{number}"
        self._number = number
        self._sources = dict(library.files)
        self._dialect: dict[str, str] = {word: word for word in (*keyword.kwlist, "self")}
        self._files: dict[str, list[str]] = {}
        self.names = [name for name, _ in library.files]
        self.instructions = " ".join(library.prose.draw(chance, 1_400))
        self.tools = [self._tool(name) for name in _TOOLS]

    def _tool(self, name: str) -> Json:
        properties = {
            word: {"type": "string", "description": " ".join(self._library.prose.draw(self._chance, 18))}
            for word in ("path", "pattern", "text")
        }
        return {
            "type": "function",
            "name": name,
            "description": " ".join(self._library.prose.draw(self._chance, 90)),
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": properties,
                "required": ["path"],
                "additionalProperties": False,
            },
        }

    def lines(self, name: str) -> list[str]:
        """A file as it is now. Each project has the files of the library in words of its own."""
        if name not in self._files:
            text = _WORD.sub(self._word, "\n".join(self._sources[name]))
            self._files[name] = text.split("\n")
        return self._files[name]

    def _word(self, found: re.Match[str]) -> str:
        word = found[0]
        if word not in self._dialect:
            self._dialect[word] = self._chance.choice(self._library.words)
        return self._dialect[word]

    def edit(self, name: str) -> tuple[str, str, int]:
        """Change a few lines of a file; returns what was there, what is now, and the first line's number."""
        lines, chance = self.lines(name), self._chance
        at = chance.randrange(max(1, len(lines) - 12))
        old = lines[at : at + chance.randint(2, 9)]
        new = list(old)
        drawn = "".join(
            word if word == "\n" else f"{word} " for word in self._library.code.draw(chance, chance.randint(10, 220))
        )
        new[chance.randrange(len(new)) :] = [line.rstrip() for line in drawn.split("\n")]
        lines[at : at + len(old)] = new
        return "\n".join(old), "\n".join(new), at + 1


# --- who works -------------------------------------------------------------------------------------------------------


@dataclass
class Agent:
    """One session as it goes. ``clock`` is nanoseconds since 1970."""

    project: Project
    library: Library
    chance: random.Random
    clock: int
    drafts: list[Draft] = field(default_factory=list)
    recent: list[str] = field(default_factory=list)
    tokens: int = 9_000

    def work(self, count: int, *, fork: bool) -> list[Draft]:
        """At least ``count`` entries, up to the end of a turn."""
        if not fork:
            self._add(self._config(), 0.01)
        while len(self.drafts) < count:
            self._turn()
        return self.drafts

    def _add(self, draft: Draft, seconds: float) -> None:
        self.clock += int(self.chance.lognormvariate(math.log(seconds), 0.7) * _SECOND_NS) + self.chance.randrange(1000)
        self.drafts.append(Draft(draft.type, draft.body, ts=ts_from_ns(self.clock)))

    def _config(self) -> Draft:
        return entry.config(
            model="gpt-5.1-codex",
            instructions=self.project.instructions,
            reasoning={"effort": "medium", "summary": "auto"},
            tools_added=self.project.tools,
            extra={"parallel_tool_calls": True, "max_output_tokens": 32_000},
            replace=True,
        )

    def _turn(self) -> None:
        self._add(entry.user(self._prose(60, 1.0)), 90.0)
        for _ in range(max(1, int(self.chance.lognormvariate(2.0, 0.6)))):
            self._model_call(calls=1 + (self.chance.random() < 0.4))
        self._model_call(calls=0)

    def _model_call(self, calls: int) -> None:
        response = self._id("resp_", 50)
        if self.chance.random() < 0.5:
            self._add(entry.item(self._reasoning(), response=response), 4.0)
        if not calls or self.chance.random() < 0.35:
            self._add(entry.item(self._message(260 if not calls else 40), response=response), 2.0)
        made = [self._call() for _ in range(calls)]
        for call, _ in made:
            self._add(entry.item(call, response=response), 0.4)
        self._add(self._response(response), 0.05)
        for call, output in made:
            failed = output.startswith("error:")
            self._add(entry.function_call_output(call["call_id"], output, failed=failed), 0.3)
            self.tokens += len(output) // 4

    def _reasoning(self) -> Json:
        summary = [{"type": "summary_text", "text": self._prose(70, 0.7)}]
        thought: Json = {"type": "reasoning", "id": self._id("rs_", 50), "summary": summary}
        if self.chance.random() < _ENCRYPTED:
            thought["encrypted_content"] = self._secret(int(self.chance.lognormvariate(6.6, 0.5)))
        return thought

    def _secret(self, size: int) -> str:
        alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        return "gAAAAAB" + "".join(self.chance.choices(alphabet, k=size))

    def _message(self, words: int) -> Json:
        content = [{"type": "output_text", "text": self._prose(words, 0.6), "annotations": []}]
        return {
            "type": "message",
            "role": "assistant",
            "id": self._id("msg_", 50),
            "status": "completed",
            "content": content,
        }

    def _response(self, response: str) -> Draft:
        self.tokens += self.chance.randint(50, 900)
        spent = self.chance.randint(30, 1_500)
        return entry.response(
            response_id=response,
            model="gpt-5.1-codex",
            status="completed",
            usage={
                "input_tokens": self.tokens,
                "input_tokens_details": {"cached_tokens": self.tokens // 128 * 128},
                "output_tokens": spent,
                "output_tokens_details": {"reasoning_tokens": spent // 3},
                "total_tokens": self.tokens + spent,
            },
            latency_ms=self.chance.randint(600, 30_000),
        )

    def _call(self) -> tuple[Json, str]:
        """A call, and what will come of it."""
        kind = self.chance.choices(_TOOLS, (40, 13, 17, 16, 3, 11))[0]
        arguments, output = getattr(self, f"_{kind}")()
        call = {
            "type": "function_call",
            "id": self._id("fc_", 50),
            "call_id": self._id("call_", 24),
            "name": kind,
            "arguments": json.dumps(arguments),
            "status": "completed",
        }
        return call, output

    def _file(self) -> str:
        """A file to look at: mostly one of the last few, else one not seen for long, if ever."""
        if self.recent and self.chance.random() < _AGAIN:
            return self.chance.choice(self.recent[-10:])
        name = self.chance.choice(self.project.names)
        self.recent.append(name)
        return name

    def _read_file(self) -> tuple[Json, str]:
        name = self._file()
        lines = self.project.lines(name)
        first, count = 1, _READ_LINES
        if self.chance.random() < 0.3:
            first, count = self.chance.randrange(1, max(2, len(lines)), 100), self.chance.choice((100, 200))
        shown = lines[first - 1 : first - 1 + count]
        text = "\n".join(f"{number:6}\t{line}" for number, line in enumerate(shown, first))
        return {"path": f"{self.project.root}/{name}", "offset": first, "limit": count}, text

    def _grep(self) -> tuple[Json, str]:
        name = self._file()
        words = [word for line in self.project.lines(name)[:300] for word in line.split() if len(word) > 5]
        wanted = self.chance.choice(words or ["import"])
        hits = [
            f"{path}:{number}:{line}"
            for path in dict.fromkeys((name, *self.recent[-12:]))
            for number, line in enumerate(self.project.lines(path), 1)
            if wanted in line
        ]
        return {"path": self.project.root, "pattern": wanted}, "\n".join(hits[:60])

    def _edit_file(self) -> tuple[Json, str]:
        name = self._file()
        old, new, at = self.project.edit(name)
        arguments = {"path": f"{self.project.root}/{name}", "old": old, "new": new}
        if self.chance.random() < 0.5:
            return arguments, f"The file {self.project.root}/{name} has been updated."
        lines = self.project.lines(name)
        shown = range(max(1, at - 3), min(len(lines), at + new.count("\n") + 4) + 1)
        return arguments, "Updated:\n" + "\n".join(f"{number:6}\t{lines[number - 1]}" for number in shown)

    def _run(self) -> tuple[Json, str]:
        if self.chance.random() < 0.7:
            command, output = self.chance.choice(
                (
                    ("git status --short", " M src/main.py\n M src/store.py\n?? notes.txt"),
                    ("ruff check .", "All checks passed!"),
                    ("mypy src", "Success: no issues found in 41 source files"),
                    ("git diff --stat", " src/main.py | 12 ++++++---\n 1 file changed, 9 insertions(+)"),
                )
            )
            return {"command": command}, output
        files = self.chance.sample(self.project.names, 12)
        lines = [f"tests/test_{Path(name).stem}.py {'.' * self.chance.randint(3, 60)} [100%]" for name in sorted(files)]
        if self.chance.random() < 0.4:
            name = self._file()
            at = self.chance.randrange(max(1, len(self.project.lines(name)) - 20))
            lines += ["=" * 34 + " FAILURES " + "=" * 35, *self.project.lines(name)[at : at + 20], "E   AssertionError"]
        lines.append(f"{self.chance.randint(20, 400)} passed in {self.chance.uniform(0.5, 60):.2f}s")
        return {"command": "pytest -q"}, "\n".join(lines)

    def _list_dir(self) -> tuple[Json, str]:
        top = self._file().rpartition("/")[0]
        names = sorted(name for name in self.project.names if name.rpartition("/")[0] == top)
        return {"path": f"{self.project.root}/{top}"}, "\n".join(names)

    def _fetch(self) -> tuple[Json, str]:
        return {"url": f"https://example.org/{self.chance.getrandbits(32):x}"}, self._prose(1500, 0.8)

    def _prose(self, words: int, spread: float) -> str:
        count = max(3, int(self.chance.lognormvariate(math.log(words), spread)))
        return " ".join(self.library.prose.draw(self.chance, count))

    def _id(self, prefix: str, digits: int) -> str:
        return f"{prefix}{self.chance.getrandbits(4 * digits):0{digits}x}"


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("--sessions", default=40, type=click.IntRange(1), help="How many sessions (40).")
@click.option("--entries", default=600, type=click.IntRange(20), help="Entries of a typical session (600).")
@click.option("--seed", default=1, help="Another seed, other sessions (1).")
def main(directory: Path, sessions: int, entries: int, seed: int) -> None:
    """Write seeded sessions of coding agents as session files into DIRECTORY."""
    directory.mkdir(parents=True, exist_ok=True)
    with Store.memory() as store:
        for name in fill(store, scripts(sessions, entries, seed)):
            store.project(name, directory / f"{name}.jsonl")


if __name__ == "__main__":
    main()
