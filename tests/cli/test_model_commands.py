"""`outrider models`, run as a user runs it, on small files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tools.gguf_writer import Given, model, write

from outrider.cli.program import run_program
from outrider.profiles.sources import models_folder

Run = Callable[..., tuple[int, str, str]]

PROFILE = "schema: 1\nextends: base\ndescription: a test\ntarget: {model: {source: %s}}\n"


@pytest.fixture
def outrider(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line; gives the exit code, stdout and stderr."""

    def run(*words: str | Path) -> tuple[int, str, str]:
        code = run_program([str(word) for word in words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def _table(out: str) -> dict[str, str]:
    return {line[:15].strip(): line[15:] for line in out.splitlines()}


def test_inspect_shows_the_facts(outrider: Run, zoo: Path) -> None:
    code, out, err = outrider("models", "inspect", zoo / "target-llama.gguf")
    assert (code, err) == (0, "")
    assert _table(out) == {
        "name": "zoo target-llama",
        "file": str(zoo / "target-llama.gguf"),
        "size": "0.6 MB, 38 tensors, GGUF version 3",
        "architecture": "llama",
        "quantisation": "F16",
        "parameters": "277 k (277,344)",
        "context": "1,024 tokens",
        "layers": "4, width 96, 3 heads, 1 KV head",
        "vocabulary": "512 tokens, tokenizer llama, default",
        "bos": "1 '<s>'",
        "eos": "2 '</s>'",
        "eot": "4 '<|im_end|>'",
        "pad": "2 '</s>'",
        "prompt": "begins with bos",
        "chat template": "yes",
        "drafter": "draft-simple, for a target with the same vocabulary",
    }


def test_inspect_shows_what_not_every_file_has(outrider: Run, tmp_path: Path) -> None:
    metadata = model(general__architecture="eagle3", general__sampling__temp=0.5)
    metadata |= {"eagle3.block_count": 1, "eagle3.target_layers": [2, 15, 27]}
    code, out, _ = outrider("models", "inspect", write(tmp_path / "m.gguf", metadata))
    table = _table(out)
    assert code == 0
    assert table["drafter"] == "draft-eagle3, reads the target's layers 2 15 27"
    assert table["chat template"] == "none; chat needs --chat-template-file"
    assert table["sampling"] == "temp 0.5"


def test_inspect_as_json(outrider: Run, zoo: Path) -> None:
    code, out, _ = outrider("models", "inspect", "--json", zoo / "draft-simple.gguf")
    facts = json.loads(out)
    assert code == 0
    assert facts["schema"] == 1
    assert facts["num_parameters"] == 106816
    assert facts["special_tokens"]["eos"] == {"token_id": 2, "text": "</s>"}
    assert facts["path"] == str(zoo / "draft-simple.gguf")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the file is empty; fetch it again"),
        (b"PK\x03\x04", "not a GGUF file"),
        (b"GGUF\x03\x00", "cut short"),
    ],
)
def test_inspect_refuses_a_bad_file(
    data: bytes, reason: str, outrider: Run, tmp_path: Path
) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(data)
    code, out, err = outrider("models", "inspect", path)
    assert (code, out) == (2, "")
    assert err.startswith(f"outrider: error: {path}: ")
    assert reason in err
    assert err.count("\n") == 1


def test_inspect_refuses_an_unknown_architecture(outrider: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "new.gguf", model(general__architecture="quipu"))
    code, out, err = outrider("models", "inspect", path)
    assert (code, out) == (2, "")
    assert err.startswith(f"outrider: error: {path}: the architecture 'quipu' is unknown")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("none.gguf", "none.gguf: no such file"),
        ("folder/none", "no such file"),
        ("no-such-profile", "no-such-profile: no such file and no profile 'no-such-profile'"),
        ("hf:owner", "hf:owner: allowed: a path, hf:OWNER/REPO/FILE"),
        ("base", "profile base names no model"),
    ],
)
def test_a_name_that_leads_to_no_model(name: str, reason: str, outrider: Run) -> None:
    for command in (["inspect"], ["pull"], ["check-pair", name]):
        code, out, err = outrider("models", *command, name)
        assert (code, out) == (2, "")
        assert reason in err
        assert err.count("\n") == 1


def test_text_from_a_file_cannot_steer_the_terminal(outrider: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", model(general__name="\x1b]0;owned\x07harmless"))
    _, out, _ = outrider("models", "inspect", path)
    assert _table(out)["name"] == "]0;ownedharmless"


def test_a_profile_stands_for_its_model(outrider: Run, zoo: Path, tmp_path: Path) -> None:
    target = zoo / "target-llama.gguf"
    profile = tmp_path / "tiny.yaml"
    profile.write_text(PROFILE % target)
    assert outrider("models", "pull", profile) == (0, f"{target}\n", "")
    assert outrider("models", "inspect", profile)[0] == 0
    assert outrider("models", "check-pair", profile, zoo / "draft-simple.gguf")[0] == 0


def test_pull_prints_the_path_of_a_file(outrider: Run, zoo: Path) -> None:
    path = zoo / "draft-simple.gguf"
    assert outrider("models", "pull", path) == (0, f"{path}\n", "")


