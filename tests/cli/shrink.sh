#!/usr/bin/env bash
# Compares stowage shrink with NumPy and SciPy: they read every output and must find every value. STOWAGE_TEST_PYTHON names
# another Python that has both.
. "$(dirname "$0")/../guards/lib.bash"
export STOWAGE=$stowage
. "$source_dir/tests/cli/numpy.bash"
require_numpy shrink
cd "$folder" || exit 1

test_py arrays_of_every_type_and_order_come_back_equal << 'END'
for kind in ["?", "b", "B", "h", "H", "i", "I", "q", "Q", "e", "f", "d"]:
    for order in "<>":
        for shape in [(), (0,), (7,), (3, 4), (2, 0, 5), (2, 3, 4), (300, 401)]:
            for fortran in (False, True):
                if not in_full and rng.random() < 0.6:
                    continue
                a = random_array(np.dtype(order + kind), shape)
                if rng.random() < 0.5 and a.dtype.kind in "iuf":
                    a = (a.astype("f8") % 7).round().astype(a.dtype)
                if fortran:
                    a = np.asfortranarray(a)
                np.save("a.npy", a)
                shrink("a.npy", "-o", "b.npy")
                b = np.load("b.npy")
                assert same(a, b), (a.dtype, b.dtype, shape)
                assert b.dtype.itemsize <= a.dtype.itemsize
                assert b.flags.f_contiguous == a.flags.f_contiguous
END

test_py the_last_value_decides << 'END'
for value, expected in [(0.5, "f2"), (2053.5, "f4"), (0.1, "f8"), (np.nan, "f2"), (-0.0, "f2"), (7.0, "u1"), (-7.0, "i1")]:
    a = np.ones((50001, 3))
    a[-1, -1] = value
    np.save("a.npy", a)
    shrink("a.npy", "-o", "b.npy")
    b = np.load("b.npy")
    assert b.dtype == np.dtype(expected) and same(a, b), (value, b.dtype)
END

test_py npz_members_keep_names_text_and_compression << 'END'
arrays = dict(x=random_array(np.dtype("f8"), (40, 30)).round() + 0.0, y=np.arange(9), t=np.array(["é", "bcd"]), c=np.ones(3, "c16"),
              s=np.array(2.5), e=np.zeros((0, 4)), **{"größe 大きさ": np.arange(3)})
for save in (np.savez, np.savez_compressed):
    save("a.npz", **arrays)
    shrink("a.npz", "-o", "b.npz")
    b = np.load("b.npz")
    assert b.files == list(arrays)
    for name in arrays:
        assert same(arrays[name], b[name]), name
    assert b["x"].dtype == np.int8 and b["y"].dtype == np.uint8
    import zipfile
    assert zipfile.ZipFile("b.npz").testzip() is None
    assert {i.compress_type for i in zipfile.ZipFile("b.npz").infolist()} == {0 if save is np.savez else 8}
END

test_py an_array_of_any_shape_becomes_an_archive << 'END'
for shape in ((), (0,), (5,), (1000,), (0, 3), (3, 0), (2, 3, 4), (1, 1)):
    for dtype in ("f8", "?", ">i4", "U3"):
        a = np.zeros(shape, dtype) if dtype == "U3" else random_array(np.dtype(dtype), shape)
        np.save("a.npy", a)
        shrink("a.npy", "-o", "b.npz")
        b = np.load("b.npz")
        back = b["arr_0"] if "arr_0" in b else sp.load_npz("b.npz").toarray()
        assert same(a, back), (shape, dtype)
END

test_py nothing_becomes_an_archive_numpy_reads << 'END'
np.savez("a.npz")
shrink("a.npz", "-o", "b.npz")
assert np.load("b.npz").files == [] and inspect("b.npz")["arrays"] == []
open("t.csv", "w").write("a,b\n")  # names, and no row
shrink("t.csv", "-o", "t.npz")
t = np.load("t.npz")
assert t.files == ["a", "b"] and t["a"].shape == (0,)
END

