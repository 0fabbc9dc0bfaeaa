"""Files of Hugging Face repositories, fetched into huggingface_hub's own cache."""

from __future__ import annotations

import errno
import logging
import re
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from outrider.profiles.errors import ProfileError, SourceError
from outrider.profiles.model_source import HubPart


def hub_file(part: HubPart, downloaded: Callable[[int, int | None], None], offline: bool) -> Path:
    """Return the file, fetching it unless it is there; ``downloaded`` is told the bytes."""
    from huggingface_hub import errors, hf_hub_download

    # its warnings would go to the terminal: every fault ends up in the one line below
    logging.getLogger("huggingface_hub").setLevel(logging.CRITICAL)
    here = f"hf:{part.repo}/{part.file}" if part.file else f"hf:{part.repo}:{part.quant}"
    try:
        if found := _in_cache(part):
            return found
        if offline:
            raise SourceError(f"{here}: not on this machine yet, and offline")
        return Path(
            hf_hub_download(
                part.repo, part.file or _file_of_quant(part), tqdm_class=_bar(downloaded)
            )
        )
    except (ProfileError, SourceError):
        raise
    except errors.GatedRepoError:
        message = "its owner asks for an agreement: accept it on the site, then set HF_TOKEN"
    except errors.RepositoryNotFoundError:
        message = "no such repository, or a private one: check the name or set HF_TOKEN"
    except errors.LocalEntryNotFoundError as error:
        message = f"{_first_line(error.__cause__ or error)}; check the connection and try again"
    except errors.EntryNotFoundError:
        message = "no such file in the repository"
    except OSError as error:
        if error.filename or error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        message = f"{_first_line(error)}; what came is kept, try again"
    except Exception as error:  # the HTTP client's own errors, which have no common base
        message = f"{_first_line(error)}; what came is kept, try again"
    raise SourceError(f"{here}: {message}")


def _in_cache(part: HubPart) -> Path | None:
    """Return the newest snapshot's file, without asking the network."""
    from huggingface_hub import scan_cache_dir, try_to_load_from_cache
    from huggingface_hub.errors import CacheNotFound

    if part.file:
        found = try_to_load_from_cache(part.repo, part.file)
        return Path(found) if isinstance(found, str) else None
    try:
        repos = [repo for repo in scan_cache_dir().repos if repo.repo_id == part.repo]
    except CacheNotFound:
        return None
    files = {
        file.file_name: file.file_path
        for repo in repos
        for revision in sorted(repo.revisions, key=lambda revision: revision.last_modified)
        for file in revision.files
    }
    matching = _matching(part, list(files))
    return Path(files[matching[0]]) if len(matching) == 1 else None


def _file_of_quant(part: HubPart) -> str:
    """Return the one GGUF file of the repository with that quantisation."""
    from huggingface_hub import HfApi

    files = [name for name in HfApi().list_repo_files(part.repo) if name.endswith(".gguf")]
    matching = _matching(part, files)
    if len(matching) == 1:
        return matching[0]
    listed = ", ".join(sorted(matching or files)) or "no GGUF file"
    raise ProfileError(
        f"hf:{part.repo}:{part.quant}: {len(matching)} files match;"
        f" give one as hf:{part.repo}/FILE: {listed}"
    )


def _matching(part: HubPart, files: list[str]) -> list[str]:
    quant = re.compile(rf"(^|[-._/]){re.escape(part.quant or '')}[-._/]", re.IGNORECASE)
    return [
        name
        for name in files
        if name.endswith(".gguf") and quant.search(name) and "mmproj" not in name.lower()
    ]


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def _bar(downloaded: Callable[[int, int | None], None]) -> Any:
    """Return a class with the part of tqdm's interface that huggingface_hub uses."""

    class Bar:
        def __init__(self, *_: object, total: float | None = None, **options: Any) -> None:
            self.total = total
            self.n: float = options.get("initial") or 0

        def update(self, count: float = 1) -> None:
            self.n += count
            downloaded(int(self.n), int(self.total) if self.total else None)

        def __enter__(self) -> Bar:
            return self

        def __exit__(
            self,
            kind: type[BaseException] | None,
            error: BaseException | None,
            trace: TracebackType | None,
        ) -> None:
            self.close()

        def close(self) -> None:
            """Nothing is open."""

        def __getattr__(self, name: str) -> Callable[..., None]:
            # set_description, refresh, reset...: nothing to show here
            if name.startswith("_"):
                raise AttributeError(name)
            return lambda *arguments, **options: None

    return Bar
