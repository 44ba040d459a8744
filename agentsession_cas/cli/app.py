"""The command ``agentsession-cas``: its verbs, the options every verb takes, and how it ends (cli.md).

Owns exit codes and the one line an error is. A verb's module loads when the verb is used, so that ``--help`` starts at
once; this module and the verbs' declarations import nothing of the store. Must not: decide anything about sessions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from agentsession_cas import __version__
from agentsession_cas.cli import EXIT_INTERRUPTED
from agentsession_cas.cli.output import ClosedPipe, Output, drop_stdout, safe, settle_streams, writing

if TYPE_CHECKING:
    from agentsession_cas.core.tree import Session
    from agentsession_cas.errors import AgentSessionError
    from agentsession_cas.store import Store

__all__ = ["EXIT_FAILURE", "EXIT_INTEGRITY", "App", "Damage", "cli", "command", "given", "report", "run"]

PROGRAM: Final = "agentsession-cas"
EXIT_FAILURE: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTEGRITY: Final = 3

_VERBS: Final = {
    "init": ("files", "Make a store."),
    "import": ("files", "Take session files into the store."),
    "project": ("files", "Write a session out as a file."),
    "blob": ("files", "Keep and fetch media by hash."),
    "list": ("sessions", "List sessions, newest first."),
    "head": ("sessions", "Show or move the head of a session."),
    "fork": ("sessions", "Begin a session that continues from an entry of another."),
    "continue": ("continuing", "Roll a session over into a successor."),
    "refs": ("refs", "List names and what they stand for."),
    "ref": ("refs", "Show, move or delete a name."),
    "delete": ("sessions", "Remove a session."),
    "append": ("sessions", "Append entries from stdin."),
    "remote": ("exchange", "Name other stores."),
    "push": ("exchange", "Bring sessions to another store."),
    "fetch": ("exchange", "Bring sessions from another store."),
    "clone": ("exchange", "Make a store with every session of another."),
    "redact": ("redact", "Make or grow a redacted copy of a session."),
    "show": ("look", "Read a session as a conversation."),
    "log": ("look", "List the entries of a session, newest first."),
    "cat": ("cat", "Print an entry, a body or a blob by its hash."),
    "diff": ("diff", "Compare two sessions, or two points of one."),
    "context": ("look", "Show what a model call receives."),
    "calls": ("look", "Show what happened to each tool call."),
    "runs": ("look", "Show the runs of the harness loop."),
    "queue": ("look", "Show accepted inputs that are still owed."),
    "follow": ("follow", "Watch a session being written."),
    "verify": ("check", "Check sessions or files: ids, requests, records."),
    "fsck": ("check", "Check everything the store holds."),
    "stats": ("check", "Count what the store holds, and its bytes."),
    "repair": ("repair", "Make damaged sessions open and read again."),
    "repack": ("keep", "Keep packs few, or make the store small."),
    "sweep": ("keep", "Give back the space of what nobody needs."),
    "gc": ("keep", "Pack, sweep and repack: all that keeps a store small."),
}
"""Each verb: the module that has it, and what it does in a line."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


class App:
    """What the options before and behind a verb said, and the way to the store."""

    def __init__(self) -> None:
        self.store_path = ""
        self.as_json = False
        self.quiet = False
        self.progress = True
        self.allow_network_fs = False

    @cached_property
    def out(self) -> Output:
        """Where the answer goes."""
        return Output(as_json=self.as_json, quiet=self.quiet, progress=self.progress)

    def store(self, *, write: bool = False) -> Store:
        """The store to use, closed when the verb is done. Raises NoStore."""
        from agentsession_cas.cli.resolve import open_store

        store = open_store(self.store_path, write=write, allow_network_fs=self.allow_network_fs)
        click.get_current_context().call_on_close(store.close)
        return store

    def store_beside(self, argument: str) -> Store | None:
        """The store an argument may name a session of; None when there is none or the argument is plainly a file."""
        from agentsession_cas.cli.resolve import is_file_argument, is_plain_file
        from agentsession_cas.errors import NoStore

        if is_plain_file(argument):
            return None
        try:
            return self.store()
        except NoStore:
            if is_file_argument(argument, None):
                return None
            raise

    def session(self, argument: str) -> tuple[Session, str]:
        """A session to look at, of the store or in a file, and the entry to look at unless another is named.

        That is what a ref pins, else ``HEAD``. A last line that was cut short is told of.
        """
        from agentsession_cas.cli.resolve import is_file_argument, open_file, resolve_target

        store = self.store_beside(argument)
        if store is not None and not is_file_argument(argument, store):
            name, pinned = resolve_target(store, argument)
            return store.read(name), pinned or "HEAD"
        from agentsession_cas.core.jsonl import read_session

        with open_file(argument) as file:
            session = read_session(file)
        if session.truncated is not None:
            self.out.note(f"note: line {session.truncated.line} of {argument} was cut short and is left out")
        return session, "HEAD"


