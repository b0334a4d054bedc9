#!/usr/bin/env bash
# HDF5 through libhdf5, found at run time: h5py writes the files and reads their contents for comparison.
. "$(dirname "$0")/../guards/lib.bash"
export STOWAGE=$stowage STOWAGE_PACKAGE=$source_dir/python
. "$source_dir/tests/cli/numpy.bash"
python=
for candidate in "${STOWAGE_TEST_PYTHON:-python3}" /usr/bin/python3; do
  if has_numpy "$candidate" && "$candidate" -c 'import h5py' 2> /dev/null; then
    python=$candidate
    break
  fi
done
if [ -z "$python" ]; then
  if [ "${CI:-}" = true ]; then fail "hdf5: no python3 with h5py"; else skip "hdf5: no python3 with h5py to write the files"; fi
  finish
fi
cd "$folder" || exit 1
# shellcheck disable=SC2034 # numpy.bash puts it before each program
prelude="import re, sys, h5py"

test_py every_dataset_is_listed_and_read_whatever_its_type_layout_and_filter << 'END'
arrays = {}
with h5py.File("a.h5", "w") as f:
    for kind in ["?", "b", "B", "h", "H", "i", "I", "q", "Q", "e", "f", "d"]:
        for order in "<>":
            for shape, extra in [((), {}), ((0,), {}), ((7,), {}), ((30, 40), dict(chunks=(7, 9), compression="gzip", shuffle=True)),
                                 ((301, 5), dict(chunks=(100, 2))), ((4, 3, 5), dict(chunks=(2, 3, 2), fletcher32=True))]:
                name = f"g{len(arrays) % 3}/{kind}{'le' if order == '<' else 'be'}{len(arrays)}"
                arrays[name] = random_array(np.dtype(order + kind), shape)
                f.create_dataset(name, data=arrays[name], **extra)
facts = {a["name"]: a for a in inspect("a.h5")["arrays"]}
assert set(facts) == set(arrays)
for name, a in arrays.items():
    check_facts(facts[name], a.astype(a.dtype.newbyteorder("=")))
shrink("a.h5", "-o", "a.npz")
out = np.load("a.npz")
for name, a in arrays.items():
    assert same(a, out[name]), name
END

test_py a_band_that_memory_does_not_hold_is_unpacked_once << 'END'
import resource
wide = rng.integers(0, 50, (600, 16000)).astype("f4")
deep = rng.integers(-9, 9, (2, 45, 70, 90))
with h5py.File("b.h5", "w") as f:
    f.create_dataset("wide", data=wide, chunks=(600, 40), compression="gzip", compression_opts=1)
    f.create_dataset("deep", data=deep, chunks=(1, 20, 11, 13), compression="gzip", compression_opts=1)
    f.create_dataset("rows", data=wide, chunks=(40, 250), compression="gzip", compression_opts=1, shuffle=True)

def cpu_seconds(*words):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    shrink(*words)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

for name, values in (("wide", wide), ("deep", deep), ("rows", wide)):
    for memory in ("4M", "6M"):
        shrink(f"b.h5:{name}", "-o", "b.npz", "--memory", memory, "--threads", "1")
        out = np.load("b.npz")
        assert same(values, out[out.files[0]]), (name, memory)
# A part is a 37th of the band.
few, many = (min(cpu_seconds("b.h5:wide", "-o", "b.npz", "--memory", m, "--threads", "1") for _ in range(2)) for m in ("256M", "4M"))
assert many < 6 * few, (few, many)
END

test_py an_enum_is_bool_only_as_h5py_writes_it_and_otherwise_its_integers << 'END'
kinds = {"bool": ({"FALSE": 0, "TRUE": 1}, "i1"), "names": ({"lo": -1, "hi": 1}, "i1"), "values": ({"FALSE": 1, "TRUE": 0}, "i1"),
         "other": ({"no": 0, "yes": 1}, "u1"), "three": ({"a": 0, "b": 1, "c": 7}, "i1"), "wide": ({"a": -300, "b": 70000}, "<i4"),
         "big": ({"a": -300, "b": 70000}, ">i4")}
wanted = {}
with h5py.File("e.h5", "w") as f:
    for name, (words, base) in kinds.items():
        values = wanted[name] = rng.choice(list(words.values()), (50, 3)).astype(base)
        for extra, how in (("", {}), ("_gz", dict(chunks=(7, 2), compression="gzip", shuffle=True)), ("_chunks", dict(chunks=(7, 2)))):
            f.create_dataset(name + extra, data=values, dtype=h5py.enum_dtype(words, base), **how)
facts = {a["name"]: a["dtype"] for a in inspect("e.h5")["arrays"]}
assert facts["bool"] == "bool" and facts["names"] == facts["values"] == facts["three"] == "int8", facts
assert facts["other"] == "uint8" and facts["wide"] == facts["big"] == "int32", facts
shrink("e.h5", "-o", "e.npz")
out = np.load("e.npz")
for name, values in wanted.items():
    for extra in ("", "_gz", "_chunks"):
        assert np.array_equal(out[name + extra], values), (name + extra, out[name + extra][:2], values[:2])
