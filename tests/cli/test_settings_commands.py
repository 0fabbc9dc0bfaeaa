"""``/set`` and ``/profile``: all settings with their limits, models that come and go."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from tools.scripted_chat import ListScreen, Nothing, Scripted, scripted_chat

from outrider.cli.chat.chat import Chat
from outrider.cli.chat.running_models import RunningModels, open_engine
from outrider.cli.chat.setting_values import GROUPS, SETTINGS
from outrider.cli.chat.slash import COMMANDS
from outrider.cli.chat.slash.completer import CommandCompleter
from outrider.cli.glyphs import UNICODE
from outrider.cli.screen.render import Renderer
from outrider.profiles.fields import FIELDS, check
from outrider.profiles.load import load_profile
from outrider.speculative.model_store import ModelStore


@pytest.fixture
def model(zoo: Path) -> Path:
    return zoo / "target-llama.gguf"


def shown(scripted: Scripted, line: str) -> list[str]:
    """The rows that a command prints."""
    before = len(scripted.screen.lines)
    scripted.chat.submit(line)
    return [text for _, text in scripted.screen.lines[before:]]


# /set


def test_every_sampling_field_is_listed_with_its_limits(model: Path) -> None:
    text = "\n".join(shown(scripted_chat(model=model, columns=120), "/set"))
    sampling = [field for field in FIELDS if field.path.startswith("sampling.")]
    for field in sampling:
        assert f"{field.path.partition('.')[2]}=" in text
    assert sum(len(keys) for keys in GROUPS.values()) == len(SETTINGS)
    assert "temperature  temp=0.8 (0 to 5)  dynatemp_range=0 (0 to 5)  dynatemp_exp=1 (" in text
    assert "seed=none (0 to 4,294,967,295)" in text
    assert "context_policy=drop-oldest (drop-oldest, stop)" in text
    assert "ignore_eos=false (true, false)" in text
    assert 'dry_sequence_breakers=["\\n", ":", "\\"", "*"]' in text
    assert "samplers=penalties;dry;top_n_sigma;top_k…" in text


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_the_list_fits_and_breaks_between_settings(model: Path, columns: int) -> None:
    rows = shown(scripted_chat(model=model, columns=columns), "/set")
    # one setting and its limits can be longer than the narrowest rows
    assert all(len(row) < columns for row in rows if row.count("=") > 1)
    groups = [row.split()[0] for row in rows if row.split()[0] in GROUPS]
    assert groups == list(GROUPS)
    assert all("=" in row or row in GROUPS for row in rows)


def test_a_group_is_a_row_where_that_fits(model: Path) -> None:
    assert len(shown(scripted_chat(model=model, columns=200), "/set")) == len(GROUPS)


def test_one_setting_is_shown_with_limits_and_help(model: Path) -> None:
    scripted = scripted_chat(model=model)
    assert shown(scripted, "/set temp") == [
        "temp=0.8 (0 to 5)   temperature; 0 always takes the likeliest token"
    ]
    [row] = shown(scripted, "/set samplers")
    assert row.startswith("samplers=penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temper")


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("/set temp=0.25", "temp=0.25"),
        ("/set top-k = 7", "top_k=7"),
        ("/set seed=11", "seed=11"),
        ("/set ignore_eos=true", "ignore_eos=true"),
        ("/set stop=User: ", 'stop=["User:"]'),
        ('/set stop=["User:", "the end"]', 'stop=["User:", "the end"]'),
        ("/set regex=[0-9]+", "regex=[0-9]+"),
        ('/set grammar=root ::= "a b"', 'grammar=root ::= "a b"'),
        ("/set reasoning=off", "reasoning=off"),
        ("/set logit_bias=7-1", 'logit_bias={"7": -1.0}'),
    ],
)
def test_settings_are_changed_and_go_back_to_the_profiles_value(
    model: Path, line: str, wanted: str
) -> None:
    scripted = scripted_chat("x", model=model, overrides={"sampling.temp": 0.5})
    before = scripted.chat.models.profile
    assert shown(scripted, line) == [wanted]
    assert scripted.chat.models.profile != before
    key = wanted.partition("=")[0]
    shown(scripted, f"/set {key}=default")
    assert scripted.chat.models.profile == before


def test_none_takes_back_what_needs_no_value(model: Path) -> None:
    scripted = scripted_chat(model=model, overrides={"sampling.stop": ("a",)})
    for line in ("/set seed=3", "/set grammar=root ::= [ab]+"):
        scripted.chat.submit(line)
    assert shown(scripted, "/set seed=none") == ["seed=none"]
    assert shown(scripted, "/set grammar=none") == ["grammar=none"]
    assert shown(scripted, "/set stop=none") == ["stop=none"]
    scripted.chat.submit("/set reasoning_budget_message=enough")
    assert shown(scripted, "/set reasoning_budget_message=none")[0].endswith("=none")
    assert scripted.chat.models.profile.chat.reasoning_budget_message == ""
    assert scripted.chat.models.profile.sampling.stop == ()


def test_one_grammar_takes_the_place_of_another(model: Path) -> None:
    scripted = scripted_chat(model=model)
    scripted.chat.submit("/set regex=[0-9]+")
    scripted.chat.submit('/set json_schema={"type": "object"}')
    sampling = scripted.chat.models.profile.sampling
    assert (sampling.regex, sampling.json_schema) == (None, '{"type": "object"}')


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("/set temp=9", "error: temp=9 is out of range, allowed 0 to 5"),
        ("/set top_k=-7", "error: top_k=-7 is out of range, allowed 0 to 1,048,576"),
        ("/set temp=hot", "error: /set temp: 'hot': allowed: a number from 0 to 5"),
        ("/set reasoning=of", "allowed: auto, on, off; did you mean 'off'?"),
        ("/set tmep=1", "did you mean 'temp'?"),
        ("/set tmep", "did you mean 'temp'?"),
        ("/set stop=[1]", "a JSON list of texts"),
        ("/set grammar=root ::= (", "--grammar"),
        ("/set grammar_file=/nowhere", "/nowhere"),
    ],
)
def test_an_error_is_one_line_with_the_limits(model: Path, line: str, error: str) -> None:
    scripted = scripted_chat(model=model)
    before = scripted.chat.models.profile
    [row] = shown(scripted, line)
    assert row.startswith("error: ")
    assert error in row
    assert scripted.chat.models.profile is before


def test_completion_has_limits_help_words_and_the_way_back(model: Path) -> None:
    scripted = scripted_chat(model=model)
    completer = CommandCompleter(COMMANDS, lambda: scripted.chat)

    def offered(text: str) -> dict[str, str]:
        found = completer.get_completions(Document(text), CompleteEvent())
        return {one.text: one.display_meta_text for one in found}

    assert offered("/set temp") == {
        "temp=": "0.8 (0 to 5)   temperature; 0 always takes the likeliest token",
        "template_kwargs=": "none   variables for the chat template",
    }
    scripted.chat.submit("/set reasoning=off")
    assert offered("/set reasoning=") == {
        "reasoning=auto": "",
        "reasoning=on": "",
        "reasoning=off": "",
        "reasoning=default": "auto, as the profile says",
    }


# /profile, with real models


Tell = Callable[[str, float], None]


class RealChat:
    """A chat on the tiny models; ``on_load`` is told the progress of loading."""

    def __init__(self, model: Path) -> None:
        self.screen = ListScreen()
        self.on_load: Tell = lambda stage, share: None
        values = {"target.model": check("target.model", str(model)), "sampling.temp": 0.0}
        profile = load_profile("base", values)
        self.models = RunningModels(profile, open_engine(profile), self._loading, values)
        self.chat = Chat(
            self.models,
            renderer=cast(Renderer, self.screen),
            keyboard=Nothing(),
            glyphs=UNICODE,
        )
        self.chat.submit("/set predict=12")

    @contextlib.contextmanager
    def _loading(self) -> Iterator[Tell]:
        yield self.on_load

    def shown(self, line: str) -> list[str]:
        before = len(self.screen.lines)
        self.chat.submit(line)
        return [text for _, text in self.screen.lines[before:]]

    def answer(self) -> str:
        """The answer to the same message in a new conversation."""
        self.chat.submit("/clear")
        self.chat.submit("Count from 5 to 16.")
        return self.screen.of("answer")[-1]


@pytest.fixture
def real(model: Path) -> Iterator[RealChat]:
    chat = RealChat(model)
    yield chat
    chat.models.close()


def write_profile(name: str, target: Path, *, rest: str = "") -> str:
    """A profile in the working folder, called by its path."""
    text = (
        f"schema: 1\nextends: base\ntarget: {{model: {{source: {target}}}}}\n"
        f"sampling: {{temp: 0.0, predict: 12}}\n{rest}"
    )
    Path(f"{name}.yaml").write_text(text)
    return f"{name}.yaml"


def stores(monkeypatch: pytest.MonkeyPatch) -> list[ModelStore]:
    """Every store of models that is made from now on."""
    made: list[ModelStore] = []
    init = ModelStore.__init__

    def noted(self: ModelStore, *arguments: object) -> None:
        made.append(self)
        init(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ModelStore, "__init__", noted)
    return made


def test_the_models_before_are_freed(
    zoo: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = stores(monkeypatch)
    real = RealChat(model)
    drafted = f"drafters: [{{model: {{source: {zoo / 'draft-simple.gguf'}}}}}]\n"
    other = write_profile("other", zoo / "target-hybrid-lfm2.gguf")
    pair = write_profile("pair", model, rest=drafted)
    for name in (pair, other, pair, other):
        real.shown(f"/profile {name}")
        assert real.screen.of("error") == []
    assert real.models.engine.model_name != ""
    loaded = [len(store._models) for store in made]
    assert loaded == [0, 0, 0, 0, 1]
    real.models.close()
    assert len(made[-1]._models) == 0


def rss_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def test_memory_does_not_grow_with_the_number_of_profiles_tried(
    zoo: Path, model: Path, real: RealChat
) -> None:
    """A context of 4,096 of the tiny models has a cache of several MiB."""
    names = [write_profile("a", model), write_profile("b", zoo / "target-swa-gemma3.gguf")]
    for name in 3 * names:
        real.shown(f"/profile {name}")
    before = rss_mib()
    for name in 10 * names:
        real.shown(f"/profile {name}")
    assert real.screen.of("error") == []
    assert rss_mib() - before < 20


def test_ctrl_c_while_a_profile_loads_keeps_the_former_one(real: RealChat, zoo: Path) -> None:
    former, name = real.answer(), real.models.profile.name
    other = write_profile("other", zoo / "target-hybrid-lfm2.gguf")
    real.on_load = lambda stage, share: signal.raise_signal(signal.SIGINT)
    assert real.shown(f"/profile {other}") == ["note: cancelled"]
    real.on_load = lambda stage, share: None
    assert real.models.profile.name == name
    assert real.answer() == former


@pytest.mark.parametrize("fault", ["yaml", "missing", "truncated", "no template"])
def test_a_broken_profile_is_one_line_and_the_chat_goes_on(
    real: RealChat, model: Path, fault: str
) -> None:
    former = real.answer()
    target = Path("broken.gguf")
    if fault == "truncated":
        target.write_bytes(model.read_bytes()[:100_000])
    name = write_profile("broken", target if fault != "yaml" else model)
    if fault == "yaml":
        Path(name).write_text("schema: 1\ntarget: [\n")
    if fault == "no template":
        name = "nope"
    [row] = real.shown(f"/profile {name}")
    assert row.startswith("error: ")
    assert real.answer() == former


# /spec, with real models


def test_ctrl_c_while_a_drafter_loads_keeps_the_former_way(real: RealChat, zoo: Path) -> None:
    former = real.answer()
    real.on_load = lambda stage, share: signal.raise_signal(signal.SIGINT)
    drafter = check("drafter.model", str(zoo / "draft-simple.gguf"))
    profile = real.models.with_values({"drafter.model": drafter})
    with pytest.raises(KeyboardInterrupt):
        real.models.configure(profile)
    real.on_load = lambda stage, share: None
    assert real.models.engine.drafter_names == ()
    assert real.models.profile.drafters == ()
    assert real.answer() == former


def test_what_is_loaded_for_spec_is_told(real: RealChat, zoo: Path) -> None:
    stages = list[str]()
    real.on_load = lambda stage, share: stages.append(stage)
    drafter = check("drafter.model", str(zoo / "draft-simple.gguf"))
    real.models.configure(real.models.with_values({"drafter.model": drafter}))
    assert {"drafter", "measure"} <= set(stages)
    [*_, gain] = real.shown("/spec")
    assert "in force" in gain


def test_the_same_answer_with_drafts_without_and_with_others_for_once(
    real: RealChat, zoo: Path
) -> None:
    plain = real.answer()
    drafter = check("drafter.model", str(zoo / "draft-simple.gguf"))
    real.models.configure(real.models.with_values({"drafter.model": drafter}))
    assert real.answer() == plain
    for command in ("/spec off once", "/spec once type=ngram-simple n=2"):
        real.shown(command)
        assert real.answer() == plain
        assert real.models.engine.drafter_names == ("draft-simple",)
    drafted = [record.stats.per_drafter for record in real.chat.records]
    assert "draft-simple" not in drafted[-1]
