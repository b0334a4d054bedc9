"""Times alloc+free pairs of PyTorch's caching allocator from C++ and compares them with ours. Called by gpu_torch_bench.sh."""
import ctypes, os, re, subprocess, sys, tempfile

import torch
from torch.utils import cpp_extension

SOURCE = r"""
#include <c10/cuda/CUDACachingAllocator.h>
#include <chrono>
#include <cstdint>
#include <vector>
static double now() {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
// Best of rounds, as our side takes it.
extern "C" double pair_ns(int64_t bytes) {
  using namespace c10::cuda::CUDACachingAllocator;
  raw_delete(raw_alloc(bytes));
  double best = 1e18;
  for (int round = 0; round < 30; round++) {
    double start = now();
    for (int i = 0; i < 2000; i++) raw_delete(raw_alloc(bytes));
    double each = (now() - start) / 2000;
    if (each < best) best = each;
  }
  return best;
}
// 2000 live blocks of 2^9..2^26 bytes, one replaced at a time.
extern "C" double churn_ns() {
  using namespace c10::cuda::CUDACachingAllocator;
  uint64_t state = 1;
  auto next = [&state]() {
    uint64_t z = (state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  };
  auto size = [&next]() { uint64_t shift = 9 + next() % 17; return (size_t)((1ull << shift) + next() % (1ull << shift)); };
  std::vector<void *> live(2000);
  for (auto &p : live) p = raw_alloc(size());
  for (int i = 0; i < 100000; i++) { auto &p = live[next() % 2000]; raw_delete(p); p = raw_alloc(size()); }
  double start = now();
  for (int i = 0; i < 200000; i++) { auto &p = live[next() % 2000]; raw_delete(p); p = raw_alloc(size()); }
  double each = (now() - start) / 200000;
  for (auto &p : live) raw_delete(p);
  return each;
}
"""



def build(folder):
    """Links only the allocator's own library, so this takes seconds; an extension would take a minute."""
    source, library = os.path.join(folder, "pairs.cpp"), os.path.join(folder, "pairs.so")
    with open(source, "w") as out:
        out.write(SOURCE)
    beside = os.path.join(os.path.dirname(torch.__file__), "lib")
    subprocess.run([os.environ.get("CXX", "c++"), "-std=c++20", "-O2", "-shared", "-fPIC",
                    f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"]
                   + [f"-I{path}" for path in cpp_extension.include_paths("cuda")]
                   + [source, "-o", library, f"-L{beside}", f"-Wl,-rpath,{beside}", "-lc10_cuda", "-lc10"], check=True)
    peer = ctypes.CDLL(library)
    peer.pair_ns.restype = peer.churn_ns.restype = ctypes.c_double
    peer.pair_ns.argtypes = [ctypes.c_int64]
    return peer


torch.zeros(1, device="cuda")
with tempfile.TemporaryDirectory() as folder:
    peer = build(folder)
    ours = dict(re.findall(r"case=gpu_(\S+) ours=([\d.]+)", subprocess.run([sys.argv[1]], capture_output=True, text=True,
                                                                          check=True).stdout))
    for name, value in ours.items():
        size = re.fullmatch(r"hot_pair_(\d+)", name)
        theirs = peer.pair_ns(int(size[1])) if size else peer.churn_ns() if name.startswith("churn") else None
        if theirs is not None:
            print(f"case=gpu_{name} ours={value} peer=torch-{torch.__version__}:{theirs:.1f} ratio={theirs / float(value):.1f} unit=ns")
