"""The real diffusers: writes a pipeline with random weights, and compares two."""

import torch
from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from line_server import serve
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

MODELS = "unet", "vae", "text_encoder"


def make(path, **settings):
    torch.manual_seed(7)
    widths = {"norm_num_groups": 2, "block_out_channels": (4, 8)}
    unet = UNet2DConditionModel(**widths, layers_per_block=1, sample_size=8, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
                                up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), cross_attention_dim=16, attention_head_dim=2)
    vae = AutoencoderKL(**widths, down_block_types=["DownEncoderBlock2D"] * 2, up_block_types=["UpDecoderBlock2D"] * 2)
    text = CLIPTextConfig(hidden_size=16, intermediate_size=20, num_attention_heads=2, num_hidden_layers=2, vocab_size=100)
    tokenizer = CLIPTokenizer(vocab={"<|startoftext|>": 0, "<|endoftext|>": 1, "a</w>": 2}, merges=[])
    StableDiffusionPipeline(unet=unet, vae=vae, text_encoder=CLIPTextModel(text), tokenizer=tokenizer, scheduler=DDIMScheduler(), safety_checker=None,
                            feature_extractor=None, image_encoder=None).save_pretrained(path, **settings)


def differences(first, second):
    """The number of tensors, and the names of those that differ."""
    first, second = (StableDiffusionPipeline.from_pretrained(path, safety_checker=None) for path in (first, second))
    assert second.tokenizer.get_vocab() == first.tokenizer.get_vocab() and second.scheduler.config == first.scheduler.config
    count, differing = 0, []
    for model in MODELS:
        one, other = (getattr(pipeline, model).state_dict() for pipeline in (first, second))
        assert one.keys() == other.keys()
        count += len(one)
        differing += [f"{model}.{name}" for name in one if not torch.equal(one[name], other[name])]
    return [count, differing]


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve({"make": make, "differences": differences})
