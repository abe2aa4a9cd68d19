# SPDX-License-Identifier: Apache-2.0
"""Ten lines from a package to a spoken answer: main.py PACKAGE QUESTION.wav ANSWER.wav"""

import sys

from dpfedge import Runtime

if len(sys.argv) != 4:
    sys.exit("usage: main.py PACKAGE QUESTION.wav ANSWER.wav")
package, question, out = sys.argv[1:]
with Runtime.open(package) as runtime:
    answer = runtime.ask(question)
    answer.save(out)
    print("question:", answer.question)
    print("answer:", answer.text)
