"""Workers made by fork from a parent with a list; each goes through it and so copies it."""
import multiprocessing
import time

rows = [float(number) for number in range(1_500_000)]


def work(turn):
    total = sum(row for row in rows)
    time.sleep(20)
    return total + turn


if __name__ == "__main__":
    children = [multiprocessing.get_context("fork").Process(target=work, args=(i,)) for i in range(8)]
    for child in children:
        child.start()
    for child in children:
        child.join()
