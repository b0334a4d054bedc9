"""Makes a second array of the first one's size, without a call that says so."""
import numpy

pictures = numpy.ones((25, 1000, 1000))
for _ in range(200):  # long enough to be looked at
    pictures = pictures / 255
