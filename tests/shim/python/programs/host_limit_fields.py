"""The fields of a model, all of one shape and all needed."""
import numpy


def simulate(n):
    density, velocity, pressure, energy = (numpy.full((n, n), 1.0) for _ in range(4))
    for step in range(1000):
        velocity -= pressure
        energy += density
        more = numpy.full((n, n), float(step))
    return energy.sum(), more


simulate(2300)