test_py negative_zeros_count_as_zeros_and_are_reported << 'END'
dense = rng.standard_normal((400, 300)) * (rng.random((400, 300)) < 0.01)  # a masked Gaussian: half of its zeros are -0.0
minus = int((np.signbit(dense) & (dense == 0)).sum())
assert minus > 50_000
np.save("a.npy", dense)
facts = inspect("a.npy")
assert facts["zero_fraction"] == (dense == 0).mean() and facts["sparse_is_smaller"]
result = shrink("a.npy", "-o", "a.npz")
assert result["arrays"][0]["sparse"] and result["arrays"][0]["negative_zeros"] == minus
assert sp.load_npz("a.npz").nnz == np.count_nonzero(dense) and np.array_equal(sp.load_npz("a.npz").toarray(), dense)
assert f"{minus} negative zeros" in stowage("shrink", "a.npy", "-o", "b.npz")
shrink("a.npy", "-o", "c.npy")  # dense: every sign stays
assert same(np.load("c.npy"), dense) and np.array_equal(np.signbit(np.load("c.npy")), np.signbit(dense))
full = np.ones((400, 300))
full[0, 0] = -0.0  # too dense for a matrix: no integer type may take it
np.save("d.npy", full)
shrink("d.npy", "-o", "d.npz")
assert np.signbit(np.load("d.npz")["arr_0"][0, 0])
END

test_py dense_becomes_sparse_where_that_is_smaller << 'END'
count = 0
for dtype in ("f8", "f4", "i8", "u2"):
    for shape in ((500, 300), (3, 70000), (70000, 3), (1, 1000), (1000, 1)):
        for order in "CF":
            dense = random_sparse(shape, 0.01, "f8")
            dense = (dense * 50).astype(dtype) if dtype[0] in "iu" else dense.astype(dtype)
            if dtype[0] == "f":
                dense[0, 0] = np.nan
                dense[-1, -1] = -0.0
            np.save("a.npy", np.asarray(dense, order=order))
            result = shrink("a.npy", "-o", "b.npz")
            assert result["arrays"][0].get("negative_zeros", 0) == (result["arrays"][0]["sparse"] and dtype[0] == "f")
            if not result["arrays"][0]["sparse"]:
                assert same(np.load("b.npz")["arr_0"], dense) and min(shape) < 10
                continue
            count += 1
            m = sp.load_npz("b.npz")
            assert m.format == ("csc" if order == "F" and min(shape) > 1 else m.format)
            back = m.toarray()
            assert np.array_equal(dense, back, equal_nan=dtype[0] == "f"), (dtype, shape, order)
            stored = np.load("b.npz")
            assert stored["data"].dtype.itemsize <= np.dtype(dtype).itemsize
            m.check_format(full_check=True)
assert count > 20, count
dense = rng.standard_normal((100, 100))
np.save("a.npy", dense)
shrink("a.npy", "-o", "b.npz")
assert same(np.load("b.npz")["arr_0"], dense)
END

test_py sparse_bytes_are_within_the_promise << 'END'
for dtype, most in (("f4", 0.75), ("f8", 0.84)):
    dense = random_sparse((2000, 1000), 0.05, "f8")
    if dtype == "f4":
        dense = dense.astype("f4")
    m = sp.csr_matrix(dense)
    np.save("a.npy", dense)
    shrink("a.npy", "-o", "b.npz")
    b = np.load("b.npz")
    assert b["indptr"].nbytes <= m.indptr.nbytes
    ours = b["data"].nbytes + b["indices"].nbytes
    theirs = m.data.nbytes + m.indices.nbytes
    assert ours <= most * theirs, (ours, theirs, ours / theirs)
END

test_py sparse_matrices_get_narrower << 'END'
for make in (sp.csr_matrix, sp.csc_matrix):
    for compressed in (False, True):
        m = make(random_sparse((300, 200), 0.05).round(1) * 2)
        m.data = m.data.round() + 0.0  # no -0, which only floats have
        sp.save_npz("a.npz", m, compressed=compressed)
        shrink("a.npz", "-o", "b.npz")
        n = sp.load_npz("b.npz")
        assert n.format == m.format and np.array_equal(m.toarray(), n.toarray())
        assert np.load("b.npz")["indices"].dtype == np.uint16 and np.load("b.npz")["data"].dtype.itemsize == 1
