"""A carton read with Python's own zipfile, hashlib and tomllib, so the checks do not depend on our code."""

import hashlib
import io
import re
import struct
import zipfile
from pathlib import Path

try:
    import tomllib
except ImportError:
    import tomli as tomllib


class Zip:
    """A zip file in `data`, and where each payload begins, which zipfile does not expose."""

    def __init__(self, data):
        self.data, self.file = data, zipfile.ZipFile(io.BytesIO(data))
        self.names = self.file.namelist()

    def info(self, name):
        return self.file.getinfo(name)

    def read(self, name):
        return self.file.read(name)

    def payload_offset(self, name):
        """From the local header, because its name and extra field may differ in length from those in the central directory."""
        at = self.info(name).header_offset
        assert self.data[at : at + 4] == b"PK\x03\x04", f"no local header for {name} at {at}"
        name_length, extra_length = struct.unpack_from("<HH", self.data, at + 26)
        assert self.data[at + 30 : at + 30 + name_length] == name.encode(), f"the local header of {name} has another name"
        return at + 30 + name_length + extra_length


class Carton(Zip):
    def __init__(self, path):
        super().__init__(Path(path).read_bytes())
        self.path = Path(path)

    @property
    def toml(self):
        return tomllib.loads(self.read("carton.toml").decode())

    @property
    def manifest(self):
        return self.read("MANIFEST")

    def true_manifest(self):
        """MANIFEST recomputed from the other entries: `path=sha256`, sorted by bytes, each line with a newline at its end."""
        others = [n for n in self.names if n not in ("MANIFEST", "LINKS")]
        lines = [f"{n}={hashlib.sha256(self.read(n)).hexdigest()}\n".encode() for n in others]
        return b"".join(sorted(lines, key=lambda line: line.rsplit(b"=", 1)[0]))

    def model(self):
        return Zip(self.read("model/model.pt"))

    def misc(self):
        return {n.removeprefix("misc/"): hashlib.sha256(self.read(n)).hexdigest() for n in self.names if n.startswith("misc/")}

    def is_llama(self):
        """Whether the module takes tokens, according to the carton's description."""
        return [i["name"] for i in self.toml.get("input", [])][:1] == ["tokens"]


def without_colour(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)
