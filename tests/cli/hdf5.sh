#!/usr/bin/env bash
# HDF5 through libhdf5 found at run time: h5py writes the files and says what is in them.
. "$(dirname "$0")/../guards/lib.bash"
export STOWAGE=$stowage
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
prelude="import h5py"

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
    assert same(a, out[name.replace("/", ".")]), name
END

test_py one_dataset_becomes_one_npy_and_text_is_named << 'END'
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
listed = {d["name"]: d["dtype"] for d in inspect("a.h5")["arrays"]}
assert listed == {"x": "float64", "names": "text", "pairs": "compound"}, listed
assert "dataset names is text" in stowage("shrink", "a.h5", "-o", "x.npz", fails=True)
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

test_py memory_stays_in_the_budget_and_a_chunk_past_it_is_refused << 'END'
with h5py.File("big.h5", "w") as f:
    d = f.create_dataset("x", (20_000, 500), "f8", chunks=(500, 100), compression="gzip", compression_opts=1)
    for i in range(0, 20_000, 500):
        d[i:i + 500] = np.random.default_rng(i).integers(0, 9, (500, 500))
    d[-1, -1] = 0.1
    f.create_dataset("huge", (4096, 4096), "f8", chunks=(2048, 2048))
facts = inspect("big.h5", "--memory", "300M")
x = [a for a in facts["arrays"] if a["name"] == "x"][0]
assert x["smallest_dtype"] == "float64" and x["max"] == 8
assert "its chunks need" in inspect("big.h5", "--memory", "16M", fails=True)
with h5py.File("big.h5", "a") as f:
    del f["huge"]
facts = inspect("big.h5", "--memory", "16M")
assert facts["peak_memory_bytes"] < (16 + 16) << 20, facts["peak_memory_bytes"]
END

test_py a_damaged_file_and_a_missing_library_are_told << 'END'
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
    subprocess.run([os.environ["STOWAGE"], "inspect", "b.h5"], capture_output=True, timeout=60)
os.environ["STOWAGE_HDF5_LIBRARY"] = "/nowhere/libhdf5.so"
message = inspect("a.h5", fails=True)
assert "needs libhdf5" in message and "apt-get install" in message, message
END

finish
