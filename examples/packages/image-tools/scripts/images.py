"""Images: images.py info IN... | convert IN OUT [options] | sheet OUT IN... [--columns N]"""

import argparse
import os
import sys

from PIL import Image, ImageDraw, ImageFont, ImageOps, UnidentifiedImageError

# A picture that says it has more is no photo; decoding it would fill the memory.
MAX_PIXELS = 100_000_000
FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP", ".gif": "GIF", ".tif": "TIFF",
           ".tiff": "TIFF", ".bmp": "BMP"}
TILE, GAP, LABEL = 200, 10, 18


def load(path):
    """The picture the right way up."""
    try:
        picture = Image.open(path)
        if picture.width * picture.height > MAX_PIXELS:
            sys.exit(f"{path}: {picture.width} x {picture.height} pixels are too many")
        return ImageOps.exif_transpose(picture)
    except UnidentifiedImageError:
        sys.exit(f"{path}: not an image that can be read")
    except (OSError, Image.DecompressionBombError) as error:
        sys.exit(f"{path}: {error}")


def proportion(text):
    width, colon, height = text.partition(":")
    if not (colon and width.isdigit() and height.isdigit() and int(width) and int(height)):
        raise argparse.ArgumentTypeError(f"{text!r} is not W:H, such as 16:9")
    return int(width), int(height)


def pixels(text):
    if not text.isdigit() or not 1 <= int(text) <= 20_000:
        raise argparse.ArgumentTypeError("1 to 20000 pixels")
    return int(text)


def cropped(picture, width, height):
    scale = min(picture.width / width, picture.height / height)
    wide, high = max(1, round(width * scale)), max(1, round(height * scale))
    left, top = (picture.width - wide) // 2, (picture.height - high) // 2
    return picture.crop((left, top, left + wide, top + high))


def stamped(picture, text):
    picture = picture.convert("RGBA")
    layer = Image.new("RGBA", picture.size, (0, 0, 0, 0))
    draw = ImageDraw.Draw(layer)
    font = ImageFont.load_default(max(10, picture.height // 18))
    left, top, right, bottom = draw.textbbox((0, 0), text, font=font)
    margin = max(4, picture.height // 60)
    place = (picture.width - (right - left) - 2 * margin, picture.height - (bottom - top) - 2 * margin)
    draw.rectangle((*(side - margin for side in place), *picture.size), fill=(0, 0, 0, 140))
    draw.text((place[0] - left, place[1] - top), text, font=font, fill=(255, 255, 255, 255))
    return Image.alpha_composite(picture, layer)


def format_of(path):
    ending = os.path.splitext(path)[1].lower()
    if ending not in FORMATS:
        sys.exit(f"{path}: the name must end in {', '.join(FORMATS)}")
    return FORMATS[ending]


def save(picture, path, quality=85):
    kind = format_of(path)
    if kind == "JPEG" and picture.mode != "RGB":
        picture = picture.convert("RGBA")
        white = Image.new("RGB", picture.size, "white")
        white.paste(picture, mask=picture.getchannel("A"))
        picture = white
    # A new picture of the same pixels: what the file knew besides them stays behind.
    clean = Image.new(picture.mode, picture.size)
    clean.paste(picture)
    if picture.mode == "P":
        clean.putpalette(picture.getpalette())
    clean.save(path, kind, **({"quality": quality} if kind in ("JPEG", "WEBP") else {}))
    print(f"{path}: {picture.width} x {picture.height}, {os.path.getsize(path)} bytes")


def info(args):
    for path in args.sources:
        picture = load(path)
        with Image.open(path) as stored:
            kind, frames, exif = stored.format, getattr(stored, "n_frames", 1), bool(stored.getexif())
        print(f"{path}: {kind}, {picture.width} x {picture.height}, {picture.mode}"
              + (f", {frames} frames" if frames > 1 else "") + (", with EXIF data" if exif else ""))


def convert(args):
    format_of(args.target)
    picture = load(args.source)
    if picture.mode == "P":
        picture = picture.convert("RGBA" if "transparency" in picture.info else "RGB")
    if args.crop:
        picture = cropped(picture, *args.crop)
    if args.max:
        picture.thumbnail((args.max, args.max))
    if args.grey:
        picture = ImageOps.grayscale(picture)
    if args.text:
        picture = stamped(picture, args.text)
    save(picture, args.target, args.quality)


def sheet(args):
    format_of(args.target)
    columns = min(args.columns, len(args.sources))
    rows = -(-len(args.sources) // columns)
    step = TILE + GAP
    page = Image.new("RGB", (columns * step + GAP, rows * (step + LABEL) + GAP), "white")
    draw = ImageDraw.Draw(page)
    for index, path in enumerate(args.sources):
        picture = load(path).convert("RGBA")
        picture.thumbnail((TILE, TILE))
        left, top = GAP + index % columns * step, GAP + index // columns * (step + LABEL)
        middle = (left + (TILE - picture.width) // 2, top + (TILE - picture.height) // 2)
        page.paste(picture, middle, picture)
        draw.text((left, top + TILE + 2), os.path.basename(path)[:30], fill="black")
    save(page, args.target)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("info")
    one.set_defaults(do=info)
    one.add_argument("sources", nargs="+")
    one = commands.add_parser("convert")
    one.set_defaults(do=convert)
    one.add_argument("source")
    one.add_argument("target")
    one.add_argument("--max", type=pixels)
    one.add_argument("--crop", type=proportion)
    one.add_argument("--grey", action="store_true")
    one.add_argument("--text")
    one.add_argument("--quality", type=int, choices=range(1, 101), default=85, metavar="1..100")
    one = commands.add_parser("sheet")
    one.set_defaults(do=sheet)
    one.add_argument("target")
    one.add_argument("sources", nargs="+")
    one.add_argument("--columns", type=int, choices=range(1, 21), default=4, metavar="1..20")
    args = parser.parse_args()
    args.do(args)


if __name__ == "__main__":
    main()
