"""The banner at the start and the toolbar below the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

from rich.cells import cell_len

from outrider.cli.chat.running_models import RunningModels
from outrider.cli.chat.session_list import shorten
from outrider.cli.glyphs import UNICODE, Glyphs
from outrider.cli.screen.panel import Role, Row, context_role
from outrider.cli.stats_view import SHORT_SYNTHETIC, fit, percent, plural, seconds
from outrider.speculative.llama import supports_gpu
from outrider.speculative.threads import thread_count

_NARROW = 60
_CHARACTERS_A_TOKEN = 4
_SHORTEST_NAME = 6
_LEAVING = ("/help", "ctrl-c stop", "ctrl-d leave")


def banner(models: RunningModels, columns: int, glyphs: Glyphs = UNICODE) -> list[str]:
    """What runs, how it drafts, how to leave; of a name that is too long the beginning."""
    engine, width = models.engine, columns - 1
    program = f"outrider {'.'.join(version('outrider').split('.')[:2])}"
    names, context = engine.drafter_names, f"context {engine.n_ctx:,}"
    if columns < _NARROW:
        drafting = [models.rule, context] if names else [context]
        drafters = ", ".join(names) or "no drafter"
        while drafting and _SHORTEST_NAME + len("  ".join(["", *drafting])) > width:
            drafting.pop()
        drafters = _shortened(drafters, drafting, "  ", width, glyphs)
        return [
            f"{program}  {_shortened(engine.model_name, [program], '  ', width, glyphs)}",
            fit([drafters, *drafting], "  ", width),
            fit(_LEAVING, "  ", width),
        ]
    name = _shortened(engine.model_name, [program, context], "   ", width, glyphs)
    runs = [program, name, context, _machine(models), f"loaded in {seconds(engine.load_s)}"]
    drafts = [*_drafting(models), f"profile {models.profile.name}"]
    leaves = "   ".join(["/help", "ctrl-j new line", "ctrl-c stops an answer", "ctrl-d leaves"])
    if len(leaves) > width:
        leaves = "  ".join(_LEAVING)
    return [fit(runs, "   ", width), fit(drafts, "   ", width), leaves]


def _shortened(name: str, others: Sequence[str], separator: str, width: int, glyphs: Glyphs) -> str:
    """A name in the room that the other parts of its line leave."""
    return shorten(name, max(_SHORTEST_NAME, width - len(separator.join(["", *others]))), glyphs)


def _machine(models: RunningModels) -> str:
    """``2 threads, CPU``."""
    target = models.profile.target
    is_offloaded = target.gpu_layers != 0 and supports_gpu()
    threads = plural(thread_count(target.threads), "thread")
    return f"{threads}, {'GPU' if is_offloaded else 'CPU'}"


def _drafting(models: RunningModels) -> list[str]:
    names = models.engine.drafter_names
    if not names:
        if models.off_words() != "no drafter":
            return [models.off_words()]
        return ["no drafter (--spec-type ngram-edit needs no second model)"]
    mode = f"length {models.longest}, fixed"
    if models.engine.speculation.adaptive:
        mode = f"length adaptive up to {models.longest}"
    noun = "drafter" if len(names) == 1 else "drafters"
    return [f"{noun} {', then '.join(names)}, {mode}", f"verification {models.rule}"]


def toolbar(
    models: RunningModels, typed: str, width: int, glyphs: Glyphs, *, num_attached: int = 0
) -> Row:
    """Profile, drafter, verification; at the right the context, with what will be sent counted in.

    That is the ``typed`` text and ``num_attached`` tokens of files.
    """
    engine = models.engine
    waiting = num_attached + len(typed) // _CHARACTERS_A_TOKEN
    used, about = models.session.context_used + waiting, "~" if waiting else ""
    role = context_role(used, engine.n_ctx)
    names = ", ".join(engine.drafter_names)
    is_drafting = bool(names) and models.session.is_drafting
    is_synthetic = models.rule == "synthetic"
    if width + 1 < _NARROW:
        if is_synthetic:
            return [(shorten(SHORT_SYNTHETIC, width, glyphs), "warn")]
        drafting = [names, models.rule, *(["once"] if models.once else [])]
        if not is_drafting:
            drafting = ["off once" if models.once else "no drafter"]
        right = f"{about}{used:,}/{engine.n_ctx:,}"
        return _apart(fit(drafting, " ", width - len(right) - 1), right, width, glyphs, role)
    mode = "adaptive" if engine.speculation.adaptive else "fixed"
    parts = [SHORT_SYNTHETIC if is_synthetic else models.profile.name]
    if is_drafting:
        parts += [f"{names} {mode}", models.rule, *(["once"] if models.once else [])]
    else:
        parts.append("speculation off once" if models.once else models.off_words())
    right = f"{about}{used:,} / {engine.n_ctx:,}  {percent(used, engine.n_ctx)}"
    left = fit(parts, f" {glyphs.separator} ", width - len(right) - 1)
    return _apart(left, right, width, glyphs, role, "warn" if is_synthetic else "dim")


def _apart(
    left: str, right: str, width: int, glyphs: Glyphs, role: Role, left_role: Role = "dim"
) -> Row:
    left = shorten(left, max(0, width - len(right) - 1), glyphs)
    gap = " " * (width - cell_len(left) - len(right))
    return [(left + gap, left_role), (right, role)]
