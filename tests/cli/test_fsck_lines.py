"""What ``fsck`` prints: a few lines of each code however much is wrong, and all of it with ``--json``."""

from __future__ import annotations

from agentsession_cas import Store, entry
from tests.helpers.commands import Commands


def test_many_findings_of_one_code_are_a_few_lines(cli: Commands) -> None:
    with Store.open(cli.store, create=True, background=False) as store:
        for name in ("a", "b"):
            with store.create(id=name) as session:
                session.append_batch([entry.user(f"{name} {n}") for n in range(20)])
                session.checkpoint()
    for path in (cli.store / "objects" / "contents").glob("*/*"):
        path.unlink()
    ran = cli("fsck")
    told = [line for line in ran.text.splitlines() if line.startswith("error: missing_content")]
    assert (ran.code, len(told)) == (3, 3)
    assert told[-1].endswith(", and 37 more")
    assert all("more" not in line for line in told[:-1])
    whole = cli("fsck", "--json").object["findings"]
    assert len([each for each in whole if each["code"] == "missing_content"]) == 40
