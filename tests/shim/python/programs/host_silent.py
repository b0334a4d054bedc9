"""One call of C code fills the memory and holds the interpreter's lock: Python cannot answer until it returns."""


def number_all(count):
    numbers = list(range(count))
    return len(numbers)


if __name__ == "__main__":
    print(number_all(10**9))
