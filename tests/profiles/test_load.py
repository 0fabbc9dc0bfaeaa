from __future__ import annotations

from pathlib import Path

import pytest

from outrider.profiles.errors import ProfileError
from outrider.profiles.load import list_profiles, load_profile
from outrider.profiles.model_source import ModelSource
from outrider.profiles.schema import Drafter, Profile


def write(path: str, text: str) -> Path:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def faults(path: str) -> tuple[str, ...]:
    with pytest.raises(ProfileError) as caught:
        load_profile(path)
    assert "\n" not in str(caught.value)
    return caught.value.lines


def test_an_empty_profile_has_the_defaults() -> None:
    write("p.yaml", "schema: 1")
    assert load_profile("p.yaml") == Profile(name="p.yaml")


def test_mappings_are_merged_and_lists_replaced() -> None:
    write(
        "a.yaml",
        "sampling: {temp: 1, stop: [a, b], logit_bias: {1: 1, 2: 2}}\n"
        "drafters: [{kind: ngram-simple, match: 2}, {kind: filler}]\n"
        "chat: {template_kwargs: {x: {y: 1, z: 2}}}",
    )
    write(
        "b.yaml",
        "extends: a.yaml\nsampling: {top_k: 7, stop: [c], logit_bias: {2: 3}}\n"
        "drafters: [{kind: ngram-simple}]\nchat: {template_kwargs: {x: {y: 9}}}",
    )
    profile = load_profile("b.yaml")
    assert profile.sampling.temp == 1
    assert profile.sampling.top_k == 7
    assert profile.sampling.stop == ("c",)
    assert profile.sampling.logit_bias == {1: 1, 2: 3}
    assert profile.drafters == (Drafter(kind="ngram-simple"),)
    assert profile.chat.template_kwargs == {"x": {"y": 9, "z": 2}}


def test_null_takes_an_inherited_value_away() -> None:
    write("a.yaml", "sampling: {seed: 7}\nchat: {system: hello}")
    write("b.yaml", "extends: a.yaml\nsampling: {seed: null}\nchat:\n  # system: hi\n")
    profile = load_profile("b.yaml")
    assert profile.sampling.seed is None
    assert profile.chat.system == "hello"


def test_a_new_source_does_not_keep_the_hash_of_the_old_one() -> None:
    write("a.yaml", "target: {model: {source: /a.gguf, sha256: " + "a" * 64 + "}}")
    write("b.yaml", "extends: a.yaml\ntarget: {model: {source: /b.gguf}}")
    assert load_profile("b.yaml").target.model == ModelSource("/b.gguf", None)


def test_a_description_is_not_inherited() -> None:
    write("a.yaml", "description: the first")
    write("b.yaml", "extends: a.yaml")
    assert load_profile("b.yaml").description == ""


def test_a_chain_of_three_is_followed() -> None:
    write("x/a.yaml", "sampling: {temp: 1, top_k: 1, min_p: 0.1}")
    write("x/b.yaml", "extends: ./a.yaml\nsampling: {top_k: 2, min_p: 0.2}")
    write("c.yaml", "extends: x/b.yaml\nsampling: {min_p: 0.3}")
    sampling = load_profile("c.yaml").sampling
    assert (sampling.temp, sampling.top_k, sampling.min_p) == (1, 2, 0.3)


def test_relative_paths_start_at_the_file_that_has_them() -> None:
    write(
        "x/a.yaml",
        "target: {model: {source: m.gguf}}\nchat: {template_file: t.jinja}\n"
        "drafters: [{kind: draft-simple, model: {source: [../p0, /p1, 'hf:a/b/c']}},"
        " {kind: ngram-cache, static: corpus.bin, dynamic: /d.bin}]",
    )
    write("y/b.yaml", "extends: ../x/a.yaml")
    profile = load_profile("y/b.yaml")
    folder = Path("x").resolve()
    assert profile.target.model == ModelSource(str(folder / "m.gguf"))
    assert profile.chat.template_file == str(folder / "t.jinja")
    assert profile.drafters[0].model == ModelSource((f"{folder}/../p0", "/p1", "hf:a/b/c"))
    lookup = profile.drafters[1]
    assert (lookup.static, lookup.dynamic) == (str(folder / "corpus.bin"), "/d.bin")


def test_flags_win_and_their_paths_start_here() -> None:
    write("x/a.yaml", "target: {model: {source: m.gguf}, ctx_size: 512}\nsampling: {temp: 1}")
    profile = load_profile(
        "x/a.yaml", {"target.model": ModelSource("n.gguf"), "sampling.temp": 0.0}
    )
    assert profile.target.model == ModelSource("n.gguf")
    assert profile.target.ctx_size == 512
    assert profile.sampling.temp == 0


