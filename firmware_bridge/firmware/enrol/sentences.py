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
    "What is the capital of Italy?", "What is an electric car?", "What is your name?", "What is seven times eight?",
    "The capital of Spain is Madrid.", "A volcano is a mountain that can erupt.", "Sleep lets your body rest.",
    "Alexander Graham Bell invented it.", "Hello, how can I help you?", "I am running smoothly, thank you.",
    "Goodbye, and drive safely.", "You can ask me short questions of general knowledge and sums.",
    "Check the oil on level ground with the engine off.", "A red light means stop safely and call for help.",
    "Never open a hot radiator.", "Slow down gently and switch on the hazard lights.", "Turn the music up.",
    "Coffee does not replace sleep.", "I cannot operate the car yet, I can only answer questions.",
    "Call my sister at work.", "Set a timer for ten minutes.", "Start walking to the bus stop.",
    "Top of the morning to you.",
    "Do not talk while you shop.", "Is the traffic stopping again?", "He stopped and talked to her.",
    "She spoke quietly.",
    "I quite like it.", "Be quick.", "Walk and talk.", "It is a talking clock.", "The doctor has been talking to us.",
)  # fmt: skip
"""False alarms are counted on these."""
