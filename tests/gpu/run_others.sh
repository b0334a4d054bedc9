#!/usr/bin/env bash
# JAX, CuPy, Numba and plain CUDA programs under `stowage run`.
. "$(dirname "$0")/run_lib.bash"
need ctypes others_with_the_shim
others="$python $here/run_others.py"
has_module() { "$python" -c "import $1" > /dev/null 2>&1; }
if has_module jax; then
  # Allocates memory as needed, so that the driver's figure changes; the default takes most of the GPU at once.
  both jax_default env XLA_PYTHON_CLIENT_PREALLOCATE=false $others jax
  both jax_platform env XLA_PYTHON_CLIENT_ALLOCATOR=platform $others jax
  both jax_cuda_async env XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async XLA_PYTHON_CLIENT_PREALLOCATE=false $others jax
else
  skip "jax: not installed"
fi
if has_module cupy; then both cupy_default $others cupy; both cupy_async $others cupy_async; else skip "cupy: not installed"; fi
if has_module numba.cuda; then both numba $others numba; else skip "numba: not installed"; fi
both_done
if has_module jax; then
  # BFC sizes itself to the limited total.
  if runs "$folder/jax" "$stowage" run --vram-limit 4G -- env XLA_PYTHON_CLIENT_PREALLOCATE=true $others jax && grep -q '"digest"' "$folder/jax"; then
    ok "jax_sizes_itself_to_the_limit: $(grep 'at the peak' "$folder/jax.err" | sed 's/^stowage run: //')"
  else
    fail jax_sizes_itself_to_the_limit
  fi
fi

# More memory than the limit, with spilling: each framework allocates in its own way. JAX's default requests most of both tiers
# at once. spills NAME FRAMEWORK SETTINGS…
spills() {
  local name=$1 which=$2; shift 2
  if ! has_module "${which%_async}"; then skip "$name: ${which%_async} is not installed"; return; fi
  [ -s "$folder/past.$which" ] || runs "$folder/past.$which" env XLA_PYTHON_CLIENT_PREALLOCATE=false $others $which past 22 || { fail "$name: does not run bare"; return; }
  if runs "$folder/shimmed" env "$@" "$stowage" run --vram-limit 4G --spill 6G -- $others $which past 22 && [ "$(field shim < "$folder/shimmed")" = true ] &&
    [ "$(field digest < "$folder/shimmed")" = "$(field digest < "$folder/past.$which")" ] && grep -qE '[2-6][.][0-9] GiB in host memory' "$folder/shimmed.err"; then
    ok "$name: equal results; $(grep 'at the peak' "$folder/shimmed.err" | sed 's/^stowage run: //')"
  else
    cat "$folder/shimmed" "$folder/shimmed.err"; fail "$name"
  fi
}
spills jax_default_spills jax XLA_PYTHON_CLIENT_PREALLOCATE=true
spills jax_without_preallocation_spills jax XLA_PYTHON_CLIENT_PREALLOCATE=false
spills jax_cuda_async_spills jax XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async
spills cupy_default_spills cupy
spills cupy_async_spills cupy_async
# One block larger than the limit, and larger than the host's part of it.
out=$(timeout 60 "$stowage" run --vram-limit 2G --spill 4G -- "$build/tests/shim/holder" alloc:$((5 << 30)) driver page:$((1 << 26)) info free unpage alloc:$((3 << 30)) info 2> "$folder/err")
if [ "$(grep -c ' 0' <<< "$out")" = 8 ] && grep -q 'at the peak 1[.][0-9] GiB in vram of 2.0 GiB allowed, 3[.][0-9] GiB in host memory' "$folder/err"; then ok "a_block_larger_than_either_is_in_both: $(grep 'at the peak' "$folder/err" | sed 's/^stowage run: //')"; else echo "$out"; cat "$folder/err"; fail a_block_larger_than_either_is_in_both; fi

# A plain C program that uses the driver API: every path, with the real driver.
reach=$build/tests/shim/path
for way in dlopen alias default proc1 proc2 proc2+pt; do
  out=$(timeout 60 "$stowage" run --vram-limit 8G -- "$reach" $way alloc $((256 << 20)) 2> /dev/null)
  if grep -q '^code 0 ' <<< "$out" && grep -q "total $((8 << 30))" <<< "$out"; then ok "a_c_program_by_$way: $out"; else echo "$out"; fail "a_c_program_by_$way"; fi
done
out=$(timeout 60 "$stowage" run --vram-limit 4G --spill 4G -- "$build/tests/shim/holder" page:$((3 << 30)) page:$((2 << 30)) alloc:$((1 << 30)) info free unpage unpage info 2> "$folder/err")
if [ "$(grep -c ' 0' <<< "$out")" = 8 ]; then ok "a_c_program_spills: $(grep 'at the peak' "$folder/err" | sed 's/^stowage run: //')"; else echo "$out"; cat "$folder/err"; fail a_c_program_spills; fi
# nvidia-smi and its library still work.
if has nvidia-smi; then check nvidia_smi_runs_under_the_shim "$stowage" run -- nvidia-smi; else skip "nvidia_smi_runs_under_the_shim: not installed"; fi
if has nvcc; then
  printf '#include <cstdio>\n__global__ void f(int *p) { *p = 7; }\nint main() { int *p, n = 0; if (cudaMalloc(&p, 64 << 20)) return 2; f<<<1, 1>>>(p); cudaMemcpy(&n, p, 4, cudaMemcpyDeviceToHost); size_t a, b; cudaMemGetInfo(&a, &b); printf("%%d %%zu\\n", n, b); return n != 7; }\n' > "$folder/a.cu"
  if nvcc -cudart static -o "$folder/a" "$folder/a.cu" > "$folder/log" 2>&1; then
    out=$("$stowage" run --vram-limit 8G -- "$folder/a" 2> /dev/null)
    if [ "$out" = "7 $((8 << 30))" ]; then ok a_program_with_static_cudart_is_reached; else echo "$out"; fail a_program_with_static_cudart_is_reached; fi
  else
    cat "$folder/log"; fail a_program_with_static_cudart_is_reached
  fi
else
  skip "a_program_with_static_cudart_is_reached: no nvcc"
fi
finish