def test_overrides_are_checked_too() -> None:
    with pytest.raises(ProfileError, match=r"^sampling.temp: 9: allowed: a number from 0 to 5$"):
        load_profile("base", {"sampling.temp": 9})
    with pytest.raises(ProfileError, match=r"^sampling.tmp: unknown; did you mean"):
        load_profile("base", {"sampling.tmp": 1})


def test_values_that_do_not_fit_each_other_name_flags_as_their_origin() -> None:
    with pytest.raises(ProfileError, match=r"with flags: speculation.n_min: 5: allowed: at most"):
        load_profile("base", {"speculation.n_min": 5, "speculation.n_max": 3})


def test_circles_are_refused() -> None:
    write("a.yaml", "extends: ./b.yaml")
    write("b.yaml", "extends: ./a.yaml")
    assert faults("a.yaml") == ("b.yaml: extends: a circle: a.yaml -> b.yaml -> a.yaml",)
    write("c.yaml", "extends: c.yaml")
    assert faults("c.yaml") == ("c.yaml: extends: a circle: c.yaml -> c.yaml",)
    write(".outrider/p.yaml", "extends: q")
    write(".outrider/q.yaml", "extends: p")
    assert "a circle: p.yaml -> q.yaml -> p.yaml" in faults("p")[0]


def test_a_parent_that_is_not_there_is_named_with_its_child() -> None:
    write("a.yaml", "extends: ./no.yaml")
    assert faults("a.yaml") == ("a.yaml: extends: './no.yaml': no such file",)
    write("b.yaml", "extends: smolm2")
    assert faults("b.yaml")[0].startswith(
        "b.yaml: extends: no profile 'smolm2'; did you mean 'smollm2'?; allowed: base, "
    )


def test_a_fault_in_a_parent_names_the_parent() -> None:
    write("a.yaml", "sampling: {temp: 9}")
    write("b.yaml", "extends: a.yaml")
    assert faults("b.yaml") == ("a.yaml: sampling.temp: 9 (line 1): allowed: a number from 0 to 5",)


