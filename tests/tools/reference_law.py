"""The law of answers by llama.cpp's rules, in plain float64 and without a line of the engine.

The chain is llama.cpp's list of candidates (src/llama-sampler.cpp): pairs of a token and its
logit, where masked tokens have minus infinity and stay in the list. Around the chain are the
grammar, as a list of all its strings, and the reasoning budget.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tools.toy_runner import Rows, ToyTokenizer

from outrider.speculative.settings import GenerationSettings, SamplingSettings

Law = dict[int, float]
"""The probability of each token that can be drawn."""

Outcome = tuple[int, ...]
"""The first tokens of an answer, the end token included."""

_Candidates = list[tuple[int, float]]
_Breakers = Collection[tuple[int, ...]]

_NUM_BEST = 100  # mirostat's m


@dataclass(frozen=True)
class Language:
    """What a grammar allows: all its strings, as far as answers that are counted can tell."""

    strings: Collection[str]

    def begins(self, text: str) -> bool:
        return any(string.startswith(text) for string in self.strings)

    def is_whole(self, text: str) -> bool:
        return text in self.strings


@dataclass(frozen=True)
class AnswerLaw:
    """The law of the answers of a toy model.

    Args:
        rows: the model.
        tokenizer: its vocabulary, with one end token.
        prompt: the tokens before the answer.
        settings: what is asked.
        language: the strings of ``settings.grammar``.
        breakers: DRY's, each as the tokens that spell it.
    """

    rows: Rows
    tokenizer: ToyTokenizer
    prompt: Sequence[int]
    settings: GenerationSettings
    language: Language | None = None
    breakers: _Breakers = ()

    def outcomes(self, count: int) -> dict[Outcome, float]:
        """The law of the first ``count`` tokens."""
        return dict(self._outcomes((), 2 * self.settings.sampling.mirostat_tau, count))

    def texts(self) -> dict[str, float]:
        """The law of the whole text, which ends before a stop string."""
        [end] = self.tokenizer.end_ids
        law = defaultdict[str, float](float)
        for tokens, prob in self.outcomes(self.settings.predict).items():
            law[self._shown([token for token in tokens if token != end])] += prob
        return law

    def fallbacks(self, count: int) -> float:
        """How many of the first ``count`` tokens come from the masked row, on average."""
        num = 0.0
        for tokens, prob in self.outcomes(count).items():
            for length in range(len(tokens)):
                laws = self._by_coin(tokens[:length], 0)
                num += prob * sum(chance for chance, _, is_fallback in laws if is_fallback)
        return num

    def _outcomes(self, so_far: Outcome, mu: float, count: int) -> Iterator[tuple[Outcome, float]]:
        [end] = self.tokenizer.end_ids
        if len(so_far) == count or end in so_far:
            yield so_far, 1.0
            return
        for token, prob in self._next(so_far, mu).items():
            following = mu - self.settings.sampling.mirostat_eta * (
                -math.log2(prob) - self.settings.sampling.mirostat_tau
            )
            for outcome, rest in self._outcomes((*so_far, token), following, count):
                yield outcome, prob * rest

    def _next(self, so_far: Outcome, mu: float) -> Law:
        """The law of the next token: over XTC's coin, which is thrown for each token anew."""
        law = defaultdict[int, float](float)
        for chance, given, _ in self._by_coin(so_far, mu):
            for token, prob in given.items():
                if prob:
                    law[token] += chance * prob
        return law

    def _by_coin(self, so_far: Outcome, mu: float) -> Iterator[tuple[float, Law, bool]]:
        sampling = self.settings.sampling
        row = dict(enumerate(self.rows([*self.prompt, *so_far]).tolist()))
        forced = self._forced(so_far)
        if forced is not None:
            yield 1.0, {forced: 1.0}, False
            return
        allowed = self._allowed(so_far)
        for acts, chance in (True, sampling.xtc_probability), (False, 1 - sampling.xtc_probability):
            if not chance:
                continue
            law = self._chain(row, so_far, mu, acts)
            kept = {token: prob for token, prob in law.items() if prob and token in allowed}
            if kept:
                total = sum(kept.values())
                yield chance, {token: prob / total for token, prob in kept.items()}, False
                continue
            masked = {token: x if token in allowed else -math.inf for token, x in row.items()}
            if allowed == set(self.tokenizer.end_ids):  # nothing more may come: that is the end
                yield chance, dict.fromkeys(allowed, 1.0), False
            else:
                yield chance, self._chain(masked, so_far, mu, acts), True

    def _chain(self, row: Mapping[int, float], so_far: Outcome, mu: float, xtc_acts: bool) -> Law:
        sampling = self.settings.sampling
        banned = {*self.tokenizer.suppressed_ids}
        if sampling.ignore_eos:
            banned |= {*self.tokenizer.end_ids}
        candidates = [
            (token, -math.inf if token in banned else logit + sampling.logit_bias.get(token, 0))
            for token, logit in row.items()
        ]
        if sampling.mirostat:
            return mirostat(candidates, sampling, mu)
        return chain(candidates, [*self.prompt, *so_far], sampling, self.breakers, xtc_acts)

    def _allowed(self, so_far: Outcome) -> set[int]:
        everything = set(range(self.tokenizer.size))
        if self.language is None:
            return everything
        answer, opening = self._answer(so_far)
        if answer is None:
            return everything
        allowed = {
            token
            for token in everything - {*self.tokenizer.end_ids}
            if self.language.begins(answer + self._text([token]))
        }
        if self.language.is_whole(answer):
            allowed |= {*self.tokenizer.end_ids}
        return allowed | opening

    def _answer(self, so_far: Outcome) -> tuple[str | None, set[int]]:
        """The text after the thought, None in a thought; and what may open a thought here."""
        text, reasoning = self._text(so_far), self.settings.reasoning
        if reasoning is None:
            return text, set()
        thought = text
        if not reasoning.is_open:
            if not text:
                return text, {self.tokenizer.encode(reasoning.start, parse_special=True)[0]}
            if not text.startswith(reasoning.start):
                return text, set()
            thought = text.removeprefix(reasoning.start)
        _, end, answer = thought.partition(reasoning.end)
        return (answer if end else None), set()

    def _forced(self, so_far: Outcome) -> int | None:
        """What comes when the budget for the thought is used up: the message and the end tag."""
        reasoning = self.settings.reasoning
        if reasoning is None or self._answer(so_far)[0] is not None or reasoning.budget < 0:
            return None
        closing = self.tokenizer.encode(reasoning.message + reasoning.end, parse_special=True)
        num_thought = len(so_far) - (not reasoning.is_open)  # the start tag is one token
        return closing[num_thought - reasoning.budget] if num_thought >= reasoning.budget else None

    def _text(self, tokens: Sequence[int]) -> str:
        return b"".join(map(self.tokenizer.piece, tokens)).decode()

    def _shown(self, tokens: Sequence[int]) -> str:
        """The text before the stop string that is complete first; of those the longest."""
        text = self._text(tokens)
        for length in range(1, len(text) + 1):
            found = [stop for stop in self.settings.stop if text[:length].endswith(stop)]
            if found:
                return text[:length].removesuffix(max(found, key=len))
        return text


