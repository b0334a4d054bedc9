/* Causes of small programs: recordings made by hand, each with one feature that separates two
 * causes. */
#include "author.h"
#include "base/clock.h"

/* total = total + relu(x @ y).square().sum(), or results.append(sin(x) * i): no module is called.
 */
static const char *cause_of_loop(bool sums) {
  static explanation x;
  author a = {.next = UINT64_C(1) << 40};
  recording_init(&a.r, 0);
  take(&a, 4000000, 3);
  uint64_t total = 0;
  for (int i = 0; i < 40; i++) {
    uint64_t made = take(&a, 4000000, 5), rest;
    if (sums) {
      rest = take(&a, 4000000, 6);
      give(&a, made, 4000000);
      take(&a, 4000000, 6);
      give(&a, rest, 4000000);
      take(&a, 4000000, 6);
      rest = take(&a, 4, 6);
      if (total != 0) give(&a, total, 4);
      total = rest;
    } else {
      take(&a, 4000000, 6);
      give(&a, made, 4000000);
    }
  }
  add_event(&a, EVENT_FAIL, 0, 4000000, line_stack(&a, "train.py", 6));
  CHECK_OK(explain_recording(&x, &a.r, NULL));
  const char *first = cause_name(x.findings.list[0].id);
  CHECK(strstr(x.headline.data, "train.py:6") != NULL);
  explanation_free(&x);
  recording_free(&a.r);
  return first;
}

TEST(a_graph_is_distinguished_from_a_leak_without_modules)
{
  CHECK_TEXT(cause_of_loop(true), "graph_kept");
  CHECK_TEXT(cause_of_loop(false), "leak");
}

static const char *first_of(author *a, uint32_t fail_stack_id, double confidence) {
  explanation x;
  add_event(a, EVENT_FAIL, 0, LAYER_SIZE, fail_stack_id);
  CHECK_OK(explain_recording(&x, &a->r, NULL));
  CHECK(x.findings.count > 0);
  const char *first = cause_name(x.findings.list[0].id);
  CHECK(x.findings.list[0].confidence >= confidence);
  explanation_free(&x);
  recording_free(&a->r);
  return first;
}

/* kept.append(model(torch.randn(…)).sum()), or total = total +
 * model(torch.randn(…)).square().mean(): the batch, the model, the loss and the sum are on one
 * line, which an iteration visits several times. */
static const char *cause_of_one_line(bool sums, uint64_t number) {
  author a = {.next = UINT64_C(1) << 40};
  recording_init(&a.r, 0);
  build_layers(&a, LAYERS);
  uint32_t own = line_stack(&a, "train.py", 7), layer = layer_stack(&a, 7);
  uint64_t total = 0;
  for (int iteration = 0; iteration < 9; iteration++) {
    take_at(&a, LAYER_SIZE, own);
    for (int i = 0; i < LAYERS; i++) take_at(&a, LAYER_SIZE, layer);
    if (sums) take_at(&a, LAYER_SIZE, own);
    take_at(&a, number, own);
    if (!sums) continue;
    uint64_t sum = take_at(&a, number, own);
    if (total != 0) give(&a, total, number);
    total = sum;
  }
  take_at(&a, LAYER_SIZE, own);
  take_at(&a, LAYER_SIZE, layer);
  return first_of(&a, layer, 0.8);
}

TEST(a_loop_on_one_line_that_keeps_its_graphs_is_not_one_batch)
{
  CHECK_TEXT(cause_of_one_line(true, 4), "graph_kept");
  CHECK_TEXT(cause_of_one_line(false, 4), "graph_kept");
  /* A recording of whole blocks, like that of a run. */
  CHECK_TEXT(cause_of_one_line(true, 512), "graph_kept");
  CHECK_TEXT(cause_of_one_line(false, 512), "graph_kept");
}

#define DROPOUT "site-packages/torch/nn/modules/dropout.py"

/* Trains with dropout, then sums losses on another line, with dropout or without it
 * (model.eval()). */
