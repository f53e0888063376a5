"""Draws the SVG files of a directory with Chromium, rsvg-convert and CairoSVG, and compares the pictures coarsely.

Usage: check_plots.py DIRECTORY BROWSER

One file of each kind of plot is drawn (names end in -KIND.svg). Pictures are compared in blocks of 13 × 13 pixels, so
that other fonts and other smoothing of edges do not matter, and black areas, missing lines and other colours do. First
a file is spoiled as files once were (colours as variables of CSS alone), and the comparison must see it.
"""

import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import zlib

WIDE = 390
BLOCK = 13


def png(path):
    """Width, height, and rows of luminance from 0 to 255."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n", path
    at, packed, head, palette = 8, b"", None, b""
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            head = struct.unpack(">IIBBBBB", body)
        elif kind == b"IDAT":
            packed += body
        at += 12 + size
    wide, high, depth, colour, _, _, interlaced = head
    assert depth == 8 and colour in (2, 6) and not interlaced, head
    step = 3 if colour == 2 else 4
    raw, row_bytes = zlib.decompress(packed), wide * step
    before, rows = bytearray(row_bytes), []
    for y in range(high):
        start = y * (row_bytes + 1)
        how, row = raw[start], bytearray(raw[start + 1 : start + 1 + row_bytes])
        for x in range(row_bytes) if how else ():
            left = row[x - step] if x >= step else 0
            up = before[x]
            corner = before[x - step] if x >= step else 0
            if how == 1:
                add = left
            elif how == 2:
                add = up
            elif how == 3:
                add = (left + up) // 2
            else:
                guess = left + up - corner
                add = min((left, up, corner), key=lambda v: abs(guess - v))
            row[x] = (row[x] + add) & 255
        before = row
        light = []
        for x in range(0, row_bytes, step):
            # What is see-through shows white paper.
            seen = row[x + 3] / 255 if step == 4 else 1
            mean = (2 * row[x] + 3 * row[x + 1] + row[x + 2]) / 6
            light.append(255 - seen * (255 - mean))
        rows.append(light)
    return rows


def blocks(rows):
    """Mean luminance of each block."""
    means = {}
    for y in range(0, len(rows) - BLOCK + 1, BLOCK):
        for x in range(0, WIDE - BLOCK + 1, BLOCK):
            part = [v for row in rows[y : y + BLOCK] for v in row[x : x + BLOCK]]
            means[y, x] = sum(part) / len(part)
    return means


def differences(a, b):
    """Mean difference of the blocks, and the share of those that differ much."""
    common = a.keys() & b.keys()
    assert len(common) > 100 and len(common) > 0.9 * max(len(a), len(b)), (len(a), len(b))
    far = [abs(a[key] - b[key]) for key in common]
    return sum(far) / len(far), sum(d > 60 for d in far) / len(far)


def alike(a, b):
    mean, much = differences(a, b)
    return mean < 4 and much < 0.01, f"mean {mean:.2f}, {100 * much:.2f} % of the blocks differ much"


def height(svg):
    wide, high = (float(re.search(rf'<svg[^>]* {name}="([0-9.]+)"', svg)[1]) for name in ("width", "height"))
    return int(WIDE * high / wide)


def with_programs(path, folder):
    """The blocks as the programs draw them that are no browsers."""
    made = {}
    for name, command in {
        "rsvg-convert": ["rsvg-convert", "-w", str(WIDE), "-o", "PNG", path],
        "cairosvg": ["cairosvg", str(path), "--output-width", str(WIDE), "-o", "PNG"],
    }.items():
        picture = folder / f"{name}.png"
        subprocess.run([str(picture) if word == "PNG" else word for word in command], check=True)
        made[name] = blocks(png(picture))
    return made


def with_browser(browser, paths, folder):
    """The blocks of each file as the browser draws it, all on one page."""
    heights = [height(path.read_text()) for path in paths]
    images = "".join(
        f'<img src="file://{path.resolve()}" width={WIDE} height={high} style="display:block">'
        for path, high in zip(paths, heights)
    )
    page, picture = folder / "page.html", folder / "page.png"
    page.write_text(f"<!DOCTYPE html><body style='margin:0;background:#fff'>{images}</body>")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"]
    options += ["--blink-settings=preferredColorScheme=1", f"--user-data-dir={folder / 'profile'}"]
    options += [f"--window-size={max(WIDE, 500)},{sum(heights)}", f"--screenshot={picture}"]
    subprocess.run([browser, *options, f"file://{page}"], check=True, capture_output=True, timeout=120)
    rows, start, made = png(picture), 0, []
    for high in heights:
        made.append(blocks([row[:WIDE] for row in rows[start : start + high]]))
        start += high
    return made


def spoiled(svg):
    """The drawing with colours that only browsers know."""
    svg = re.sub(r' (fill|stroke)="[^"]*"', "", svg)
    style = re.search(r"<style>(.*?)</style>", svg, re.S)
    plain = re.sub(r"@media.*", "", style[1], flags=re.S)
    colours = sorted(set(re.findall(r"#[0-9a-f]{6}", plain)))
    for colour in colours:
        plain = plain.replace(colour, f"var(--c{colour[1:]})")
    known = "".join(f"--c{colour[1:]}:{colour};" for colour in colours)
    return svg.replace(style[0], f"<style>:root{{{known}}}{plain}</style>")


def main(directory, browser):
    kinds = {}
    for path in sorted(pathlib.Path(directory).glob("*.svg")):
        kinds.setdefault(re.search(r"(?:total|flow\d+-\d+)-(.+)\.svg$", path.name)[1], path)
    assert len(kinds) >= 8, kinds
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        broken = folder / "flow0-0-spoiled.svg"
        broken.write_text(spoiled(kinds["rate"].read_text()))
        paths = [broken, *kinds.values()]
        drawn = with_browser(browser, paths, folder)
        faults = []
        for path, wanted in zip(paths, drawn):
            assert min(wanted.values()) < 250, f"{path.name}: the browser draws nothing"
            for program, got in with_programs(path, folder).items():
                same, words = alike(wanted, got)
                if same == (path == broken):
                    faults.append(f"{path.name} with {program}: {words}")
        if faults:
            sys.exit("not as the browser draws it:\n" + "\n".join(faults))
    print(f"{len(kinds)} kinds of plots are the same with three programs")


if __name__ == "__main__":
    main(*sys.argv[1:])