for trial in range(40 if in_full else 12):  # and in the other formats SciPy saves
    rows, columns = 3 * int(rng.integers(0, 30)), 4 * int(rng.integers(0, 30))
    dense = (random_sparse((rows, columns), 0.1) * 20).round() + 0.0  # no -0, which only floats have
    coo = sp.coo_matrix(dense)
    dia = sp.dia_matrix(dense) if rows and columns else sp.dia_matrix((rows, columns))
    if dia.data.size:  # what stands outside of the matrix is no part of it
        dia.data[:, 0] += 5
        dia.data[:, -1] += 5
        if trial % 2:
            dia.data = np.asfortranarray(dia.data)
    twice = sp.coo_matrix((np.r_[coo.data, coo.data], (np.r_[coo.row, coo.row], np.r_[coo.col, coo.col])), shape=coo.shape)
    made = [coo, twice, dia]
    if rows and columns:
        made.append(sp.csr_matrix(dense).tobsr((3, 4)))
    for m in made:
        sp.save_npz("a.npz", m, compressed=bool(trial % 3))
        facts = inspect("a.npz")
        assert facts["sparse"] == m.format and facts["shape"] == [rows, columns] and facts["dtype"] == "float64", facts
        if m is not twice and dense.size:
            assert abs(facts["zero_fraction"] - (m.toarray() == 0).mean()) < 1e-12, (m.format, facts)
        shrink("a.npz", "-o", "b.npz")
        n = sp.load_npz("b.npz")
        assert n.format == m.format and n.shape == m.shape and np.array_equal(m.toarray(), n.toarray()), m.format
        places = np.load("b.npz")
        assert all(places[k].dtype == np.uint16 for k in ("row", "col", "indices") if k in places.files)
        # SciPy adds up entries at the same position, which int8 may not hold.
        assert n.data.size == 0 or (n.data.dtype == m.data.dtype if m is twice else n.data.dtype.itemsize <= 2)
        assert inspect("b.npz")["bytes"] == facts["bytes_after"], facts
for trial in range(40 if in_full else 12):  # arrays in one, three and more dimensions, as SciPy saves them since 1.13; the members alone, for those before it
    shape = tuple(int(n) for n in rng.integers(1, 9, 1 + trial % 5))
    flat = rng.choice(int(np.prod(shape)), int(rng.integers(0, np.prod(shape) + 1)), replace=False)
    flat = np.sort(flat) if trial % 2 else flat
    twice = trial % 4 == 0 and len(flat) > 1
    if twice:
        flat[1] = flat[0]
    dense = np.zeros(shape)
    values = rng.integers(1, 100, len(flat)).astype("f8")
    np.add.at(dense.ravel(), flat, values)
    (np.savez_compressed if trial % 3 else np.savez)("a.npz", coords=np.array(np.unravel_index(flat, shape)), format=np.array(b"coo"), shape=np.array(shape), data=values, _is_array=np.array(True))
    facts = inspect("a.npz")
    assert (facts["sparse"], facts["shape"], facts["dtype"]) == ("coo", list(shape), "float64"), facts
    assert facts["bytes"] == values.nbytes + 8 * len(shape) * len(flat) and (twice or abs(facts["zero_fraction"] - (dense == 0).mean()) < 1e-12), facts
    shrink("a.npz", "-o", "b.npz")
    b = np.load("b.npz")
    back = np.zeros(shape)
    np.add.at(back, tuple(b["coords"]), b["data"])
    assert np.array_equal(back, dense) and b["coords"].dtype == np.uint16 and b["shape"].tolist() == list(shape) and b["_is_array"], shape
    assert len(flat) == 0 or (b["data"].dtype == np.float64) == twice, (b["data"].dtype, twice)
    one = np.zeros(50) if trial else np.zeros(70_000)  # and a csr of one dimension
    one[rng.integers(0, len(one), 9)] = 5
    at = np.flatnonzero(one)
    np.savez("a.npz", indices=at, indptr=np.array([0, len(at)]), format=np.array(b"csr"), shape=np.array(one.shape), data=one[at], _is_array=np.array(True))
    assert inspect("a.npz")["shape"] == list(one.shape)
    shrink("a.npz", "-o", "b.npz")
    b = np.load("b.npz")
    back = np.zeros(one.shape)
    back[b["indices"]] = b["data"]
    assert np.array_equal(back, one) and b["data"].dtype == np.uint8 and b["shape"].tolist() == list(one.shape)
for values, indices, indptr, narrower in (([100.0, 100], [1, 1], [0, 2, 2], False), ([100.0, 100], [2, 1], [0, 2, 2], True), ([100.0, 100], [1, 2], [0, 2, 2], True),
                                          ([100.0, 100], [2, 1], [0, 1, 2], True), ([100.0, 100, 1], [1, 0, 0], [0, 1, 3], False), ([1.0, 2, 3], [2, 1, 2], [0, 2, 3], True),
                                          ([1.0, 2, 3], [2, 1, 2], [0, 3, 3], False)):
    m = sp.csr_matrix((values, indices, indptr), shape=(2, 3))
    sp.save_npz("a.npz", m)
    shrink("a.npz", "-o", "b.npz")
    n = sp.load_npz("b.npz")
    assert np.array_equal(m.toarray(), n.toarray()) and (n.data.dtype == np.uint8) == narrower, (values, indices, n.data.dtype)
    if not narrower:
        assert "sum_duplicates" in stowage("shrink", "a.npz", "-o", "b.npz", "--dtype", "int16", fails=True, code=2)
