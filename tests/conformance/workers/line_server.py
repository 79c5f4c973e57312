"""The protocol of all workers: one JSON object on each line of standard input, one on each line of standard output.

    {"do": "load", "path": "…"}  →  {"ok": …}  or  {"error": "Traceback …"}
"""

import json
import os
import sys
import traceback


def serve(functions):
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not end up among the answers
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"ok": functions[request.pop("do")](**request)}
        except BaseException:  # a Rust panic in the Carton client arrives as a BaseException
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
