/* The simulated card: what it is opened with, what it holds, what it costs. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stowage/size.h>

#include "base/clock.h"
#include "device/sim_test.h"

/* ---- names ---- */

TEST(names_of_simulated_cards_are_read)
{
  static const struct {
    const char *name;
    uint64_t vram, host;
    bool vmm;
  } cases[] = {{"sim", 16 * GIB, 32 * GIB, true},
               {"sim:16G", 16 * GIB, 32 * GIB, true},
               {"sim:4G", 4 * GIB, 8 * GIB, true},
               {"sim:16G,host=8G", 16 * GIB, 8 * GIB, true},
               {"sim:1G,host=0", GIB, 0, true},
               {"sim:512 MiB,paper", 512 * MIB, GIB, true},
               {"sim:139G,costs,paper,host=1T", 139 * GIB, 1024 * GIB, true},
               {"sim:2M,no-vmm", 2 * MIB, 4 * MIB, false},
               {"sim:0.999G", 1022 * MIB, 2044 * MIB, true}}; /* rounded down to whole pages */
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    stow_device *d = open_card(cases[i].name);
    stow_device_props props;
    CHECK_OK(stow_device_get_props(d, &props));
    CHECK_TEXT(props.kind, "sim");
    CHECK_U64(props.vram_bytes, cases[i].vram);
    CHECK_U64(props.host_bytes, cases[i].host);
    CHECK_U64(props.has_vmm, cases[i].vmm);
    CHECK_U64(props.page_bytes, PAGE);
    CHECK_OK(stow_device_close(d));
  }
}

TEST(names_that_cannot_be_right_are_refused_by_name)
{
  static const char *const bad[] = {
      "sim:",
      "sim:4Q",
      "sim:0",
      "sim:-1G",
      "sim:1M",
      "sim:paper",
      "sim:4G,",
      "sim:4G,host=",
      "sim:4G,host=4Q",
      "sim:4G,hots=4G",
      "sim:4G,,",
      "sim:4G,Paper",
      "sim:4G,host=1",
      "sim:99999999999T",
      "sim:2048P",
      "sim:4G;costs",
      "sim:4G,host=1G,host=2G",
      "sim:4G,aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    stow_device *d = (stow_device *)&d;
    stow_status status = stow_device_open(&d, bad[i]);
    if (status != STOW_ERR_INVALID) FAIL("%s: %s", bad[i], stow_status_name(status));
    CHECK(d == NULL);
    if (strcmp(bad[i], "sim:2048P") == 0) continue; /* a size in itself, refused at opening */
    CHECK_MESSAGE(bad[i]);
    CHECK_MESSAGE("write it like sim:16G");
  }
}

TEST(options_that_cannot_be_right_are_refused)
{
  stow_device *d;
  stow_sim_options o = STOW_SIM_OPTIONS_INIT;
  CHECK_STATUS(stow_sim_open(NULL, &o), STOW_ERR_INVALID);
  CHECK_STATUS(stow_sim_open(&d, NULL), STOW_ERR_INVALID);
  o.version = 2;
  CHECK_STATUS(stow_sim_open(&d, &o), STOW_ERR_INVALID);
  CHECK_MESSAGE("STOW_SIM_OPTIONS_INIT");
  o = (stow_sim_options)STOW_SIM_OPTIONS_INIT;
  o.vram_bytes = 3 * MIB;
  CHECK_STATUS(stow_sim_open(&d, &o), STOW_ERR_INVALID);
  CHECK_MESSAGE("2097152 bytes");
  o.vram_bytes = 0;
  CHECK_STATUS(stow_sim_open(&d, &o), STOW_ERR_INVALID);
  o.vram_bytes = GIB;
  o.page_bytes = 3 * MIB;
  CHECK_STATUS(stow_sim_open(&d, &o), STOW_ERR_INVALID);
  o.page_bytes = 512;
  CHECK_STATUS(stow_sim_open(&d, &o), STOW_ERR_INVALID);
  o.page_bytes = 64 << 10;
  CHECK_OK(stow_sim_open(&d, &o));
  block b = block_make(d, 64 << 10, STOW_TIER_VRAM);
  block_end(d, b);
  CHECK_OK(stow_device_close(d));
}

/* ---- bytes ---- */

TEST(touching_an_address_with_nothing_behind_it_is_a_fault)
{
  stow_device *d = open_card("sim:64M");
  block b = block_make(d, PAGE, STOW_TIER_VRAM);
  *(volatile char *)(uintptr_t)b.addr = 1;
  /* 0: with access; 1: mapped without access; 2: unmapped */
  for (int state = 0; state < 3; state++) {
    if (state == 1) {
      CHECK_OK(device_unmap(d, b.addr, PAGE));
      CHECK_OK(device_map(d, b.addr, PAGE, b.page));
    }
    if (state == 2) CHECK_OK(device_unmap(d, b.addr, PAGE));
    pid_t child = fork();
    if (child == 0) {
      signal(SIGSEGV, SIG_DFL); /* a sanitizer's own handler would report it */
      *(volatile char *)(uintptr_t)b.addr = 2;
      _exit(0);
    }
    int how = 0;
    CHECK(waitpid(child, &how, 0) == child);
    if (state == 0)
      CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    else
      CHECK(WIFSIGNALED(how) && WTERMSIG(how) == SIGSEGV);
  }
  CHECK_OK(device_page_release(d, b.page));
  CHECK_OK(device_unreserve(d, b.addr, PAGE));
  CHECK_OK(stow_device_close(d));
}

TEST_MAIN