END

test_py what_is_not_read_says_why_and_what_to_do << 'END'
layout = h5py.VirtualLayout((10,), "f8")
layout[:] = h5py.VirtualSource("from.h5", "x", (10,))
with h5py.File("l.h5", "w") as f:
    f.create_dataset("packed", data=np.arange(1000.0), compression="lzf")
    f.create_virtual_dataset("virtual", layout)
for name, step in (("packed", "h5repack"), ("virtual", "copy its values")):
    said = stowage("shrink", "l.h5:" + name, "-o", "y.npz", fails=True)
    assert step in said and "holds none" not in said, said
END

# libhdf5 allocates 5 KiB or more for each chunk that one read touches.
test_py rows_of_thousands_of_small_chunks_are_read_in_little_memory << 'END'
wide, deep = rng.integers(0, 250, (8, 300001)).astype("f4"), rng.integers(0, 250, (3, 70, 9001)).astype("f4")
with h5py.File("a.h5", "w") as f:
    f.create_dataset("wide", data=wide, chunks=(5, 32), shuffle=True)
    f.create_dataset("deep", data=deep, chunks=(2, 9, 128))
shrink("a.h5", "-o", "a.npz", "--memory", "16M")
out = np.load("a.npz")
assert np.array_equal(out["wide"], wide) and np.array_equal(out["deep"], deep)
END

test_py one_dataset_becomes_one_npy_and_what_is_not_read_does_not_block_the_others << 'END'
a = rng.integers(0, 100, (5000, 20)).astype("f8")
with h5py.File("a.h5", "w") as f:
    f.create_dataset("x", data=a, chunks=(64, 20), compression="gzip")
shrink("a.h5", "-o", "x.npy")
assert np.load("x.npy").dtype == np.uint8 and np.array_equal(np.load("x.npy"), a)
with h5py.File("a.h5", "a") as f:
    f["names"] = ["a", "bc"]
    f["pairs"] = np.zeros(3, dtype=[("a", "f4"), ("b", "i2")])
    f["soft"] = h5py.SoftLink("/x")
    f["elsewhere"] = h5py.ExternalLink("other.h5", "/x")
    f.create_dataset("packed", data=a, chunks=(64, 20), compression="lzf")
listed = {d["name"]: d["dtype"] for d in inspect("a.h5")["arrays"]}
assert listed == {"x": "float64", "names": "text", "pairs": "compound", "packed": "packed with lzf"}, listed
facts = inspect("a.h5")
assert facts["bytes_after"] == a.size, facts  # what is left out does not count
assert {d["name"] for d in facts["arrays"] if d["left_out"]} == {"names", "pairs", "packed"}, facts
done = json.loads(stowage("shrink", "--json", "a.h5", "-o", "x.npz"))
assert {d["name"]: d["type"] for d in done["left_out"]} == {k: v for k, v in listed.items() if k != "x"}, done
assert np.load("x.npz").files == ["x"] and same(a, np.load("x.npz")["x"])
for name in ("names", "packed", "elsewhere"):
    assert f"dataset {name} is" in stowage("shrink", "a.h5:" + name, "-o", "y.npz", fails=True)
END

test_py one_dataset_is_named_behind_a_colon << 'END'
with h5py.File("a.h5", "w") as f:
    f["g/x"] = np.arange(10.0)
    f["g/y"] = np.arange(5)
for name in ("a.h5:g/x", "a.h5:/g/x"):
    assert [d["name"] for d in inspect(name)["arrays"]] == ["g/x"]
    shrink(name, "-o", "x.npy")
    assert np.array_equal(np.load("x.npy"), np.arange(10))
message = inspect("a.h5:g/z", fails=True)
assert "no dataset g/z" in message and "g/y" in message, message
np.savez("a.npz", x=np.arange(10), y=np.arange(5))
assert [d["name"] for d in inspect("a.npz:y")["arrays"]] == ["y"]
shrink("a.npz:y", "-o", "y.npz")
assert np.load("y.npz").files == ["y"]
np.save("a.npy", np.arange(3))
assert "no members" in inspect("a.npy:x", fails=True)
END

test_py a_block_of_the_users_own_may_stand_before_it << 'END'
for block in (512, 4096):  # MATLAB's own files have one
    with h5py.File("u.h5", "w", userblock_size=block) as f:
        f["x"] = np.arange(10.0)
    assert inspect("u.h5")["arrays"][0]["max"] == 9
    shrink("u.h5", "-o", "u.npy")
    assert np.array_equal(np.load("u.npy"), np.arange(10))
END

test_py no_file_makes_us_open_another << 'END'
np.arange(10.0).tofile("secret.bin")
with h5py.File("from.h5", "w") as f:
    f["x"] = np.arange(10.0)
