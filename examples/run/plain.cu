// A plain CUDA program that asks for more than it may have.
//
//   nvcc -o plain examples/run/plain.cu
//   stowage run --vram-limit 2G -- ./plain                    sees a card of 2 GiB, and stops there
//   stowage run --vram-limit 2G --spill 4G -- ./plain         goes on in host memory
//   stowage run --vram-limit 2G --record plain.stow -- ./plain && stowage report plain.stow --text
#include <cstdio>
#include <vector>

__global__ void fill(unsigned char *p, size_t n, unsigned char v) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) p[i] = v;
}

int main() {
  const size_t piece = 256 << 20;
  size_t free_bytes, total_bytes;
  cudaMemGetInfo(&free_bytes, &total_bytes);
  printf("a card of %zu MiB, %zu MiB of it free\n", total_bytes >> 20, free_bytes >> 20);
  std::vector<unsigned char *> pieces;
  for (int i = 0; i < 16; i++) {
    unsigned char *p;
    if (cudaMalloc(&p, piece) != cudaSuccess) break;
    fill<<<256, 256>>>(p, piece, (unsigned char)i);
    pieces.push_back(p);
  }
  if (cudaDeviceSynchronize() != cudaSuccess) return 1;
  printf("%zu MiB were had\n", pieces.size() * (piece >> 20));
  for (unsigned char *p : pieces) cudaFree(p);
  return 0;
}
