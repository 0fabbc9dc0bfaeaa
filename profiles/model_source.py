"""ModelSource: where the file of a model comes from, as written in a profile."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from outrider.profiles.option import Option

_PYPI = re.compile(r"pypi:([A-Za-z0-9][\w.-]*)==([\w.!+-]+?)!([^!]+)")
_HF = re.compile(r"hf:([\w.-]+/[\w.-]+)(?:/([^:]+)|:([^/:]+))")
_BUILTIN = re.compile(r"builtin:([\w.-]+)")

FORMS = (
    "allowed: a path, hf:OWNER/REPO/FILE, hf:OWNER/REPO:QUANT,"
    " pypi:PACKAGE==VERSION!MEMBER or builtin:NAME"
)


@dataclass(frozen=True, slots=True)
class LocalPart:
    """A file on this machine; built-in ones lie beside the profiles."""

    path: Path
    built_in: bool = False

    @property
    def file_name(self) -> str:
        """Name of the file without folders."""
        return self.path.name


@dataclass(frozen=True, slots=True)
class HubPart:
    """A file of a Hugging Face repository, or the one of a quantisation."""

    repo: str
    file: str | None
    quant: str | None

    @property
    def file_name(self) -> str:
        """Name of the file without folders."""
        name = self.repo.rsplit("/", 1)[1]
        return self.file.rsplit("/", 1)[-1] if self.file else f"{name}-{self.quant}.gguf"


@dataclass(frozen=True, slots=True)
class PackagePart:
    """A file inside a wheel."""

    package: str
    version: str
    member: str

    @property
    def file_name(self) -> str:
        """Name of the file without folders."""
        return self.member.rsplit("/", 1)[-1]


Part = LocalPart | HubPart | PackagePart


def parse_part(text: str) -> Part:
    """Return what one source string means; ValueError says what is allowed."""
    if match := _PYPI.fullmatch(text):
        return PackagePart(match[1], match[2], match[3])
    if match := _HF.fullmatch(text):
        return HubPart(match[1], match[2], match[3])
    if match := _BUILTIN.fullmatch(text):
        return LocalPart(Path(__file__).parent / match[1], built_in=True)
    if not text or text.startswith(("pypi:", "hf:", "builtin:")):
        raise ValueError(FORMS)
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text):
        raise ValueError(f"{FORMS}; an address is not: download the file and give its path")
    return LocalPart(Path(text).expanduser())


def _accept_source(source: str | tuple[str, ...]) -> None:
    texts = (source,) if isinstance(source, str) else source
    if not texts:
        raise ValueError(FORMS)
    for text in texts:
        parse_part(text)


def _accept_sha256(digits: str) -> None:
    if not re.fullmatch(r"[0-9a-fA-F]{64}", digits):
        raise ValueError("allowed: 64 hexadecimal digits")


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where a model's file comes from, and the hash it must have."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}

    source: Annotated[
        str | tuple[str, ...],
        Option("where the file comes from; several are joined in order", accept=_accept_source),
    ]
    sha256: Annotated[
        str | None,
        Option("hash of the whole file, 64 hexadecimal digits", accept=_accept_sha256),
    ] = None

    @property
    def texts(self) -> tuple[str, ...]:
        """The source strings, one for a file that is not joined."""
        return (self.source,) if isinstance(self.source, str) else self.source

    @property
    def parts(self) -> tuple[Part, ...]:
        """The source strings, parsed."""
        return tuple(parse_part(text) for text in self.texts)
