"""verify(): which draft tokens stand, and the token the target adds.

Pure arithmetic with no model in sight. Rejection sampling is that of Leviathan et al. 2023
(arXiv 2211.17192) and Chen et al. 2023 (arXiv 2302.01318); sample-and-compare is llama.cpp's
(common/sampling.cpp, common_sampler_sample_and_accept_n).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from outrider.speculative.distribution import Distribution
from outrider.speculative.proposal import Proposal, Verdict
from outrider.speculative.statistics import Rule
from outrider.speculative.uniforms import Coins


def verify(
    proposal: Proposal,
    target: Callable[[int], Distribution],
    coins: Coins,
    rule: Rule,
    is_end: Callable[[int], bool],
    acceptance: Sequence[float] = (),
) -> Verdict:
    """Accept draft tokens from the left until one is rejected.

    Args:
        proposal: k draft tokens; k may be 0 (an ordinary step).
        target: the target's law at position i, given that the draft tokens before i stand.
            Asked in order and only as far as needed: penalties depend on the history.
        coins: one target and one acceptance uniform for each emitted token.
        rule: ``greedy`` and ``match`` keep a draft token if it is the target's own draw;
            ``rejection`` keeps x with probability min(1, p(x) / q(x)) and otherwise draws from
            the residual; ``synthetic`` keeps by ``acceptance`` alone (benchmarks only).
        is_end: an accepted end token ends the block there.
        acceptance: for ``synthetic``, the chance of position i given that all before it stood.
    """
    count = len(proposal.token_ids)
    for i, token in enumerate(proposal.token_ids):
        law = target(i)
        if rule == "rejection":
            recovered = _by_ratio(i, token, law, proposal, coins)
        elif rule == "synthetic":
            chance = acceptance[i] if i < len(acceptance) else 0.0
            stands = coins.acceptance(i) < chance and not is_end(token)
            recovered = None if stands else _own(i, law, coins, rule)
        else:
            own = law.mode if rule == "greedy" else law.draw(coins.target(i))
            recovered = None if own == token else own
        if recovered is not None:
            return Verdict(i, recovered, "recovered")
        if is_end(token):
            return Verdict(i + 1, None, "none")
    return Verdict(count, _own(count, target(count), coins, rule), "bonus")


def _by_ratio(
    i: int, token: int, law: Distribution, proposal: Proposal, coins: Coins
) -> int | None:
    """None if draft token ``i`` stands, else the token that replaces it."""
    laws = proposal.distributions
    proposed = Distribution.point(token) if laws is None else laws[i]
    drafted = proposed.prob(token)
    # strictly below: a token of probability 0 never stands, whatever the uniform
    if drafted > 0 and coins.acceptance(i) * drafted < law.prob(token):
        return None
    return law.residual(proposed).draw(coins.target(i))


def _own(i: int, law: Distribution, coins: Coins, rule: Rule) -> int:
    """The token the target draws by itself."""
    return law.mode if rule == "greedy" else law.draw(coins.target(i))
