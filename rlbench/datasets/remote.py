"""Minari's data sets on a server: which there are, and the addresses of their files.

``MINARI_REMOTE`` is ``hf://ORGANISATION`` (the default is Farama's own), ``gcp://BUCKET``, or the http address of a
folder that mirrors Minari's with a ``namespace_metadata.json`` that names its ``datasets``.
"""

from __future__ import annotations

import json
import os
from http.client import HTTPException
from urllib.error import URLError
from urllib.parse import quote, urlencode
from urllib.request import Request

from rlbench import __version__
from rlbench.datasets.redirects import urlopen
from rlbench.errors import RefusedFile, ResourceExhausted, UsageError

REMOTE = "hf://farama-minari"
NAMES = "namespace_metadata.json"
LONGEST = 1 << 24  # bytes of a list of names
PATIENCE = 30.0  # seconds


def address(name: str, inside: str) -> str:
    """Where the file ``inside`` a data set's folder can be downloaded."""
    scheme, place = _remote()
    if scheme == "hf":
        repository, _, folder = name.partition("/")
        path = "/".join(part for part in (folder, inside) if part)
        return f"{_hub()}/datasets/{place}/{repository}/resolve/main/{quote(path)}"
    if scheme == "gcp":
        return f"https://storage.googleapis.com/{place}/{quote(f'{name}/{inside}')}"
    return f"{scheme}://{place}/{quote(f'{name}/{inside}')}"


def names() -> list[str]:
    """Every data set the server lists.

    Raises:
        ResourceExhausted: the server does not answer.
        RefusedFile: it answers with something else than a list.
    """
    scheme, place = _remote()
    try:
        if scheme == "hf":
            query = urlencode({"author": place, "limit": 1000})
            repositories = [_text(found, "id") for found in _items(_asked(f"{_hub()}/api/datasets?{query}"))]
            asked = [f"{_hub()}/datasets/{name}/resolve/main/{NAMES}" for name in repositories]
            return sorted({name for url in asked for name in _listed(url)})
        if scheme == "gcp":
            return _in_bucket(place)
        return sorted(_listed(f"{scheme}://{place}/{NAMES}"))
    except (TypeError, ValueError, KeyError) as error:
        raise RefusedFile(f"{scheme}://{place}: the list of data sets is not as expected ({error})") from None


def _remote() -> tuple[str, str]:
    remote = os.environ.get("MINARI_REMOTE") or REMOTE
    scheme, _, place = remote.rstrip("/").partition("://")
    if scheme not in {"hf", "gcp", "http", "https"} or not place:
        raise UsageError(f"MINARI_REMOTE={remote}: expected hf://NAME, gcp://BUCKET or an http address")
    return scheme, place


def _hub() -> str:
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def _in_bucket(bucket: str) -> list[str]:
    found: set[str] = set()
    query = {"matchGlob": "**/metadata.json", "fields": "items(name),nextPageToken"}
    while True:
        page = _asked(f"https://storage.googleapis.com/storage/v1/b/{bucket}/o?{urlencode(query)}")
        if not isinstance(page, dict):
            raise TypeError("no page of names")
        files = [_text(item, "name") for item in _items(page.get("items", []))]
        found |= {file.removesuffix("/data/metadata.json") for file in files if file.endswith("/data/metadata.json")}
        token = page.get("nextPageToken")
        if not isinstance(token, str):
            return sorted(found)
        query["pageToken"] = token


def _listed(url: str) -> list[str]:
    """The data sets that a ``namespace_metadata.json`` names; none where there is no such file."""
    told = _asked(url, missing={})
    if not isinstance(told, dict):
        raise TypeError(f"{url} is no object")
    return [str(name) for name in _items(told.get("datasets", []))]


def _asked(url: str, missing: object = None) -> object:
    """A server's answer as JSON; ``missing`` if it has no such file."""
    request = Request(url, headers={"User-Agent": f"rlbench/{__version__}"})  # noqa: S310 - http, see _remote
    try:
        with urlopen(request, timeout=PATIENCE) as answer:
            return json.loads(answer.read(LONGEST))
    except (URLError, HTTPException, TimeoutError, ConnectionError) as error:
        if missing is not None and getattr(error, "code", None) == 404:
            return missing
        reason = getattr(error, "reason", None) or error
        raise ResourceExhausted(f"{url}: {reason}; check the connection, or MINARI_REMOTE, and try again") from None


def _items(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError("no list")
    return value


def _text(value: object, key: str) -> str:
    if not isinstance(value, dict) or not isinstance(value.get(key), str):
        raise TypeError(f"no {key}")
    return str(value[key])
