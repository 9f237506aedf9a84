"""Runs in files: an open format, written so that no crash can harm what is there. See docs/files.md."""

from boostvi.storage.archive import StorageError
from boostvi.storage.files import Checkpoint, load, save
from boostvi.storage.loaded import LoadedResult, NoTarget

__all__ = ["Checkpoint", "LoadedResult", "NoTarget", "StorageError", "load", "save"]
