"""A list that a comprehension is still making: no variable names it."""


class Particle:
    def __init__(self, at):
        self.at, self.near = at, []


world = [Particle(i * 0.1) for i in range(10_000_000)]
