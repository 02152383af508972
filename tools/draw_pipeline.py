#!/usr/bin/env python3
"""Draws how the chunks of a prompt went through the stages, as an SVG timeline.

    longspan generate --pp-size 2 --json ... > run.json
    tools/draw_pipeline.py run.json docs/pipeline.svg

One row per stage, one bar per chunk, from when the stage had its input to when it had handed its output on. What is
left white is the bubble.
"""
import json
import sys

WIDTH, ROW, BAR, LEFT, TOP = 960, 44, 30, 74, 46
COLOURS = ("#2b6cb0", "#63a4d8")


def bars(chunks, stages):
    """(stage, number of the chunk, begin ms, end ms, label) of every bar."""
    for number, chunk in enumerate(chunks):
        for stage in range(stages):
            begin = chunk["start_ms"][stage] + chunk["wait_ms"][stage]
            yield stage, number, begin, chunk["end_ms"][stage], f"tokens {chunk['begin']} to {chunk['end']}"


def draw(run):
    pipeline = run["pipeline"]
    stages, chunks = pipeline["stages"], pipeline["chunks"]
    total = max(end for _, _, _, end, _ in bars(chunks, stages))
    scale = (WIDTH - LEFT - 16) / total
    height = TOP + stages * ROW + 34
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
           f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13">',
           f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
           f'<text x="{LEFT}" y="24" font-size="15" fill="#222">{chunks[-1]["end"]:,} tokens in {len(chunks)} chunks '
           f'through {stages} stages: {total / 1000:.2f} s, bubble {100 * pipeline["bubble_share"]:.1f}%</text>']
    for stage in range(stages):
        y = TOP + stage * ROW
        out.append(f'<text x="10" y="{y + 20}" fill="#222">stage {stage}</text>')
        out.append(f'<rect x="{LEFT}" y="{y}" width="{total * scale:.1f}" height="{BAR}" fill="#f1f1f1"/>')
    for stage, number, begin, end, label in bars(chunks, stages):
        out.append(f'<rect x="{LEFT + begin * scale:.1f}" y="{TOP + stage * ROW}" '
                   f'width="{max((end - begin) * scale - 0.6, 0.4):.1f}" height="{BAR}" '
                   f'fill="{COLOURS[number % 2]}"><title>chunk {number}: {label}, {end - begin:.0f} ms</title></rect>')
    axis = TOP + stages * ROW + 14
    for tick in range(6):
        x = LEFT + tick / 5 * total * scale
        out.append(f'<text x="{x:.1f}" y="{axis}" text-anchor="middle" fill="#555">{tick / 5 * total / 1000:.1f} s</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: draw_pipeline.py RUN.json OUT.svg")
    with open(sys.argv[1], encoding="utf-8") as file:
        svg = draw(json.load(file))
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(svg)


if __name__ == "__main__":
    main()
