"""What the slash commands do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from outrider.cli.commands import CommandRegistry
from outrider.cli.errors import UsageError
from outrider.cli.stats_view import plural, stats_rows
from outrider.cli.transcript import saved_sessions
from outrider.profiles.errors import ProfileError
from outrider.profiles.fields import FIELDS, Field, check, nearest

if TYPE_CHECKING:
    from outrider.cli.chat import Chat

COMMANDS = CommandRegistry()

_SETTABLE_SECTIONS = ("sampling.", "chat.context_policy", "chat.reasoning", "chat.template_kwargs")
_SPEC_KEYS = {
    "n": "speculation.n_max",
    "type": "drafter.kinds",
    "verify": "speculation.verify",
    "adaptive": "speculation.adaptive",
    "sampling": "speculation.sampling",
}


@COMMANDS.command("/help", "list the commands and keys")
def show_help(chat: Chat, argument: str) -> None:
    width, _ = chat.renderer.size()
    if argument:
        command = COMMANDS.find(argument if argument.startswith("/") else f"/{argument}")
        chat.renderer.show([f"{command.name} {command.usage}".rstrip(), f"  {command.help}"])
        return
    rows = COMMANDS.help_rows(width)
    rows += [
        "//text sends a message that begins with /",
        "ctrl-j new line, ctrl-r searches the history, ctrl-g opens the editor,",
        "ctrl-c stops an answer, ctrl-d leaves",
    ]
    chat.renderer.show(rows)


@COMMANDS.command("/exit", "leave")
def leave(chat: Chat, argument: str) -> None:
    chat.is_over = True


@COMMANDS.command("/clear", "begin a new conversation; the present one stays saved")
def clear(chat: Chat, argument: str) -> None:
    chat.begin_new()
    chat.note("new conversation")


@COMMANDS.command("/regen", "answer the last message again")
def regenerate(chat: Chat, argument: str) -> None:
    chat.regenerate()


@COMMANDS.command("/undo", "take back the last message and its answer")
def undo(chat: Chat, argument: str) -> None:
    turn = chat.transcript.undo()
    if turn is None:
        raise UsageError("there is nothing to take back")
    chat.save()
    chat.waiting = turn.message
    chat.note("taken back; the message is in the input")


@COMMANDS.command("/system", "show, set or remove the system message", usage="[TEXT|none]")
def system(chat: Chat, argument: str) -> None:
    if not argument:
        chat.renderer.show([chat.transcript.system or "no system message"])
        return
    chat.transcript.system = None if argument == "none" else argument
    chat.save()
    chat.note("system message removed" if argument == "none" else "system message set")


@COMMANDS.command("/stats", "speed and acceptance of this chat")
def stats(chat: Chat, argument: str) -> None:
    width, _ = chat.renderer.size()
    rows = stats_rows(chat.records, width=width, glyphs=chat.glyphs) if chat.records else []
    chat.renderer.show(rows or ["no answers yet"])


def _spec_choices(chat: Chat) -> Iterable[tuple[str, str]]:
    yield "on", "draft as the profile says"
    yield "off", "no drafts"
    for key, path in _SPEC_KEYS.items():
        field = _field(path)
        yield f"{key}=", f"{field.help}"


@COMMANDS.command(
    "/spec",
    "how drafts are made and verified",
    usage="[on|off|n=N|type=LIST|verify=RULE|adaptive=true|false]",
    choices=_spec_choices,
)
def spec(chat: Chat, argument: str) -> None:
    if argument == "off":
        chat.models.configure(replace(chat.models.profile, drafters=()))
    elif argument == "on":
        if not chat.models.drafting.drafters:
            raise UsageError("/spec on: the profile has no drafter; /spec type=ngram-simple")
        chat.models.configure(chat.models.drafting)
    elif argument:
        chat.models.configure(chat.models.with_values(_spec_values(argument)))
    chat.renderer.show(chat.models.drafting_words())


def _spec_values(argument: str) -> dict[str, object]:
    values: dict[str, object] = {}
    for part in argument.split():
        key, equals, text = part.partition("=")
        if not equals or key not in _SPEC_KEYS:
            allowed = ", ".join(["on", "off", *(f"{key}=" for key in _SPEC_KEYS)])
            raise UsageError(f"/spec {part}: allowed: {allowed}")
        values[_SPEC_KEYS[key]] = check(_SPEC_KEYS[key], text, name=f"/spec {key}")
    return values


def _settable() -> dict[str, Field]:
    return {
        field.path.partition(".")[2]: field
        for field in FIELDS
        if field.path.startswith(_SETTABLE_SECTIONS)
    }


def _set_choices(chat: Chat) -> Iterable[tuple[str, str]]:
    for key, field in _settable().items():
        yield f"{key}=", f"{chat.models.value(field.path)}   {field.help}"


@COMMANDS.command(
    "/set",
    "show or change a setting of the next answers",
    usage="[KEY=VALUE]",
    choices=_set_choices,
)
def set_value(chat: Chat, argument: str) -> None:
    fields = _settable()
    key, equals, text = argument.partition("=")
    key = key.strip().replace("-", "_")
    shown = fields if not argument else {key: fields[key]} if key in fields else {}
    if not shown:
        raise UsageError(f"/set {key}: unknown{nearest(key, fields)}")
    if equals:
        path = fields[key].path
        value = check(path, text.strip(), name=f"/set {key}")
        chat.models.apply(chat.models.with_values({path: value}))
    chat.renderer.show([f"{name}={chat.models.value(field.path)}" for name, field in shown.items()])


def _profile_choices(chat: Chat) -> Iterable[tuple[str, str]]:
    from outrider.profiles.load import list_profiles

    try:
        return [(entry.name, entry.description) for entry in list_profiles()]
    except (ProfileError, OSError):
        return []


@COMMANDS.command(
    "/profile", "go on with another model", usage="[NAME|PATH]", choices=_profile_choices
)
def profile(chat: Chat, argument: str) -> None:
    if argument:
        chat.switch_profile(argument)
    else:
        chat.renderer.show(
            [f"{chat.models.profile.name}   {chat.models.profile.description}".rstrip()]
        )


def _session_choices(chat: Chat) -> Iterable[tuple[str, str]]:
    return [(name, "") for name in saved_sessions()]


@COMMANDS.command(
    "/think", "show the last thought; on and off: print the thoughts to come", usage="[show|on|off]"
)
def think(chat: Chat, argument: str) -> None:
    if argument in ("on", "off"):
        chat.shows_thinking = argument == "on"
        chat.note(f"thinking is {'shown' if chat.shows_thinking else 'folded'} from now on")
        return
    if argument not in ("", "show"):
        raise UsageError(f"/think {argument}: allowed: show, on, off")
    thoughts = (turn.details.get("reasoning") for turn in reversed(chat.transcript.turns))
    last = next((thought for thought in thoughts if isinstance(thought, str)), None)
    if last is None:
        raise UsageError("/think: there is no thought yet")
    chat.renderer.show(last.split("\n"), "dim")


@COMMANDS.command("/save", "save under a name", usage="NAME|PATH")
def save(chat: Chat, argument: str) -> None:
    if not argument:
        chat.renderer.show([f"saved after every answer: {chat.conversation.path}"])
        return
    chat.conversation.save_as(argument)
    chat.note(f"saved to {chat.conversation.path}")


@COMMANDS.command(
    "/load", "go on with a saved conversation", usage="NAME|PATH", choices=_session_choices
)
def load(chat: Chat, argument: str) -> None:
    if not argument:
        names = saved_sessions()
        chat.renderer.show(names[:20] or ["no saved conversations"])
        return
    chat.load(argument)
    chat.note(f"loaded {argument}: {plural(len(chat.transcript.turns), 'turn')}")


def _field(path: str) -> Field:
    return next(field for field in FIELDS if field.path == path)
