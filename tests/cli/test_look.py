"""``show log context calls runs queue list``: what people read, and the shapes scripts rely on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from agentsession_cas import Store, entry
from agentsession_cas.cli.graph import Graph
from tests.helpers.commands import Commands

REFERENCE: Final = Path(__file__).parents[2] / "fixtures" / "reference"
HOSTILE: Final = "a\x1b[2Jb\x07c\x9bd\u202ee\u2028f\rg"


def _file(name: str) -> str:
    return str(REFERENCE / "sessions" / f"{name}.jsonl")


def _without_empty(value: dict[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in value.items() if each not in ({}, [], "", None)}


@pytest.mark.parametrize("name", ["basic", "branch", "compaction", "omit", "runs"])
def test_contexts_are_those_of_the_reference(cli: Commands, name: str) -> None:
    """Every leaf's context, as the other implementation has it; an absent member and an empty one are equal."""
    for leaf, expected in json.loads((REFERENCE / "context" / f"{name}.json").read_bytes()).items():
        found = cli.ok("context", _file(name), "--at", leaf, "--json").object
        assert found["leaf"] == leaf
        assert _without_empty(found["settings"]) == _without_empty(expected["settings"])
        for member in ("items", "entries", "item_entries", "omitted"):
            assert found[member] == (expected.get(member) or [])
        assert set(found) == {
            "leaf", "settings", "items", "entries", "item_entries", "omitted", "replaced", "request", "request_hash"
        }  # fmt: skip


def test_the_request_alone_is_json_to_send(cli: Commands) -> None:
    """--request prints what --json calls request."""
    request = json.loads(cli.ok("context", _file("basic"), "--request").out)
    assert request == cli.ok("context", _file("basic"), "--json").object["request"]
    assert request["store"] is False


def test_a_context_that_cannot_be_built_exits_3(cli: Commands) -> None:
    """A compaction that keeps from off its path."""
    ran = cli("context", _file("bad-first-kept"))
    assert (ran.code, ran.error_code) == (3, "first_kept")


def test_the_universal_root_has_an_empty_context(cli: Commands) -> None:
    """ROOT is null in JSON."""
    found = cli.ok("context", _file("basic"), "--at", "ROOT", "--json").object
    assert (found["leaf"], found["items"], found["request"]) == (None, [], {"store": False})


@pytest.mark.parametrize("verb", ["show", "log", "context", "calls", "runs", "queue"])
def test_what_is_plainly_a_file_is_read_whatever_the_store_is(held: Commands, verb: str) -> None:
    (held.store / "store.json").write_bytes(b"?")
    assert held("list").code != 0
    held.ok(verb, _file("runs"))


def test_show_reads_like_a_conversation(cli: Commands) -> None:
    """Who says what, indented, in order; calls and outputs by their call_id."""
    text = cli.ok("show", _file("basic")).text
    for earlier, later in (
        ("session 01995b2a-0000-7000-8000-000000000001", "user  "),
        ("user  ", "    What is 2+2?"),
        ("    What is 2+2?", "call call_1  "),
        ("call call_1  ", "output of call_1  "),
        ("output of call_1  ", "assistant  "),
    ):
        assert text.index(earlier) < text.index(later)


def test_show_json_is_the_entries_of_the_path(cli: Commands) -> None:
    """One entry an object, every member as the line has it."""
    lines = [json.loads(line) for line in Path(_file("basic")).read_bytes().splitlines()[1:]]
    assert [each["entry"] for each in cli.ok("show", _file("basic"), "--json").objects] == lines
    assert [each["entry"] for each in cli.ok("show", _file("basic"), "--json", "--at", "HEAD~1").objects] == lines[:-1]


def test_show_of_one_entry_is_all_of_it(cli: Commands) -> None:
    """By id, prefix, legacy id, HEAD, or an ancestor of any of them."""
    lines = [json.loads(line) for line in Path(_file("basic")).read_bytes().splitlines()[1:]]
    last = lines[-1]
    names = ["HEAD", last["id"], last["id"][7:], last["id"][7:12], last["id"][:12]]
    for name in names:
        assert cli.ok("show", _file("basic"), name, "--json").object["entry"] == last
        assert cli.ok("show", _file("basic"), f"{name}~2", "--json").object["entry"] == lines[-3]
        assert cli.ok("show", _file("basic"), f"{name}~", "--json").object["entry"] == lines[-2]
    assert json.loads(cli.ok("show", _file("basic"), "HEAD").text) == last
    legacy = cli.ok("show", _file("v0.4/basic"), "HEAD~8", "--json").object["entry"]["legacy_id"]
    assert cli.ok("show", _file("v0.4/basic"), legacy, "--json").object["entry"]["legacy_id"] == legacy


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("ffff", 1),
        ("abc", 1),
        ("", 1),
        ("HEAD~99", 1),
        ("HEAD~x", 1),
        ("~1", 1),
        ("no such", 1),
        ("ROOT~1", 1),
        ("ROOT", 2),
    ],
)
def test_an_entry_that_is_not_there(cli: Commands, name: str, code: int) -> None:
    """One line, whatever was asked for."""
    ran = cli("show", _file("basic"), "--at", name) if code == 1 else cli("show", _file("basic"), name)
    assert ran.code == code
    assert ran.error_code in ("no_entry", "usage")


