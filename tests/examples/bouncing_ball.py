"""The scripts of examples/skills/bouncing-ball, checked by an independent GIF decoder."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from check import SKILLS, equal, fails, holds, main, run
from images import colours, decode_gif

SCRIPTS = os.path.join(SKILLS, "bouncing-ball", "scripts")
MAKE = os.path.join(SCRIPTS, "make_gif.py")
SPEED = os.path.join(SCRIPTS, "change_speed.py")


def made(folder, *options):
    result = run(MAKE, "ball.gif", *options, cwd=folder)
    equal((result.returncode, result.stderr), (0, ""))
    with open(os.path.join(folder, "ball.gif"), "rb") as file:
        return file.read(), result.stdout


def ball_rows(gif, number):
    """Rows that hold strongly orange pixels."""
    frame, rows = gif.frames[number], set()
    for place in range(0, len(frame), 3):
        red, green, blue = frame[place:place + 3]
        if red > 180 and blue < 90 and green < 160:
            rows.add(place // 3 // gif.width)
    return rows


def test_ready_script_makes_a_looping_animation(folder):
    data, said = made(folder)
    gif = decode_gif(data)
    equal((gif.width, gif.height, gif.loop, len(gif.frames)), (320, 240, 0, 24))
    equal(set(gif.delays), {40})
    holds(said.startswith("ball.gif: 320x240, 24 frames, 0.96 s per loop"), said)
    holds(min(len(colours(frame)) for frame in gif.frames) > 50, "the frames look empty")


def test_ball_moves_up_and_comes_back(folder):
    gif = decode_gif(made(folder)[0])
    tops = [min(ball_rows(gif, number)) for number in range(24)]
    holds(tops[12] < tops[6] < tops[0] and tops[12] < tops[18], repr(tops))
    flat, round_ = ball_rows(gif, 0), ball_rows(gif, 12)
    holds(len(flat) < len(round_), "the ball is not squashed on the floor")


def test_options_reach_the_file(folder):
    gif = decode_gif(made(folder, "--width", "96", "--height", "64", "--frames", "7", "--delay", "120", "--colour",
                          "#3366cc", "--background", "night", "--bounces", "2", "--damping", "0.6")[0])
    equal((gif.width, gif.height, len(gif.frames), set(gif.delays)), (96, 64, 7, {120}))


def test_same_call_gives_the_same_bytes(folder):
    equal(made(folder, "--frames", "4")[0], made(folder, "--frames", "4")[0])


def test_bad_options_say_what_is_allowed(folder):
    fails(run(MAKE, "a.gif", "--frames", "1", cwd=folder), "--frames must be 2 to 120")
    fails(run(MAKE, "a.gif", "--width", "2", cwd=folder), "at least 8")
    fails(run(MAKE, "a.gif", "--width", "100000", "--height", "100000", cwd=folder), "at most")
    fails(run(MAKE, "a.gif", "--colour", "nocolour", cwd=folder), "a colour is #rrggbb")
    fails(run(MAKE, "nowhere/a.gif", cwd=folder), "nowhere/a.gif")


def test_slower_changes_delays_and_no_picture(folder):
    before = decode_gif(made(folder)[0])
    result = run(SPEED, "ball.gif", "slow.gif", "--times", "2.5", cwd=folder)
    equal((result.returncode, result.stdout), (0, "slow.gif: 24 frames, 40 ms each before, 100 ms now\n"))
    with open(os.path.join(folder, "slow.gif"), "rb") as file:
        after = decode_gif(file.read())
    equal(set(after.delays), {100})
    equal(after.frames, before.frames)


def test_speed_can_be_set_in_milliseconds_and_in_place(folder):
    made(folder)
    equal(run(SPEED, "ball.gif", "ball.gif", "--delay", "60", cwd=folder).returncode, 0)
    with open(os.path.join(folder, "ball.gif"), "rb") as file:
        equal(set(decode_gif(file.read()).delays), {60})


def test_speed_of_what_is_no_gif_is_a_clear_error(folder):
    with open(os.path.join(folder, "no.gif"), "wb") as file:
        file.write(b"hello")
    fails(run(SPEED, "no.gif", "x.gif", "--times", "2", cwd=folder), "not a GIF file")
    fails(run(SPEED, "gone.gif", "x.gif", "--times", "2", cwd=folder), "no such file here")
    data, _ = made(folder)
    with open(os.path.join(folder, "cut.gif"), "wb") as file:
        file.write(data[:900])
    fails(run(SPEED, "cut.gif", "x.gif", "--times", "2", cwd=folder), "ends too early")
    fails(run(SPEED, "ball.gif", "x.gif", "--times", "0", cwd=folder), "above 0")


PROGRAM = """
import sys
sys.path.insert(0, {path!r})
from easing import bounce, interpolate
from frame import Frame
from gif_builder import GIFBuilder

builder = GIFBuilder(width=64, height=48, delay_ms=40)
for number in range(6):
    picture = Frame(64, 48, background="#101830")
    picture.gradient("sky", "white", 0, 20)
    picture.rect(-5, 40, 100, 20, "sand")
    picture.ellipse(32, 44, 12, 3, "black", opacity=0.4, soft=3)
    picture.ball(interpolate(10, 54, number / 5, "elastic_out"), 40 - 30 * bounce(number / 6, 2, 0.5), 7, 7, "teal")
    builder.add_frame(picture, delay_ms=500 if number == 5 else None)
print(builder.save("own.gif"))
"""


def test_program_of_the_instructions_runs(folder):
    path = os.path.join(folder, "program.py")
    with open(path, "w") as file:
        file.write(PROGRAM.format(path=SCRIPTS))
    result = run(path, cwd=folder)
    equal((result.returncode, result.stderr), (0, ""))
    with open(os.path.join(folder, "own.gif"), "rb") as file:
        gif = decode_gif(file.read())
    equal(gif.delays, [40, 40, 40, 40, 40, 500])
    equal(len(set(gif.frames)), 6)


def test_lzw_holds_for_noise_that_fills_the_table(folder):
    sys.path.insert(0, SCRIPTS)
    import lzw
    from images import _lzw
    state, noise = 1, bytearray()
    for _ in range(70000):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        noise.append(state >> 16 & 255)
    for size, bits in ((0, 2), (1, 2), (2, 2), (5, 8), (511, 8), (512, 8), (4096, 8), (70000, 8)):
        indices = bytes(value & ((1 << bits) - 1) for value in noise[:size])
        equal(bytes(_lzw(lzw.compress(indices, bits), bits, size)), indices)
    # Every length around the places where codes grow wider.
    for size in range(1, 600):
        indices = bytes(value & 3 for value in noise[:size])
        equal(bytes(_lzw(lzw.compress(indices, 2), 2, size)), indices)


main(dict(globals()))
