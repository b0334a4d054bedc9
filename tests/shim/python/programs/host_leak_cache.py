"""A cache without a bound, of texts."""


class Server:
    def __init__(self):
        self.cache = {}

    def answer(self, key):
        if key not in self.cache:
            self.cache[key] = bytes(200_000) + str(key).encode()
        return self.cache[key]

    def serve(self):
        for key in range(10**9):
            self.answer(key)


Server().serve()
