"""The exercises of lab 13."""

from __future__ import annotations

from helpers.exercises.model import Exercise

EXERCISES: tuple[Exercise, ...] = ()