def test_every_fault_is_a_line_in_the_order_of_the_file() -> None:
    write("bad.yaml", "schema: 2\nsampling:\n  temp: 9\n  tpo_k: 1\ntarget: 5\nfoo: 1\n")
    lines = faults("bad.yaml")
    assert [line.split(": ")[1] for line in lines] == [
        "schema",
        "sampling.temp",
        "sampling.tpo_k",
        "target",
        "foo",
    ]
    with pytest.raises(ProfileError, match=r"^bad.yaml: schema: .* \(and 4 more\)$"):
        load_profile("bad.yaml")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("schema: 2", "schema: 2 (line 1): allowed: 1"),
        ('schema: "1"', "schema: '1' (line 1): allowed: 1"),
        ("schema:", "schema: null (line 1): allowed: 1"),
        ("name: x", "name: 'x' (line 1): unknown: a profile is called as its file is"),
        ("temp: 1", "temp: 1 (line 1): unknown key; did you mean 'sampling.temp'?"),
        ("1: 2", "1: 2 (line 1): unknown key; allowed: schema, extends, description, target,"),
        ("target: [1]", "target: [1] (line 1): allowed: a mapping with the keys model, ctx_size"),
        (
            "target: {ctx_siez: 1}",
            "target.ctx_siez: 1 (line 1): unknown key; did you mean 'ctx_size'?",
        ),
        ("target: {model: m.gguf}", "target.model: 'm.gguf' (line 1): allowed: a mapping: {sou"),
        ("target: {model: {}}", "target.model: {} (line 1): 'source' is missing"),
        (
            "target: {model: {source: 'pypi:x'}}",
            "target.model.source: 'pypi:x' (line 1): allowed: a path, hf:OWNER/REPO/FILE",
        ),
        (
            "target: {model: {source: a, sha256: zz}}",
            "target.model.sha256: 'zz' (line 1): allowed: 64 hexadecimal digits",
        ),
        ("target: {gpu_layers: some}", "target.gpu_layers: 'some' (line 1): allowed: a whole num"),
        ("target: {threads: true}", "target.threads: true (line 1): allowed: a whole number from"),
        ("drafters: {}", "drafters: {} (line 1): allowed: a list of drafters, such as [{kind:"),
        ("drafters: [x]", "drafters[0]: 'x' (line 1): allowed: a mapping with the keys kind,"),
        (
            "drafters:\n- {kind: filler}\n- {kind: ngram-simpel}",
            "drafters[1].kind: 'ngram-simpel' (line 3): allowed: draft-simple, draft-eagle3,"
            " draft-mtp, draft-dflash, draft-dspark, ngram-simple, ngram-map-k,"
            " ngram-map-k4v, ngram-mod, ngram-cache, ngram-edit, grammar, filler, null;"
            " did you mean 'ngram-simple'?",
        ),
        (
            "drafters: [{kind: filler, mach: 1}]",
            "drafters[0].mach: 1 (line 1): unknown key; did you mean 'match'?",
        ),
        (
            "drafters: [{kind: filler, match: 1}]",
            "drafters[0].match: 1: filler has no such setting",
        ),
        (
            "drafters: [{kind: ngram-simple, model: {source: /a}}]",
            "drafters[0].model: '/a': ngram-simple has no such setting",
        ),
        ("drafters: [{n_max: 3}]", "drafters[0]: needs a kind or a model"),
        (
            "drafters: [{kind: draft-simple}]",
            "drafters[0]: draft-simple needs a model: {source: ...} or --model-draft FILE",
        ),
        ("sampling: {temp: .nan}", "sampling.temp: nan (line 1): allowed: a number from 0 to 5"),
        ("sampling: {stop: x}", "sampling.stop: 'x' (line 1): allowed: a list of texts"),
        ("sampling: {stop: [x, 1]}", "sampling.stop[1]: 1 (line 1): allowed: a list of texts"),
        ("sampling: {logit_bias: {a: 1}}", "sampling.logit_bias.a: 1 (line 1): allowed: token ids"),
        ("chat: {system: 5}", "chat.system: 5 (line 1): allowed: text, null"),
        ("chat: {reasoning: maybe}", "chat.reasoning: 'maybe' (line 1): allowed: auto, on, off"),
        (
            "speculation: {n_min: 5, n_max: 3}",
            "speculation.n_min: 5: allowed: at most n_max, 3",
        ),
        ("extends: 5", "extends: 5 (line 1): allowed: text, null"),
        ("description: " + "x" * 200, None),
        ("chat: {context_policy: " + "x" * 200 + "}", "chat.context_policy: 'xxxxxxxx"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(text: str, line: str | None) -> None:
    write("p.yaml", text)
    if line is None:
        load_profile("p.yaml")
        return
    (found,) = faults("p.yaml")
    assert found.startswith(f"p.yaml: {line}")
    assert len(found) < 400


def test_profiles_are_searched_in_project_user_and_built_in_folders(user_folders: Path) -> None:
    user = user_folders / "config" / "outrider"
    assert load_profile("smollm2").description == (
        "SmolLM2 135M, drafted from the text so far and by a trained EAGLE-3 head"
    )
    write(str(user / "smollm2.yaml"), "extends: smollm2\ndescription: mine")
    profile = load_profile("smollm2")
    assert profile.description == "mine"
    assert profile.drafters[1].n_max == 3
    write(".outrider/smollm2.yml", "extends: smollm2\ndescription: the project's")
    profile = load_profile("smollm2")
    assert profile.description == "the project's"
    assert profile.drafters[1].n_max == 3
    assert load_profile("smollm2").name == "smollm2"


def test_a_path_is_not_searched() -> None:
    write(".outrider/p.yaml", "description: found")
    assert load_profile("p").description == "found"
    assert load_profile(".outrider/p.yaml").description == "found"
    assert faults("p.yaml") == ("p.yaml: no such file",)
    assert faults("./p") == ("p: no such file",)


def test_an_unknown_name_lists_the_known() -> None:
    assert faults("smolm2") == (
        "no profile 'smolm2'; did you mean 'smollm2'?; allowed: base, gemma3-270m, smollm2,"
        " smollm2-plain, smollm2-self",
    )


def test_the_list_has_every_place_once_and_survives_broken_files(user_folders: Path) -> None:
    write(str(user_folders / "config" / "outrider" / "mine.yaml"), "description: my own")
    write(".outrider/smollm2.yaml", "description: the project's")
    write(".outrider/broken.yaml", "- x")
    write(".outrider/readme.txt", "no profile")
    entries = {entry.name: entry for entry in list_profiles()}
    assert entries["mine"].origin == "user"
    assert entries["smollm2"].origin == "project"
    assert entries["smollm2"].description == "the project's"
    assert entries["smollm2-plain"].origin == "built-in"
    assert entries["broken"].fault is not None
    assert "a list, not a mapping" in entries["broken"].fault
    assert "readme" not in entries