def test_pull_fetches_the_drafters_of_a_profile_too(
    outrider: Run, zoo: Path, tmp_path: Path
) -> None:
    target, draft = zoo / "target-llama.gguf", zoo / "draft-simple.gguf"
    profile = tmp_path / "pair.yaml"
    drafters = f"drafters: [{{kind: draft-simple, model: {{source: {draft}}}}}]\n"
    profile.write_text(PROFILE % target + drafters)
    assert outrider("models", "pull", profile) == (0, f"{target}\n{draft}\n", "")


def test_list_names_files_and_the_profiles_that_run_them(outrider: Run, zoo: Path) -> None:
    code, out, err = outrider("models", "list")
    assert (code, out) == (0, "")
    assert "models pull smollm2" in err

    Path(".outrider").mkdir()
    Path(".outrider/tiny.yaml").write_text(PROFILE % (zoo / "target-llama.gguf"))
    folder = models_folder() / "0123"
    folder.mkdir(parents=True)
    (folder / "old.gguf").write_bytes((zoo / "draft-simple.gguf").read_bytes())
    (folder / "part.gguf").write_bytes(b"GGUF")
    code, out, err = outrider("models", "list")
    assert (code, err) == (0, "")
    old, part, tiny = (" ".join(line.split()) for line in out.splitlines())
    assert old == "old.gguf 0.2 MB llama, 107 k parameters, F16"
    assert part.startswith("part.gguf 0.0 MB the header is cut short")
    assert tiny == "target-llama.gguf 0.6 MB llama, 277 k parameters, F16 tiny"


def test_check_pair_that_works(outrider: Run, zoo: Path) -> None:
    target, draft = zoo / "target-llama.gguf", zoo / "draft-simple.gguf"
    code, out, err = outrider("models", "check-pair", target, draft)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "target    llama, 4 layers, width 96, target-llama.gguf",
        "drafter   llama, 2 layers, width 64, draft-simple.gguf",
        "fits      vocabulary  drafter 512, target 512, same token texts",
        "fits      special     bos 1 and 1, end 2 and 2",
        f"The pair works: outrider chat -m {target} -md {draft}",
    ]


def test_check_pair_that_is_refused(outrider: Run, zoo: Path, tmp_path: Path) -> None:
    draft = write(tmp_path / "draft.gguf", model())
    code, out, err = outrider("models", "check-pair", zoo / "target-llama.gguf", draft)
    assert (code, err) == (2, "")
    assert "refused   vocabulary  drafter 9, target 512: over 128 apart" in out.splitlines()
    assert out.splitlines()[-1].startswith("The pair cannot work.")


def test_check_pair_without_a_drafter_tries_local_files(
    outrider: Run, zoo: Path, tmp_path: Path
) -> None:
    for name in ("target-llama", "draft-simple", "eagle3-d2t", "target-mtp3-mimo2"):
        (tmp_path / f"{name}.gguf").write_bytes((zoo / f"{name}.gguf").read_bytes())
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    code, out, err = outrider("models", "check-pair", tmp_path / "target-llama.gguf")
    assert (code, err) == (0, "")
    verdicts = {Path(line.split()[-1]).stem: line.split()[:2] for line in out.splitlines()}
    assert verdicts["draft-simple"] == ["fits", "draft-simple"]
    assert verdicts["eagle3-d2t"] == ["fits", "draft-eagle3"]
    assert verdicts["target-mtp3-mimo2"] == ["refused", "size:"]
    assert verdicts["broken"][0] == "refused"
    assert verdicts["smollm2-135m-eagle3"] == ["refused", "layers:"]
    assert "target-llama" not in verdicts


def test_check_pair_without_a_drafter_that_fits(outrider: Run, zoo: Path, tmp_path: Path) -> None:
    path = tmp_path / "target-llama.gguf"
    path.write_bytes((zoo / "target-llama.gguf").read_bytes())
    code, out, err = outrider("models", "check-pair", path)
    assert (code, err) == (2, "")
    assert out.splitlines()[-1].startswith("No local file fits. Without a second model:")


def test_check_pair_of_a_kind_that_reads_layers(outrider: Run, zoo: Path, tmp_path: Path) -> None:
    changes: dict[str, Given] = {
        "general.architecture": "eagle3",
        "eagle3.block_count": 1,
        "eagle3.target_layers": [1, 2, 9],
        "eagle3.target_hidden_size": 64,
    }
    draft = write(tmp_path / "draft.gguf", {**model(), **changes})
    code, out, _ = outrider("models", "check-pair", zoo / "target-llama.gguf", draft)
    assert code == 2
    assert "refused   layers      drafter reads 1 2 9, target has 4" in out.splitlines()
    assert "refused   width       drafter expects 64, target 96" in out.splitlines()


def test_a_drafter_is_no_target(outrider: Run, zoo: Path, tmp_path: Path) -> None:
    metadata = {**model(general__architecture="eagle3"), "eagle3.block_count": 1}
    path = write(tmp_path / "draft.gguf", metadata)
    code, out, err = outrider("models", "check-pair", path, zoo / "draft-simple.gguf")
    assert (code, out) == (2, "")
    assert "this is a draft-eagle3 drafter" in err