def test_an_ancestor_may_be_the_root(cli: Commands) -> None:
    """The parent of a root is the universal root: an empty conversation."""
    assert cli.ok("show", _file("basic"), "--at", "HEAD~9", "--json").out == b""


def test_log_is_newest_first_and_marks_head_and_labels(cli: Commands) -> None:
    """A line an entry, with its time and its marks."""
    lines = cli.ok("log", _file("branch")).lines
    assert " (HEAD) 2026-09-17T14:00:09Z info" in lines[0]
    assert any(" (fork) " in line for line in lines)
    assert lines[-1].split()[2] == "config"
    assert len(cli.ok("log", _file("branch"), "-n", "2").lines) == 2
    assert cli.ok("log", _file("branch"), "-n", "0").lines == []
    short = cli.ok("log", _file("branch"), "--oneline").lines
    assert "2026" not in "".join(short)


def test_log_all_has_every_branch(cli: Commands) -> None:
    """Without --all, the path to the head alone."""
    every = [each["id"] for each in cli.ok("log", _file("branch"), "--all", "--json").objects]
    path = [each["id"] for each in cli.ok("log", _file("branch"), "--json").objects]
    assert set(path) < set(every)
    lines = [json.loads(line)["id"] for line in Path(_file("branch")).read_bytes().splitlines()[1:]]
    assert every == lines[::-1]


def test_the_graph_draws_branches_as_git_does() -> None:
    """Two branches of one entry, and one of an entry above it."""
    parents = [-1, 0, 1, 1, 0]
    graph, drawn = Graph(), []
    for position in reversed(range(len(parents))):
        rail = graph.rail(position, parents[position])
        drawn += [*rail.above, f"{rail.beside} {position}"]
    assert drawn == ["* 4", "| * 3", "| | * 2", "| |/", "| * 1", "|/", "* 0"]


def test_the_graph_crosses_a_branch_between() -> None:
    """A column that joins past another crosses it a step at a time."""
    parents = [-1, 0, 0, 1]
    graph, drawn = Graph(), []
    for position in (3, 2, 1, 0):
        rail = graph.rail(position, parents[position])
        drawn += [*rail.above, f"{rail.beside} {position}"]
    assert drawn == ["* 3", "| * 2", "* | 1", "|/", "* 0"]


def test_log_graph_keeps_every_entry(cli: Commands) -> None:
    """One line an entry has a star, and the branch is drawn."""
    lines = cli.ok("log", _file("branch"), "--all", "--graph").lines
    assert sum("*" in line.split(" (")[0][:4] for line in lines) == 15
    assert "|/" in lines


def test_calls_runs_and_queue_have_their_shapes(cli: Commands) -> None:
    """As cli.md has them; these verbs exit 0 whatever they show."""
    calls = cli.ok("calls", _file("runs"), "--json").object["calls"]
    assert [(each["call_id"], each["state"]) for each in calls] == [(f"call_{n}", "completed") for n in (1, 2, 3)]
    assert set(calls[0]) == {
        "call_id", "entry", "name", "state", "dispatches", "decisions", "withdrawn", "args", "dispatched_args",
        "idempotency_key", "output", "failed",
    }  # fmt: skip
    runs = cli.ok("runs", _file("runs"), "--json").object["runs"]
    assert [(each["run_id"], each["reason"], each["ok"]) for each in runs] == [
        ("run-1", "input_required", True),
        ("run-2", "done", True),
    ]
    assert set(runs[0]) == {
        "run_id", "start", "end", "source", "computed_source", "reason", "computed_reason", "pending", "ok"
    }  # fmt: skip
    assert cli.ok("queue", _file("runs"), "--json").object == {"queued": []}
    assert "held" in cli.ok("calls", _file("runs"), "--at", runs[0]["end"]).text
    assert "pending call_1" in cli.ok("runs", _file("runs"), "--at", runs[0]["end"]).text
    assert cli.ok("calls", _file("bad-records")).text.startswith("call_1  completed")
    assert cli.ok("calls", _file("runs")).lines[1].endswith('bash({"cmd":"ls -la"})  [proceed, 1 dispatch]')


