from __future__ import annotations

from typing import Any

import pytest
import typer
from typer.main import get_command

from outrider.cli.options import flag_names, takes_fields
from outrider.cli.strict_parser import StrictCommand
from outrider.profiles.errors import ProfileError
from outrider.profiles.fields import FIELDS


@pytest.fixture
def given() -> Any:
    """The overrides that a command line makes."""
    app = typer.Typer(rich_markup_mode=None)
    seen: list[dict[str, object]] = []

    @app.command(cls=StrictCommand)
    @takes_fields(leave_out=("chat.context_policy",))
    def command(*, overrides: dict[str, object]) -> int:
        """Say what was given."""
        seen.append(overrides)
        return 0

    def run(*args: str) -> dict[str, object]:
        get_command(app).main([*args], prog_name="prog", standalone_mode=False)
        return seen.pop()

    return run


@pytest.mark.parametrize(
    ("args", "wanted"),
    [
        ([], {}),
        (["--temp", "0.5"], {"sampling.temp": 0.5}),
        (["--temperature=0"], {"sampling.temp": 0.0}),
        (["-n", "-1", "-c", "0"], {"sampling.predict": -1, "target.ctx_size": 0}),
        (["--repeat-last-n", "-1"], {"sampling.repeat_last_n": -1}),
        (["-s", "-1"], {"sampling.seed": None}),
        (["-s", "0"], {"sampling.seed": 0}),
        (["-r", "a", "--stop", "b"], {"sampling.stop": ("a", "b")}),
        (["-l", "5+1.5", "-l", "7-inf"], {"sampling.logit_bias": {5: 1.5, 7: float("-inf")}}),
        (["--no-spec-adaptive"], {"speculation.adaptive": False}),
        (["--ignore_eos"], {"sampling.ignore_eos": True}),
        (["-ngl", "auto"], {"target.gpu_layers": "auto"}),
        (["-ngl", "7"], {"target.gpu_layers": 7}),
        (["-fa", "on"], {"target.flash_attn": "on"}),
        (["--spec-type", "none"], {"drafter.kinds": ()}),
        (["--temp", "1", "--temp", "2"], {"sampling.temp": 2.0}),
        (["--chat-template-kwargs", '{"a": 1}'], {"chat.template_kwargs": {"a": 1}}),
        (["-sys", ""], {"chat.system": ""}),
    ],
)
def test_what_is_given_becomes_overrides(
    given: Any, args: list[str], wanted: dict[str, object]
) -> None:
    assert given(*args) == wanted


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--temp", "-1"], "--temp/--temperature: '-1': allowed: a number from 0 to 5"),
        (["-c", "4k"], "-c/--ctx-size: '4k': allowed: a whole number from 0 to 16777216"),
        (["--spec-draft-n-max", "0"], "--spec-draft-n-max: '0': allowed: a whole number from 1 to"),
        (["-ctk", "f8"], "-ctk/--cache-type-k: 'f8': allowed: f32, f16,"),
        (["--temp", ""], "--temp/--temperature: '': allowed: a number"),
    ],
)
def test_an_impossible_value_names_flag_value_and_limits(
    given: Any, args: list[str], message: str
) -> None:
    with pytest.raises(ProfileError) as caught:
        given(*args)
    assert str(caught.value).startswith(message)


def test_a_field_can_be_left_out(given: Any) -> None:
    with pytest.raises(typer.TyperException, match="no option --context-policy"):
        given("--context-policy", "stop")


def test_help_has_limits_and_defaults(given: Any, capsys: pytest.CaptureFixture[str]) -> None:
    given_help = pytest.raises(IndexError)  # help calls no command
    with given_help:
        given("--help")
    text = " ".join(capsys.readouterr().out.split())
    assert "--temp, --temperature X temperature; 0 always takes the likeliest token" in text
    assert "(0 to 5; default 0.8)" in text
    assert "-fa, --flash-attn auto|on|off" in text
    assert "-ctk, --cache-type-k TYPE" in text
    assert "f32, f16, bf16" in text
    assert "--spec-adaptive / --no-spec-adaptive" in text


def test_errors_name_a_flag_by_its_short_and_its_long_name() -> None:
    assert flag_names("target.ctx_size") == "-c/--ctx-size"
    assert all(flag_names(field.path) for field in FIELDS if field.flags)