static const char *cause_after_training(bool dropout) {
  author a = {.next = UINT64_C(1) << 40};
  recording_init(&a.r, 0);
  build_layers(&a, LAYERS);
  const frame_text drop[] = {{"forward", DROPOUT, 73},
                             {"_call_impl", MODULE, 1786},
                             {"forward", CONTAINER, 253},
                             {"_call_impl", MODULE, 1786},
                             {"main", "train.py", 5}};
  const frame_text later[] = {drop[0], drop[1], drop[2], drop[3], {"main", "train.py", 9}};
  uint32_t own = line_stack(&a, "train.py", 5), layer = layer_stack(&a, 5);
  uint32_t drops = frames_stack(&a, drop, 5), drops_later = frames_stack(&a, later, 5);
  for (int iteration = 0; iteration < 4; iteration++) {
    uint64_t made[LAYERS + 3];
    int count = 0;
    made[count++] = take_at(&a, LAYER_SIZE, own);
    for (int i = 0; i < LAYERS; i++) made[count++] = take_at(&a, LAYER_SIZE, layer);
    made[count++] = take_at(&a, LAYER_SIZE, drops);
    made[count++] = take_at(&a, LAYER_SIZE, 0); /* from autograd */
    while (count > 0) give(&a, made[--count], LAYER_SIZE);
  }
  uint32_t line = line_stack(&a, "train.py", 8), last = layer_stack(&a, 9);
  for (int iteration = 0; iteration < 12; iteration++) {
    take_at(&a, LAYER_SIZE, line);
    for (int i = 0; i < LAYERS; i++) take_at(&a, LAYER_SIZE, last);
    if (dropout) take_at(&a, LAYER_SIZE, drops_later);
    take_at(&a, 4, line_stack(&a, "train.py", 9));
  }
  return first_of(&a, last, 0.8);
}

TEST(an_evaluation_is_known_by_the_dropout_it_lacks)
{
  CHECK_TEXT(cause_after_training(true), "graph_kept");
  CHECK_TEXT(cause_after_training(false), "no_grad_missing");
}

/* The lines that hold most, and the tag with the most bytes, are named for every cause. */
TEST(the_largest_holders_are_named)
{
  author a = {.next = UINT64_C(1) << 40};
  recording_init(&a.r, 0);
  uint32_t tag_id;
  CHECK_OK(recording_name(&a.r, &tag_id, "epoch 3", 7));
  for (int i = 0; i < 5; i++) {
    event e = {.kind = EVENT_ALLOC, .addr = a.next, .bytes = LAYER_SIZE};
    e.stack_id = line_stack(&a, "train.py", i < 3 ? 20 : 30);
    a.next += LAYER_SIZE;
    CHECK_OK(recording_add_event(&a.r, &e, &(origin){.tag_id = tag_id}));
  }
  add_event(&a, EVENT_FAIL, 0, LAYER_SIZE, line_stack(&a, "train.py", 30));
  explanation x;
  CHECK_OK(explain_recording(&x, &a.r, NULL));
  CHECK(x.findings.count > 0);
  const char *said = x.findings.list[0].evidence.data;
  CHECK(strstr(said, "largest holders: 96.0 MiB from train.py:20 in main, "
                     "64.0 MiB from train.py:30 in main") != NULL);
  CHECK(strstr(said, "160.0 MiB of live memory has the tag \"epoch 3\"") != NULL);
  explanation_free(&x);
  recording_free(&a.r);
}

/* The reverse case: layers recur like iterations and keep as much each. */
TEST(one_batch_through_many_equal_layers_is_not_a_loop)
{
  author a = {.next = UINT64_C(1) << 40};
  recording_init(&a.r, 0);
  build_layers(&a, 96);
  uint32_t own = line_stack(&a, "train.py", 7), layer = layer_stack(&a, 7);
  take_at(&a, LAYER_SIZE, own);
  for (int i = 0; i < 90; i++) take_at(&a, LAYER_SIZE, layer);
  CHECK_TEXT(first_of(&a, layer, 0.7), "batch_too_big");
}

/* Without the time to read the file. */
TEST(a_million_events_take_three_seconds_at_most)
{
  author a = {.next = UINT64_C(1) << 40};
  recording_init(&a.r, 0);
  uint64_t made[64];
  const uint64_t events = harness_rounds(1000000, 200000);
  while (a.r.event_count < events) {
    take(&a, 4096, 5);
    for (uint32_t i = 0; i < 64; i++) made[i] = take(&a, 65536, 10 + i);
    for (uint32_t i = 64; i-- > 0;) give(&a, made[i], 65536);
  }
  add_event(&a, EVENT_FAIL, 0, 65536, line_stack(&a, "train.py", 10));
  uint64_t start = clock_read_ns(CLOCK_PROCESS_CPUTIME_ID);
  explanation x;
  CHECK_OK(explain_recording(&x, &a.r, NULL));
  double seconds = (double)(clock_read_ns(CLOCK_PROCESS_CPUTIME_ID) - start) / 1e9;
  CHECK_TEXT(cause_name(x.findings.list[0].id), "leak");
  explanation_free(&x);
  recording_free(&a.r);
  harness_note("%.2f s", seconds);
#ifdef NDEBUG /* a build with checks or sanitizers may be slower */
  CHECK(seconds < 3);
#endif
}