def test_calls_and_runs_in_words_say_what_is_wrong(held: Commands) -> None:
    """A failed call, a hand-off taken back, and an end that its run does not bear out."""
    with Store.open(held.store) as store, store.create(id="s-1") as session:
        session.append(entry.run_start("run-1"))
        for name in ("c1", "c2"):
            session.append(entry.function_call(name, "sh", {}))
        first, second = (call.entry for call in session.calls())
        session.append(entry.dispatch(first))
        session.append(entry.function_call_output("c1", "no", failed=True))
        session.append(entry.dispatch(second))
        session.append(entry.withdrawal(second, reason="no slot"))
        session.append(entry.run_end("run-1", reason="done", pending=[]))
    assert held.ok("calls", "s-1").lines == [
        "c1  completed, failed  sh({})  [1 dispatch]",
        "c2  unknown  sh({})  [1 withdrawn]",
    ]
    told = "its segment says: the reason aborted, pending c2"
    assert held.ok("runs", "s-1").lines == [f"run-1  input, ended: done, pending c2  {told}"]
    with Store.open(held.store) as store, store.open_session("s-1") as session:
        session.append(entry.run_start("run-2", source="resume"))
        session.append(entry.user("hi"))
        session.append(entry.run_end("run-2", reason="interrupted", pending=["c9"]))
    told = "its segment says: the source input, pending nothing"
    assert held.ok("runs", "s-1").lines[1] == f"run-2  resume, ended: interrupted  {told}"


def test_queue_shows_what_is_owed(held: Commands) -> None:
    """An input accepted and not appended yet."""
    with Store.open(held.store) as store, store.create(id="s-1") as session:
        draft = entry.queued({"type": "message", "role": "user", "content": "and then?"}, mode="followup", ref="m-7")
        owed = session.append(draft).id
    found = held.ok("queue", "s-1", "--json").object["queued"]
    assert [(each["entry"], each["mode"], each["ref"]) for each in found] == [(owed, "followup", "m-7")]
    assert "and then?" in held.ok("queue", "s-1").text


def test_a_truncated_file_is_looked_at_and_told_of(cli: Commands) -> None:
    """What reads is shown; a note says what is left out."""
    ran = cli.ok("show", _file("truncated"))
    assert "line 10" in ran.err
    assert "What is 2+2?" in ran.text
    assert cli.ok("-q", "show", _file("truncated")).err == ""


def test_a_file_that_does_not_read_exits_3(cli: Commands) -> None:
    """Whatever the error's class: the file is what is wrong."""
    for command in ("show", "log", "context", "calls", "runs", "queue"):
        ran = cli(command, _file("bad-parent"))
        assert (ran.code, ran.error_code) == (3, "no_entry")
        assert "line 4" in ran.err


def test_stdin_is_a_file(cli: Commands) -> None:
    """A dash stands for stdin, without a store."""
    data = Path(_file("basic")).read_bytes()
    assert cli.ok("log", "-", stdin=data).lines == cli.ok("log", _file("basic")).lines
    ran = cli("show", "-", stdin=b"\xff\xfe{}")
    assert (ran.code, ran.error_code) == (3, "bad_json")


def test_hostile_text_cannot_steer_a_terminal(held: Commands) -> None:
    """Control and direction characters of ids, names and messages come out as escapes, in every command for people."""
    with Store.open(held.store) as store, store.create(id=f"id{HOSTILE}", cwd=HOSTILE) as session:
        session.append(entry.info(HOSTILE))
        session.append(entry.user(HOSTILE))
        call = session.append(entry.function_call("c" + HOSTILE, "t" + HOSTILE, HOSTILE)).id
        session.append({"type": f"x:{HOSTILE}", "y": 1})
        session.append(entry.run_start(HOSTILE))
        session.append(entry.label(call, HOSTILE))
    name = held.ok("list", "--json").object["id"]
    for command in ("show", "log", "log --all --graph", "context", "calls", "runs", "verify", "head"):
        verb, *options = command.split()
        _assert_harmless(held.ok(verb, name, *options).text)
    _assert_harmless(held.ok("list").text)
    _assert_harmless(held.ok("show", name, "HEAD").text)
    _assert_harmless(held("show", name + "\x1b[2J").err)
    _assert_harmless(held("show", name, "\x1b]0;title\x07").err)
    _assert_harmless(held("fo\x1b[2Jo").err)
    assert "a\\x1b[2Jb\\x07c\\x9bd\\u202ee\\u2028f\\rg" in held.ok("show", name).text
    assert json.loads(held.ok("show", name, "HEAD").text)["label"] == HOSTILE


