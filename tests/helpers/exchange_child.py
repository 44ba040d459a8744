"""A process that pushes: ``root remote session count``. Each push brings one entry more of its own record."""

from __future__ import annotations

import sys

from agentsession_cas import Store, entry


def main() -> None:
    """Append and push, so many times."""
    root, remote, session, count = sys.argv[1:]
    with Store.open(root) as store:
        for number in range(int(count)):
            with store.open_session(session) as held:
                held.append(entry.user(f"{root} {number}"))
            store.push(remote, session)


if __name__ == "__main__":
    main()
