"""The fault points of ``rlbench/faults.py``, and what a process that dies there leaves on the disk."""

from collections.abc import Mapping
from typing import Final

POINTS: Final[Mapping[str, str]] = {
    # a file that replaces another, of a record or a data set, or a checksum: disk.py
    "replace.torn": "half of the new text is in a temporary file, the old file stands",
    "replace.written": "the new text is on disk under its temporary name, the old file stands",
    "copy.swept": "a temporary file that a killed process left is gone",
    "replace.placed": "the new file stands, the folder's list of names may not be on disk",
    # a record: records/files.py and records/store.py
    "append.torn": "half of a line stands at the end of the file",
    "append.written": "the line is on disk, and no event was sent",
    "lock.made": "the run's folder is there and empty",
    "lock.removed": "the lock's file is gone, the folder is still locked",
    "lock.swept": "what a crash left half written is gone",
    "crash.opened": "the file for a dying process's last words is there and empty",
    "crash.removed": "that file is gone, the folder is still locked",
    "record.withdrawn": "a part of a refused run's record is gone, its folder is still locked",
    "outcome.dropped": "epochs are about to be replaced; the outcome that counted them is gone",
    "aside.made": "the folder for what --force puts aside is there and empty",
    "aside.moved": "a part of the record is aside, the others are not",
    # what a sweep keeps: records/attempts.py
    "log.made": "the log of a run's processes is there",
    # a checkpoint: checkpoint.py
    "checkpoint.begun": "an empty folder is beside the old checkpoint",
    "checkpoint.shard": "a file of tensors is whole, the manifest is missing",
    "checkpoint.out": "the old checkpoint has another name, the new one is not in its place yet",
    "checkpoint.in": "the new checkpoint is in its place, the old one is not gone yet",
    "checkpoint.discarded": "a checkpoint that nobody needs has another name and is still there",
    "checkpoint.swept": "what a crash left of a checkpoint is gone",
    # a data set: datasets/
    "dataset.made": "the folder of a data set is there and not locked yet",
    "dataset.placed": "the new data set has no checksum yet",
    "seal.forgotten": "a checksum is gone",
    "recording.made": "the folder of recorded episodes exists and is empty",
    "recording.cleared": "a file of a replaced recording is removed",
    "shard.swept": "a file of an attempt to bring in a shard is gone",
    "shard.refused": "a file of a shard that was refused is gone, or the empty folder",
    "download.made": "the folder of a download is there",
    "download.noted": "what is being downloaded is written down",
    "download.block": "a block of a download is written",
    "download.settled": "a download has its final name",
    "download.discarded": "a file of what was downloaded so far is gone",
    "copy.written": "the copy of a data set is whole under its temporary name",
    "copy.placed": "the copy of a data set stands",
}
"""Every point, and the state of the disk there."""
