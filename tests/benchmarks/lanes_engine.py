"""A process that speaks the engine's protocol with LANES and computes nothing: `lanes_engine.py MODE --serve ...`.

It answers a prompt with the numbers after its last token. Modes: `works`, `seeds` (does not know LANES), `refuses`
(every request), `short` (one token less than asked), `dies` (at the first request).
"""

import sys


def main():
    mode = sys.argv[1]
    say(f"INFO context=4096 {'' if mode == 'seeds' else 'lanes=1 '}engine=0")
    say("READY 4096 stop")
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "QUIT":
            break
        if word != "BGEN":
            continue
        if mode == "dies":
            sys.exit(3)
        lane, count, prompt = rest[0], int(rest[1]), [int(i) for i in rest[-1].split(",")]
        if mode == "refuses":
            say(f"BERR {lane} the prompt is not to my taste")
            continue
        say("BT 999 5")  # of a lane that nobody asked for
        say(f"BRESUME {lane} {len(prompt) // 2}")
        say(f"BPP {lane} {len(prompt)} {len(prompt)} 1.0 100.0")
        made = count - (mode == "short")
        for i in range(made):
            say(f"BT {lane} {prompt[-1] + 1 + i}")
        say(f"BDONE {lane} {made} length 1.0 {made // 2} {made} {len(prompt)} 1.0 {len(prompt) // 2} 0")


def say(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


main()
