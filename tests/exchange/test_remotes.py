"""Remotes in ``config.toml``: written a line at a time into what people write, and read back as meant."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas import Store
from agentsession_cas.errors import BadConfig, BadInput, NoRemote, RemoteExists

NAME = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,8}", fullmatch=True)
PATH = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)

WRITTEN = """\
# ours
[sync]
policy = "records"   # as it comes

[ remotes ]  # people write here
up = "/srv/up"  # the good one

[pack]
limit = 3
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store on a real disk."""
    with Store.open(tmp_path / "st", create=True) as made:
        yield made


def _config(store: Store) -> Path:
    return Path(store.root) / "config.toml"


def test_what_people_wrote_stays(store: Store) -> None:
    """Comments, other tables, the order of lines."""
    _config(store).write_text(WRITTEN)
    assert store.remotes() == {"up": "/srv/up"}
    assert store.add_remote("down.1", "/srv/down")
    assert not store.add_remote("down.1", "/srv/down")
    assert store.remotes() == {"up": "/srv/up", "down.1": "/srv/down"}
    assert _config(store).read_text() == WRITTEN.replace(
        "the good one\n", 'the good one\n"down.1" = "/srv/down"\n'
    )
    store.remove_remote("down.1")
    assert _config(store).read_text() == WRITTEN
    store.remove_remote("up")
    assert "the good one" not in _config(store).read_text()
    assert "as it comes" in _config(store).read_text()


@settings(max_examples=60, deadline=None)
@given(remotes=st.dictionaries(NAME, PATH, max_size=5), before=st.sampled_from(["", "a = 1", "a = 1\n", WRITTEN]))
def test_any_names_and_paths(remotes: dict[str, str], before: str) -> None:
    """They read back, and go again."""
    with Store.memory() as store:
        fs = store.layout.host.fs
        file = fs.create(f"{store.root}/config.toml")
        file.pwrite(before.encode(), 0)
        file.close()
        known = store.remotes()
        for name, path in remotes.items():
            if name not in known:
                store.add_remote(name, path)
        assert store.remotes() == {**remotes, **known}
        data = fs.read(f"{store.root}/config.toml") or b""
        assert all(line in data.decode() for line in before.splitlines())
        for name in remotes:
            if name not in known:
                store.remove_remote(name)
        assert store.remotes() == known


@pytest.mark.parametrize("text", ["remotes = 3", "[remotes]\nup = 3", "[remotes", "\udcff", "[remotes.up]\npath = 'x'"])
def test_a_configuration_that_is_none(store: Store, text: str) -> None:
    """It is left as it is, and named."""
    _config(store).write_bytes(text.encode(errors="surrogateescape"))
    for call in (store.remotes, lambda: store.add_remote("a", "/x"), lambda: store.remove_remote("up")):
        with pytest.raises(BadConfig):
            call()
    assert _config(store).read_bytes() == text.encode(errors="surrogateescape")


def test_a_table_written_another_way_is_for_its_author(store: Store) -> None:
    """An inline one cannot be added to a line at a time."""
    _config(store).write_text('remotes = {up = "/srv/up"}\n')
    assert store.remotes() == {"up": "/srv/up"}
    with pytest.raises(BadConfig, match="by hand"):
        store.add_remote("down", "/srv/down")
    with pytest.raises(BadConfig, match="by hand"):
        store.remove_remote("up")
    assert _config(store).read_text() == 'remotes = {up = "/srv/up"}\n'


def test_refused(store: Store) -> None:
    """Names that are none, or taken, or unknown."""
    store.add_remote("up", "/srv/up")
    for wrong in ("", "a/b", "-x", "a b", "é", "x" * 101):
        with pytest.raises(BadInput):
            store.add_remote(wrong, "/x")
    with pytest.raises(RemoteExists):
        store.add_remote("up", "/srv/other")
    with pytest.raises(NoRemote):
        store.remove_remote("down")


def test_a_path_that_no_text_can_hold_is_no_remote(tmp_path: Path) -> None:
    """A name that is not UTF-8 is a good place for a store; ``config.toml`` cannot hold it. Nothing is made then."""
    odd = os.fsdecode(bytes(tmp_path) + b"/\xff\xfe")
    with Store.open(odd, create=True) as store:
        with pytest.raises(BadInput, match="UTF-8"):
            store.add_remote("up", odd)
        assert store.remotes() == {}
    with pytest.raises(BadInput, match="UTF-8"):
        Store.clone(odd, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