layout = h5py.VirtualLayout((10,), "f8")
layout[:] = h5py.VirtualSource("from.h5", "x", (10,))
with h5py.File("e.h5", "w") as f:
    f.create_dataset("raw", (10,), "f8", external=[("secret.bin", 0, 80)])
    f.create_virtual_dataset("virtual", layout)
facts = inspect("e.h5")["arrays"]
assert [a["dtype"] for a in facts] == ["in other files"] * 2 and "max" not in facts[0], facts
assert "dataset raw is in other files" in stowage("shrink", "e.h5", "-o", "e.npz", fails=True)
END

test_py soft_links_are_followed_inside_the_file << 'END'
with h5py.File("from.h5", "w") as f:
    f["x"] = np.arange(10.0)
values = np.arange(300).reshape(30, 10)
with h5py.File("l.h5", "w") as f:
    f["g/a"] = values
    for name, target in (("soft", "/g/a"), ("group", "/g"), ("g/near", "a"), ("g/top", "/"), ("twice", "/soft"), ("none", "/lost"), ("circle", "/circle"), ("far", "/out")):
        f[name] = h5py.SoftLink(target)
    f["out"], f["g/lost"] = h5py.ExternalLink("from.h5", "/x"), h5py.ExternalLink("lost.h5", "/x")
for name in ("soft", "/soft", "group/a", "g/near", "group/near", "g/top/g/a", "twice"):
    stowage("shrink", f"l.h5:{name}", "-o", "l.npy")
    assert same(np.load("l.npy"), values), name
for name in ("none", "circle", "group", "soft/more"):
    assert f"no dataset {name}; the file has: g/a" in stowage("inspect", f"l.h5:{name}", fails=True), name
for name in ("out", "far"):
    assert f"dataset {name} is in other files" in stowage("shrink", f"l.h5:{name}", "-o", "l.npy", fails=True), name
assert [a["name"] for a in inspect("l.h5")["arrays"]] == ["g/a"]
END

test_py memory_stays_in_the_budget_and_a_chunk_past_it_names_the_memory_that_suffices << 'END'
with h5py.File("big.h5", "w") as f:
    d = f.create_dataset("x", (20_000, 500), "f8", chunks=(500, 100), compression="gzip", compression_opts=1)
    for i in range(0, 20_000, 500):
        d[i:i + 500] = np.random.default_rng(i).integers(0, 9, (500, 500))
    d[-1, -1] = 0.1
facts = inspect("big.h5", "--memory", "16M")
x = facts["arrays"][0]
assert x["smallest_dtype"] == "float64" and x["max"] == 8
assert facts["peak_memory_bytes"] < (16 + 16) << 20, facts["peak_memory_bytes"]
with h5py.File("chunk.h5", "w") as f:  # chunks of 8 MiB: unpacked whole
    f.create_dataset("x", data=np.arange(1 << 21, dtype="f8").reshape(2048, 1024) % 251, chunks=(1024, 1024), compression="gzip")
message = inspect("chunk.h5", "--memory", "16M", fails=True)
suffices = re.search(r"chunk of 8.0 MiB .*--memory ([0-9]+)M", message)
assert suffices, message
assert inspect("chunk.h5", "--memory", suffices[1] + "M")["arrays"][0]["max"] == 250
assert inspect("chunk.h5", "--memory", f"{int(suffices[1]) - 1}M", fails=True)
END

test_py rows_and_bands_of_chunks_larger_than_the_budget_are_read_in_parts << 'END'
wide = rng.integers(0, 200, (6, 700_000)).astype("f8")  # rows of 5.6 MB, a part has 4 MiB
cube = rng.integers(0, 200, (2, 3, 300_000)).astype("f8")
layouts = {"plain": {}, "chunked": dict(chunks=(3, 5000)), "packed": dict(chunks=(3, 50_000), compression="gzip", compression_opts=1)}
with h5py.File("a.h5", "w") as f:
    for name, extra in layouts.items():
        f.create_dataset(name, data=wide, **extra)
    f.create_dataset("cube", data=cube, chunks=(2, 2, 7000))
    f.create_dataset("whole", data=wide, chunks=(6, 700_000))  # one chunk of 32 MiB, not packed: read in parts
shrink("a.h5", "-o", "a.npz", "--memory", "16M")
out = np.load("a.npz")
for name in out.files:
    assert same(cube if name == "cube" else wide, out[name]), name
assert len(out.files) == 5
END

test_py what_was_never_written_takes_no_time << 'END'
import time
with h5py.File("a.h5", "w") as f:
    f.create_dataset("none", (2**40,), "f8", chunks=(1024,))
    f.create_dataset("fill", (2**31, 2**30), "u1", chunks=(1, 1), fillvalue=7)
    f.create_dataset("late", (2**36,), "i4", fillvalue=-3)
    d = f.create_dataset("some", (2**40, 4), "i8", chunks=(256, 2), fillvalue=5)
    d[3:5] = 1 << 40
    d[2**39] = -1
    d[2**40 - 1, 3] = 9
    e = f.create_dataset("small", (100, 10), "f4", chunks=(10, 10), fillvalue=2.5)
    e[20:30] = 1
