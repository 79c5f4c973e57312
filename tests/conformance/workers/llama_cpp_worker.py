"""llama.cpp: loads a GGUF file, and computes what comes after some tokens."""

import xllamacpp
from line_server import serve


def logits(path, tokens, count):
    """The logarithms of the probabilities of the `count` tokens that may come next, in the order of their ids."""
    settings = xllamacpp.CommonParams()
    settings.model.path = path
    settings.n_ctx, settings.n_parallel, settings.warmup, settings.verbosity = 256, 1, False, -1
    # In float32 throughout.
    settings.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    settings.cache_type_k = settings.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    answer = xllamacpp.Server(settings).handle_completions({
        "prompt": tokens, "n_predict": 1, "n_probs": count, "ignore_eos": True, "seed": 1, "samplers": [], "cache_prompt": False})
    found = {row["id"]: row["logprob"] for row in answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]}
    return [found[token] for token in range(count)]


if __name__ == "__main__":
    serve({"logits": logits})
