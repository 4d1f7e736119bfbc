"""Numbers that a configuration restricts: as types, so that the parser checks and explains them.

They cost nothing outside the command: to a type checker and at run time they are int and float.
"""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    PositiveInt = int
    NonNegativeInt = int
    Finite = float
    Positive = float
    NonNegative = float
    Share = float
    PositiveShare = float
    FromOne = float
else:
    from jsonargparse.typing import ClosedUnitInterval as Share
    from jsonargparse.typing import NonNegativeInt, PositiveInt, restricted_number_type

    _FINITE = ("<", math.inf)
    Finite = restricted_number_type("Finite", float, [(">", -math.inf), _FINITE])
    Positive = restricted_number_type("Positive", float, [(">", 0), _FINITE])
    NonNegative = restricted_number_type("NonNegative", float, [(">=", 0), _FINITE])
    PositiveShare = restricted_number_type("PositiveShare", float, [(">", 0), ("<=", 1)])
    FromOne = restricted_number_type("FromOne", float, [(">=", 1), _FINITE])

__all__ = [
    "Finite",
    "FromOne",
    "NonNegative",
    "NonNegativeInt",
    "Positive",
    "PositiveInt",
    "PositiveShare",
    "Share",
]
