# SPDX-License-Identifier: Apache-2.0
"""What is said to tune and to measure the stop lane with: the phrases, and speech that must not trigger it."""

from __future__ import annotations

__all__ = ["PHRASES", "TEST", "TUNE"]

PHRASES = ("Stop talking.", "Be quiet.")
"""Phrase 1, phrase 2."""

TUNE = (
    "What is the capital of France?", "Why do birds sing?", "How many days are in a week?", "What is a computer?",
    "How often should I check the tyre pressure?", "Thank you very much.", "Lower the temperature by two degrees.",
    "Take me home and avoid the motorway.", "Is it going to rain tomorrow in the mountains?",
    "Open the window a little.",
    "Keep talking.", "We were talking about the stock market.", "The shop is on the top floor.", "Stop the car.",
    "Stay quiet and listen to the birds.", "A quiet evening would be nice.", "Please stop at the next safe place.",
    "The tall king stopped walking.",
)  # fmt: skip
"""Thresholds are set with these."""

TEST = (
    "What is the capital of Norway?", "How does a diesel engine work?", "Who painted this picture?",
    "What is nine plus six?", "The capital of Portugal is Lisbon.", "A glacier is a slow river of ice.",
    "Bees make honey from nectar.", "Marie Curie found radium.", "Good evening, where would you like to go?",
    "All systems are working well.", "Have a pleasant journey.",
    "I can tell you about animals, history and numbers.", "Fill the washer fluid before winter.",
    "A yellow light means get ready to brake.", "Keep both hands on the wheel in strong wind.",
    "Use the low gear on a steep hill.", "Play something by the Beatles.", "Tea is made from dried leaves.",
    "There is a petrol station in two kilometres.", "Send a message to my brother.",
    "Remind me to buy bread tomorrow.", "Which lane should I take?", "The battery is almost full.",
    "My seat is too warm.", "Close the roof, please.", "The museum opens at nine.", "Your parcel has arrived.",
    "Turn left behind the church.", "Stop knocking.", "Drop the stocking.", "He stops talking to nobody.",
    "Don't stop walking.", "What are you talking about?", "The clock stopped ticking.", "They shop for stockings.",
    "A top talker got the job.", "She is still talking.", "Start talking.", "Stop at the parking lot.",
    "It stopped barking at the postman.", "Who is talking?", "Top parking space.", "Be quite sure.",
    "The engine is very quiet.", "We requested a room.", "Beat the other team.", "It can be quicker by train.",
    "He will be quite late.", "A bee flew by it.", "The beach was quiet today.", "Be kind to it.",
    "The riot began at noon.", "Keep it quiet.", "Buy it here.", "Please be careful.", "Do you require it?",
)  # fmt: skip
"""Misses and false alarms are counted on these. Nothing was set or chosen with them: whoever changes something after a
look at what they gave needs others."""
