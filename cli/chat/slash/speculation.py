"""The command about speculation: what it costs and brings, and how it is done."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from outrider.cli.chat.setting_values import words_of
from outrider.cli.chat.slash.registry import COMMANDS
from outrider.cli.chat.spec_view import spec_head, spec_rows
from outrider.cli.errors import UsageError
from outrider.profiles.fields import check, field_at

if TYPE_CHECKING:
    from outrider.cli.chat.chat import Chat

_KEYS = {
    "n": "speculation.n_max",
    "type": "drafter.kinds",
    "verify": "speculation.verify",
    "adaptive": "speculation.adaptive",
    "sampling": "speculation.sampling",
}


def _choices(chat: Chat, typed: str) -> Iterable[tuple[str, str]]:
    before, blank, last = typed.rpartition(" ")
    if not blank:
        yield "on", "draft as the profile says"
        yield "off", "no drafts"
        yield "off once", "no drafts for the next message"
        yield "once ", "another way for the next message: once n=2 verify=match"
    if before not in ("on", "off"):
        for key, path in _KEYS.items():
            field = field_at(path)
            yield f"{before}{blank}{key}=", field.help
            if last.startswith(f"{key}="):
                for word in words_of(field):
                    yield f"{before}{blank}{key}={word}", ""


@COMMANDS.command(
    "/spec",
    "how drafts are made and verified, what they cost and bring; once: for the next message",
    usage="[on|off [once]|[once] n=N type=LIST verify=RULE adaptive=true|false]",
    choices=_choices,
)
def spec(chat: Chat, argument: str) -> None:
    models, (width, _) = chat.models, chat.renderer.size()
    first, _, rest = argument.partition(" ")
    if not argument:
        chat.renderer.show(spec_rows(models, width, chat.glyphs))
        return
    if argument == "off":
        models.end_once()
        models.configure(replace(models.profile, drafters=()))
    elif argument == "on":
        _turn_on(chat)
    elif argument.split() == ["off", "once"]:
        models.skip_once()
    elif first == "once":
        values = _values(rest)
        models.end_once()
        models.configure_once(models.with_values(values), f"/spec {argument}")
    else:
        values = _values(argument)
        models.end_once()
        models.configure(models.with_values(values))
    chat.renderer.show(spec_head(models, width))


def _turn_on(chat: Chat) -> None:
    models = chat.models
    models.end_once()
    if not models.drafting:
        raise UsageError("/spec on: the profile has no drafter; /spec type=ngram-edit")
    models.configure(replace(models.profile, drafters=models.drafting))


def _values(argument: str) -> dict[str, object]:
    """What ``KEY=VALUE KEY=VALUE`` mean, by path."""
    values: dict[str, object] = {}
    for part in argument.split() or [""]:
        key, equals, text = part.partition("=")
        if not equals or key not in _KEYS:
            allowed = ", ".join(["on", "off", "off once", "once", *(f"{key}=" for key in _KEYS)])
            raise UsageError(f"/spec {part or 'once'}: allowed: {allowed}")
        values[_KEYS[key]] = check(_KEYS[key], text, name=f"/spec {key}")
    return values
