# SPDX-License-Identifier: Apache-2.0
"""`python examples/two-stages/main.py`: a quiet second and a loud one through two processes."""

from pathlib import Path

import numpy as np

from dpfedge import Pipeline

with Pipeline.open(Path(__file__).with_name("pipeline.yaml")) as pipeline, pipeline.request() as request:
    for amplitude in (0.01, 0.5):
        request.send("loudness.samples", np.full(16000, amplitude, np.float32))
    request.finish()
    print(*(output.text for output in request.outputs() if output.port == "word"))
