"""The README does what it says: every command and every snippet of it is run, and the tables are the code's."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

import click

import agentsession_cas
from agentsession_cas import ALL_RECORDS, Session, SessionWriter, Store, entry, errors
from agentsession_cas.cli.app import cli
from agentsession_cas.core.facts import CODES
from agentsession_cas.core.header import FORMAT
from tests.helpers.readme import Place, blocks, commands, normal

ROOT: Final = Path(__file__).parents[1]
README: Final = (ROOT / "README.md").read_text()


def test_the_tour_and_every_example(tmp_path: Path) -> None:
    """All blocks in order, in one directory: files saved, commands run and compared, snippets run."""
    place = Place(tmp_path, ROOT)
    ran = 0
    for block in blocks(README):
        where = f"README.md:{block.line}"
        if block.file:
            place.save(block)
        elif block.kind == "python":
            (tmp_path / "snippet.py").write_text(block.text)
            assert place.run("python snippet.py") == "", where
            ran += 1
        elif block.kind == "console":
            for command in commands(block):
                assert normal(place.run(command.text)) == normal(command.output), f"{where}: $ {command.text}"
                ran += 1
    assert ran > 20


def test_every_entry_type_and_constructor_has_an_example_that_holds() -> None:
    """Each line of the table makes an entry of the type it says, and a session takes it."""
    rows = re.findall(r"^\| `(entry\.(\w+)\(.*\))` \| `([\w:]+)` \|", README, re.MULTILINE)
    makers = [name for name in entry.__all__ if name[0].islower() and name not in ("view", "same_workspace")]
    assert {name for _, name, _ in rows} == set(makers) - {"trigger", "workspace"}  # these make a member
    assert {type_ for _, _, type_ in rows} == {*CODES, "my:note"}
    for example, _, type_ in rows:
        with Store.memory() as store, store.create(records=ALL_RECORDS) as session:
            made = eval(example, {"entry": entry, **_named(session)})
            assert session.entry(session.append(made).id).type == type_, example


def _named(session: SessionWriter) -> dict[str, Any]:
    """The names the table uses, and a session in which they are."""
    item = entry.user("x").body["item"]
    first = session.append(entry.user("hi")).id
    calls = [session.append(entry.function_call(f"call_{n}", "lookup", {})).id for n in (1, 2)]
    link = session.append(entry.peer("call_2", url="https://a.test")).id
    waiting = session.append(entry.queued(item, mode="steer")).id
    session.append(entry.dispatch(session.entry(calls[1])))
    accepted = {"call": calls[0], "started": calls[1], "link": link, "waiting": waiting}
    return {
        "item": item,
        "request": {"model": "m", "input": "hi"},
        "id": first,
        **{name: session.entry(each) for name, each in accepted.items()},
    }


def test_the_two_commands_are_there_and_lead_the_readme() -> None:
    """One runs the main job, one runs every test; CI runs the latter."""
    shown = re.findall(r"^(\./tools/\w+)", README, re.MULTILINE)
    assert shown[:2] == ["./tools/demo", "./tools/check"]
    for script in ("tools/demo", "tools/check", ".ci/run"):
        assert os.access(ROOT / script, os.X_OK), script
    assert "tools/check" in (ROOT / ".ci/run").read_text()


def test_the_demonstration_does_what_it_says(tmp_path: Path) -> None:
    """It runs from any directory, tells of each step, and leaves nothing behind."""
    place = Place(tmp_path, ROOT)
    (tmp_path / "left").mkdir()
    told = place.run(f"TMPDIR={tmp_path}/left python {ROOT}/tools/demo.py")
    assert told.splitlines()[-1].startswith("Done: ")
    assert list((tmp_path / "left").iterdir()) == []


def test_every_verb_and_option_is_named() -> None:
    """The reference lists what the command takes."""
    context = click.Context(cli)
    for name in cli.list_commands(context):
        verb = cli.get_command(context, name)
        assert verb is not None
        assert f"`{name}" in README, name
        for option in verb.params:
            if isinstance(option, click.Option) and option.name not in (
                "help",
                "store_path",
                "as_json",
                "quiet",
                "progress",
            ):
                assert max(option.opts, key=len) in README, f"{name} {option.opts}"


def test_every_error_code_is_listed_with_its_exit_code() -> None:
    """A code that scripts match on is a documented one."""
    rows = dict(re.findall(r"^\| `(\w+)` \| (\d+) \|", README, re.MULTILINE))
    known = {each.code: str(each.exit_status) for name in errors.__all__ if (each := getattr(errors, name))}
    del known[errors.AgentSessionError.code]
    assert rows == known


def test_every_public_name_is_named() -> None:
    """What the package exports is described."""
    for name in agentsession_cas.__all__:
        assert f"`{name}" in README, name
    assert FORMAT in README


def test_every_public_method_is_named() -> None:
    """What a store and a session can do is in their tables; a snapshot is what ``read`` is made of."""
    for kind in (Store, Session, SessionWriter):
        names = [name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))]
        missing = [name for name in names if not re.search(rf"`(Store\.|session\.)?{name}\(", README)]
        assert missing in ([], ["snapshot"]), kind
