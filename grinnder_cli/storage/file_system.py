"""What kind of file system a directory lies on."""

import re
from pathlib import Path

IN_MEMORY = ("tmpfs", "ramfs")
FAR = ("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "lustre", "beegfs", "gpfs", "afs")


def mounted(directory: Path, mountinfo: str) -> tuple[str, str]:
    """(kind, device) of the file system a directory is on, from the text of /proc/self/mountinfo."""
    place, best, found = directory.resolve(), -1, ("unknown", "?")
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        point = Path(re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), before.split()[4]))  # \040 is a blank
        if (point == place or point in place.parents) and len(point.parts) >= best:
            best, found = len(point.parts), (after.split()[0], after.split()[1])
    return found


def peculiarity(kind: str) -> str:
    """What speaks against scratch on a file system of this kind, or ""."""
    if kind in IN_MEMORY:
        return "keeps files in memory"
    return "is not a local disk" if kind in FAR or kind.startswith("fuse") else ""