start = time.monotonic()
facts = {a["name"]: a for a in inspect("a.h5", "--memory", "64M")["arrays"]}
assert time.monotonic() - start < 10
assert facts["none"]["max"] == 0 and facts["none"]["zero_fraction"] == 1
assert facts["fill"]["min"] == facts["fill"]["max"] == 7
assert facts["late"]["min"] == -3
some = facts["some"]
assert (some["min"], some["max"], some["zero_fraction"]) == (-1, 1 << 40, 0), some
assert (facts["small"]["min"], facts["small"]["max"]) == (1, 2.5)
# shrink scans in pieces, one checkpoint each; here the disk is too small for the result.
start = time.monotonic()
refused = stowage("shrink", "--memory", "64M", "a.h5", "-o", "all.npz", fails=True)
assert time.monotonic() - start < 10 and "but the disk has" in refused, refused
shrink("a.h5:small", "-o", "small.npy")
want = np.full((100, 10), 2.5)
want[20:30] = 1
assert np.array_equal(np.load("small.npy"), want)
END

test_py chunks_of_whole_rows_are_read_from_where_they_stand << 'END'
# In a file with a user block libhdf5 reads them.
tall = rng.integers(0, 1 << 40, (250, 1000)).astype("i8")
for block in (0, 512):
    for version in ("earliest", "latest"):
        with h5py.File("a.h5", "w", libver=version, userblock_size=block) as f:
            f.create_dataset("rows", data=tall, chunks=(6, 1000))
            f.create_dataset("one", data=tall.reshape(-1), chunks=(7_000,))
            f.create_dataset("cube", data=tall.reshape(25, 10, 1000).astype(">i8"), chunks=(3, 10, 1000))
            f.create_dataset("parts", data=tall, chunks=(6, 500))
            d = f.create_dataset("holes", tall.shape, "i8", chunks=(10, 1000), fillvalue=-7)
            d[30:45], d[249] = tall[30:45], tall[249]
        shrink("a.h5", "-o", "a.npz", "--force", "--memory", "64M")
        out = np.load("a.npz")
        with h5py.File("a.h5") as f:
            for name in f:
                assert np.array_equal(out[name], f[name][()]), (block, version, name)
# A chunk that ends behind the end of the file is libhdf5's to report.
with open("a.h5", "r+b") as f:
    f.truncate(4_000_000)
stowage("shrink", "a.h5", "-o", "b.npz", fails=True)
END

test_py chunks_of_parts_of_rows_are_put_together_whatever_their_shape << 'END'
# Chunks that are cut in several dimensions, larger than the dataset, with as many values as another shape; holes; odd budgets.
layouts = {"flat": ((4000, 61), (700, 33)), "narrow": ((9000, 30), (9000, 1)), "wide": ((50, 9000), (60, 2500)), "long": ((3000, 80), (100, 164)),
           "cube": ((90, 44, 60), (40, 6, 24)), "inner": ((70, 6, 4, 200), (9, 4, 6, 200)), "middle": ((64, 30, 8, 20), (10, 7, 8, 20)),
           "five": ((12, 9, 10, 11, 26), (5, 9, 4, 11, 6)), "tiny": ((5000, 40), (3, 2))}
whole = {}
with h5py.File("grid.h5", "w", libver="latest") as f:
    for name, (shape, chunks) in layouts.items():
        whole[name] = rng.integers(-(1 << 40), 1 << 40, shape).astype("f4" if name in ("narrow", "five") else "i8")
        f.create_dataset(name, data=whole[name], chunks=chunks, maxshape=tuple(None for _ in shape))
    whole["holes"] = np.full((4000, 64), -7, "i8")
    d = f.create_dataset("holes", (4000, 64), "i8", chunks=(300, 20), fillvalue=-7)
    for rows, columns in ((slice(0, 1300), slice(0, 64)), (slice(2000, 2100), slice(10, 30)), (slice(3000, 4000), slice(0, 64))):
        d[rows, columns] = whole["holes"][rows, columns] = rng.integers(0, 99, whole["holes"][rows, columns].shape)
for memory in ("64M", "20M", "12M"):
    shrink("grid.h5", "-o", "grid.npz", "--force", "--memory", memory)
    out = np.load("grid.npz")
    for name, values in whole.items():
        assert np.array_equal(out[name], values), (memory, name)
END

test_py a_chunk_that_the_index_lists_but_does_not_find_has_the_fill_value << 'END'
# A key of the index (version 1 B-tree: 24 bytes, then per chunk its bytes, mask, offsets and address) gets another offset.
import struct
for chunks in ((600, 20), (300, 64)):
    with h5py.File("index.h5", "w", libver="earliest") as f:
        f.create_dataset("x", data=rng.integers(1, 1 << 40, (6000, 64)), chunks=chunks)
    with open("index.h5", "r+b") as f:
        data = f.read()
        node = min(at for at in range(0, len(data), 8) if data[at : at + 6] == b"TREE\1\0")
        f.seek(node + 24 + 8 + 16)
        assert f.read(8) == bytes(8)
        f.seek(-8, 1)
        f.write(struct.pack("<Q", 1 << 34))
    with h5py.File("index.h5") as f:
        want = f["x"][()]
    assert not want[:300, :20].any() and want[600:].all(), chunks
    shrink("index.h5:x", "-o", "index.npy", "--force")
    assert np.array_equal(np.load("index.npy"), want), chunks