m = sp.csr_matrix(np.eye(3) * 1j)
sp.save_npz("a.npz", m)
facts = inspect("a.npz")
assert facts["dtype"] == "complex128" and facts["sparse"] == "csr" and facts["bytes"] == m.data.nbytes + m.indices.nbytes + m.indptr.nbytes, facts
assert facts["zero_fraction"] is None and "complex128 cannot be shrunk; only real numbers" in stowage("shrink", "a.npz", "-o", "b.npz", fails=True)
rows = np.repeat(np.arange(20_000), 3)  # more entries than are looked at together
cols = np.tile([5, 9, 40_000], 20_000)
for order, narrower in ((np.arange(60_000), True), (np.lexsort((rows, cols)), True), (np.r_[1, 0, 2:60_000], False), (np.r_[1, 0, 2:60_000], True)):
    shape = (20_000, 40_001) if narrower else (20_000, 500_000_000)  # a bit for each place of that is past the budget
    sp.save_npz("a.npz", sp.coo_matrix((np.ones(60_000), (rows[order], cols[order])), shape=shape))
    shrink("a.npz", "-o", "b.npz", "--memory", "1G")
    assert (sp.load_npz("b.npz").data.dtype == np.uint8) == narrower
sp.save_npz("a.npz", sp.coo_matrix((np.ones(60_000), (rows, cols)), shape=(20_000, 50_000)).tocsr())
shrink("a.npz", "-o", "b.npz")
assert sp.load_npz("b.npz").data.dtype == np.uint8
if hasattr(sp, "csr_array"):  # SciPy says since 1.11 whether it was an array or a matrix
    for m in (sp.csr_array(np.eye(3)), sp.csc_array((3, 4)), sp.csr_matrix((0, 4))):
        sp.save_npz("a.npz", m)
        shrink("a.npz", "-o", "b.npz")
        assert type(sp.load_npz("b.npz")) is type(sp.load_npz("a.npz"))
END

test_py a_forced_type_refuses_loss_and_a_tolerance_bounds_it << 'END'
a = rng.standard_normal(10000)
np.save("a.npy", a)
assert "float16 does not hold all of its values" in stowage("shrink", "a.npy", "-o", "b.npy", "--dtype", "f16", fails=True, code=2)
assert not os.path.exists("b.npy") and os.listdir(".").count("b.npy") == 0
r = shrink("a.npy", "-o", "b.npy", "--dtype", "f32", "--tolerance", "1e-6")
assert np.load("b.npy").dtype == np.float32 and not r["arrays"][0]["exact"]
assert r["arrays"][0]["error"] == np.max(np.abs(a - a.astype("f4")) / np.abs(a)), r
assert "the error would be" in stowage("shrink", "a.npy", "-o", "c.npy", "--dtype", "f16", "--tolerance", "1e-6", fails=True, code=2)
b = a.copy()
b[np.abs(b) < 1e-3] = 1
np.save("b.npy", b)
for words in (("--tolerance", "1e-3"), ("--tolerance", "rel:1e-3"), ("--tolerance", "abs:1e-2")):
    shrink("b.npy", "-o", "h.npy", *words)
    assert np.load("h.npy").dtype == np.float16 and np.array_equal(np.load("h.npy"), b.astype("f2"))
b[-1] = 1e6  # past float16: infinity is never within a tolerance
np.save("b.npy", b)
shrink("b.npy", "-o", "h.npy", "--tolerance", "1e-3")
assert np.load("h.npy").dtype == np.float32
shrink("b.npy", "-o", "h.npy", "--dtype", "float64")
assert same(np.load("h.npy"), b)
np.save("i.npy", np.arange(300))
assert "uint8 does not hold" in stowage("shrink", "i.npy", "-o", "h.npy", "--dtype", "uint8", fails=True, code=2)
assert "bfloat16" in stowage("shrink", "i.npy", "-o", "h.npy", "--dtype", "bf16", fails=True)
END

test_py tables_become_arrays << 'END'
import csv
n = 5000
ids = rng.integers(-5, 200, n); price = rng.standard_normal(n); city = rng.choice(["Oslo", "Zürich", "New, York", ""], n)
flag = rng.integers(0, 2, n).astype(bool); half = rng.integers(0, 99, n) / 2
with open("t.csv", "w", newline="") as f:
    w = csv.writer(f)
    w.writerow(["id", "price", "city", "flag", "half", "gap", "id"])
    for i in range(n):
        w.writerow([ids[i], repr(float(price[i])), city[i], flag[i], half[i], "" if i % 7 == 0 else i, i])
