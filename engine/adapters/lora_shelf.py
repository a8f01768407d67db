"""The LoRA adapters of one pipeline: loaded when a request needs them, a bounded number kept, one set active at a time.

The layers are PEFT's, put into the shared models by diffusers. A model with its adapters disabled calls its own layers
and nothing else, so that rows without LoRA are what they were before the first was loaded, to the last bit.
"""

import importlib.util
import logging
import warnings
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from concurrent.futures import Future
from typing import Any

import torch

from ..config import EngineConfig
from ..errors import InvalidRequest, ModelError, ModelLoadError
from ..params import Loras
from .lora_reader import LoraReader, put_in
from .out_of_memory import is_out_of_memory

log = logging.getLogger(__name__)


class LoraShelf:
    """Device thread only. Raises ModelLoadError when LoRAs are configured for a pipeline that cannot have them."""

    def __init__(self, pipeline: Any, config: EngineConfig) -> None:
        self._pipeline = pipeline
        self._config = config
        #: PEFT makes module names of them, which a request's name with a dot could not be.
        self._aliases = {name: f"shelf{index}" for index, name in enumerate(config.loras)}
        #: names, the one that was unused for longest first
        self._loaded: OrderedDict[str, None] = OrderedDict()
        self._num_loads = dict.fromkeys(config.loras, 0)
        #: None: not known, as after a load
        self._active: Loras | None = ()
        self._layers: list[Any] = []
        self._reader = LoraReader(pipeline, config, self._module)
        if config.loras:
            self._require_support()

    @property
    def loaded(self) -> tuple[str, ...]:
        return tuple(self._loaded)

    def resolve(self, loras: Loras) -> Loras:
        """What will run. Raises InvalidRequest for a name that is not configured, or for too many."""
        for name, _ in loras:
            if name not in self._aliases:
                known = ", ".join(self._aliases) or "none"
                raise InvalidRequest(f"lora {name!r} is unknown to {self._config.model}; it has {known}")
        if len(loras) > self._config.max_loras:
            raise InvalidRequest(f"{len(loras)} loras are more than max_loras = {self._config.max_loras}")
        return tuple((name, float(scale)) for name, scale in loras)

    def prepare(self, loras: Loras) -> Future[object] | None:
        """Read the files that an `activate` would need; set when all are read or have failed, None if they are."""
        reads = [self._reader.begin(name) for name, _ in loras if name not in self._loaded]
        open_reads = [read for read in reads if not read.done()]
        if not open_reads:
            return None
        every: Future[object] = Future()
        open_reads[-1].add_done_callback(lambda _: every.set_result(None))  # one thread reads them in order
        return every

    def close(self) -> None:
        self._reader.close()

    def stamp(self, loras: Loras) -> Hashable:
        """Equal for equal weights: the file of a name may be another when it is loaded again."""
        return tuple((name, scale, self._num_loads[name]) for name, scale in loras)

    def activate(self, loras: Loras) -> None:
        """Let the models be what they are with these adapters at these scales, and with no other.

        Waits for a file that nobody has prepared.
        Raises ModelError naming the adapter that cannot be loaded; a later `activate` is not affected.
        """
        for name, _ in loras:
            if name in self._loaded:
                self._loaded.move_to_end(name)
        if loras == self._active:
            return
        self._active = None
        missing = [name for name, _ in loras if name not in self._loaded]
        if missing:
            # Out of the device thread's inference mode: PEFT marks weights, which those made in it do not allow.
            with torch.inference_mode(False), torch.no_grad():
                self._make_room([name for name, _ in loras])
                for name in missing:
                    self._load(name)
        self._switch(loras)
        self._active = loras

    def _switch(self, loras: Loras) -> None:
        """What diffusers' `set_adapters`, `enable_lora` and `disable_lora` do to each layer, less the marking of every
        weight for training: that takes longer than a forward of a large model.
        """
        aliases = [self._aliases[name] for name, _ in loras]
        state = {"_disable_adapters": not loras, "_active_adapter": aliases}
        for layer in self._layers:
            vars(layer).update(state)  # torch's own way to set an attribute is slow
            for alias, (_, scale) in zip(aliases, loras, strict=True):
                layer.set_scale(alias, scale)

    def _make_room(self, wanted: Sequence[str]) -> None:
        num_kept = self._config.max_loras - sum(name not in self._loaded for name in wanted)
        for name in [name for name in self._loaded if name not in wanted]:
            if len(self._loaded) <= num_kept:
                break
            del self._loaded[name]
            self._pipeline.delete_adapters(self._aliases[name])
            log.info("lora %s of %s leaves for others", name, self._config.model)

    def _load(self, name: str) -> None:
        source, alias = self._config.loras[name], self._aliases[name]
        try:
            read = self._reader.take(name)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Already found a `peft_config`")  # of more than one adapter, as meant
                put_in(self._pipeline, read, alias)
            if not any(alias in names for names in self._pipeline.get_list_adapters().values()):
                raise ValueError(f"it has no weights for a {type(self._pipeline).__name__}")
        except Exception as error:
            self._pipeline.delete_adapters(alias)
            if is_out_of_memory(error):
                raise
            cause = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise ModelError(f"cannot load lora {name} of {self._config.model} from {source}: {cause}") from error
        finally:
            self._layers = self._find_layers()
        self._loaded[name] = None
        self._num_loads[name] += 1
        log.info("loaded lora %s of %s from %s", name, self._config.model, source)

    def _find_layers(self) -> list[Any]:
        """PEFT's layers in all models of the pipeline. Those that an adapter has once made stay when it leaves."""
        from peft.tuners.tuners_utils import BaseTunerLayer

        models = [model for model in self._pipeline.components.values() if isinstance(model, torch.nn.Module)]
        return [module for model in models for module in model.modules() if isinstance(module, BaseTunerLayer)]

    def _module(self, path: str) -> Any:
        component, _, rest = path.partition(".")
        model = self._pipeline.components.get(component)
        if not isinstance(model, torch.nn.Module):
            return None
        try:
            return model.get_submodule(rest)
        except AttributeError:
            return None

    def _require_support(self) -> None:
        name = type(self._pipeline).__name__
        if not hasattr(self._pipeline, "load_lora_weights"):
            raise ModelLoadError(f"cannot load {self._config.model}: {name} takes no LoRA. Try: loras left out.")
        if importlib.util.find_spec("peft") is None:
            needs = "loras need the package peft. Try: pip install 'safelight[worker]'."
            raise ModelLoadError(f"cannot load {self._config.model}: {needs}")