END

test_py a_chunk_without_filters_that_is_stored_in_fewer_bytes_is_refused << 'END'
# libhdf5 1.10 returns what its memory held before in place of the bytes that are not stored.
import struct
for shape, kind in (((1200, 64), "<i8"), ((1200, 64), ">i8"), ((60000, 64), "<i8")):
    for stored in (0, 4, 6392):
        with h5py.File("short.h5", "w", libver="earliest") as f:
            f.create_dataset("x", data=rng.integers(1, 1 << 40, shape).astype(kind), chunks=(50, 16))
            f["other"] = np.arange(5.0)
        with open("short.h5", "r+b") as f:
            data = f.read()
            # A node of the index (version 1 B-tree): 24 bytes, then per chunk its bytes, mask, offsets and address.
            node = min(at for at in range(0, len(data), 8) if data[at : at + 6] == b"TREE\1\0")
            assert data[node + 24 : node + 28] == struct.pack("<I", 6400)
            f.seek(node + 24)
            f.write(struct.pack("<I", stored))
        for verb in ("inspect", "shrink"):
            said = stowage(verb, "short.h5:x", *(["-o", "short.npy"] if verb == "shrink" else []), fails=True)
            assert "short.h5: dataset x: a chunk is not stored in the 6400 bytes that it holds: damaged" in said, said
        shrink("short.h5:other", "-o", "other.npy", "--force")
        assert np.array_equal(np.load("other.npy"), np.arange(5))
END

test_py a_packed_chunk_that_unpacks_to_another_size_is_refused << 'END'
# libhdf5 does not check the size: it returns what its memory held before, or what lies behind the chunk.
import struct, zlib
D, S, F = "deflate", "shuffle", "fletcher32"
values = np.arange(1, 1601).reshape(200, 8)
whole = values[50:100].tobytes()
def made(filters, stored, mask=0, kind="<i8"):
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((50, 8))
    for name in filters:
        {D: lambda: plist.set_deflate(1), S: plist.set_shuffle, F: plist.set_fletcher32, "offset": lambda: plist.set_scaleoffset(2, 0)}[name]()
    with h5py.File("packed.h5", "w") as f:
        d = h5py.h5d.create(f.id, b"x", h5py.h5t.py_create(np.dtype(kind)), h5py.h5s.create_simple((200, 8)), plist)
        d.write(h5py.h5s.ALL, h5py.h5s.ALL, values)
        d.write_direct_chunk((50, 0), stored, mask)
        f["other"] = np.arange(5.0)
def refused(text, *given, **more):
    made(*given, **more)
    for verb in ("inspect", "shrink"):
        said = stowage(verb, "packed.h5:x", *(["-o", "packed.npy", "--force"] if verb == "shrink" else []), fails=True)
        assert "packed.h5: dataset x: the chunk at row 50 " + text in said and "write the dataset again" in said, said
    shrink("packed.h5:other", "-o", "other.npy", "--force")
for kind in ("<i8", ">i8"):
    for filters in ([D], [S, D], [S]):
        for count in (0, 1, 1000, 3199, 3201, 6400):
            bytes_ = (whole * 2)[:count]
            text = "unpacks to 3200 or more bytes but holds 3200" if count > 3200 and D in filters else f"unpacks to {count} bytes but holds 3200"
            if D in filters or count > 0:
                refused(text, filters, zlib.compress(bytes_) if D in filters else bytes_, kind=kind)
# Filters that were skipped for the chunk; checksums on both sides of gzip.
refused("unpacks to 100 bytes", [D], whole[:100], 1)
refused("unpacks to 100 bytes", [S, D], whole[:100], 2)
refused("unpacks to 100 bytes", ["offset"], whole[:100], 1)
refused("unpacks to 100 bytes", ["offset", S], whole[:100], 1)
refused("unpacks to 3200 bytes but holds 3204", [F, D], zlib.compress(whole))
refused("unpacks to 3200 or more bytes", [F, D], zlib.compress(whole + b"sums"), 1)
refused("unpacks to 3 bytes but holds 4", [D, F], b"sum")
refused("has other bytes than its checksum (Fletcher32)", [D, F], zlib.compress(whole) + b"sums")
refused("has other bytes than its checksum (Fletcher32)", [F, D], zlib.compress(whole + b"sums"))
refused("does not unpack: incorrect header check", [D], b"no gzip stream")
refused("does not unpack: its gzip stream has no end", [D], zlib.compress(whole)[:-9])
for filters, stored, mask in (([D], zlib.compress(whole), 0), ([D], whole, 1), ([F, D], zlib.compress(whole), 1), ([D, F], zlib.compress(whole), 2)):
    made(filters, stored, mask)
    shrink("packed.h5:x", "-o", "packed.npy", "--force")
    assert np.array_equal(np.load("packed.npy"), values), (filters, mask)