TEST(an_empty_recording_is_explained)
{
  recording r;
  recording_init(&r, 0);
  explanation x;
  CHECK_OK(explain_recording(&x, &r, NULL));
  CHECK_U64(x.findings.count, 0);
  explanation_free(&x);
  recording_free(&r);
}

/* Lines that keep the graph of every pass, and what is written instead. */
TEST(lines_that_keep_a_graph_are_rewritten)
{
  static const struct {
    const char *code, *instead;
  } all[] = {
      {"epoch_loss += criterion(out, y)", "epoch_loss += criterion(out, y).item()"},
      {"total_loss = total_loss + loss", "total_loss = total_loss + loss.item()"},
      {"running_loss += loss * x.size(0)", "running_loss += loss.item() * x.size(0)"},
      {"losses.append(loss)", "losses.append(loss.item())"},
      {"feats.append(clip_model.encode_image(x))", "encode_image(x).detach().cpu())"},
      {"outs += [net(x)]", "outs += [net(x).detach().cpu()]"},
      {"out = model(x)\n      feats.append(out)", "feats.append(out.detach().cpu())"},
      {"losses['#1'].append(loss)  # of the epoch", "losses['#1'].append(loss.item())"},
      {"losses.append(loss)  # not .item()", "losses.append(loss.item())"},
      {"losses.append(loss)\n      loss.backward()", "losses.append(loss.item())"},
      {"losses.append(loss)\n    print(sum(losses).item())\n    all.backward()",
       "losses.append(loss.item())"},
      {"loss.backward()\n      total_loss += loss\n    return total_loss / n",
       "total_loss += loss.item()"},
      {"losses.append(loss)\n    sum(losses).backward()", NULL},
      {"losses.append(loss)\n    torch.stack(losses).mean().backward()", NULL},
      {"losses.append(loss)\n    scaler.scale(sum(losses)).backward()", NULL},
      {"losses.append(loss)\n    grads = torch.autograd.grad(sum(losses), weights)", NULL},
      {"losses.append(loss)\n    whole = sum(losses) / 2\n    whole.backward()", NULL},
      {"losses.append(loss)\n    whole = 0\n    for one in losses:\n      whole += one\n"
       "    whole.backward()",
       NULL},
      {"self.losses.append(loss)\n    self.manual_backward(sum(self.losses))", NULL},
      {"losses['a'].append(loss)\n    sum(losses['a']).backward()", NULL},
      {"losses.append(loss)\n    return sum(losses)\nloss_of(batches).backward()", NULL},
      {"losses.append(loss)\n    learn(losses)", NULL},
      {"total_loss += loss\n    (total_loss / n).backward()", NULL},
      {"total_loss = total_loss + loss\n    accelerator.backward(total_loss)", NULL},
      {"embs.append(model.encode(texts))", NULL},
      {"total_loss += loss.item()", NULL},
      {"feats.append(self.encoder(x))", NULL},
      {"loss += penalty", NULL},
      {"def forward(self, x):\n  feats.append(model(x))", NULL},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    char text[800];
    snprintf(text, sizeof text,
             "    for x in loader:\n      %s\nRuntimeError: CUDA out of memory. Tried to allocate "
             "2.00 MiB (GPU 0; 10.76 GiB total capacity; 9.60 GiB already allocated; 1.00 MiB "
             "free; 9.70 GiB reserved in total by PyTorch)",
             all[i].code);
    explanation x;
    CHECK_OK(explain_message(&x, text, strlen(text)));
    bool kept = x.findings.list[0].id == CAUSE_GRAPH_KEPT;
    if (kept != (all[i].instead != NULL)) printf("%s\n", text);
    CHECK(kept == (all[i].instead != NULL));
    CHECK(!kept || strstr(x.fixes.list[0].change, all[i].instead) != NULL);
    explanation_free(&x);
  }
}

TEST_MAIN
