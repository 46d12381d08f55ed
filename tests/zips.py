"""Zips of any members, as torch writes them, and with one member replaced."""

import io
import zipfile
from collections.abc import Mapping


def zip_of(members: Mapping[str, bytes | str], method: int = zipfile.ZIP_STORED) -> bytes:
    """The bytes of a zip with these members, in this order."""
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", method) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return raw.getvalue()


def torch_zip(state: object) -> bytes:
    """The bytes that ``torch.save`` writes."""
    import torch  # noqa: PLC0415 - only some users of zips need it

    raw = io.BytesIO()
    torch.save(state, raw)
    return raw.getvalue()


def with_member(raw: bytes, name: str, content: bytes) -> bytes:
    """A zip in which the member whose name ends with ``name`` has other content."""
    with zipfile.ZipFile(io.BytesIO(raw)) as old:
        return zip_of({one: content if one.endswith(name) else old.read(one) for one in old.namelist()})
