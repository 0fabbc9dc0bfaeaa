from __future__ import annotations

from pathlib import Path

import pytest

from outrider.profiles.model_source import (
    HubPart,
    LocalPart,
    ModelSource,
    PackagePart,
    Part,
    parse_part,
)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("model.gguf", LocalPart(Path("model.gguf"))),
        ("/a b/model.gguf", LocalPart(Path("/a b/model.gguf"))),
        ("hf:me/tiny-GGUF/tiny-Q8_0.gguf", HubPart("me/tiny-GGUF", "tiny-Q8_0.gguf", None)),
        ("hf:me/tiny-GGUF/sub/t.gguf", HubPart("me/tiny-GGUF", "sub/t.gguf", None)),
        ("hf:me/tiny-GGUF:Q4_K_M", HubPart("me/tiny-GGUF", None, "Q4_K_M")),
        ("pypi:llm-x==0.1.2!llm_x/m.gguf", PackagePart("llm-x", "0.1.2", "llm_x/m.gguf")),
        ("pypi:x==1!2.0!m.gguf", PackagePart("x", "1!2.0", "m.gguf")),
    ],
)
def test_every_form_is_understood(text: str, part: Part) -> None:
    assert parse_part(text) == part


def test_a_home_folder_is_expanded() -> None:
    assert parse_part("~/m.gguf") == LocalPart(Path.home() / "m.gguf")


def test_built_in_files_lie_beside_the_profiles() -> None:
    part = parse_part("builtin:base.yaml")
    assert isinstance(part, LocalPart)
    assert part.path.read_text().startswith("# Every value")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "pypi:llm-x",
        "pypi:llm-x==1.0",
        "pypi:llm-x!m.gguf",
        "pypi:llm-x==1.0!",
        "hf:me",
        "hf:me/repo",
        "hf:me/repo/",
        "hf:me/repo:",
        "builtin:",
        "builtin:../x",
        "https://example.org/m.gguf",
    ],
)
def test_what_has_no_form_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(ValueError, match="allowed: a path, hf:OWNER/REPO/FILE"):
        parse_part(text)


def test_a_package_version_cannot_smuggle_an_option() -> None:
    with pytest.raises(ValueError):
        parse_part("pypi:--index-url==x!m")


def test_the_parts_of_a_joined_source_keep_their_order() -> None:
    source = ModelSource(("b.part00", "a.part01"))
    assert [part.file_name for part in source.parts] == ["b.part00", "a.part01"]
