"""Reads the files of a proxy in front of an Envoy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import crossplane

from fleet.cause import cause_of
from warmroute.doctor.front import kong, nginx, traefik
from warmroute.doctor.front.tree import Tree, parse
from warmroute.doctor.rule import DoctorError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from warmroute.doctor.front.facts import Facts

PROXIES: Final = ("nginx", "traefik", "kong")
_MOST_BYTES: Final = 8 * 1024 * 1024
_TREES: Final = (".yaml", ".yml", ".toml", ".json")


def read_front(proxy: str, path: Path) -> Facts:
    """Read one of `PROXIES` from a file or a folder.

    Raises:
        DoctorError: a file cannot be read or is of another kind, or nothing in it can be judged.
    """
    try:
        if proxy == "nginx":
            return nginx.read([_nginx(file) for file in _nginx_files(path)])
        documents = list(_documents(path))
        if proxy == "traefik":
            return traefik.read(documents)
        conf = [line for file in _files(path, (".conf",)) for line in kong.conf_lines(_text(file), str(file))]
        return kong.read([document for document in documents if document.has("_format_version")], conf)
    except DoctorError as error:
        raise DoctorError(f"{path}: {error}") from error
    except OSError as error:
        raise DoctorError(f"{cause_of(error)}; allowed: a file or folder that this user may read") from error
    except RecursionError as error:
        raise DoctorError(f"{path}: blocks inside blocks, too deep to be a configuration") from error


def _nginx(file: Path) -> Any:
    _text(file)
    return crossplane.parse(
        str(file), onerror=lambda error: isinstance(error, OSError), check_ctx=False, check_args=False
    )


def _nginx_files(path: Path) -> list[Path]:
    """The main file; in a folder without one, such as `conf.d` or Debian's `sites-enabled`, all its files."""
    if not path.is_dir():
        return [path]
    main = path / "nginx.conf"
    return [main] if main.exists() else sorted(file for file in path.iterdir() if file.is_file())


def _documents(path: Path) -> Iterator[Tree]:
    for file in _files(path, _TREES):
        data = parse(_text(file), str(file))
        if isinstance(data, dict):
            yield Tree(data, str(file))


def _files(path: Path, suffixes: tuple[str, ...]) -> list[Path]:
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.suffix in suffixes and file.is_file())
    return [path] if path.suffix in suffixes or suffixes is _TREES else []


def _text(file: Path) -> str:
    size = file.stat().st_size
    if size > _MOST_BYTES:
        raise DoctorError(f"{file} has {size:,} bytes; at most {_MOST_BYTES:,} are read")
    return file.read_text(errors="replace")
