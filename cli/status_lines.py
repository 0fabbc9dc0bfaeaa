"""The banner at the start and the toolbar below the prompt."""

from __future__ import annotations

from importlib.metadata import version

from outrider.cli.glyphs import Glyphs
from outrider.cli.running_models import RunningModels
from outrider.cli.stats_view import SYNTHETIC, fit, percent, seconds

_NARROW = 60
_CHARACTERS_A_TOKEN = 4


def banner(models: RunningModels, columns: int) -> list[str]:
    """What runs, how it drafts, how to leave."""
    engine, number = models.engine, ".".join(version("outrider").split(".")[:2])
    names, context = engine.drafter_names, f"context {engine.n_ctx:,}"
    if columns < _NARROW:
        drafting = [", ".join(names), models.rule] if names else ["no drafter"]
        return [
            fit([f"outrider {number}", engine.model_name], "  ", columns - 1),
            fit([*drafting, context], "  ", columns - 1),
            "/help  ctrl-c stop  ctrl-d leave",
        ]
    runs = [f"outrider {number}", engine.model_name, context, f"loaded in {seconds(engine.load_s)}"]
    drafts = [*_drafting(models), f"profile {models.profile.name}"]
    leaves = ["/help", "ctrl-j new line", "ctrl-c stops an answer", "ctrl-d leaves"]
    return [fit(parts, "   ", columns - 1) for parts in (runs, drafts, leaves)]


def _drafting(models: RunningModels) -> list[str]:
    names = models.engine.drafter_names
    if not names:
        if models.off_words() != "no drafter":
            return [models.off_words()]
        return ["no drafter (--spec-type ngram-simple needs no second model)"]
    speculation = models.engine.speculation
    most = f" up to {speculation.n_max}" if speculation.n_max else ""
    mode = "length adaptive" if speculation.adaptive else "length fixed"
    noun = "drafter" if len(names) == 1 else "drafters"
    return [f"{noun} {', then '.join(names)}, {mode}{most}", f"verification {models.rule}"]


def toolbar(models: RunningModels, typed: str, width: int, glyphs: Glyphs) -> str:
    """Profile, drafter, verification; at the right the context, with the typed text counted in."""
    engine = models.engine
    used = models.session.context_used + len(typed) // _CHARACTERS_A_TOKEN
    about = "~" if len(typed) >= _CHARACTERS_A_TOKEN else ""
    names = ", ".join(engine.drafter_names)
    if models.rule == "synthetic":
        return _apart(
            fit([SYNTHETIC.partition(":")[0], names], "  ", width), "not the model's text", width
        )
    if width + 1 < _NARROW:
        left = fit([part for part in (names, models.rule if names else "") if part], " ", width)
        return _apart(left or "no drafter", f"{about}{used:,}/{engine.n_ctx:,}", width)
    mode = "adaptive" if engine.speculation.adaptive else "fixed"
    parts = [models.profile.name, f"{names} {mode}" if names else models.off_words()]
    if names:
        parts.append(models.rule)
    right = f"{about}{used:,} / {engine.n_ctx:,}  {percent(used, engine.n_ctx)}"
    left = fit(parts, f" {glyphs.separator} ", width - len(right) - 1)
    return _apart(left, right, width)


def _apart(left: str, right: str, width: int) -> str:
    gap = width - len(left) - len(right)
    return f"{left}{' ' * gap}{right}" if gap >= 1 else left[:width]
