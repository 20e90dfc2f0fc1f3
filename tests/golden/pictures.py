#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes pictures.json: small pictures of each format, and the pixels that Pillow decodes and resizes them to.

    pictures.py >pictures.json      (Python with Pillow and numpy; no test runs it)

decode: file (base64), the sides and the RGB bytes (base64) of the upright picture over white.
resize: a picture of width x height whose bytes come from a generator (unit/picture/picture.c has the same), the new
sides, the filter, and the RGB bytes."""

import base64
import io
import json
import struct
import sys
import zlib

import numpy
import PIL
from PIL import Image, ImageOps


def b64(data):
    return base64.b64encode(data).decode()


def noise(width, height, channels=3):
    """Bytes of a linear congruential generator."""
    x, out = 1, bytearray()
    for _ in range(width * height * channels):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
        out.append(x >> 16 & 255)
    return bytes(out)


def smooth(width, height):
    x, y = numpy.meshgrid(numpy.arange(width), numpy.arange(height))
    rgb = numpy.stack([x * 255 // max(width - 1, 1), y * 255 // max(height - 1, 1), (x * 7 + y * 11) % 256], axis=-1)
    return Image.fromarray(rgb.astype(numpy.uint8), "RGB")


def saved(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def png16(width, height, kind, interlace=0):
    """A PNG of 16-bit samples, which Pillow does not write; kind 0: grey, 2: RGB."""
    channels = {0: 1, 2: 3}[kind]
    raw = b"".join(b"\0" + noise(width * 2, 1, channels) for _ in range(height))

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, 16, kind, 0, 0, interlace)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")


def adam7(image):
    """An interlaced PNG of an RGB picture."""
    pixels, (width, height) = image.load(), image.size
    raw = b""
    for x0, y0, dx, dy in (
        (0, 0, 8, 8),
        (4, 0, 8, 8),
        (0, 4, 4, 8),
        (2, 0, 4, 4),
        (0, 2, 2, 4),
        (1, 0, 2, 2),
        (0, 1, 1, 2),
    ):
        for y in range(y0, height, dy):
            row = b"".join(bytes(pixels[x, y]) for x in range(x0, width, dx))
            raw += b"\0" + row if row else b""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 1)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")


def upright(data):
    """What the file shows: EXIF applied, over white."""
    image = Image.open(io.BytesIO(data))
    image = ImageOps.exif_transpose(image) or image
    if image.mode in ("I;16", "I"):
        high = (numpy.asarray(image).astype(numpy.uint32) >> 8).astype(numpy.uint8)
        return Image.fromarray(high, "L").convert("RGB")
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGB", image.size, (255, 255, 255))
        white.paste(image, mask=image.split()[3])
        return white
    return image.convert("RGB")


def oriented(kind, n):
    exif = Image.Exif()
    exif[0x0112] = n
    options = {"quality": 90} if kind == "JPEG" else {}
    if kind == "WEBP":
        options = {"lossless": True}
    return saved(smooth(13, 7), kind, exif=exif, **options)


def files():
    picture = smooth(17, 11)
    rgba = picture.copy()
    rgba.putalpha(Image.frombytes("L", picture.size, noise(*picture.size, 1)))
    palette = picture.quantize(16)
    frames = [picture.quantize(32), smooth(17, 11).rotate(180).quantize(32)]
    yield "jpeg", saved(picture, "JPEG", quality=85)
    yield "jpeg progressive", saved(picture, "JPEG", quality=85, progressive=True)
    yield "jpeg 4:4:4", saved(picture, "JPEG", quality=95, subsampling=0)
    yield "jpeg grey", saved(picture.convert("L"), "JPEG")
    yield "jpeg cmyk", saved(picture.convert("CMYK"), "JPEG", quality=95)
    yield "jpeg 1x1", saved(smooth(1, 1), "JPEG")
    for n in range(1, 9):
        yield f"jpeg orientation {n}", oriented("JPEG", n)
    yield "png", saved(picture, "PNG")
    yield "png alpha", saved(rgba, "PNG")
    yield "png grey", saved(picture.convert("L"), "PNG")
    yield "png grey alpha", saved(rgba.convert("LA"), "PNG")
    yield "png 1 bit", saved(picture.convert("1"), "PNG")
    yield "png palette", saved(palette, "PNG")
    yield "png palette, transparent", saved(palette, "PNG", transparency=3)
    yield "png 16 bit", png16(9, 5, 2)
    yield "png 16 bit grey", png16(9, 5, 0)
    yield "png interlaced", adam7(smooth(19, 13))
    yield "png orientation 6", oriented("PNG", 6)
    yield "webp", saved(picture, "WEBP", quality=80)
    yield "webp lossless", saved(picture, "WEBP", lossless=True)
    yield "webp alpha", saved(rgba, "WEBP", lossless=True, exact=True)
    yield "webp orientation 8", oriented("WEBP", 8)
    yield (
        "webp frames",
        saved(smooth(17, 11), "WEBP", save_all=True, append_images=[smooth(17, 11).rotate(180)], lossless=True),
    )
    yield "gif", saved(palette, "GIF")
    yield "gif interlaced", saved(palette, "GIF", interlace=1)
    yield "gif transparent", saved(palette, "GIF", transparency=5)
    yield "gif frames", saved(frames[0], "GIF", save_all=True, append_images=frames[1:], duration=100)
    yield "bmp", saved(picture, "BMP")
    yield "bmp palette", saved(picture.quantize(256), "BMP")
    yield "bmp 1 bit", saved(picture.convert("1"), "BMP")
    yield "bmp 32 bit", saved(rgba, "BMP")


def main():
    decode, resize = [], []
    for name, data in files():
        image = upright(data)
        decode.append(
            {"name": name, "file": b64(data), "width": image.width, "height": image.height, "rgb": b64(image.tobytes())}
        )
    for width, height, to_width, to_height in (
        (31, 17, 8, 6),
        (31, 17, 28, 14),
        (5, 7, 20, 21),
        (1, 1, 4, 3),
        (64, 3, 7, 3),
        (3, 64, 3, 9),
        (40, 30, 40, 30),
    ):
        for name, filter in (("bilinear", Image.Resampling.BILINEAR), ("bicubic", Image.Resampling.BICUBIC)):
            image = Image.frombytes("RGB", (width, height), noise(width, height)).resize((to_width, to_height), filter)
            resize.append(
                {"from": [width, height], "to": [to_width, to_height], "filter": name, "rgb": b64(image.tobytes())}
            )
    json.dump({"made by": f"Pillow {PIL.__version__}", "decode": decode, "resize": resize}, sys.stdout, indent=1)
    print()


main()
