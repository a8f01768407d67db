"""Tune the decoder alone to draw crisp pictures from latents as the denoiser leaves them; the encoder stays as it is.

Half of each batch is true latents with a little noise, half the denoiser's one-step estimates from slightly noisy ones.
usage, one process a rank: python -m training.tune_decoder PIPELINE OUT --rank 0 --world 2 --minutes 9
"""

import argparse
import math
import random
import shutil
from pathlib import Path

import torch
from diffusers import AutoencoderKL
from torch import Tensor
from transformers import CLIPTokenizer

from training import workers
from training.cache import SIZES, token_ids
from training.toy_world import draw_split
from training.train_denoiser import Denoiser
from training.workers import average_gradients, schedule

MAX_NOISE = 0.12
MAX_TIMESTEP = 350


class Tuner:
    """The frozen encoder and denoiser, and the decoder being tuned."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.rng = args, random.Random(210 + args.rank)
        self.denoiser = Denoiser(args.pipeline).eval().requires_grad_(False)
        self.tokenizer = CLIPTokenizer.from_pretrained(args.pipeline, subfolder="tokenizer")
        vae = AutoencoderKL.from_pretrained(args.pipeline, subfolder="vae", torch_dtype=torch.float32)
        self.vae = vae.to(memory_format=torch.channels_last).requires_grad_(False)
        self.params = [*self.vae.decoder.parameters(), *self.vae.post_quant_conv.parameters()]
        for param in self.params:
            param.requires_grad_(True)
        self.optimizer = torch.optim.AdamW(self.params, lr=args.lr, betas=(0.9, 0.99), weight_decay=1e-4)

    @torch.no_grad()
    def batch(self) -> tuple[Tensor, Tensor]:
        """Pixels `[B, 3, H, W]` and latents to decode them from."""
        size = self.rng.choices(list(SIZES), list(SIZES.values()))[0]
        pictures = [draw_split(self.rng, "", size, held=False) for _ in range(self.args.batch)]
        pixels = torch.stack([torch.from_numpy(p.pixels.copy()) for p in pictures]).permute(0, 3, 1, 2) / 127.5 - 1
        pixels = pixels.contiguous(memory_format=torch.channels_last)
        latents = self.vae.encode(pixels).latent_dist.mean
        half = self.args.batch // 2
        scale = torch.rand(half, 1, 1, 1) * MAX_NOISE
        noisy = latents[:half] + scale * torch.randn_like(latents[:half])
        captions = [p.caption for p in pictures[half:]]
        return pixels, torch.cat([noisy, self.estimate(latents[half:], token_ids(self.tokenizer, captions))])

    def estimate(self, latents: Tensor, tokens: Tensor) -> Tensor:
        """The denoiser's guess of the latents, from a random low noise level."""
        timesteps = torch.randint(0, MAX_TIMESTEP, (len(latents),))
        alpha = self.denoiser.alphas[timesteps].view(-1, 1, 1, 1)
        noisy = alpha.sqrt() * latents + (1 - alpha).sqrt() * torch.randn_like(latents)
        words = self.denoiser.text(tokens).last_hidden_state
        velocity = self.denoiser.unet(noisy.contiguous(memory_format=torch.channels_last), timesteps, words).sample
        return alpha.sqrt() * noisy - (1 - alpha).sqrt() * velocity

    def step(self, lr: float) -> tuple[float, float]:
        """One update; returns the mean absolute and squared error."""
        pixels, latents = self.batch()
        error = self.vae.decode(latents).sample - pixels
        across, down = error[..., 1:] - error[..., :-1], error[..., 1:, :] - error[..., :-1, :]
        absolute, squared = error.abs().mean(), error.square().mean()
        loss = absolute + squared + 0.5 * (across.abs().mean() + down.abs().mean())
        self.optimizer.zero_grad()
        loss.backward()
        average_gradients(self.params, self.args.world)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        return absolute.item(), squared.item()

    def save(self) -> None:
        shutil.rmtree(self.args.out, ignore_errors=True)
        self.vae.to(memory_format=torch.contiguous_format).save_pretrained(Path(self.args.out))

    def report(self, steps: int, errors: list[tuple[float, float]]) -> None:
        absolute, squared = (sum(column) / len(errors) for column in zip(*errors, strict=True))
        print(f"{steps} steps, L1 {absolute:.4f}, {-10 * math.log10(squared / 4):.2f} dB", flush=True)

    def run(self) -> None:
        errors: list[tuple[float, float]] = []
        for done, progress in enumerate(schedule(self.args), 1):
            falling = 0.5 * (1 + math.cos(math.pi * progress))
            errors.append(self.step(self.args.lr * min(1.0, done / 50) * falling))
            if self.args.rank == 0 and done % 100 == 0:
                self.report(done, errors)
                errors = []
        if self.args.rank == 0:
            self.save()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pipeline")
    parser.add_argument("out")
    parser.add_argument("--lr", type=float, default=1.0e-3)
    parser.add_argument("--batch", type=int, default=4)
    workers.add_arguments(parser, port=29612)
    args = parser.parse_args()
    workers.join(args, seed=21)
    Tuner(args).run()


if __name__ == "__main__":
    main()
