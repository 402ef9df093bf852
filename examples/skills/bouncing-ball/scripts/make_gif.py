"""Makes an animated GIF of a bouncing ball.

    python3 skills/bouncing-ball/scripts/make_gif.py ball.gif --colour orange --delay 40
"""

import argparse
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from easing import bounce, squash
from frame import Frame, colour, mix
from gif_builder import GIFBuilder


def scene(width, height, floor, background):
    """The picture without the ball: a soft sky above a floor."""
    base = colour(background)
    picture = Frame(width, height)
    picture.gradient(mix(base, (255, 255, 255), 0.15), mix(base, (255, 255, 255), 0.65), 0, floor)
    ground = mix(base, (60, 52, 80), 0.38)
    picture.gradient(ground, mix(ground, (20, 16, 40), 0.28), floor, height)
    return picture


def animate(width=320, height=240, frames=24, delay_ms=40, ball="orange", background="sky", bounces=1, damping=1.0):
    """Returns a GIFBuilder with one loop of the animation."""
    radius = min(width, height) * 0.12
    floor = int(height * 0.84)
    ground = floor + radius * 0.35
    travel = ground - 2 * radius - height * 0.06
    empty = scene(width, height, floor, background)
    builder = GIFBuilder(width, height, delay_ms)
    for number in range(frames):
        up = bounce(number / frames, bounces, damping)
        wide, high = squash(up)
        picture = empty.copy()
        # The shadow is small and faint when the ball is high.
        picture.ellipse(width / 2, ground, radius * (1.05 - 0.45 * up) * wide, radius * (0.30 - 0.12 * up),
                        "#141026", opacity=0.45 - 0.27 * up, soft=4 + 3 * up)
        picture.ball(width / 2, ground - radius * high - up * travel, radius * wide, radius * high, ball)
        builder.add_frame(picture)
    return builder


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", help="file to write, e.g. ball.gif")
    parser.add_argument("--width", type=int, default=320)
    parser.add_argument("--height", type=int, default=240)
    parser.add_argument("--frames", type=int, default=24, help="pictures per loop, 2 to 120")
    parser.add_argument("--delay", type=int, default=40, help="milliseconds per picture, at least 20")
    parser.add_argument("--colour", "--color", default="orange", help="#rrggbb or a name such as red, teal, blue")
    parser.add_argument("--background", default="sky", help="#rrggbb or a name such as sky, sand, night")
    parser.add_argument("--bounces", type=int, default=1, help="arcs per loop, 1 to 8")
    parser.add_argument("--damping", type=float, default=1.0, help="height of each arc over the one before, 0.3 to 1")
    options = parser.parse_args()
    if not 2 <= options.frames <= 120:
        parser.error("--frames must be 2 to 120")
    if not 1 <= options.bounces <= 8:
        parser.error("--bounces must be 1 to 8")
    if not 0.3 <= options.damping <= 1:
        parser.error("--damping must be 0.3 to 1")
    try:
        builder = animate(options.width, options.height, options.frames, options.delay, options.colour,
                          options.background, options.bounces, options.damping)
        print(builder.save(options.out))
    except (ValueError, OSError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