END

test_py packed_chunks_of_every_shape_are_read_as_libhdf5_reads_them << 'END'
# Random shapes, chunks, types, orders of filters, chunks that were never written, edges that are not packed, parts of chunks.
for trial in range(12):
    with h5py.File("many.h5", "w", libver="latest" if trial % 2 else "earliest") as f:
        for number in range(12):
            dims = int(rng.integers(1, 5))
            shape = tuple(int(n) for n in rng.integers(1, (2000, 90, 24, 12)[dims - 1], dims))
            chunk = tuple(int(rng.integers(1, n + 3)) if rng.random() < 0.7 else n for n in shape)
            if np.prod([(n - 1) // c + 1 for n, c in zip(shape, chunk)]) > 3000:
                chunk = shape
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plist.set_chunk(tuple(min(n, c) for n, c in zip(shape, chunk)))
            if number % 3 == 0:
                plist.set_scaleoffset(2, 0)
            for name in rng.permutation(["deflate", "shuffle", "fletcher32", "deflate"])[: rng.integers(1, 4)]:
                if name == "deflate": plist.set_deflate(1)
                if name == "shuffle": plist.set_shuffle()
                if name == "fletcher32": plist.set_fletcher32()
            if trial % 2 and number % 2 and hasattr(plist, "set_chunk_opts"):
                plist.set_chunk_opts(2)
            kind = np.dtype(("<", ">")[number % 2] + str(rng.choice(["i8", "u4", "i2", "u1"] if number % 3 == 0 else ["f8", "f4", "i8", "u4", "i2", "u1", "f2"])))
            plist.set_fill_value(np.array(7, kind))
            made = h5py.h5d.create(f.id, b"d%d" % number, h5py.h5t.py_create(kind), h5py.h5s.create_simple(shape), plist)
            d = h5py.Dataset(made)
            if number % 4:
                d[...] = rng.integers(0, 200, shape).astype(kind)
            elif shape[0] > 3:
                d[shape[0] // 3 : shape[0] // 2] = 9
    want = {name: d[()] for name, d in h5py.File("many.h5").items()}
    for memory in ("64M", "12M"):
        shrink("many.h5", "-o", "many.npz", "--force", "--memory", memory)
        out = np.load("many.npz")
        for name, values in want.items():
            assert np.array_equal(out[name], values), (trial, memory, name)
END

test_py every_index_of_chunks_is_read << 'END'
# Version 1 B-tree; single chunk, implicit, fixed array, extensible array and version 2 B-tree; chunks that were never written; an empty dataset.
values = rng.integers(1, 1 << 40, (1200, 64))
for order in "<>":
    for libver in ("earliest", "latest"):
        with h5py.File("index.h5", "w", libver=libver) as f:
            for name, chunks, most in (("one", (1200, 64), None), ("fixed", (50, 16), None), ("one more", (50, 16), (None, 64)), ("two more", (50, 16), (None, None))):
                f.create_dataset(name, data=values.astype(order + "i8"), chunks=chunks, maxshape=most)
            early = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            early.set_chunk((50, 16))
            early.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            made = h5py.h5d.create(f.id, b"early", h5py.h5t.py_create(np.dtype(order + "i8")), h5py.h5s.create_simple((1200, 64)), early)
            made.write(h5py.h5s.ALL, h5py.h5s.ALL, values)
            f.create_dataset("some", (1200, 64), order + "i8", chunks=(50, 16))[60:70] = 3
            f.create_dataset("none", (1200, 64), order + "i8", chunks=(50, 16))
            f.create_dataset("empty", (0, 64), order + "i8", chunks=(50, 16), maxshape=(None, 64))
        with h5py.File("index.h5") as f:
            for name in f:
                shrink("index.h5:" + name, "-o", "index.npy", "--force")
                assert np.array_equal(np.load("index.npy"), f[name][()]), (libver, name)
END

test_py rows_that_were_written_only_at_their_start_are_not_read_to_their_end << 'END'
# 2.4 TB that were never written, beside 600 KiB in every row; then in the middle of the dimensions behind the first.
values = rng.integers(1, 1 << 40, (1200, 64))
with h5py.File("wide.h5", "w") as f:
    f.create_dataset("x", (1200, 1 << 28), "i8", chunks=(50, 16), fillvalue=7)[:, :64] = values
facts = inspect("wide.h5")["arrays"][0]
assert facts["min"] == 7 and facts["max"] == values.max(), facts
for order in "<>":
    with h5py.File("deep.h5", "w") as f:
        x = f.create_dataset("x", (300, 5, 9, 1100), order + "u8", chunks=(7, 2, 4, 11), fillvalue=3)
        x[40:80, :3, 2:6, 20:40] = rng.integers(1, 1 << 60, (40, 3, 4, 20))
        x[90, 1, 2] = 5
        want = x[()]
    shrink("deep.h5", "-o", "deep.npy", "--force")
    assert np.array_equal(np.load("deep.npy"), want), order
END

test_py chunks_of_parts_of_rows_are_read_without_the_worker_once_their_offsets_are_known << 'END'
import os, subprocess
program = """
import os, signal, numpy, stowage
data = stowage.open("columns.h5:x")
whole = numpy.arange(1_200_000, dtype="f8").reshape(12_000, 100)
assert (data[:3000] == whole[:3000]).all()
worker, = map(int, open(f"/proc/self/task/{os.getpid()}/children").read().split())
os.kill(worker, signal.SIGSTOP)
signal.alarm(30)
assert (data[1001:9999] == whole[1001:9999]).all()
assert (data[5999:] == whole[5999:]).all()
"""
with h5py.File("columns.h5", "w") as f:
    f.create_dataset("x", data=np.arange(1_200_000, dtype="f8").reshape(12_000, 100), chunks=(700, 33))
library = os.path.join(os.path.dirname(os.environ["STOWAGE"]), "libstowage.so")
subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, "PYTHONPATH": os.environ["STOWAGE_PACKAGE"], "STOWAGE_LIBRARY": library})
END

test_py a_chunk_stored_in_more_than_it_declares_is_refused_within_the_budget << 'END'
import resource, struct, zlib
packer = zlib.compressobj(9)
first, again = (packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2))  # after the first all are alike
stream = first + again * 599 + b"\3\0" + struct.pack(">HH", (600 << 20) % 65521, 1)  # an empty last block, Adler-32 of zeros
for rows in (128, 8192):  # 600 MiB behind a chunk of 1 KiB, and of 64 KiB
    with h5py.File("bomb.h5", "w") as f:
        d = f.create_dataset("x", shape=(rows,), dtype="f8", chunks=(rows,), compression="gzip")
        d.id.write_direct_chunk((0,), stream)
    message = inspect("bomb.h5", "--memory", "32M", fails=True)
    assert f"is stored in {len(stream)} bytes but holds {rows * 8}" in message, message
assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 150 << 10
END

test_py a_damaged_file_and_a_missing_library_are_reported << 'END'
with h5py.File("a.h5", "w") as f:
    f.create_dataset("x", data=rng.standard_normal((2000, 20)), chunks=(100, 20), compression="gzip")
whole = open("a.h5", "rb").read()
open("cut.h5", "wb").write(whole[:len(whole) // 2])
assert "cut.h5: libhdf5 cannot" in inspect("cut.h5", fails=True)
for trial in range(60):
    broken = bytearray(whole)
    for _ in range(8):
        broken[int(rng.integers(8, len(broken)))] = int(rng.integers(0, 256))
    open("b.h5", "wb").write(broken)
    done = subprocess.run([os.environ["STOWAGE"], "inspect", "b.h5"], capture_output=True, timeout=60)
    assert done.returncode >= 0 and b"HDF5-DIAG" not in done.stderr, done
os.environ["STOWAGE_HDF5_LIBRARY"] = "/nowhere/libhdf5.so"
message = inspect("a.h5", fails=True)
assert "needs libhdf5" in message and "apt-get install" in message, message
END

# ---- a libhdf5 that misbehaves ----
library=$("$python" -c 'import h5py
print(next(line.split()[-1] for line in open("/proc/self/maps") if "libhdf5" in line and "_hl" not in line))')
cat > wrap.c << 'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>
static void misbehave(const char *how) {
  if (strcmp(how, "crash") == 0) raise(SIGSEGV);
  if (strcmp(how, "abort") == 0) abort();
  if (strcmp(how, "exit") == 0) _exit(3);
  if (strcmp(how, "spin") == 0) for (volatile int i = 0;; i++) {}
  if (strcmp(how, "print") == 0) { fprintf(stderr, "HDF5-DIAG: noise\n"); printf("HDF5-DIAG: noise\n"); fflush(NULL); }
  if (strcmp(how, "eat") == 0)
    for (;;) {
      char *more = malloc(1 << 20);
      if (more == NULL) raise(SIGSEGV);
      memset(more, 1, 1 << 20);
    }
  if (strcmp(how, "escape") == 0) { /* every one of these must fail */
    char *argv[] = {"/bin/true", NULL};
    if (socket(AF_INET, SOCK_STREAM, 0) >= 0) raise(SIGSEGV);
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1) raise(SIGSEGV);
    if (fcntl(99, F_GETFD) >= 0) raise(SIGSEGV); /* a descriptor of the program that reads */
    if (unlink("keep") == 0 || rename("keep", "lost") == 0) raise(SIGSEGV);
    execv(argv[0], argv);
  }
}
int H5Dread(int64_t a, int64_t b, int64_t c, int64_t d, int64_t e, void *to) {
  int (*real)(int64_t, int64_t, int64_t, int64_t, int64_t, void *) = dlsym(RTLD_NEXT, "H5Dread");
  misbehave(getenv("MISBEHAVE"));
  return real(a, b, c, d, e, to);
}
int H5Dread_chunk(int64_t a, int64_t b, const void *c, uint32_t *d, void *to) {
  int (*real)(int64_t, int64_t, const void *, uint32_t *, void *) = dlsym(RTLD_NEXT, "H5Dread_chunk");
  if (real == NULL) real = dlsym(RTLD_NEXT, "H5Dread_chunk1"); /* HDF5 2.0 */
  misbehave(getenv("MISBEHAVE"));
  return real(a, b, c, d, to);
}
uint64_t H5Dget_offset(int64_t a) {
  uint64_t (*real)(int64_t) = dlsym(RTLD_NEXT, "H5Dget_offset");
  const char *lie = getenv("OFFSET");
  return lie != NULL ? strtoull(lie, NULL, 10) : real(a);
}
END
export LIBRARY=$library WRAP=$PWD/wrap.so
if ! ${CC:-cc} -shared -fPIC -o wrap.so wrap.c -Wl,--no-as-needed "$library" -ldl 2> wrap.log; then
  skip "hdf5: no compiler for a libhdf5 that misbehaves"
  finish
fi

test_py faults_of_the_library_become_messages << 'END'
import resource
with h5py.File("a.h5", "w") as f:
    f.create_dataset("x", data=np.arange(10.0), chunks=(5,), compression="gzip")
open("keep", "w").close()
os.dup2(os.open("keep", os.O_RDONLY), 99)
os.environ["STOWAGE_HDF5_LIBRARY"] = os.environ["WRAP"]
def with_fault(how, fails=True):
    os.environ["MISBEHAVE"] = how
    done = subprocess.run([os.environ["STOWAGE"], "inspect", "--memory", "32M", "a.h5"], capture_output=True, text=True, timeout=60, pass_fds=(99,))
    assert (done.returncode in (1, 2)) == fails and done.returncode >= 0 and "DIAG" not in done.stdout + done.stderr, (how, done)
    return done.stderr
assert "libhdf5 crashed on it (Segmentation fault)" in with_fault("crash"), with_fault("crash")
assert "libhdf5 crashed on it (Aborted)" in with_fault("abort")
assert "exit code 3" in with_fault("exit")
os.environ["STOWAGE_HDF5_SECONDS"] = "1"
assert "computed too long" in with_fault("spin")
with_fault("print", fails=False)
with_fault("escape", fails=False)
assert os.path.exists("keep")
assert "crashed" in with_fault("eat")
assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 100 << 10, resource.getrusage(resource.RUSAGE_CHILDREN)
END

test_py values_in_one_piece_are_read_without_the_library << 'END'
values = random_array(np.dtype("f8"), (3000, 7))
with h5py.File("c.h5", "w") as f:
    f["x"], f["big"], f["empty"] = values, values.astype(">f8"), np.zeros((0, 3))
    f.create_dataset("unwritten", (40, 3), "f4", fillvalue=2.5)
os.environ["STOWAGE_HDF5_LIBRARY"] = os.environ["WRAP"]
def crashes(name):
    os.environ["MISBEHAVE"] = "crash"
    done = subprocess.run([os.environ["STOWAGE"], "shrink", "c.h5:" + name, "-o", name + ".npy"], capture_output=True, text=True)
    assert done.returncode == 0 or "libhdf5 crashed" in done.stderr, done
    return done.returncode != 0
assert not crashes("x") and same(np.load("x.npy"), values)
assert crashes("big"), "the bytes are in another order"
assert crashes("unwritten"), "the values are not in the file"
# A wrong answer is checked; libhdf5 reads the values then.
for wrong in (os.path.getsize("c.h5") - 8, 2**63, 2**64 - 2**10):
    os.environ["OFFSET"] = str(wrong)
    assert crashes("x"), wrong
    os.environ["MISBEHAVE"] = "not"
    shrink("c.h5:x", "-o", "y.npy")
    assert same(np.load("y.npy"), values)
END

test_py the_library_of_h5py_is_found_without_a_system_one << 'END'
with h5py.File("a.h5", "w") as f:
    f["x"] = np.arange(10.0)
os.makedirs("env/bin")
os.makedirs("env/lib/python3.99/site-packages/h5py.libs")
os.makedirs("hidden")
for stem in ("libhdf5", "libhdf5_serial"):  # the loader stops at these instead of the system's
    for end in ("", ".310", ".200", ".103", ".100"):
        open(f"hidden/{stem}.so{end}", "w").write("not a library")
os.environ["LD_LIBRARY_PATH"] = os.path.abspath("hidden")
os.environ["PATH"] = os.path.abspath("env/bin") + ":" + os.environ["PATH"]
assert "needs libhdf5" in inspect("a.h5", fails=True)
os.symlink(sys.executable, "env/bin/python3")
os.symlink(os.environ["LIBRARY"], "env/lib/python3.99/site-packages/h5py.libs/libhdf5-1a2b3c.so.310")
assert inspect("a.h5")["arrays"][0]["max"] == 9
END

finish
