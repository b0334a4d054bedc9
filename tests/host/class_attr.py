# expect: host_leak | seen
# limit: 300M
import os
class Session:
    seen = []
    def __init__(self, user):
        self.user = user
        self.blob = os.urandom(100_000)
        Session.seen.append(self)
def serve():
    for user in range(10**6):
        Session(user)
serve()
