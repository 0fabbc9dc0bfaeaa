"""The model architectures that the pinned llama.cpp knows, by their GGUF names.

llama.cpp refuses another name only after it began to load, so it is looked up here first.
A test asks the installed library about each of them.
"""

from __future__ import annotations

_KNOWN_ARCHITECTURES = """
llama llama4 llama-embed deci falcon falcon-h1 grok gpt2 gptneox mpt baichuan starcoder
starcoder2 refact bert modern-bert nomic-bert nomic-bert-moe neo-bert jina-bert-v2
jina-bert-v3 eurobert bloom stablelm qwen qwen2 qwen2moe qwen2vl qwen3 qwen3moe qwen3next
qwen3vl qwen3vlmoe qwen3tts qwen35 qwen35moe qwen4exp phi2 phi3 phimoe plamo plamo2 plamo3
codeshell orion internlm2 minicpm minicpm3 gemma gemma2 gemma3 gemma3n gemma4
gemma4-assistant gemma-embedding mamba mamba2 maple jamba xverse command-r cohere2
cohere2moe dbrx olmo olmo2 olmoe muse-glimmer openelm arctic deepseek deepseek2
deepseek2-ocr deepseek32 deepseek4 chatglm glm4 glm4moe glm-dsa glm5-next bitnet t5
t5encoder jais jais2 nemotron nemotron_h nemotron_h_moe exaone exaone4 exaone-moe rwkv6
rwkv6qwen2 rwkv7 arwkv7 granite granitemoe granitehybrid graniteswitch granite_swa
chameleon wavtokenizer-dec plm bailingmoe bailingmoe2 bailingmoe3 dots1 dots3note arcee
afmoe laguna ernie4_5 ernie4_5-moe hunyuan-moe hunyuan-dense hunyuan_vl hy_v3 hy_v4 smollm3
gpt-oss lfm2 lfm2moe dream smallthinker llada llada-moe seed_oss grovemoe apertus minimax-01
minimax-m2 minimax-m3 hrm_text cogvlm rnd1 pangu-embedded mistral3 mistral4 eagle3 dflash
paddleocr mimo2 step35 spark2_5 maincoder kimi-linear kimi-k3 talkie mellum nanbeige
pockettts
"""
KNOWN_ARCHITECTURES: frozenset[str] = frozenset(_KNOWN_ARCHITECTURES.split())

# Their layers can be read while they run; any other target ends the process when an
# eagle3, dflash or dspark drafter asks for them.
_READABLE_LAYERS = """
bailingmoe3 deepseek4 gemma4 hunyuan_vl hunyuan-dense lfm2 lfm2moe llama mimo2 minimax-01
minimax-m2 muse-glimmer nanbeige nemotron_h nemotron_h_moe gpt-oss qwen3 qwen3moe qwen3next
qwen35 qwen35moe qwen4exp
"""
READABLE_LAYERS: frozenset[str] = frozenset(_READABLE_LAYERS.split())

# Their NextN heads can be run; of any other architecture they are not even loaded, or llama.cpp
# fails on them.
_RUNNABLE_HEADS = """
bailingmoe3 cohere2moe deepseek2 deepseek32 deepseek4 glm-dsa glm4moe hy_v3 mimo2
nemotron_h_moe qwen3next qwen35 qwen35moe step35
"""
RUNNABLE_HEADS: frozenset[str] = frozenset(_RUNNABLE_HEADS.split())

# With several heads the others abort, or (hy_v3) read the wrong row.
CHAINED_HEADS: frozenset[str] = frozenset({"mimo2", "step35"})

# Encoders and parts of models: they load, but write no text.
_NOT_WRITERS = """
bert modern-bert nomic-bert nomic-bert-moe neo-bert jina-bert-v2 jina-bert-v3 eurobert
gemma-embedding llama-embed t5encoder wavtokenizer-dec
"""
NOT_WRITERS: frozenset[str] = frozenset(_NOT_WRITERS.split())