# the chain


def chain(
    candidates: _Candidates,
    history: Sequence[int],
    sampling: SamplingSettings,
    breakers: _Breakers,
    xtc_acts: bool,
) -> Law:
    """The law after the samplers, which get the biased logits."""
    for name in sampling.samplers:
        match name:
            case "penalties":
                candidates = _penalties(candidates, history, sampling)
            case "dry":
                candidates = _dry(candidates, history, sampling, breakers)
            case "top_n_sigma":
                candidates = _top_n_sigma(candidates, sampling.top_n_sigma)
            case "top_k":
                candidates = _top_k(candidates, sampling.top_k)
            case "typ_p":
                candidates = _typical(candidates, sampling.typical_p)
            case "top_p":
                candidates = _top_p(candidates, sampling.top_p)
            case "min_p":
                candidates = _min_p(candidates, sampling.min_p)
            case "xtc":
                candidates = _xtc(candidates, sampling) if xtc_acts else candidates
            case "temperature":
                candidates = _temperature(candidates, sampling)
            case _:
                raise AssertionError(name)
    return _softmax(candidates)


def _softmax(candidates: _Candidates) -> Law:
    """Probabilities, best first."""
    ranked = _ranked(candidates)
    weights = {token: math.exp(logit - ranked[0][1]) for token, logit in ranked}
    return {token: weight / sum(weights.values()) for token, weight in weights.items()}


def _ranked(candidates: _Candidates) -> _Candidates:
    return sorted(candidates, key=lambda candidate: -candidate[1])


def _penalties(
    candidates: _Candidates, history: Sequence[int], sampling: SamplingSettings
) -> _Candidates:
    last_n = sampling.repeat_last_n
    counts = Counter(history if last_n < 0 else history[-last_n:] if last_n else ())

    def penalised(token: int, logit: float) -> float:
        if token not in counts:
            return logit
        factor = sampling.repeat_penalty if logit <= 0 else 1 / sampling.repeat_penalty
        frequency = counts[token] * sampling.frequency_penalty
        return logit * factor - frequency - sampling.presence_penalty

    return [(token, penalised(token, logit)) for token, logit in candidates]


def _dry(
    candidates: _Candidates,
    history: Sequence[int],
    sampling: SamplingSettings,
    breakers: _Breakers,
) -> _Candidates:
    allowed = sampling.dry_allowed_length
    if sampling.dry_multiplier == 0 or sampling.dry_base < 1 or sampling.dry_penalty_last_n <= 0:
        return candidates
    recent = list(history[-sampling.dry_penalty_last_n :])
    longest = _longest_repeats(recent, breakers)
    if len(recent) <= allowed:
        longest = {}
    return [
        (token, logit - sampling.dry_multiplier * sampling.dry_base ** (longest[token] - allowed))
        if longest.get(token, 0) >= allowed and (token,) not in breakers
        else (token, logit)
        for token, logit in candidates
    ]