def _assert_harmless(text: str) -> None:
    assert not set("\x1b\x07\x9b\u202e\u2028\r") & set(text)
    assert text


def test_sessions_by_prefix(held: Commands) -> None:
    """Four characters or more, unique; a whole id wins over what it is a prefix of."""
    with Store.open(held.store) as store:
        for name in ("abcd", "abcdef", "abxyz", "测试会话一"):
            store.create(id=name).close()
    assert held.ok("head", "abcde", "--json").object["session"] == "abcdef"
    assert held.ok("head", "abcd", "--json").object["session"] == "abcd"
    assert held.ok("head", "测试会话", "--json").object["session"] == "测试会话一"
    assert held("head", "abx").error_code == "no_session"
    assert held("head", "").code == 2
    with Store.open(held.store) as store:
        store.create(id="abcdeg").close()
    ran = held("head", "abcde")
    assert (ran.code, ran.error_code) == (2, "usage")
    assert "abcdef, abcdeg" in ran.err
    assert held("head", "ref:main").error_code == "no_ref"
    assert held("head", "\udcff").code == 2


@pytest.mark.parametrize(
    "name", ["../x", "a/b", "a-b", "测试", "CON", "x" * 1000, "Case", "case", "with space", "a\nb"]
)
def test_any_id_is_a_session(held: Commands, name: str) -> None:
    """Ids that would be trouble as file names are ids like any other."""
    with Store.open(held.store) as store:
        for each in ("Case", "case", name) if name not in ("Case", "case") else ("Case", "case"):
            store.create(id=each).close()
    held.ok("append", name, stdin=b'{"type":"info","name":"n"}\n')
    assert held.ok("head", name, "--json").object["session"] == name
    assert [each["name"] for each in held.ok("list", "--json").objects].count("n") == 1
    held.ok("list")
    held.ok("project", name, "-o", "out.jsonl")
    held.ok("delete", name)
    assert name not in [each["id"] for each in held.ok("list", "--json").objects]


def test_list_filters(held: Commands) -> None:
    """Each filter of cli.md keeps what it names; newest first."""
    with Store.open(held.store) as store:
        made = {
            "one": {"cwd": "/a", "created_at": "2026-01-01T00:00:00Z", "extra": {"team": "red", "n": 1}},
            "two": {"cwd": "/b", "created_at": "2026-01-02T00:00:00Z", "parent_session": "one", "spawned_by": "c"},
            "three": {"cwd": "/a", "created_at": "2026-01-03T00:00:00Z", "extra": {"n": 1.5}},
        }
        for name, header in made.items():
            store.create(id=name, **header).close()  # type: ignore[arg-type]
        with store.open_session("three") as session:
            session.append(entry.continued_in("four"))

    def listed(*options: str) -> list[str]:
        return [each["id"] for each in held.ok("list", "--json", *options).objects]

    assert listed() == ["three", "two", "one"]
    assert listed("--cwd", "/a") == ["three", "one"]
    assert listed("--parent", "one") == ["two"]
    assert listed("--top-level") == ["three", "one"]
    assert listed("--current") == ["two", "one"]
    assert listed("--after", "2026-01-01T00:00:00Z") == ["three", "two"]
    assert listed("--before", "2026-01-02") == ["one"]
    assert listed("--extra", "team=red") == ["one"]
    assert listed("--extra", "n=1") == ["one"]
    assert listed("--extra", "n=1.0") == ["one"]
    assert listed("--limit", "2") == ["three", "two"]
    assert listed("--harness", "nobody") == []
    assert held("list", "--extra", "n").code == 2
    assert held("list", "--limit", "-1").code == 2
    assert held("list", "--after", "yesterday").error_code == "bad_timestamp"
    assert "(continued in four)" in held.ok("list").text


def test_list_shape(held: Commands) -> None:
    """What scripts rely on."""
    with Store.open(held.store) as store, store.create(id="s-1") as session:
        session.append(entry.info("a name"))
        head = session.leaf
    listed = held.ok("list", "--json").object
    assert listed["header"]["id"] == "s-1"
    assert {name: listed[name] for name in ("id", "name", "head", "entries", "superseded_by", "mark")} == {
        "id": "s-1",
        "name": "a name",
        "head": head,
        "entries": 1,
        "superseded_by": None,
        "mark": "record",
    }
    assert listed["size"] > 0
    assert listed["modified"].endswith("Z")
