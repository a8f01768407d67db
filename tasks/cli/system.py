"""Commands about the system: what is served, what waits, who works."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tasks.cli.connect import model_names, note, open_client, settings_here
from tasks.cli.output import AsJson, duration, print_json, print_table, screen_width

if TYPE_CHECKING:
    from tasks.models import ModelSpec


def models(*, as_json: AsJson = False) -> None:
    """Show the served models with their defaults and limits (of SAFELIGHT_MODELS, or the bundled one).

    \b
    Examples:
      safelight models
      SAFELIGHT_MODELS=models.toml safelight models --json
    """
    from tasks.models import load_models

    specs = list(load_models(settings_here().models))
    if as_json:
        for spec in specs:
            print_json(spec.model_dump(mode="json"))
    else:
        print_table([_row(spec) for spec in specs], screen_width())


def _row(spec: ModelSpec) -> dict[str, Any]:
    limits, defaults = spec.limits, spec.defaults
    return {
        "model": spec.name,
        "makes": spec.modality,
        "size": f"{defaults.width}×{defaults.height}",
        "made for": ", ".join(f"{width}×{height}" for width, height in spec.sizes) or "any size",
        "takes": f"{limits.min_size} to {limits.max_size} by {limits.size_multiple}",
        "steps": f"{defaults.num_inference_steps} (to {limits.max_steps})",
        "guidance": f"{defaults.guidance_scale:g}",
        "noise schedulers": ", ".join(spec.noise_schedulers) or "its own",
        "adapters": ", ".join(spec.loras) or "none",
    }


def _jobs(number: int) -> str:
    return f"{number} job{'s' * (number != 1)}"


def _queue(stats: dict[str, Any]) -> dict[str, Any]:
    oldest_s = stats["oldest_s"]
    waits = "–" if oldest_s is None else duration(oldest_s)
    return {name: stats[name] for name in ("model", "queued", "running")} | {"oldest waits": waits}


def queues(*, as_json: AsJson = False) -> None:
    """Show how many jobs wait and run for each model, outputs of each tenant if there are several, and the workers.

    \b
    Example:
      safelight queues --json | jq '.workers | length'
    """
    from tasks.beats import state_of
    from tasks.quotas import DEFAULT_TENANT, standings
    from tasks.store import by_tenant

    with open_client() as client:
        stats = [asdict(queue) for queue in client.store.queues(model_names(client))]
        workers = [dict(worker) for worker in client.store.workers()]
        tenants = standings(by_tenant(client.store.tenants()), client.store.quotas)
    if as_json:
        print_json({"queues": stats, "tenants": tenants, "workers": workers})
        return
    print_table([_queue(queue) for queue in stats])
    if [tenant["tenant"] for tenant in tenants] not in ([], [DEFAULT_TENANT]):
        print_table([{name: "" if value is None else value for name, value in tenant.items()} for tenant in tenants])
    for worker in workers:
        places = [f"{name} {told['state']}" for name, told in worker.get("models", {}).items() if "state" in told]
        parts = (state_of(worker), _jobs(worker.get("jobs", 0)), *places)
        print(f"worker {worker['name']}: {', '.join(parts)}")
    if not workers:
        note("no worker is up, or none has loaded its models yet; to start one: safelight worker")
