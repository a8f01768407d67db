"""Train the denoiser and the text encoder together on cached latents: v-prediction, an averaged copy is what ships.

usage, one process a rank: python -m training.train_denoiser BASE OUT CACHE.pt ... --rank 0 --world 2 --minutes 95
"""

import argparse
import copy
import math
import shutil
import time
from pathlib import Path

import torch
from diffusers import DDIMScheduler, UNet2DConditionModel
from torch import Tensor, nn
from transformers import CLIPTextModel, CLIPTokenizer

from training import workers
from training.cache import token_ids
from training.optimizer import Muon
from training.workers import average_gradients, schedule

Bucket = dict[str, Tensor]
VALIDATION = 256
EMPTY_SHARE = 0.10
SAVE_EVERY_S = 240


class Denoiser(nn.Module):
    """The two trained networks and their loss."""

    def __init__(self, base: str) -> None:
        super().__init__()
        unet = UNet2DConditionModel.from_pretrained(base, subfolder="unet", torch_dtype=torch.float32)
        self.unet = unet.to(memory_format=torch.channels_last)
        self.text = CLIPTextModel.from_pretrained(base, subfolder="text_encoder", dtype=torch.float32)
        self.alphas = DDIMScheduler.from_pretrained(base, subfolder="scheduler").alphas_cumprod
        self.train()

    def loss(self, latents: Tensor, tokens: Tensor, timesteps: Tensor, noise: Tensor) -> Tensor:
        """Squared error of the predicted velocity, `[B]`."""
        words = self.text(tokens).last_hidden_state
        alpha = self.alphas[timesteps].view(-1, 1, 1, 1)
        noisy = alpha.sqrt() * latents + (1 - alpha).sqrt() * noise
        velocity = alpha.sqrt() * noise - (1 - alpha).sqrt() * latents
        predicted = self.unet(noisy.contiguous(memory_format=torch.channels_last), timesteps, words).sample
        return (predicted - velocity).square().mean((1, 2, 3))


