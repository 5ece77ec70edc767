"""Small tokenizers of the kinds that real models use, each with a chat template of its habits."""

from collections.abc import Callable
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import TokenizersBackend

LLAMA2_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %} {{ m.content | trim }} {{ eos_token }}"
    "{% else %}[INST] {{ m.content | trim }} [/INST]{% endif %}{% endfor %}"
)
PHI3_TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}{% endfor %}{{ '<|assistant|>\n' }}"
)
QWEN3_TEMPLATE = (
    "{% for m in messages %}{% set text = m.content %}{% if m.role == 'assistant' and '</think>' in text %}"
    "{% set text = text.split('</think>')[-1].lstrip('\n') %}{% endif %}"
    "{{ '<|im_start|>' + m.role + '\n' + text + '<|im_end|>\n' }}{% endfor %}{{ '<|im_start|>assistant\n<think>\n' }}"
)
TOOLS_TEMPLATE = (
    "{% for m in messages %}{{ '<|' ~ m.role ~ '|>' }}{{ m.content }}"
    "{% if m.name %}{{ '<' ~ m.name ~ '>' }}{% endif %}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }} {{ c.function.arguments | tojson }}"
    "</tool_call>{% endfor %}{% endfor %}{{ '<|assistant|>' }}"
)


def llama2_like() -> TokenizersBackend:
    """SentencePiece habits: a space before the text, bytes for unknown characters, and <s> put first."""
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁"]
    vocab = {word: i for i, word in enumerate([*words, *map(chr, range(33, 127)), "he", "▁he"])}
    tokenizer = Tokenizer(
        models.BPE(vocab, [("h", "e"), ("▁", "he")], unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([AddedToken(word, normalized=False) for word in ("<unk>", "<s>", "</s>")])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return _backend(tokenizer, LLAMA2_TEMPLATE, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def phi3_like() -> TokenizersBackend:
    """Control tokens outside the model's vocabulary that swallow the white space after them; roles glued in."""
    tokenizer = _byte_level()
    roles = ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|end|>")
    tokenizer.add_special_tokens([AddedToken(name, rstrip=True, normalized=False) for name in roles])
    return _backend(tokenizer, PHI3_TEMPLATE, eos_token="<|end|>")


def qwen3_like() -> TokenizersBackend:
    """Added tokens that are not special, and a template that cuts earlier answers at one of them."""
    tokenizer = _byte_level()
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in ("<|im_start|>", "<|im_end|>")])
    tokenizer.add_tokens([AddedToken(name, normalized=False) for name in ("<think>", "</think>", "<table>")])
    return _backend(tokenizer, QWEN3_TEMPLATE, eos_token="<|im_end|>")


def tools_like() -> TokenizersBackend:
    """Tool calls written as JSON, and names glued between angle brackets."""
    tokenizer = _byte_level()
    names = ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|end|>", "<stop>")
    tokenizer.add_special_tokens([AddedToken(name, normalized=True) for name in names])
    tokenizer.add_tokens([AddedToken("<tool_call>"), AddedToken("</tool_call>")])
    return _backend(tokenizer, TOOLS_TEMPLATE, eos_token="<|end|>")


KINDS: dict[str, Callable[[], TokenizersBackend]] = {
    "llama2": llama2_like,
    "phi3": phi3_like,
    "qwen3": qwen3_like,
    "tools": tools_like,
}


def unigram_like() -> TokenizersBackend:
    """A vocabulary whose model makes an end token out of plain text."""
    pieces = [("<unk>", 0.0), ("</s>", 0.0), ("▁", -1.0), *((chr(code), -3.0) for code in range(33, 127))]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens([AddedToken("<unk>", normalized=False), AddedToken("</s>", normalized=False)])
    return _backend(tokenizer, "{% for m in messages %}{{ m.content }}</s>{% endfor %}", eos_token="</s>")


def _byte_level() -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("h", "e"), ("Ġ", "he"), ("i", "m")]
    vocab = {word: i for i, word in enumerate([*alphabet, *(first + second for first, second in merges)])}
    tokenizer = Tokenizer(models.BPE(vocab, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _backend(tokenizer: Tokenizer, template: str, **special: Any) -> TokenizersBackend:
    return TokenizersBackend(tokenizer_object=tokenizer, chat_template=template, **special)
