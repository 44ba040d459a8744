"""Processes beside this one that answer questions: what makes use of the other cores.

Owns how such a process is started, spoken to and ended. It is a fresh interpreter: nothing is forked, so no lock and no
thread of this process is in it, and the program's main module does not run again. Questions and answers are pickles in
pipes that nobody else holds. It hears no Ctrl-C of the terminal, and ends when its pipe does, so with this process,
however that ends. Must not: know what is asked. Whoever asks must be able to do without: any failure is Lost.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO, Final, Protocol

__all__ = ["Lost", "StartWorkers", "Worker", "no_workers", "serve", "start_workers"]

_BOOT: Final = (
    "import pickle, sys\n"
    "path, module, name, given = pickle.load(sys.stdin.buffer)\n"
    "sys.path[:] = path\n"
    "from importlib import import_module\n"
    "from agentsession_cas.effects.workers import serve\n"
    "serve(getattr(import_module(module), name)(*given), sys.stdin.buffer, sys.stdout.buffer)\n"
)


class Lost(Exception):
    """A worker that does not answer, and never will."""


class Worker(Protocol):
    """A process that answers questions, one at a time."""

    def ask(self, question: Any) -> Any:
        """The answer. Raises Lost; any thread may wait for it, one at a time."""

    def end(self) -> None:
        """End the process, also while another thread waits for it; again is a no-op."""


StartWorkers = Callable[[Callable[..., Callable[[Any], Any]], tuple[Any, ...]], list[Worker]]
"""Starts what workers there may be: in each ``make(*given)``, a function of a module, gives what answers."""


class _Process:
    """A worker of the operating system."""

    def __init__(self, setup: bytes) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-B", "-c", _BOOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._setup = setup

    def ask(self, question: Any) -> Any:
        process, setup = self._process, self._setup
        self._setup = b""
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(setup + pickle.dumps(question))
            process.stdin.flush()
            return pickle.load(process.stdout)
        except Exception as error:  # an answer cut off is no pickle, and may raise anything
            raise Lost(str(error)) from error

    def end(self) -> None:
        process = self._process
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with suppress(OSError):
                pipe.close()


def no_workers(make: Callable[..., Callable[[Any], Any]], given: tuple[Any, ...]) -> list[Worker]:  # noqa: ARG001
    """None: for a host that lives in this process alone."""
    return []


def start_workers(count: int, make: Callable[..., Callable[[Any], Any]], given: tuple[Any, ...]) -> list[Worker]:
    """As :data:`StartWorkers`, ``count`` of them; none where no interpreter can be started."""
    if not sys.executable or getattr(sys, "frozen", False):
        return []
    setup = pickle.dumps((sys.path, make.__module__, make.__qualname__, given))
    started: list[Worker] = []
    with suppress(OSError, RuntimeError):  # the latter while this interpreter ends
        for _ in range(count):
            started.append(_Process(setup))
    return started


def serve(answer: Callable[[Any], Any], questions: BinaryIO, answers: BinaryIO) -> None:
    """Answer until nothing is asked any more: what a worker does."""
    while True:
        try:
            question = pickle.load(questions)
        except EOFError:
            return
        pickle.dump(answer(question), answers)
        answers.flush()
