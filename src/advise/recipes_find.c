/* Recipes of last resort, and the commands that find out what a text does not contain. */
#include "advise/recipe_words.h"

static const recipe rows[] = {
    /* ---- anything else on a device ---- */
    {.kinds = ANY_DEVICE,
     .mustnot = NOT_ROOM,
     .with = T(TINY),
     .change =
         "check the device: end the programs that use it, or restart the machine; it may also "
         "be another device than the one that was meant",
     .cost = "they end, or wait"},
    {.kinds = ANY_DEVICE,
     .mustnot = NOT_ROOM,
     .without = T(TINY),
     .change = "a smaller batch, smaller inputs, or a smaller model (16-bit, quantized)",
     .cost = "more, smaller steps"},
    {.causes = ~C(OTHER_PROCESS),
     .kinds = ANY_DEVICE,
     .never = M(APPLE) | M(AMD) | M(TPU) | M(INTEL) | M(NPU),
     .change = "see who else is on the device: nvidia-smi; stop the other process",
     .cost = "none"},
};
const recipe_table recipes_find = {rows, sizeof rows / sizeof *rows};

static const recipe questions[] = {
    {.kinds = K(CUDA),
     .need = M(NVIDIA),
     .must = D(STATUS),
     .without = T(SEARCH),
     .change = "CUDA_LAUNCH_BLOCKING=1 python train.py (your command) once, or once on the CPU: a "
               "label or an index out of range then names its line"},
    {.must = D(ABSURD),
     .change = "run the failing input alone, and print the shapes before the call"},
    {.must = D(INIT), .change = "nvidia-smi"},
    {.kinds = ANY_DEVICE,
     .need = M(APPLE),
     .change = "sudo memory_pressure; Activity Monitor > Memory shows who holds it"},
    {.must = D(ROOM),
     .need = M(AMD),
     .change = "rocm-smi --showmeminfo vram --showpids, while it runs"},
    {.must = D(ROOM), .change = "nvidia-smi -l 1 in a second terminal, while it runs"},
    {.kinds = K(TORCH) | K(CUDA),
     .must = D(SPILLS),
     .need = M(LINUX),
     .change =
         "stowage run -- python train.py (your command) records the run and explains how it ended"},
    {.kinds = K(TORCH),
     .must = D(SPILLS),
     .from = 201,
     .change = "on Linux stowage run -- python train.py (your command); elsewhere "
               "torch.cuda.memory._record_memory_history(), after the failure "
               "torch.cuda.memory._dump_snapshot(\"oom.pickle\"), then stowage explain oom.pickle"},
    {.kinds = K(TORCH),
     .must = D(SPILLS),
     .change = "on Linux: stowage run -- python train.py (your command) records the run and "
               "explains how it ended"},
    {.kinds = K(TORCH),
     .from = 201,
     .never = M(INTEL) | M(NPU),
     .change = "torch.cuda.memory._record_memory_history(), after the failure "
               "torch.cuda.memory._dump_snapshot(\"oom.pickle\"), then stowage explain oom.pickle"},
    {.kinds = K(TORCH),
     .never = M(INTEL) | M(NPU),
     .change = "print(torch.cuda.memory_summary()) before the line that fails"},
    {.kinds = K(VLLM) | K(SGLANG), .change = "nvidia-smi, before the server starts"},
    {.kinds = K(XLA) | K(TENSORFLOW),
     .never = M(TPU) | M(WINDOWS) | M(MAC),
     .change = "stowage run -- python train.py (your command, on Linux) records the run and "
               "explains how it ended"},
    {.kinds = K(XLA) | K(TENSORFLOW),
     .need = M(TPU),
     .change =
         "jax.profiler.save_device_memory_profile(\"memory.prof\") before the line that fails; "
         "pprof reads the file"},
    {.kinds = ANY_DEVICE, .need = M(NPU), .change = "npu-smi info, while it runs"},
    {.kinds = K(CUDA), .need = M(AMD), .change = "rocm-smi --showmeminfo vram --showpids"},
    {.kinds = ANY_DEVICE, .need = M(AMD), .change = "rocm-smi --showpids"},
    {.kinds = ANY_DEVICE,
     .need = M(INTEL),
     .change = "xpu-smi ps, while it runs: it lists every process on the device"},
    {.kinds = ANY_DEVICE,
     .need = M(ANY_VENDOR) | M(WINDOWS),
     .change = "Task Manager > Details, with the column Dedicated GPU memory, while it runs"},
    {.kinds = ANY_DEVICE,
     .need = M(ANY_VENDOR),
     .never = M(NVIDIA) | M(WINDOWS),
     .change = "nvtop, while it runs: it lists every process on the device, of any vendor"},
    {.kinds = ANY_DEVICE,
     .change = "nvidia-smi, while it runs: it lists every process on the device"},
    {.hosts = H(KILLED) | H(DIED) | H(WORKER),
     .need = M(WINDOWS),
     .change = "Task Manager > Details, sorted by Memory, while it runs"},
    {.hosts = H(KILLED) | H(WORKER),
     .need = M(MAC),
     .change = "log show --last 1h | grep -i memorystatus"},
    {.hosts = H(NOTEBOOK) | H(DIED),
     .change = "in the notebook: import stowage; stowage.enable(); after a death "
               "stowage.explain(last=True)"},
    {.hosts = H(KILLED),
     .with = T(TEST_WORKERS),
     .change = "/usr/bin/time -v pytest -n 0 shows the peak of all tests in one process (Maximum "
               "resident set size)"},
    {.hosts = H(KILLED), .change = "sudo dmesg -T | grep -i -E 'killed process|out of memory'"},
    {.hosts = H(CONTAINER), .change = "kubectl describe pod NAME | grep -A5 'Last State'"},
    {.hosts = H(EVICTED), .change = "kubectl top pods -A --sort-by=memory, while it runs"},
    {.hosts = H(PAGEFILE),
     .change = "Task Manager > Performance > Memory: Committed, while it runs"},
    {.hosts = H(SHARED) | H(MAPS), .change = "df -h /dev/shm, while it runs"},
    {.hosts = H(COMPILER), .change = "free -h, while it builds"},
    {.kinds = K(HOST),
     .need = M(WINDOWS),
     .change = "Task Manager > Details, sorted by Memory, while it runs"},
    {.kinds = K(HOST),
     .need = M(R),
     .never = M(WINDOWS) | M(MAC),
     .change = "/usr/bin/time -v Rscript FILE.R shows its peak (Maximum resident set size)"},
    {.kinds = K(HOST),
     .need = M(MATLAB),
     .never = M(WINDOWS) | M(MAC),
     .change = "/usr/bin/time -v matlab -batch FILE shows its peak (Maximum resident set size)"},
    {.kinds = K(HOST),
     .need = M(JULIA),
     .never = M(WINDOWS) | M(MAC),
     .change = "/usr/bin/time -v julia FILE.jl shows its peak (Maximum resident set size)"},
    {.kinds = K(HOST),
     .need = M(NATIVE),
     .with = T(GO),
     .change =
         "GODEBUG=gctrace=1 PROGRAM prints the heap at every collection; with import _ "
         "\"net/http/pprof\" in it, go tool pprof -top http://localhost:6060/debug/pprof/heap "
         "names the functions that hold memory"},
    {.kinds = K(HOST),
     .need = M(NATIVE) | M(MAC),
     .change = "leaks --atExit -- PROGRAM, or Instruments > Allocations, shows who allocates"},
    {.kinds = K(HOST),
     .need = M(NATIVE),
     .change =
         "heaptrack PROGRAM shows which function allocates (or valgrind --tool=massif PROGRAM); "
         "/usr/bin/time -v PROGRAM shows its peak"},
    {.kinds = K(HOST),
     .change = "stowage run --ram-limit auto -- python train.py (your command) names what holds "
               "the memory"},
};
const recipe_table recipes_questions = {questions, sizeof questions / sizeof *questions};
