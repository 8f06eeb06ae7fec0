"""The CTAs of a cluster: each rule kept, and broken by one edge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cluster_scripts import Handshake, Neighbour, SharedOperand, SharedRing
from pairs import Pair

RACE, WRITTEN, READ, DEADLOCK = "data-race", "overwritten-in-flight", "read-before-complete", "deadlock"
START, EXIT = "mbarrier-not-initialised", "exit-before-peer"
WEAK, FEW, NOBODY = "relaxed-wait", "too-few-bytes", "no-such-cta"


def ring(tiles: int = 5) -> Any:
    x = (np.arange(tiles * 32 * 64) % 512).reshape(tiles * 32, 64).astype(np.float16)
    y = np.zeros((2 * tiles * 32, 64), np.float16)
    return (tiles, x, y), y, np.concatenate([x + 1, x + 1])


def numbers() -> Any:
    y = np.zeros(128, np.int32)
    return (y,), y, np.tile(np.arange(64, dtype=np.int32) + 1, 2)


def handed() -> Any:
    y = np.zeros(64, np.int32)
    return (y,), y, np.concatenate([np.arange(32), np.arange(32) + 1]).astype(np.int32)


def product(tiles: int = 3) -> Any:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (extent, 32 * tiles)).astype(np.float16) for extent in (256, 16))
    d = np.zeros((256, 16), np.float32)
    return (tiles, a, b, d), d, (a.astype(np.float32) @ b.astype(np.float32).T)


INPUTS = {SharedRing: ring, Neighbour: numbers, Handshake: handed, SharedOperand: product}
PAIRS = [
    Pair(SharedRing, "no sync at the start", START, "sync", "copy", says="of CTA (1, 0, 0), which that may not have"),
    Pair(SharedRing, "no sync at the start", START, "sync", "release"),
    Pair(SharedRing, "no sync at the end", EXIT, "sync", "release", says="CTA (0, 0, 0) may exit before"),
    Pair(SharedRing, "the loader does not wait", WRITTEN, "wait", "copy", "copy", every=False),
    Pair(SharedRing, "the reader does not wait", "uninitialised-read", "", "load"),
    Pair(SharedRing, "the reader waits in the first lap", READ, "wait", "load", "copy", every=False),
    Pair(SharedRing, "no sync before the arrival", RACE, "sync", "copy", "load", says="one lane of warp 1"),
    Pair(SharedRing, "tells its own CTA only", RACE, "arrive", "copy", "load", every=False),
    Pair(SharedRing, "tells the other CTA only", DEADLOCK, "arrive", "room", "empty"),
    Pair(SharedRing, "tells rank 0 only", DEADLOCK, "arrive", "room", "empty"),
    Pair(SharedRing, "empty counts one", RACE, "arrive", "copy", "load", every=False),
    Pair(SharedRing, "empty counts one", "phase-overrun", "", "room", "release", every=False),
    Pair(SharedRing, "bytes of one half", FEW, "bytes", "load", "copy", every=False),
    Pair(SharedRing, "bytes of three halves", DEADLOCK, "", "wait", "full", says="still lacks 2048 bytes"),
    Pair(SharedRing, "no multicast", DEADLOCK, "", "wait", "full", says="still lacks 2048 bytes"),
    Pair(SharedRing, "copies to a third CTA", NOBODY, "", "copy", says="the cluster has 2 CTAs"),
    Pair(SharedRing, "tells a third CTA", NOBODY, "", "release", says="names CTA rank 2"),
    Pair(Neighbour, "no sync", RACE, "sync", "second", "first", says="self.cluster.sync()"),
    Pair(Neighbour, "a sync of the CTA", RACE, "sync", "second", "first", says="self.cluster.sync()"),
    Pair(Handshake, "no wait", RACE, "wait", "load", "store", every=False),
    Pair(Handshake, "no wait", EXIT, "sync", "tell"),
    Pair(
        Handshake, "a wait of the CTA", WEAK, "acquire", "load", "store", says='has scope cta; with scope="cluster" it'
    ),
    Pair(Handshake, "an arrival for the CTA", WEAK, "release", "load", "store", says="the arrival on told"),
    Pair(Handshake, "a relaxed arrival", WEAK, "release", "load", "store", says="is relaxed"),
    Pair(Handshake, "the arrival after the sync", DEADLOCK, "", "wait", "told", says="at cluster.sync()"),
    Pair(SharedOperand, "no sync at the start", START, "sync", "copy"),
    Pair(SharedOperand, "no sync at the start", START, "sync", "commit"),
    Pair(
        SharedOperand,
        "each tells its own CTA",
        WRITTEN,
        "arrive",
        "copy",
        "mma",
        says="free of CTA (1, 0, 0)",
        every=False,
    ),
    Pair(SharedOperand, "tells rank 0", DEADLOCK, "arrive", "wait", "free", says="signals those in the mask 0b1 alone"),
    Pair(SharedOperand, "no wait for the last mma", EXIT, "sync", "commit"),
    Pair(SharedOperand, "no wait for the last mma", READ, "wait", "load", "mma"),
]


@pytest.mark.parametrize("script", INPUTS, ids=lambda script: script.__name__)
def test_the_rule_kept_is_silent(script: Any) -> None:
    Pair(script, "", "").keeps(INPUTS[script])


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_the_rule_broken_is_found(pair: Pair) -> None:
    pair.breaks(INPUTS[pair.script])