def given(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """A click callback: what is given empty, as by a variable that is not set, is refused and not taken as left out."""
    is_given = context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
    if is_given and (value == "" or (isinstance(value, tuple) and "" in value)):
        name = parameter.human_readable_name if isinstance(parameter, click.Argument) else parameter.opts[-1]
        raise click.UsageError(f"{name} is empty", context)
    return value


def _note_option(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Keep what a shared option said, wherever it stands; one left out says nothing."""
    if given(context, parameter, value):
        app = context.ensure_object(App)
        name = str(parameter.name)
        setattr(app, name, value if name != "progress" else False)


def _shared_options(function: _Function) -> _Function:
    for names, help_text, metavar in (
        (("--no-progress", "progress"), "Show no progress.", None),
        (("-q", "--quiet", "quiet"), "Print data and errors alone.", None),
        (("--json", "as_json"), "Print JSON: one object, or one a line.", None),
        (("--store", "store_path"), "The store to use.", "PATH"),
        (("--allow-network-fs", "allow_network_fs"), "Use a store on a network file system.", None),
    ):
        option = click.option(
            *names, is_flag=metavar is None, metavar=metavar, help=help_text, expose_value=False, callback=_note_option
        )
        function = option(function)
    return function


def command(name: str, **attributes: Any) -> Callable[[Callable[..., int | None]], click.Command]:
    """Declare a verb: its function takes the :class:`App`, then its parameters, and returns its exit code."""

    def declare(function: Callable[..., int | None]) -> click.Command:
        make: Callable[[Callable[..., Any]], click.Command] = click.command(name, **attributes)
        return make(_shared_options(click.pass_obj(function)))

    return declare


class _Verbs(click.Group):
    """The verbs, each loaded when it is used."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            close = get_close_matches(args[0], _VERBS, 1)
            if close:
                raise click.UsageError(f"no verb is called {args[0]!r} (did you mean {close[0]}?)", ctx) from error
            raise

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _VERBS:
            return None
        module = import_module(f"agentsession_cas.cli.{_VERBS[cmd_name][0]}")
        verb: click.Command = getattr(module, f"{cmd_name}_verb")
        return verb

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Verbs"):
            formatter.write_dl([(name, text) for name, (_, text) in _VERBS.items()])


@click.group(PROGRAM, cls=_Verbs, no_args_is_help=False, invoke_without_command=True)
@_shared_options
@click.version_option(__version__, prog_name=PROGRAM)
@click.pass_context
def cli(context: click.Context) -> None:
    """Sessions of AI agents in a content-addressed store, laid out like git.

    SESSION is an id or the first characters of one, ref:NAME, and where it makes sense a .jsonl file, or - for stdin.
    ENTRY is an id or its first hex digits, HEAD, ROOT, or ENTRY~n for the n-th before it. The store is --store, else
    $AGENTSESSION_STORE, else the nearest .agentsession here or above, else your own.

    Exit codes: 0 ok, 1 failure, 2 usage, 3 integrity problem, 4 conflict, 10 no store, 11 locked, 130 interrupted.
    """
    app = context.ensure_object(App)
    if context.invoked_subcommand is None:
        if app.store_path or app.as_json or app.quiet or not app.progress:
            raise click.UsageError("options alone do nothing: a verb is missing")
        click.echo(context.get_help(), err=True)
        context.exit(EXIT_USAGE)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (``sys.argv`` by default); returns its exit code, prints its error."""
    from agentsession_cas.errors import AgentSessionError

    settle_streams()
    try:
        code = cli.main(arguments, prog_name=PROGRAM, standalone_mode=False)
        with writing():
            sys.stdout.flush()
    except ClosedPipe:
        return 0
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except click.UsageError as error:
        help_of = error.ctx.command_path if error.ctx is not None else PROGRAM
        return _fail("usage", f"{error.format_message().rstrip('.')}; see `{help_of} --help`", EXIT_USAGE)
    except click.ClickException as error:
        return _fail("failure", error.format_message(), error.exit_code)
    except AgentSessionError as error:
        return report(error)
    except OSError as error:
        drop_stdout()
        where = f" ({error.filename})" if error.filename else ""
        return _fail("disk_error", f"{error.strerror or error}{where}", EXIT_FAILURE)
    return code if isinstance(code, int) else 0


def report(error: AgentSessionError, status: int | None = None) -> int:
    """Print an error's one line; returns its exit code: ``status``, when the verb knows better.

    A line of a file that does not read is an integrity problem.
    """
    if status is None:
        status = EXIT_INTEGRITY if error.line and error.exit_status == EXIT_FAILURE else error.exit_status
    return _fail(error.code, str(error), status)


class Damage:
    """Told of each session that does not read, it prints its line; ``status`` is the exit code for what it was told."""

    def __init__(self) -> None:
        self.status = 0

    def __call__(self, session: str, error: AgentSessionError) -> None:
        if session not in error.where:
            error.where = f"session {session}, {error.where}"
        self.status = report(error, EXIT_INTEGRITY)


def _fail(code: str, what: str, status: int) -> int:
    from agentsession_cas.errors import DiskError

    with suppress(ClosedPipe, DiskError), writing():
        sys.stdout.flush()
    with suppress(OSError):
        print(f"error: {code}: {safe(' '.join(what.split()))}", file=sys.stderr, flush=True)
    return status
