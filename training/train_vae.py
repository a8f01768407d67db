"""Train the small autoencoder (8x down, 8 latent channels) on crops, then make its latents zero-mean, unit-variance.

The shipped encoder came from a 10-minute run of this; the shipped decoder was tuned further by `tune_decoder`.
usage: python -m training.train_vae OUT --minutes 10
"""

import argparse
import math
import random
import time

import torch
from diffusers import AutoencoderKL
from torch import Tensor

from training.shapes import SIZE
from training.toy_world import draw_split

CROP = 64
KL_WEIGHT = 1e-3


def make_vae() -> AutoencoderKL:
    return AutoencoderKL(
        block_out_channels=(16, 32, 64, 64),
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        latent_channels=8,
        norm_num_groups=8,
        layers_per_block=1,
        mid_block_add_attention=False,
        sample_size=SIZE,
        scaling_factor=1.0,
    )


def batch(rng: random.Random, n: int, crop: int) -> Tensor:
    """Random crops of fresh pictures, `[N, 3, crop, crop]` in -1..1."""
    crops = []
    for _ in range(n):
        pixels = draw_split(rng, "", (SIZE, SIZE), held=False).pixels
        y, x = rng.randint(0, SIZE - crop), rng.randint(0, SIZE - crop)
        crops.append(torch.from_numpy(pixels[y : y + crop, x : x + crop].copy()))
    scaled = torch.stack(crops).permute(0, 3, 1, 2) / 127.5 - 1
    return scaled.contiguous(memory_format=torch.channels_last)


def loss_of(vae: AutoencoderKL, pixels: Tensor) -> tuple[Tensor, Tensor]:
    """The training loss and the mean squared error in it."""
    posterior = vae.encode(pixels).latent_dist
    error = vae.decode(posterior.sample()).sample - pixels
    across, down = error[..., 1:] - error[..., :-1], error[..., 1:, :] - error[..., :-1, :]
    kl = 0.5 * (posterior.mean**2 + posterior.var - 1 - posterior.logvar).mean()
    squared = error.square().mean()
    edges = across.abs().mean() + down.abs().mean()
    return error.abs().mean() + squared + 0.5 * edges + KL_WEIGHT * kl, squared


@torch.no_grad()
def normalise(vae: AutoencoderKL, rng: random.Random) -> None:
    """Fold the latents' mean and spread into the 1x1 convolutions on either side, so that `scaling_factor` stays 1."""
    latents = torch.cat([vae.encode(batch(rng, 32, SIZE)).latent_dist.mean for _ in range(16)])
    mean, spread = latents.mean((0, 2, 3)), latents.std((0, 2, 3))
    n, before, after = len(mean), vae.quant_conv, vae.post_quant_conv
    before.weight[:n] /= spread[:, None, None, None]
    before.bias[:n] = (before.bias[:n] - mean) / spread
    before.bias[n:] -= 2 * spread.log()
    after.bias += after.weight[:, :, 0, 0] @ mean
    after.weight *= spread[None, :, None, None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--lr", type=float, default=1.5e-3)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    rng, vae = random.Random(11), make_vae().to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(vae.parameters(), lr=args.lr, betas=(0.9, 0.99), weight_decay=1e-4)
    started, step = time.time(), 0
    while (progress := (time.time() - started) / (args.minutes * 60)) < 1:
        lr = args.lr * min(1.0, (step + 1) / 100) * 0.5 * (1 + math.cos(math.pi * progress))
        for group in optimizer.param_groups:
            group["lr"] = lr
        loss, squared = loss_of(vae, batch(rng, args.batch, CROP))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(vae.parameters(), 1.0)
        optimizer.step()
        step += 1
        if step % 100 == 0:
            decibel = -10 * math.log10(squared.item() / 4)
            print(f"{step} steps, {time.time() - started:.0f} s, {decibel:.2f} dB", flush=True)
    normalise(vae.eval(), rng)
    vae.to(memory_format=torch.contiguous_format).save_pretrained(args.out)


if __name__ == "__main__":
    main()
