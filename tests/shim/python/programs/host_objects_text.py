"""A list of texts and numbers."""
words = []


def fill():
    for number in range(10**9):
        words.append(str(number) + "-word")


fill()
