"""The bytes of a session's header file: its canonical line, then the hash of that line, each with its LF.

The hash is there because nothing else tells a changed bit of a header: a name, a directory or a format that still
parses would be believed. Both lines change together, by a rename.
"""

from __future__ import annotations

from typing import Final

from agentsession_cas.core.header import Header
from agentsession_cas.core.identity import hash_bytes
from agentsession_cas.errors import AgentSessionError, Corrupt

__all__ = ["HEADER_NAME", "decode_header", "encode_header"]

HEADER_NAME: Final = "header"


def encode_header(header: Header) -> bytes:
    """The bytes of the file that holds ``header``."""
    return b"%s\n%s\n" % (header.line, hash_bytes(header.line).encode())


def decode_header(data: bytes) -> Header:
    """The header in a file's bytes; Corrupt for anything but what :func:`encode_header` writes."""
    line, _, rest = data.partition(b"\n")
    if rest != hash_bytes(line).encode() + b"\n":
        raise Corrupt("the header does not hash to what is noted behind it")
    try:
        return Header.parse(line)
    except AgentSessionError as error:
        raise Corrupt(f"the header cannot be read: {error.what}") from error
