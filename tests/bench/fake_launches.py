"""A GPU that is the simulator: what `comparing` launches is simulated on the CPU, after which a test may change it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import comparing
import pytest
import torch

from blackwell_matmul.simulator import simulate

Change = Callable[[list[torch.Tensor]], None]


def install(monkeypatch: pytest.MonkeyPatch, change: Change = lambda tensors: None, compiled: bool = True) -> list[Any]:
    """The bundles that are launched are kept in the list. compiled: False leaves the compiler out."""
    compile, launched = comparing.compile, []

    def remembered(script: Any, *args: Any, **options: Any) -> Any:
        made = {
            "script": script,
            "named": comparing.by_name(script, args, SimpleNamespace(schedule=options["schedule"])),
        }
        if compiled:
            bundle = compile(script, *args, **options)
            return SimpleNamespace(**made, plan=bundle.plan, consts=bundle.consts, schedule=options["schedule"])
        bound = comparing.bind(script, args, schedule=options["schedule"], target=comparing.target())
        parameters = [SimpleNamespace(name=name) for name in bound.kernel_args]
        plan, consts = SimpleNamespace(parameters=parameters), bound.consts
        return SimpleNamespace(**made, plan=plan, consts=consts, schedule=options["schedule"])

    def load(bundle: Any) -> Callable[..., None]:
        def launch(*args: Any) -> None:
            names = [parameter.name for parameter in bundle.plan.parameters]
            given = {**bundle.consts, **dict(zip(names, args, strict=True))}
            call = [given[name] for name in bundle.named]
            simulate(bundle.script, *call, target=comparing.target(), schedule=bundle.schedule, workers=1, trace=False)
            launched.append(bundle)
            change([each for each in call if isinstance(each, torch.Tensor)])

        return launch

    monkeypatch.setattr(comparing, "compile", remembered)
    monkeypatch.setattr(comparing, "load", load)
    monkeypatch.setattr(comparing, "DEVICE", "cpu")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return launched
