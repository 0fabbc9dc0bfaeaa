"""A comparison in words: the table, the texts and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from outrider.cli.bench.compare import Comparison, Timed, first_token_s, tokens_per_s
from outrider.cli.bench.identity import Difference, Identity
from outrider.cli.bench.ratio import Noise, Ratio
from outrider.cli.glyphs import Glyphs
from outrider.cli.stats_view import SYNTHETIC, fraction, plural, three_digits

_WIDTH = 79
_MEBIBYTE = 2**20
_RESTLESS = 1.05


def compare_lines(made: Comparison, glyphs: Glyphs) -> list[str]:
    """All that is printed."""
    noise = Noise.of(made.itself)
    return [
        *([SYNTHETIC] if made.is_synthetic else []),
        *_head(made),
        *_table(made, glyphs),
        *_text_lines(made),
        verdict_line(made.speed, noise),
        *_advice(noise),
    ]


def _head(made: Comparison) -> list[str]:
    request = made.request
    names = [f"A {request.a.text}", f"B {request.b.text}"]
    one_line = "  ".join(names)
    temps = {
        _temperature(spec.overrides.get("sampling.temp", 0.0)) for spec in (request.a, request.b)
    }
    length = plural(request.predict, "token")
    return [
        *([one_line] if len(one_line) <= _WIDTH else names),
        f"{plural(len(request.prompts.samples), 'prompt')}, {plural(request.rounds, 'round')}"
        " of A, A again and B in all orders; the warm-up round is left out",
        f"answers of {length}, end tokens ignored, temperature {' and '.join(sorted(temps))};"
        " ratios within a round, their median",
    ]


def _temperature(value: object) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _table(made: Comparison, glyphs: Glyphs) -> list[str]:
    a, b = made.stats("A"), made.stats("B")

    def middles(value: Callable[[Timed], float | None]) -> list[str]:
        return [three_digits(median(made.values(label, value)), glyphs) for label in ("A", "B")]

    def fractions(*values: float | None) -> list[str]:
        return [fraction(value, glyphs) for value in values]

    return [
        f"{'':16}{'A':>7}{'B':>7}   B to A   99 % interval",
        _row("tok/s", middles(tokens_per_s), made.speed),
        _row("first token, s", middles(first_token_s), made.first_token),
        _memory_row(made.memory["A"], made.memory["B"], glyphs),
        _row("acceptance", fractions(a.acceptance_rate, b.acceptance_rate)),
        _row("mean length", fractions(a.mean_accepted_length, b.mean_accepted_length)),
        _row("A against A", ["", ""], made.itself),
    ]


def _row(name: str, values: Sequence[str], ratio: Ratio | None = None) -> str:
    row = f"{name:16}{values[0]:>7}{values[1]:>7}"
    if ratio is not None:
        row += f"{ratio.value:9.2f}   {ratio.low:.2f} to {ratio.high:.2f}"
    return row


def _memory_row(a: int | None, b: int | None, glyphs: Glyphs) -> str:
    row = _row("memory, MiB", [_mebibytes(one, glyphs) for one in (a, b)])
    return row if a is None or b is None else f"{row}{b / a:9.2f}"


def _mebibytes(num_bytes: int | None, glyphs: Glyphs) -> str:
    return glyphs.dash if num_bytes is None else f"{num_bytes / _MEBIBYTE:,.0f}"


def _text_lines(made: Comparison) -> list[str]:
    if made.why_no_texts is not None:
        return [f"texts are not compared: {made.why_no_texts}"]
    return [identity_line(each) for each in made.identities]


def identity_line(identity: Identity) -> str:
    """How many texts are the same, and where the others part."""
    counts = f"{identity.num_equal} of {identity.num_prompts}"
    if identity.sides == ("A", "B"):
        words, differing = f"same text at temperature 0: {counts}", "texts differ in"
    else:
        words = f"same text as plain decoding, {identity.sides[1]}: {counts}"
        differing = f"{identity.sides[1]} differs from plain decoding in"
    if not identity.differences:
        return words
    number = f"{len(identity.differences)} of {identity.num_prompts}"
    return f"{differing} {number}: {'; '.join(map(_difference, identity.differences))}"


def _difference(one: Difference) -> str:
    place = f"prompt {one.prompt}, token {one.token}"
    return f"{place}, a FAULT" if one.gap is None else f"{place}, a tie ({one.gap:.4f})"


def verdict_line(speed: Ratio, noise: Noise) -> str:
    """Faster, slower or neither, in words; no winner inside the noise."""
    verdict = noise.verdict(speed)
    figures = f"{speed.value:.2f} times ({speed.low:.2f} to {speed.high:.2f})"
    if verdict != "not distinguishable":
        return f"B is {verdict}: {figures}, outside today's noise of this machine"
    where = f"lies inside the noise ({noise.low:.2f} to {noise.high:.2f})"
    if not noise.holds(speed):
        where = "may as well be 1"
    return f"not distinguishable: {speed.value:.2f} ({speed.low:.2f} to {speed.high:.2f}) {where}"


def _advice(noise: Noise) -> list[str]:
    if noise.high <= _RESTLESS:
        return []
    return ["The machine is restless: more --rounds, or a quieter hour, would tell more."]