r = shrink("t.csv", "-o", "t.npz")
t = np.load("t.npz")
assert np.array_equal(t["id"], ids) and t["id"].dtype == np.int16
assert np.array_equal(t["price"], price) and t["price"].dtype == np.float64
assert texts(t, "city") == list(city) and t["city.codes"].dtype == np.uint8
assert np.array_equal(t["flag"], flag) and t["flag"].dtype == bool
assert np.array_equal(t["half"], half) and t["half"].dtype == np.float16
gap = np.where(np.arange(n) % 7 == 0, np.nan, np.arange(n))
assert np.array_equal(t["gap"], gap, equal_nan=True)
assert np.array_equal(t["id.1"], np.arange(n)) and t["id.1"].dtype == np.uint16
assert "is text" in stowage("shrink", "t.csv", "-o", "t.npy", fails=True, code=2)
long = "ä" * 150  # longer than a member's name may be, and cut between characters
open("u.csv", "w").write(f"größe,大きさ,{long}\n1,a,3\n2,ü,4\n")
shrink("u.csv", "-o", "u.npz")
u = np.load("u.npz")
assert u.files[0] == "größe" and long.startswith(u.files[-1]) and texts(u, "大きさ") == ["a", "ü"], u.files
open("l.csv", "wb").write(b"gr\xf6\xdfe,b\n1,2\n")  # Latin-1: no UTF-8, and no reason to lose the column
shrink("l.csv", "-o", "l.npz")
assert np.load("l.npz").files == ["größe", "b"], np.load("l.npz").files
for names in (["a", "a.bytes"], ["a.bytes", "a"], ["a", "a.codes", "a.offsets"]):  # a column that is named as a member of another's
    open("v.csv", "w").write(",".join(names) + "\n" + "".join(",".join("xy"[i] if n == "a" else str(i + 5) for n in names) + "\n" for i in range(2)))
    shrink("v.csv", "-o", "v.npz")
    v = np.load("v.npz")
    text = next(n for n in ("a", "a.1") if is_text(v, n) and v[n + ".bytes"].ndim == 2)
    numbers = [v[n].tolist() for n in v.files if not n.startswith(text + ".") or v[n].ndim == 1]
    assert texts(v, text) == ["x", "y"] and [5, 6] in numbers, v.files
many = 60_000 if in_full else 20_000
open("w.csv", "w").write(",".join("7" for _ in range(many)) + "\n")
w = np.load("w.npz") if shrink("w.csv", "-o", "w.npz", "--no-sync") else None  # each column is a member, and found at once among them
assert len(w.files) == many and w[str(many - 1)] == [7]
for columns, expected in ([ids, np.arange(n)], "i2"), ([ids, half], "f2"), ([ids, price], "f8"), ([flag.astype(int)], "u1"):
    table = np.stack(columns, axis=1)
    with open("n.csv", "w") as f:
        csv.writer(f).writerows(table.tolist())
    shrink("n.csv", "-o", "n.npy")
    b = np.load("n.npy")
    assert np.array_equal(b, table) and b.dtype == np.dtype(expected), (b.dtype, expected)
shrink("n.csv", "-o", "n.npy", "--dtype", "float32")
assert np.load("n.npy").dtype == np.float32
END

test_py threads_and_instructions_change_nothing << 'END'
import csv, random
random.seed(5)
def field(kind):
    if random.random() < 0.02:
        return ""
    return [lambda: str(random.randint(-10**random.randint(0, 18), 10**random.randint(0, 18))),
            lambda: repr(random.gauss(0, 1) * 10**random.randint(-12, 12)), lambda: "%.*f" % (random.randint(0, 19), random.gauss(0, 100)),
            lambda: random.choice(["a", "b b", '"q"', "x,y", "l\nm", "é"]), lambda: random.choice(["True", "false", "TRUE"]),
            lambda: random.choice(["NA", "nan", "inf", "-inf", "1e5", "1E-300", "007", "+3", ".5", "5."]), lambda: str(random.getrandbits(64))][kind]()
