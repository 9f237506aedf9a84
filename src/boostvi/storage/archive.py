"""One file of JSON and arrays: a zip of .npy members, replaced as a whole or not at all, and read with suspicion."""

from __future__ import annotations

import contextlib
import errno
import glob
import io
import json
import os
import re
import secrets
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from boostvi._interrupts import held

MANIFEST = "manifest.json"
DTYPES = ("<f8", "<f4", "<i8", "<i4", "<u4", "|i1", "|b1")
NPY = b"\x93NUMPY\x01\x00"
NPY_HEADER = re.compile(rb"\{'descr': '([<|]\w\d)', 'fortran_order': False, 'shape': \(([\d, ]{0,200})\), \} *\n")


class StorageError(ValueError):
    """A file that cannot be loaded: damaged, foreign, of a newer version, or in need of a class."""


def require(ok: Any, otherwise: str) -> None:
    if not ok:
        raise StorageError(otherwise)


def file_of(argument: str, path: Any) -> Path:
    """The file that a path names; behind a link, which writing must not replace, the one it leads to."""
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        raise TypeError(f"{argument} must be the name of a file, got {path!r}")
    return Path(os.path.realpath(os.fsdecode(path)))


def writable(argument: str, path: Any) -> Path:
    """The file that a path names, if it can be written; what killed writes left beside it is removed."""
    file = file_of(argument, path)
    if file.is_dir():
        raise IsADirectoryError(errno.EISDIR, f"{argument} is a folder; name a file in it", str(file))
    if not file.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, f"{argument} is in a folder that does not exist; create it", str(file))
    for leftover in glob.glob(f".{glob.escape(file.name)}.*.tmp", root_dir=file.parent):
        with contextlib.suppress(OSError):
            os.unlink(file.parent / leftover)
    try:
        temporary = _temporary(file)
        with open(temporary, "xb"):
            pass
        os.unlink(temporary)
    except OSError as error:
        raise _failed("write", file, error, "make its folder writable, or name a file elsewhere") from error
    return file


def write(file: Path, manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """A manifest and its arrays, all of it or nothing."""
    with held():  # zipfile makes a ValueError of a Ctrl-C while a member is open
        content = _zipped(manifest, arrays)
    replace(file, content.getbuffer())


def replace(file: Path, content: bytes | memoryview) -> None:
    """All of it or nothing: a crash at any moment leaves the earlier file or the new one, never a part of it."""
    temporary = _temporary(file)
    try:
        try:
            with open(temporary, "xb") as out:
                out.write(content)
                out.flush()
                os.fsync(out.fileno())
            os.replace(temporary, file)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        _sync_folder(file.parent)
    except OSError as error:
        raise _failed("write", file, error, "make room or name a file elsewhere; what was there is intact") from error


def read(
    file: Path, check: Callable[[dict[str, Any]], None] = lambda manifest: None
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The manifest, if it passes `check`, and the arrays. Raises OSError, StorageError, or whatever a parser raises."""
    try:
        if not stat.S_ISREG(os.stat(file).st_mode):
            raise IsADirectoryError(errno.EISDIR, "this is no file")
        with open(file, "rb") as source:
            data = _members(source)
    except OSError as error:
        raise _failed("load", file, error, "name a file that result.save or fit(checkpoint=) wrote") from error
    manifest = json.loads(data.pop(MANIFEST), parse_constant=_no_constant)
    require(isinstance(manifest, dict), "its manifest is none")
    check(manifest)
    return manifest, {name: _array(name, content) for name, content in data.items()}


def _members(source: BinaryIO) -> dict[str, bytes]:
    """Of a zip in which nothing is compressed or lies twice: all together they are no larger than the file."""
    size = os.fstat(source.fileno()).st_size
    with zipfile.ZipFile(source) as archive:
        members = archive.infolist()
        require(
            all(m.compress_type == zipfile.ZIP_STORED and m.compress_size == m.file_size for m in members)
            and sum(m.file_size for m in members) <= size,
            "its members must be stored, not compressed",
        )
        data = {member.filename: archive.read(member) for member in members}
    require(MANIFEST in data and len(data) == len(members), "it is no file of boostvi")
    return data


def _array(name: str, data: bytes) -> np.ndarray:
    """An .npy file of version 1.0: numbers in C order, no more and no fewer than the shape says."""
    start = len(NPY) + 2 + int.from_bytes(data[len(NPY) : len(NPY) + 2], "little")
    header = NPY_HEADER.fullmatch(data, len(NPY) + 2, start) if data.startswith(NPY) else None
    if header is None or header[1].decode() not in DTYPES:
        raise StorageError(f"{name!r:.99} is no array of numbers in .npy format 1.0")
    shape = tuple(int(length) for length in header[2].split(b",") if length.strip())
    return np.frombuffer(data[start:], dtype=header[1].decode()).reshape(shape)


def _zipped(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> io.BytesIO:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo(MANIFEST), json.dumps(manifest, allow_nan=False))
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(name), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array, order="C"), version=(1, 0), allow_pickle=False)
    return buffer


def _no_constant(constant: str) -> None:
    raise StorageError(f"{constant} is no JSON")


def _temporary(file: Path) -> Path:
    return file.with_name(f".{file.name}.{secrets.token_hex(4)}.tmp")


def _sync_folder(folder: Path) -> None:
    """Make the new name last, where the file system can."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def _failed(action: str, file: Path, error: OSError, remedy: str) -> OSError:
    return OSError(error.errno or errno.EIO, f"cannot {action} ({error.strerror or error}): {remedy}", str(file))
