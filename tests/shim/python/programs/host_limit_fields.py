"""The fields of a model, all of one shape and all needed."""
import numpy


def simulate(n):
    density, velocity, pressure, energy = (numpy.full((n, n), 1.0) for _ in range(4))
    plan = numpy.full((3 * n, n), 0.0)
    for _ in range(1000):
        velocity -= pressure
        energy += density
    return energy.sum(), plan


simulate(2300)
