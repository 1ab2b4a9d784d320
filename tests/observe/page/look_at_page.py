# SPDX-License-Identifier: Apache-2.0
"""Looks at the page that observed_run wrote, in Chromium: look_at_page.py CHROMIUM FOLDER

The page as the browser understood it must hold what the run was, fit into a narrow window, and, as a picture, show its
curves. The picture stays in the folder."""
import re
import struct
import subprocess
import sys
import zlib

browser, folder = sys.argv[1:]
if browser.endswith("NOTFOUND"):
    print("skipped: there is no Chromium here (Debian's package chromium)")
    sys.exit(77)


def show(page, *options):
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
        "--force-device-scale-factor=1", f"--user-data-dir={folder}/profile", *options, f"file://{page}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    if done.returncode != 0:
        sys.exit(f"Chromium ended with {done.returncode}: {done.stderr}")
    return done.stdout


def want(condition, what):
    if not condition:
        sys.exit(f"the page: wanted {what}")


# A copy measures itself, in a window as narrow as a telephone's.
with open(f"{folder}/report.html", encoding="utf-8") as file:
    text = file.read()
measure = """<script>onload=()=>{const e=document.documentElement,d=document.body.dataset;
d.over=Math.max(0,e.scrollWidth-innerWidth);d.charts=document.querySelectorAll("svg[role=img][aria-label]").length;
d.drawn=[...document.querySelectorAll("svg")].filter(s=>s.getBoundingClientRect().height>50&&s.querySelector(".line")).length;
d.errors=document.querySelectorAll("parsererror").length}</script></body>"""
with open(f"{folder}/measured.html", "w", encoding="utf-8") as file:
    file.write(text.replace("</body>", measure))
seen = show(f"{folder}/measured.html", "--window-size=500,900", "--dump-dom")
measured = dict(re.findall(r'data-(over|charts|drawn|errors)="(\d+)"', seen))
want(measured == {"over": "0", "charts": "4", "drawn": "4", "errors": "0"}, f"4 charts that fit, found {measured}")
want("<h1>Smooth &amp; steep &lt;curves&gt;</h1>" in seen, "its title")
want("epoch 3 of 3, step 50 of 50" in seen, "where the run ended")
want("photos/0017.png: the file is cut off" in seen, "the sample that could not be read")
want('http-equiv="refresh"' not in seen, "no reload: the run is over")


def pixels(path):
    """The colours of an 8-bit PNG and how many pixels have each."""
    with open(path, "rb") as file:
        data = file.read()
    at, packed = 8, b""
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            width, height, depth, colours, _, _, interlaced = struct.unpack(">IIBBBBB", body)
            want(depth == 8 and colours in (2, 6) and not interlaced, "a plain PNG")
        if kind == b"IDAT":
            packed += body
        at += 12 + size
    deep = 3 if colours == 2 else 4
    rows, line, counts = zlib.decompress(packed), width * deep, {}
    before = bytearray(line)
    for y in range(height):
        start = y * (line + 1)
        how, row = rows[start], bytearray(rows[start + 1 : start + 1 + line])
        for i in range(line) if how else ():
            left, up, corner = (row[i - deep], before[i], before[i - deep]) if i >= deep else (0, before[i], 0)
            if how == 4:
                away = [abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)]
                guess = (left, up, corner)[away.index(min(away))]
            else:
                guess = (0, left, up, (left + up) // 2)[how]
            row[i] = (row[i] + guess) & 255
        for x in range(0, line, deep):
            colour = tuple(row[x : x + 3])
            counts[colour] = counts.get(colour, 0) + 1
        before = row
    return counts


show(f"{folder}/report.html", f"--screenshot={folder}/report.png", "--window-size=1000,900")
counts = pixels(f"{folder}/report.png")
total = sum(counts.values())
for colour, least, what in [
    ((244, 245, 247), total // 20, "the background"),
    ((255, 255, 255), total // 4, "the cards"),
    ((37, 99, 235), 1000, "the first curve of each chart"),
    ((194, 87, 12), 200, "the second curve of a chart"),
    ((27, 31, 39), 300, "text"),
]:
    want(counts.get(colour, 0) >= least, f"{least} pixels of {colour}, {what}, found {counts.get(colour, 0)}")
print(f"{total} pixels of {len(counts)} colours: {folder}/report.png")
