"""Names of llama.cpp's samplers, in words or letters."""

from __future__ import annotations

SAMPLERS = (
    "penalties",
    "dry",
    "top_n_sigma",
    "top_k",
    "typ_p",
    "top_p",
    "min_p",
    "xtc",
    "temperature",
)
DRY_BREAKERS = ("\n", ":", '"', "*")
_LETTERS = dict(zip("edskypmxt", SAMPLERS, strict=True))
# llama.cpp's other spellings (common/sampling.cpp)
_ALSO = {
    "top-k": "top_k",
    "top-p": "top_p",
    "nucleus": "top_p",
    "typical": "typ_p",
    "typical-p": "typ_p",
    "typ-p": "typ_p",
    "typ": "typ_p",
    "min-p": "min_p",
    "top-n-sigma": "top_n_sigma",
    "temp": "temperature",
}


def sampler_names(text: str) -> tuple[str, ...]:
    """The samplers that a list or a sequence of letters names, in its order.

    Raises:
        ValueError: an unknown name; says what is allowed.
    """
    if text and text not in SAMPLERS and set(text) <= set(_LETTERS):
        return tuple(_LETTERS[letter] for letter in text)
    names = [name.strip().lower() for name in text.split(";") if name.strip()]
    chosen = tuple(_ALSO.get(name, name) for name in names)
    if not set(chosen) <= set(SAMPLERS):
        raise ValueError(
            f"allowed: {';'.join(SAMPLERS)} in any order, or letters of {''.join(_LETTERS)}"
        )
    return chosen