class Sampler:
    """Walks the cached buckets in a shuffled order all ranks compute alike; a rank takes its slice of each batch."""

    def __init__(self, buckets: list[Bucket], batch: int, rank: int, world: int, tilt: float) -> None:
        self.buckets, self.batch, self.rank, self.world, self.tilt = buckets, batch, rank, world, tilt
        self.shared = torch.Generator().manual_seed(7)
        self.sizes = torch.tensor([float(len(b["latents"])) for b in buckets])
        self.orders = [torch.empty(0, dtype=torch.long) for _ in buckets]

    def next(self, empty: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Latents, token ids (some emptied, for guidance) and timesteps tilted towards noise."""
        which = int(torch.multinomial(self.sizes, 1, generator=self.shared))
        if len(self.orders[which]) < self.batch:
            self.orders[which] = torch.randperm(int(self.sizes[which]), generator=self.shared)
        chosen, self.orders[which] = self.orders[which].split([self.batch, len(self.orders[which]) - self.batch])
        mine, bucket = chosen[self.rank :: self.world], self.buckets[which]
        n = len(mine)
        tokens = bucket["tokens"][mine, torch.randint(bucket["tokens"].shape[1], (n,))].long()
        tokens[torch.rand(n) < EMPTY_SHARE] = empty
        strata = (torch.arange(n) * self.world + self.rank + torch.rand(n)) / self.batch
        return bucket["latents"][mine].float(), tokens, (strata**self.tilt * 1000).long().clamp(0, 999)


def load_buckets(paths: list[str]) -> list[Bucket]:
    merged: dict[tuple[int, int], list[Bucket]] = {}
    for path in paths:
        for size, bucket in torch.load(path, mmap=True, weights_only=True).items():
            merged.setdefault(size, []).append(bucket)
    return [{k: torch.cat([b[k] for b in parts]) for k in parts[0]} for _, parts in sorted(merged.items())]


class Trainer:
    """One rank: steps, the moving average (rank 0), validation and snapshots."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.main = args, args.rank == 0
        self.model = Denoiser(args.base)
        self.average = copy.deepcopy(self.model)
        tokenizer = CLIPTokenizer.from_pretrained(args.base, subfolder="tokenizer")
        self.empty = token_ids(tokenizer, [""])[0]
        buckets = load_buckets(args.caches)
        square = max(buckets, key=lambda b: len(b["latents"]))
        self.held = {k: v[:VALIDATION] for k, v in square.items()}
        square.update({k: v[VALIDATION:] for k, v in square.items()})
        self.sampler = Sampler(buckets, args.batch, args.rank, args.world, args.tilt)
        named = [*self.model.unet.named_parameters(), *self.model.text.named_parameters()]
        self.params = [p for _, p in named]
        by_muon = [p.ndim > 1 and "embedding" not in name and args.optimizer == "muon" for name, p in named]
        matrices = [p for p, turned in zip(self.params, by_muon, strict=True) if turned]
        rest = [p for p, turned in zip(self.params, by_muon, strict=True) if not turned]
        self.muon = Muon(matrices, args.rank, args.world)
        groups = [
            {"params": [p for p in rest if p.ndim > 1], "weight_decay": 0.01},
            {"params": [p for p in rest if p.ndim <= 1], "weight_decay": 0.0},
        ]
        self.adam = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.99))
        self.step, self.losses = 0, list[float]()

    def one_step(self, lr: float) -> None:
        latents, tokens, timesteps = self.sampler.next(self.empty)
        loss = self.model.loss(latents, tokens, timesteps, torch.randn_like(latents)).mean()
        self.model.zero_grad(set_to_none=True)
        loss.backward()
        average_gradients(self.params, self.args.world)
        for group in self.adam.param_groups:
            group["lr"] = lr
        self.adam.step()
        self.muon.step(lr)
        self.step += 1
        self.losses.append(loss.item())
        if self.main:
            decay = min(self.args.average, (1 + self.step) / (10 + self.step))
            with torch.no_grad():
                torch._foreach_lerp_(list(self.average.parameters()), list(self.model.parameters()), 1 - decay)

    @torch.no_grad()
    def validate(self) -> str:
        timesteps = torch.arange(VALIDATION) * 997 % 1000
        noise = torch.randn(self.held["latents"].shape, generator=torch.Generator().manual_seed(3))
        columns = (self.held["latents"].float(), self.held["tokens"][:, 0].long(), timesteps, noise)
        rows = zip(*(column.split(64) for column in columns), strict=True)
        loss = torch.cat([self.average.loss(*row) for row in rows])
        bands = [(0, 333), (333, 666), (666, 1000)]
        means = [loss[(timesteps >= low) & (timesteps < high)].mean() for low, high in bands]
        return f"val {loss.mean():.4f} low/mid/high noise " + " ".join(f"{m:.4f}" for m in means)

    def save(self) -> None:
        """Swap a new snapshot of the averaged weights in for the last one."""
        out, fresh = Path(self.args.out), Path(self.args.out + "_new")
        shutil.rmtree(fresh, ignore_errors=True)
        copy.deepcopy(self.average.unet).to(memory_format=torch.contiguous_format).save_pretrained(fresh / "unet")
        self.average.text.save_pretrained(fresh / "text_encoder")
        shutil.rmtree(out, ignore_errors=True)
        fresh.rename(out)
        torch.save(self.model.state_dict(), str(out) + "_raw.pt")

    def report(self, seconds: float, lr: float) -> None:
        mean, samples = sum(self.losses) / max(1, len(self.losses)), self.step * self.args.batch
        progress = f"{seconds:.0f} s, step {self.step}, {samples} samples, lr {lr:.1e}"
        print(f"{progress}, train {mean:.4f}, {self.validate()}", flush=True)
        self.losses = []

    def run(self) -> None:
        started = heard = saved = time.time()
        for progress in schedule(self.args):
            falling = 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * progress))
            lr = self.args.lr * min(1.0, (self.step + 1) / self.args.warmup) * falling
            self.one_step(lr)
            if self.main and time.time() - heard > self.args.report_s:
                heard = time.time()
                self.report(heard - started, lr)
            if self.main and time.time() - saved > SAVE_EVERY_S:
                saved = time.time()
                self.save()
        if self.main:
            self.report(time.time() - started, 0.0)
            self.save()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base")
    parser.add_argument("out")
    parser.add_argument("caches", nargs="+")
    parser.add_argument("--optimizer", choices=["muon", "adamw"], default="muon")
    parser.add_argument("--lr", type=float, default=1.5e-3)
    parser.add_argument("--warmup", type=int, default=40)
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--tilt", type=float, default=0.75)
    parser.add_argument("--average", type=float, default=0.997, help="decay of the averaged weights")
    parser.add_argument("--report-s", type=float, default=150)
    workers.add_arguments(parser, port=29611)
    args = parser.parse_args()
    workers.join(args, seed=100)
    Trainer(args).run()


if __name__ == "__main__":
    main()
