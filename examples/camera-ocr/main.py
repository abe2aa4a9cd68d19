# SPDX-License-Identifier: Apache-2.0
"""A question about a video, answered from the text in it: main.py PACKAGE VIDEO QUESTION"""

import sys

from dpfedge import Pipeline

if len(sys.argv) != 4:
    sys.exit("usage: main.py PACKAGE VIDEO QUESTION")
package, video, question = sys.argv[1:]
with Pipeline.open(package) as pipeline:
    wanted = {"camera": {"source": video}, "llm": {"question": question}}
    with pipeline.request(wanted) as request:
        seen, answer = "", ""
        for output in request.outputs():
            if output.port == "found" and output.map["text"] != seen:
                seen = output.map["text"]
                print(f"seen: {seen!r}")
            elif output.stage == "llm" and output.kind.name == "TEXT":
                answer += output.text
        print("answer:", answer)
        camera = request.report["camera"]
        print(f"frames: {camera['frames']} read, {camera['skipped']} skipped, {camera['dropped']} dropped")