def _longest_repeats(text: list[int], breakers: _Breakers) -> dict[int, int]:
    """For each token: the longest end of ``text`` after which it came before.

    No repetition reaches across a breaker.
    """
    last_breaker = max(
        (
            begin + len(breaker)
            for breaker in breakers
            for begin in range(len(text) - len(breaker) + 1)
            if tuple(text[begin : begin + len(breaker)]) == breaker
        ),
        default=0,
    )
    longest: Counter[int] = Counter()
    for place, token in enumerate(text):
        for length in range(1, min(place, len(text) - last_breaker) + 1):
            if text[place - length : place] == text[len(text) - length :]:
                longest[token] = max(longest[token], length)
    return longest


def _top_n_sigma(candidates: _Candidates, num_sigmas: float) -> _Candidates:
    if num_sigmas <= 0 or len(candidates) <= 1:
        return candidates
    logits = [logit for _, logit in candidates if logit > -math.inf]
    mean = sum(logits) / len(logits)
    sigma = math.sqrt(sum((logit - mean) ** 2 for logit in logits) / len(logits))
    floor = max(logits) - num_sigmas * sigma
    return [(token, logit if logit >= floor else -math.inf) for token, logit in candidates]


def _top_k(candidates: _Candidates, count: int) -> _Candidates:
    return _ranked(candidates)[:count] if count > 0 else candidates


def _typical(candidates: _Candidates, mass: float) -> _Candidates:
    if mass >= 1:
        return candidates
    law = _softmax(candidates)
    entropy = _entropy(law)
    logits = dict(candidates)
    nearest = sorted(
        law, key=lambda token: abs(-math.log(law[token]) - entropy) if law[token] else math.inf
    )
    total, kept = 0.0, list[tuple[int, float]]()
    for token in nearest:
        total += law[token]
        kept.append((token, logits[token]))
        if total > mass:
            break
    return kept


def _top_p(candidates: _Candidates, mass: float) -> _Candidates:
    if mass >= 1:
        return candidates
    total, kept = 0.0, list[tuple[int, float]]()
    logits = dict(candidates)
    for token, prob in _softmax(candidates).items():
        total += prob
        kept.append((token, logits[token]))
        if total >= mass:
            break
    return kept


def _min_p(candidates: _Candidates, ratio: float) -> _Candidates:
    if ratio <= 0:
        return candidates
    floor = max(logit for _, logit in candidates) + math.log(ratio)
    return [(token, logit) for token, logit in candidates if logit >= floor]


def _xtc(candidates: _Candidates, sampling: SamplingSettings) -> _Candidates:
    if sampling.xtc_probability <= 0 or sampling.xtc_threshold > 0.5 or len(candidates) < 2:
        return candidates
    probs = _softmax(candidates).values()
    num_above = sum(prob >= sampling.xtc_threshold for prob in probs)
    return _ranked(candidates)[max(num_above - 1, 0) :]


def _temperature(candidates: _Candidates, sampling: SamplingSettings) -> _Candidates:
    temp, spread = sampling.temp, sampling.dynatemp_range
    if spread > 0:
        if len(candidates) <= 1:
            return candidates
        flatness = _entropy(_softmax(candidates)) / math.log(len(candidates))
        low, high = max(0.0, temp - spread), temp + spread
        temp = low + (high - low) * flatness**sampling.dynatemp_exp
    if temp > 0:
        return [(token, logit / temp) for token, logit in candidates]
    best = _ranked(candidates)[0]
    return [(token, logit if token == best[0] else -math.inf) for token, logit in candidates]


def _entropy(law: Law) -> float:
    return -sum(prob * math.log(prob) for prob in law.values() if prob)


def mirostat(candidates: _Candidates, sampling: SamplingSettings, mu: float) -> Law:
    """Both versions: the tempered law, cut where ``mu`` says."""
    temp = sampling.temp
    ranked = _ranked([(token, logit / temp) for token, logit in candidates])
    law = _softmax(ranked)
    if sampling.mirostat == 2:
        count = sum(prob > 0 and -math.log2(prob) <= mu for prob in law.values())
    else:
        count = _mirostat_count(list(law.values()), mu)
    return _softmax(ranked[: max(count, 1)])


def _mirostat_count(probs: Sequence[float], mu: float) -> int:
    above = below = 0.0
    for i in range(min(_NUM_BEST, len(probs)) - 1):
        step = math.log((i + 2) / (i + 1))
        above += step * math.log(probs[i] / probs[i + 1])
        below += step * step
    slope = above / below
    excess = slope - 1
    return int(((excess * 2**mu) / (1 - len(probs) ** -excess)) ** (1 / slope))
