"""Quantiles of small samples."""


def quantile(values: list[float], q: float) -> float:
    """The q-quantile (0 to 1), interpolated between neighbours; NaN of nothing."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    place = (len(ordered) - 1) * q
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
