"""Reduces the colours of many frames to one table of at most 256 (median cut)."""

from collections import Counter


def channels(colour):
    """Splits 0xRRGGBB into its three bytes."""
    return (colour >> 16) & 255, (colour >> 8) & 255, colour & 255


def build(frames, size=256):
    """Returns (table, index): a list of 0xRRGGBB and a dict from each colour used to its place."""
    counts = Counter()
    for frame in frames:
        counts.update(frame.pixels)
    if len(counts) <= size:
        table = sorted(counts)
        return table, {colour: place for place, colour in enumerate(table)}
    boxes = [_box(list(counts.items()))]
    while len(boxes) < size:
        boxes.sort(key=lambda box: box[0])
        spread, channel, entries = boxes[-1]
        if spread <= 0:
            break
        boxes[-1:] = _split(channel, entries)
    table = []
    index = {}
    for _, _, entries in boxes:
        place = len(table)
        table.append(_mean(entries))
        for colour, _ in entries:
            index[colour] = place
    return table, index


def _box(entries):
    """A box is (spread x weight, widest channel, [(colour, count)])."""
    widest, channel = -1, 0
    for shift in (16, 8, 0):
        values = [(colour >> shift) & 255 for colour, _ in entries]
        spread = max(values) - min(values)
        if spread > widest:
            widest, channel = spread, shift
    # The square root keeps a large flat area from taking every entry of the table.
    weight = sum(count for _, count in entries) ** 0.5
    return widest * weight, channel, entries


def _split(shift, entries):
    """Cuts a box at the median of its widest channel; both halves are never empty."""
    entries.sort(key=lambda entry: (entry[0] >> shift) & 255)
    half = sum(count for _, count in entries) / 2
    seen = 0
    cut = 1
    for place, (_, count) in enumerate(entries[:-1]):
        seen += count
        cut = place + 1
        if seen >= half:
            break
    return [_box(entries[:cut]), _box(entries[cut:])]


def _mean(entries):
    total = sum(count for _, count in entries)
    red = sum(((colour >> 16) & 255) * count for colour, count in entries) // total
    green = sum(((colour >> 8) & 255) * count for colour, count in entries) // total
    blue = sum((colour & 255) * count for colour, count in entries) // total
    return (red << 16) | (green << 8) | blue
