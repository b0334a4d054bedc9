/* Shares of the rows: which rank, from the environment, and how many rows. */
#include "data/shard.h"

#include <stdlib.h>

#include "harness.h"

TEST(the_rank_is_found_in_the_environment)
{
  shard s;
  static const char *const all[] = {
      "RANK",         "WORLD_SIZE",    "SLURM_PROCID",         "SLURM_NTASKS",
      "SLURM_JOB_ID", "SLURM_STEP_ID", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
      "PMI_RANK",     "PMI_SIZE"};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) unsetenv(all[i]);
  CHECK_OK(shard_find(&s));
  CHECK(s.rank == 0 && s.world == 1);
  setenv("SLURM_PROCID", "1", 1), setenv("SLURM_NTASKS", "2", 1);
  CHECK_OK(shard_find(&s));
  CHECK(s.rank == 1 && s.world == 2);
  setenv("SLURM_JOB_ID", "17", 1); /* the batch script itself: one process */
  CHECK_OK(shard_find(&s));
  CHECK(s.rank == 0 && s.world == 1);
  setenv("SLURM_STEP_ID", "0", 1);
  CHECK_OK(shard_find(&s));
  CHECK(s.rank == 1 && s.world == 2);
  setenv("PMI_RANK", "2", 1), setenv("PMI_SIZE", "3", 1); /* started by mpirun within the job */
  CHECK_OK(shard_find(&s));
  CHECK(s.rank == 2 && s.world == 3);
  setenv("OMPI_COMM_WORLD_RANK", "3", 1), setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
  CHECK_OK(shard_find(&s));
  CHECK(s.rank == 3 && s.world == 4);
  setenv("RANK", "5", 1), setenv("WORLD_SIZE", "8", 1);
  CHECK_OK(shard_find(&s));
  CHECK(s.rank == 5 && s.world == 8);
  setenv("RANK", "8", 1);
  CHECK_STATUS(shard_find(&s), STOW_ERR_INVALID);
  CHECK_MESSAGE("RANK=8 and WORLD_SIZE=8");
  setenv("RANK", "one", 1);
  CHECK_STATUS(shard_find(&s), STOW_ERR_INVALID);
  CHECK_MESSAGE("RANK=one");
}

TEST(shares_differ_by_one_row_at_most)
{
  for (uint64_t rows = 0; rows < 50; rows++)
    for (uint32_t world = 1; world < 9; world++) {
      uint64_t at = 0;
      for (uint32_t rank = 0; rank < world; rank++) {
        uint64_t first, end;
        shard_range(&(shard){rank, world}, rows, &first, &end);
        CHECK(first == at && end - first >= rows / world && end - first <= rows / world + 1);
        at = end;
      }
      CHECK_U64(at, rows);
    }
}

TEST_MAIN
