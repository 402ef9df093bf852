"""Motion: easing curves and a bounce, all from a time in 0..1 to a value."""

import math


def linear(t):
    return t


def ease_in(t):
    """Starts slowly."""
    return t * t


def ease_out(t):
    """Ends slowly."""
    return 1 - (1 - t) * (1 - t)


def ease_in_out(t):
    """Starts and ends slowly."""
    return t * t * (3 - 2 * t)


def elastic_out(t):
    """Shoots over the end and settles."""
    if t in (0, 1):
        return float(t)
    return 2 ** (-10 * t) * math.sin((t * 10 - 0.75) * 2 * math.pi / 3) + 1


EASINGS = {
    "linear": linear,
    "ease_in": ease_in,
    "ease_out": ease_out,
    "ease_in_out": ease_in_out,
    "elastic_out": elastic_out,
}


def interpolate(start, end, t, easing="linear"):
    """A value between start and end at time t, by the name of an easing."""
    return start + (end - start) * EASINGS[easing](t)


def bounce(t, bounces=1, damping=1.0):
    """Height of a ball, 0 on the floor, 1 at the top of the first arc.

    The time 0..1 holds the given number of arcs and starts and ends on the floor, so a
    loop has no jump. With damping below 1 each arc is lower than the one before, and
    shorter as physics has it (duration goes with the square root of the height).
    """
    heights = [damping ** number for number in range(bounces)]
    spans = [height ** 0.5 for height in heights]
    at = (t % 1.0) * sum(spans)
    for height, span in zip(heights, spans):
        if at <= span:
            phase = at / span
            return height * 4 * phase * (1 - phase)
        at -= span
    return 0.0


def squash(height, strength=0.28, zone=0.12):
    """(width, height) factors of a ball: flat on the floor, round above the zone."""
    if height >= zone:
        return 1.0, 1.0
    amount = strength * (1 - height / zone)
    return 1 + amount, 1 - amount
