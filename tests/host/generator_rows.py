# expect: host_objects | rows
# limit: 500M
def read_events(count):
    for i in range(count):
        yield {"id": i, "user": f"user-{i % 5000}", "value": i * 0.5, "tags": ["a", "b"]}


def main():
    rows = []
    for event in read_events(20_000_000):
        if event["value"] >= 0:
            rows.append(event)
    print(len(rows))


main()
