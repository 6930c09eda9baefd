"""Writes a language model of random weights and a tokenizer: `python make_model.py FOLDER`, in the server's Python."""

import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TEXT = "the quick brown fox jumps over the lazy dog 0123456789 "

tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
alphabet = pre_tokenizers.ByteLevel.alphabet()
tokenizer.train_from_iterator([TEXT] * 10, trainers.BpeTrainer(vocab_size=400, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet))
fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="</s>")  # noqa: S106 - tokens of a text
fast.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "
fast.save_pretrained(sys.argv[1])

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=len(fast), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    max_position_embeddings=2048, bos_token_id=0, eos_token_id=1, pad_token_id=1,
)  # fmt: skip
model = LlamaForCausalLM(config)
model.generation_config.eos_token_id = None  # each text has as many tokens as are asked for
model.save_pretrained(sys.argv[1])