for trial in range(16 if in_full else 6):
    kinds = [random.randint(0, 6) for _ in range(random.randint(2, 7))]
    rows = [[field(k) for k in kinds] for _ in range(random.choice([1, 300, 9000]))]
    with open("z.csv", "w", newline="") as f:
        csv.writer(f, lineterminator=random.choice(["\n", "\r\n"])).writerows([["c%d" % i for i in range(len(kinds))]] + rows)
    outs = []
    for threads, kernels in (("1", None), ("3", None), ("1", "portable")):
        os.environ.pop("STOWAGE_KERNELS", None)
        if kernels:
            os.environ["STOWAGE_KERNELS"] = kernels
        stowage("shrink", "z.csv", "-o", "z.npz", "--threads", threads, "--memory", "64M", "--names", "yes", "--force")
        outs.append(open("z.npz", "rb").read())
    os.environ.pop("STOWAGE_KERNELS", None)
    assert outs[0] == outs[1] == outs[2], kinds
    z = np.load("z.npz")
    for i, kind in enumerate(kinds):
        name, column = "c%d" % i, [r[i] for r in rows]
        if is_text(z, name):
            assert texts(z, name) == column, kind
            continue
        a = z[name]
        if a.dtype == bool:
            assert list(a) == [c.lower() == "true" for c in column]
        elif a.dtype.kind in "iu":
            assert [int(x) for x in a] == [int(c) for c in column]
        else:  # also booleans with gaps
            words = {"": "nan", "na": "nan", "true": "1", "false": "0"}
            assert np.array_equal(a.astype("f8"), [float(words.get(c.lower(), c)) for c in column], equal_nan=True)
END

test_py mixed_columns_keep_their_text << 'END'
with open("m.csv", "w") as f:
    f.write("a,b\n1,NA\n007,x\nx y,null\n,99999999999999999999\n")
shrink("m.csv", "-o", "m.npz")
m = np.load("m.npz")
assert texts(m, "a") == ["1", "007", "x y", ""] and texts(m, "b") == ["NA", "x", "null", "99999999999999999999"]
# Many windows begin with a word for a missing value among numbers; threads read them before they know that the column is text.
rows = [("z" if i % 3 == 0 else "NA", i, "x" if i == 59_999 else i) for i in range(60_000)]
with open("m.csv", "w") as f:
    f.writelines(f"{a},{b},{c}\n" for a, b, c in rows)
for _ in range(8):
    shrink("m.csv", "-o", "m.npz", "--names", "no", "--threads", "4")
    m = np.load("m.npz")
    assert texts(m, "0") == [r[0] for r in rows] and texts(m, "2") == [str(r[2]) for r in rows]
END

