"""The policies of the simulator, by their names on the command line."""

from __future__ import annotations

from statecore.errors import ConfigurationError
from statecore.simulator.players.aws import Aws
from statecore.simulator.players.ds2 import DS2
from statecore.simulator.players.fixed import Fixed
from statecore.simulator.players.flink import Flink
from statecore.simulator.players.statecore import Statecore, settings_for
from statecore.simulator.simulation import Player
from statecore.simulator.world import World

PLAYERS = ("statecore", "flink", "ds2", "aws", "fixed:N")


def player(name: str, world: World) -> Player:
    """Return a new player.

    Raises:
        ConfigurationError: There is no such policy, or its size does not fit.

    """
    kind, _, size = name.partition(":")
    if kind == "fixed" and size.isdecimal() and 1 <= int(size) <= world.key_groups:
        return Fixed(int(size))
    if not size:
        match kind:
            case "statecore":
                return Statecore(settings_for(world))
            case "flink":
                return Flink()
            case "ds2":
                return DS2()
            case "aws":
                return Aws()
    raise ConfigurationError(
        f"found the policy {name!r}; expected one of {', '.join(PLAYERS)}, N from 1 to {world.key_groups}, the key "
        "groups; name one of them"
    )