test_py text_takes_no_more_bytes_than_it_has << 'END'
import random, uuid, zipfile
random.seed(3)
n = 20_000
same = [str(uuid.UUID(int=random.getrandbits(128))) for _ in range(n)]
long = ["é" * random.randint(0, 40) + str(i) for i in range(n)]
few = [random.choice(["red", "green", "blue"]) for _ in range(n)]
alike = [random.choice(["DE", "FR"]) for _ in range(n)]
late = ["" if i < n // 2 else "x%d" % (i % 7) for i in range(n)]
def write(name, columns):
    with open(name, "w") as f:
        f.write(",".join(columns) + "\n")
        f.writelines(",".join(row) + "\n" for row in zip(*columns.values()))
columns = dict(same=same, long=long, few=few, alike=alike, late=late)
write("t.csv", columns)
seen = set()
for memory, threads, window in (("4M", "1", "0"), ("4M", "1", "3000"), ("64M", "4", "0"), ("64M", "4", "3000"), ("16M", "2", "3000")):
    os.environ["STOWAGE_TEST_WINDOW"] = window
    r = shrink("t.csv", "-o", "t.npz", "--memory", memory, "--threads", threads)
    t = np.load("t.npz")
    assert [c["text_layout"] for c in r["columns"]] == ["fixed", "offsets", "dictionary", "dictionary", "dictionary"], r["columns"]
    for name, values in columns.items():
        assert texts(t, name) == values, (name, memory)
    assert t["same.bytes"].shape == (n, 36) and t["long.offsets"].dtype == np.int32 and t["long.bytes"].dtype == np.uint8
    assert t["few.codes"].dtype == np.uint8 and "alike.words.offsets" not in t.files
    promised = inspect("t.csv", "--memory", memory, "--threads", threads)["bytes_after"]
    stored = sum(t[name].nbytes for name in t.files)
    assert promised == stored == r["bytes_after"] and os.path.getsize("t.npz") < os.path.getsize("t.csv"), (promised, stored)
    assert os.path.getsize("t.npz") <= 1.05 * promised
    seen.add(open("t.npz", "rb").read())
os.environ.pop("STOWAGE_TEST_WINDOW")
assert len(seen) == 1  # neither memory nor threads nor windows change a byte
mixed = dict(m=[str(i % 50) for i in range(n - 1)] + ["x"], w=[str(i) for i in range(n)])  # counted when it is read again as text
write("m.csv", mixed)
r = shrink("m.csv", "-o", "m.npz")
assert inspect("m.csv")["bytes_after"] == r["bytes_after"] == shrink("m.csv", "-o", "m.npz", "--dry-run")["bytes_after"]
assert r["columns"][0]["text_layout"] == "dictionary" and inspect("m.csv")["columns"][0]["mixed"]
END

test_py distinct_text_stays_in_the_budget << 'END'
import random
random.seed(4)
with open("t.csv", "w") as f:
    f.write("id,review\n")
    f.writelines("%032x,%s\n" % (random.getrandbits(128), "w" * random.randint(0, 200)) for _ in range(300_000))
r = shrink("t.csv", "-o", "t.npz", "--memory", "8M", "--no-sync")
assert r["peak_memory_bytes"] < (8 + 16) << 20 and [c["text_layout"] for c in r["columns"]] == ["fixed", "dictionary"], r
t = np.load("t.npz")
with open("t.csv") as f:
    f.readline()
    assert t["id.bytes"].tobytes().decode() == "".join(line.split(",")[0] for line in f)
END

test_py a_larger_output_needs_force << 'END'
rows = 60_000
with open("t.csv", "w") as f:
    f.writelines("%.1f,%.1f\n" % (i % 90 / 10, i % 70 / 10) for i in range(rows))  # 4 bytes a value; exact in float64 alone
for out in ("o.npy", "o.npz"):
    said = stowage("shrink", "t.csv", "-o", out, fails=True, code=1)
    assert "--force" in said and str(16 * rows) in said and str(os.path.getsize("t.csv")) in said, said
    assert os.listdir(".") == ["t.csv"], os.listdir(".")
    assert "larger than the input" in stowage("shrink", "t.csv", "-o", out, "--dry-run")
    shrink("t.csv", "-o", out, "--force")
    shrink("t.csv", "-o", out, "--tolerance", "1e-2")
    os.remove(out)
END

test_py what_is_replaced_keeps_its_mode << 'END'
np.save("a.npy", np.arange(10.0))
open("t.csv", "w").write("x\n1\n")
for given, out in (("a.npy", "o.npy"), ("a.npy", "o.npz"), ("t.csv", "o.npy"), ("t.csv", "o.npz")):
    for mode in 0o640, 0o600, 0o664:
        open(out, "w").close()
        os.chmod(out, mode)
        shrink(given, "-o", out)
        assert os.stat(out).st_mode & 0o7777 == mode, (out, oct(os.stat(out).st_mode))
END

test_py a_column_that_is_renamed_is_reported << 'END'
open("t.csv", "w").write("a/b,a,a,..\n1,2,3,4\n")
r = shrink("t.csv", "-o", "t.npz")
assert [c["member"] for c in r["columns"]] == np.load("t.npz").files == ["a/b", "a", "a.1", "_."], r
said = stowage("shrink", "t.csv", "-o", "t.npz")
assert 'column "a/b"' not in said and 'column ".." is member "_."' in said and 'column "a" is member "a.1"' in said, said
open("t.csv", "w").write('"a\nb",rx.bytes,/c\n1,2,3\n')
r = shrink("t.csv", "-o", "t.npz")
assert [c["member"] for c in r["columns"]] == np.load("t.npz").files == ["a_b", "rx.bytes", "_c"], r
END

test_py columns_may_be_left_out << 'END'
n = 5000
with open("t.csv", "w") as f:
    f.write("a,b,\"c,d\",e,f\n")
    f.writelines(f"{i},w{i},{i / 4},{'x' if i == n - 1 else i},{-i}\n" for i in range(n))
def members(*words):
    shown = [c["name"] for c in shrink("t.csv", "-o", "t.npz", *words)["columns"]]
    return shown, np.load("t.npz")
shown, t = members("--drop", "b,e")
assert shown == t.files == ["a", "c,d", "f"] and np.array_equal(t["f"], -np.arange(n))
shown, t = members("--columns", "c,d", "--columns", "b", "--columns", "a", "--drop", "a")  # a name with a comma, given alone
assert shown == ["b", "c,d"] and texts(t, "b") == [f"w{i}" for i in range(n)] and "a" not in t.files
shown, t = members("--columns", "e,f")
assert shown == ["e", "f"] and texts(t, "e") == [str(i) for i in range(n - 1)] + ["x"]
for threads in "1", "3":
    shrink("t.csv", "-o", "t.npy", "--columns", "f,a", "--columns", "c,d", "--threads", threads)
    assert np.array_equal(np.load("t.npy"), np.stack([np.arange(n), np.arange(n) / 4, -np.arange(n)], axis=1))
said = stowage("shrink", "t.csv", "-o", "t.npz", "--drop", "nobody", fails=True, code=2)
assert '"nobody"' in said and "the columns are: a, b" in said, said
assert "no column is left" in stowage("shrink", "t.csv", "-o", "t.npz", "--drop", "a,b,e,f", "--drop", "c,d", fails=True, code=2)
END

test_py the_input_and_the_old_output_are_safe << 'END'
np.save("a.npy", np.arange(10.0))
before = open("a.npy", "rb").read()
os.symlink("a.npy", "link.npy")
os.link("a.npy", "hard.npy")
for name in ("a.npy", "link.npy", "hard.npy", "./a.npy"):
    assert "the file being read" in stowage("shrink", "a.npy", "-o", name, fails=True, code=2)
assert open("a.npy", "rb").read() == before
open("old.npy", "w").write("old")
assert "does not hold" in stowage("shrink", "a.npy", "-o", "old.npy", "--dtype", "bool", fails=True, code=2)
assert open("old.npy").read() == "old"
stowage("shrink", "a.npy", "-o", "old.npy", "--dry-run")
assert open("old.npy").read() == "old"
assert "cannot write" in stowage("shrink", "a.npy", "-o", "nowhere/b.npy", fails=True, code=1)
assert "must end with" in stowage("shrink", "a.npy", "-o", "b.txt", fails=True, code=2)
assert sorted(os.listdir(".")) == sorted(["a.npy", "link.npy", "hard.npy", "old.npy"]), os.listdir(".")
END

test_py a_disk_that_fills_leaves_the_old_output << 'END'
import resource, signal

def little_room():  # a write past this fails as on a full disk
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

np.save("a.npy", rng.standard_normal(100_000))
np.savez_compressed("a.npz", x=rng.standard_normal(100_000))
with open("t.csv", "w") as f:
    f.writelines(f"{i},{i / 7!r}\n" for i in range(50_000))
for source, target in (("a.npy", "o.npy"), ("a.npz", "o.npz"), ("t.csv", "t.npz"), ("t.csv", "t.npy")):
    open(target, "w").write("old")
    done = subprocess.run([os.environ["STOWAGE"], "shrink", source, "-o", target], preexec_fn=little_room, capture_output=True, text=True)
    assert done.returncode == 1 and "cannot write at byte" in done.stderr, done
    assert open(target).read() == "old"
assert sorted(os.listdir(".")) == ["a.npy", "a.npz", "o.npy", "o.npz", "t.csv", "t.npy", "t.npz"], os.listdir(".")
END

test_py killed_at_any_moment_the_output_is_old_or_whole << 'END'
import signal, time
a = rng.integers(0, 100, 3_000_000)
np.save("a.npy", a)
open("out.npy", "w").write("old")
for delay in [0.001 * i for i in range(1, 25, 1 if in_full else 3)]:
    p = subprocess.Popen([os.environ["STOWAGE"], "shrink", "a.npy", "-o", "out.npy"], stdout=subprocess.DEVNULL)
    try:
        p.wait(delay)
    except subprocess.TimeoutExpired:
        p.kill()
    p.wait()
    if open("out.npy", "rb").read(3) == b"old":
        continue
    assert np.array_equal(np.load("out.npy"), a)
END

test_py memory_stays_in_the_budget << 'END'
with open("big.npy", "wb") as f:
    np.lib.format.write_array_header_1_0(f, {"descr": "<f8", "fortran_order": False, "shape": (25_000, 1000)})
    for i in range(25):
        block = np.random.default_rng(i).standard_normal(1_000_000)
        block[np.random.default_rng(i).random(1_000_000) > 0.02] = 0
        f.write(block.astype("f4").astype("f8").tobytes())
    f.seek(-8, 2)
    f.write(np.float64(0.1).tobytes())
with open("big.csv", "w") as f:
    f.write("a,b,city\n")
    for i in range(400_000):
        f.write(f"{i},{i / 7!r},city number {i % 5000}\n")
for source, target in (("big.npy", "o.npy"), ("big.npy", "o.npz"), ("big.csv", "t.npz")):
    r = shrink(source, "-o", target, "--memory", "8M")
    assert r["peak_memory_bytes"] < (8 + 16) << 20, (source, target, r["peak_memory_bytes"])
    print(source, target, r["peak_memory_bytes"])
assert np.load("o.npy").dtype == np.float64
m = sp.load_npz("o.npz")
assert m.shape == (25_000, 1000) and m[-1, -1] == 0.1
t = np.load("t.npz")
assert np.array_equal(t["b"], np.arange(400_000) / 7) and texts(t, "city")[-1] == f"city number {399_999 % 5000}"
END

finish
