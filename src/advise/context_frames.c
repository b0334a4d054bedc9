/* Frames of a traceback: the phase by the position of their words, and the user's own line. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "advise/clean.h"
#include "advise/context_parts.h"

/* Words of frames: a file, a function or a line of code. The last one of a traceback is the place
 * that failed. */
static const struct {
  const char *words;
  uint64_t marks;
} frames[] = {
    {".backward(", CONTEXT_BIT(BACKWARD)},
    {"run_backward", CONTEXT_BIT(BACKWARD)},
    {"in backward", CONTEXT_BIT(BACKWARD)},
    {"torch/autograd/__init__", CONTEXT_BIT(BACKWARD)},
    {"autograd/graph.py", CONTEXT_BIT(BACKWARD)},
    {"forward_backward", CONTEXT_BIT(BACKWARD)},
    {"ptimizer.step(", CONTEXT_BIT(OPTIMIZER)},
    {"ptim.step(", CONTEXT_BIT(OPTIMIZER)},
    {"scaler.step(", CONTEXT_BIT(OPTIMIZER)},
    {"torch/optim/adam", CONTEXT_BIT(OPTIMIZER)},
    {"torch/optim/", CONTEXT_BIT(OPTIMIZER)},
    {"torch\\optim\\", CONTEXT_BIT(OPTIMIZER)},
    {"exp_avg", CONTEXT_BIT(OPTIMIZER)},
    {"_multi_tensor_", CONTEXT_BIT(OPTIMIZER)},
    {"momentum_buffer", CONTEXT_BIT(OPTIMIZER)},
    {"optimizer_step(", CONTEXT_BIT(OPTIMIZER)},
    {"_configure_zero_optimizer", CONTEXT_BIT(OPTIMIZER)},
    {"fp32_groups", CONTEXT_BIT(OPTIMIZER)},
    {"fp32_from_", CONTEXT_BIT(OPTIMIZER)}, /* copies of the weights in 32 bits */
    {"main_param", CONTEXT_BIT(OPTIMIZER)},
    {"master_param", CONTEXT_BIT(OPTIMIZER)},
    {"master_weight", CONTEXT_BIT(OPTIMIZER)},
    {"float16_optimizer", CONTEXT_BIT(OPTIMIZER)},
    {"fp16_optimizer", CONTEXT_BIT(OPTIMIZER)},
    {"distrib_optimizer", CONTEXT_BIT(OPTIMIZER)},
    {"get_megatron_optimizer(", CONTEXT_BIT(OPTIMIZER)},
    {"initialize_optimizer_states", CONTEXT_BIT(OPTIMIZER)},
    {"Safetensors::load", CONTEXT_BIT(LOADING)}, /* candle */
    {"safetensors::Load", CONTEXT_BIT(LOADING)},
    {"VarBuilder", CONTEXT_BIT(LOADING)},
    {"return t.to(", CONTEXT_BIT(LOADING)},
    {"t.to(device, dtype if", CONTEXT_BIT(LOADING)},
    {"t.to(device", CONTEXT_BIT(LOADING)},
    {"in _apply", CONTEXT_BIT(LOADING)},
    {"self._apply(", CONTEXT_BIT(LOADING)},
    {"load_state_dict", CONTEXT_BIT(LOADING)},
    {"torch.load(", CONTEXT_BIT(LOADING)},
    {"paddle.load(", CONTEXT_BIT(LOADING)},
    {"torch/serialization.py", CONTEXT_BIT(LOADING)},
    {"_cuda_deserialize", CONTEXT_BIT(LOADING)},
    {"from_pretrained(", CONTEXT_BIT(LOADING)},
    {"in from_pretrained", CONTEXT_BIT(LOADING)},
    {"_convert_to_deepspeed_param", CONTEXT_BIT(LOADING)},
    {"from_single_file(", CONTEXT_BIT(LOADING)},
    {"safetensors/torch.py", CONTEXT_BIT(LOADING)},
    {"safetensors\\torch.py", CONTEXT_BIT(LOADING)},
    {".get_tensor(", CONTEXT_BIT(LOADING)},
    {"load_torch_file(", CONTEXT_BIT(LOADING)},
    {"load_sft(", CONTEXT_BIT(LOADING)},
    {"load_flow_model(", CONTEXT_BIT(LOADING)},
    {"load_pipeline(", CONTEXT_BIT(LOADING)},
    {"in load_transformer", CONTEXT_BIT(LOADING)},
    {"in load_unet", CONTEXT_BIT(LOADING)},
    {"in load_vae", CONTEXT_BIT(LOADING)},
    {"in load_text_encoder", CONTEXT_BIT(LOADING)},
    {"load_checkpoint", CONTEXT_BIT(LOADING)},
    {"set_module_tensor_to_device", CONTEXT_BIT(LOADING)},
    {"model.to(", CONTEXT_BIT(LOADING)},
    {"model.cuda(", CONTEXT_BIT(LOADING)},
    {"net.cuda(", CONTEXT_BIT(LOADING)},
    {"net.to(", CONTEXT_BIT(LOADING)},
    {"pipe.to(", CONTEXT_BIT(LOADING)},
    {"pipeline.to(", CONTEXT_BIT(LOADING)},
    {"module.to(", CONTEXT_BIT(LOADING)},
    {"create_weights", CONTEXT_BIT(LOADING)},
    {"load_weights", CONTEXT_BIT(LOADING)},
    {"from_preset(", CONTEXT_BIT(LOADING)}, /* KerasHub */
    {"_initialize_with_initializer", CONTEXT_BIT(LOADING)},
    {"patch_weight_to_device", CONTEXT_BIT(LOADING)}, /* ComfyUI */
    {"partially_load", CONTEXT_BIT(LOADING)},
    {"_move_model_to_vram", CONTEXT_BIT(LOADING)}, /* InvokeAI */
    {"full_load_to_vram", CONTEXT_BIT(LOADING)},
    {".cuda()", CONTEXT_BIT(PLACING)},
    {".cuda(", CONTEXT_BIT(PLACING)},
    {".to(device", CONTEXT_BIT(PLACING)},
    {".to(\"cuda", CONTEXT_BIT(PLACING)},
    {".to('cuda", CONTEXT_BIT(PLACING)},
    {"_lazy_init", CONTEXT_BIT(PLACING)},
    {"set_device(", CONTEXT_BIT(PLACING)},
    {"torch._C._cuda_init", CONTEXT_BIT(PLACING)},
    {"in forward", CONTEXT_BIT(FORWARD)},
    {"_call_impl", CONTEXT_BIT(FORWARD)},
    {"self.forward(", CONTEXT_BIT(FORWARD)},
    {"forward_call(", CONTEXT_BIT(FORWARD)},
    {"nn/functional.py", CONTEXT_BIT(FORWARD)},
    {"nn\\functional.py", CONTEXT_BIT(FORWARD)},
    {"F.linear", CONTEXT_BIT(FORWARD)},
    {"F.conv", CONTEXT_BIT(FORWARD)},
    {"= model(", CONTEXT_BIT(FORWARD)},
    {"= self.model(", CONTEXT_BIT(FORWARD)},
    {"torch.grid_sampler", CONTEXT_BIT(FORWARD)},
    {"deepcopy", CONTEXT_BIT(COPYING)},
    {"fetch_sub_module", CONTEXT_BIT(GATHERING)},
    {"fsdp/_state_dict_utils", CONTEXT_BIT(SAVING) | CONTEXT_BIT(GATHERING)},
    {"_gather_state_dict", CONTEXT_BIT(SAVING) | CONTEXT_BIT(GATHERING)},
    {"_consolidated_16bit_state_dict", CONTEXT_BIT(SAVING) | CONTEXT_BIT(GATHERING)},
    {"allgather", CONTEXT_BIT(GATHERING)},
    {"all_gather", CONTEXT_BIT(GATHERING)},
    {"_all_gather_base", CONTEXT_BIT(GATHERING)},
    {"torch.bmm(", CONTEXT_BIT(ATTENTION)},
    {"scaled_dot_product", CONTEXT_BIT(ATTENTION)},
    {"attention", CONTEXT_BIT(ATTENTION)},
    {"self_attn", CONTEXT_BIT(ATTENTION)},
    {"attn_weights", CONTEXT_BIT(ATTENTION)},
    {"in evaluate", CONTEXT_BIT(EVALUATING)},
    {"in validate", CONTEXT_BIT(EVALUATING)},
    {"in validation", CONTEXT_BIT(EVALUATING)},
    {"in eval", CONTEXT_BIT(EVALUATING)},
    {"in val", CONTEXT_BIT(EVALUATING)},
    {"in test", CONTEXT_BIT(EVALUATING)},
    {"evaluate(", CONTEXT_BIT(EVALUATING)},
    {"validate(", CONTEXT_BIT(EVALUATING)},
    {"evaluation_loop", CONTEXT_BIT(EVALUATING)},
    {"validation_step(", CONTEXT_BIT(EVALUATING)},
    {"engine/validator.py", CONTEXT_BIT(EVALUATING)}, /* ultralytics */
    {"generate(", CONTEXT_BIT(GENERATING)},
    {"in generate", CONTEXT_BIT(GENERATING)},
    {"in predict", CONTEXT_BIT(GENERATING)},
    {"predict(", CONTEXT_BIT(GENERATING)},
    {"in inference", CONTEXT_BIT(GENERATING)},
    {"inference(", CONTEXT_BIT(GENERATING)},
    {"in sample", CONTEXT_BIT(GENERATING)},
    {"transcribe", CONTEXT_BIT(GENERATING)},
    {"demo.py", CONTEXT_BIT(GENERATING)},
    {"nested_concat", CONTEXT_BIT(COLLECTING) | CONTEXT_BIT(EVALUATING)},
    {"torch_pad_and_concatenate", CONTEXT_BIT(COLLECTING) | CONTEXT_BIT(EVALUATING)},
    {"preds_host", CONTEXT_BIT(COLLECTING) | CONTEXT_BIT(EVALUATING)},
    {"vae.decode", CONTEXT_BIT(DECODING)},
    {"decode_first_stage", CONTEXT_BIT(DECODING)},
    {"in train", CONTEXT_BIT(TRAINING)},
    {"train(", CONTEXT_BIT(TRAINING)},
    {"train!(", CONTEXT_BIT(TRAINING)}, /* Flux */
    {"train.py", CONTEXT_BIT(TRAINING)},
    {"trainer", CONTEXT_BIT(TRAINING)},
    {"training_step", CONTEXT_BIT(TRAINING)},
    {"run_training", CONTEXT_BIT(TRAINING)},
    {"trainer.fit", CONTEXT_BIT(TRAINING)},
    {"model.fit(", CONTEXT_BIT(TRAINING)},
    {"loss", CONTEXT_BIT(TRAINING)},
    {"_train", CONTEXT_BIT(TRAINING)},
};

/* Where two of these are in one traceback, the inner one is the phase. */
#define PHASES                                                                                     \
  (CONTEXT_BIT(LOADING) | CONTEXT_BIT(FORWARD) | CONTEXT_BIT(BACKWARD) | CONTEXT_BIT(OPTIMIZER))

/* ---- frames ---- */

static bool is_library(scan_text path) {
  static const char *const signs[] = {"site-packages",
                                      "torch\\nn\\",
                                      "whisper\\__init__",
                                      "dist-packages",
                                      "lib/python",
                                      "<frozen",
                                      "<string>",
                                      "\\lib\\",
                                      "\\Lib\\",
                                      "importlib",
                                      "/torch/",
                                      "/ipykernel_",
                                      "conda/lib",
                                      "/bin/",
                                      ".pyx",
                                      ".pxd",
                                      ".pxi",
                                      "sglang/srt/",
                                      "/vllm/",
                                      ".zip/",
                                      "/spark/python", /* programs with a window: all of their
                                                          files */
                                      "ComfyUI",
                                      "comfyui",
                                      "sd-webui",
                                      "stable-diffusion-webui",
                                      "webui_forge",
                                      "webui-forge",
                                      "Fooocus",
                                      "text-generation-webui",
                                      "kohya_ss",
                                      "debugpy",
                                      "pydevd",
                                      ".vscode",
                                      "axolotl/",
                                      "axolotl\\",
                                      "LLaMA-Factory",
                                      "diff_gaussian_raster",
                                      "gsplat/",
                                      "nerfstudio/",
                                      "megatron/",
                                      "megatron\\",
                                      "torchinductor",
                                      "sd-scripts",
                                      "exllamav2/exllamav2",
                                      "exllamav3/exllamav3",
                                      "ultralytics/ultralytics/"};
  return path.at >= path.end || scan_has_any(path, signs, sizeof signs / sizeof *signs);
}

static const char *base_name(scan_text path) {
  const char *base = path.at;
  for (const char *p = path.at; p < path.end; p++)
    if (*p == '/' || *p == '\\') base = p + 1;
  return base;
}

#define RICH_ARROW "\xe2\x9d\xb1"

/* One frame of a traceback. */
typedef struct own_frame {
  char path[160], function[60];
  uint64_t number; /* SCAN_UNKNOWN: the frame's arrow gives it */
  bool arrow;      /* the line of code is the one after an arrow, not the next one */
} own_frame;

/* Writes "train.py:157 in evaluate". */
static void write_place(context *c, const own_frame *f) {
  scan_text whole = {f->path, f->path + strlen(f->path)};
  int length = snprintf(c->line, sizeof c->line, "%.100s", base_name(whole));
  if (f->number != SCAN_UNKNOWN && length > 0 && length < (int)sizeof c->line)
    length += snprintf(c->line + length, sizeof c->line - (size_t)length, ":%u",
                       (unsigned)(f->number < 1000000000 ? f->number : 0));
  if (f->function[0] != '\0' && length > 0 && length < (int)sizeof c->line)
    snprintf(c->line + length, sizeof c->line - (size_t)length, " in %s", f->function);
}

/* Returns whether it is a frame of Rich: "/data/train.py:42 in main". */
static bool is_boxed(scan_text line) {
  bool path = scan_starts(line, "/") || scan_starts(line, "~/") ||
              (line.end - line.at > 3 && line.at[1] == ':' && line.at[2] == '\\');
  const char *colon = path ? scan_find(line, ".py:") : NULL;
  if (colon == NULL || colon >= line.end || !isdigit((unsigned char)*colon)) return false;
  while (colon < line.end && isdigit((unsigned char)*colon)) colon++;
  return scan_starts((scan_text){colon, line.end}, " in ");
}

/* Returns whether it is a frame as Colab links it: "[/x/a.py](https://localhost:8080/#) in f(x)".
 */
static bool is_linked(scan_text line) {
  return (scan_starts(line, "[/") || scan_starts(line, "[~/")) && scan_has(line, ".py](http") &&
         scan_has(line, ") in ");
}

/* Names a notebook's cell: "cell In[5]". */
static void name_cell(own_frame *f, uint64_t number) {
  if (number != SCAN_UNKNOWN && number < 1000000000)
    snprintf(f->path, sizeof f->path, "cell In[%u]", (unsigned)number);
  else
    snprintf(f->path, sizeof f->path, "cell");
}

/* `File "train.py", line 157, in evaluate`; `File ~/x.py:12, in main(args)`; `Cell In[5], line 3`;
 * `<ipython-input-2-30> in <module>`, also as a link. Parses such a line. Returns true for a frame
 * and stores the user's own ones in `f` and `c`. */
static bool read_frame(context *c, scan_text line, own_frame *f) {
  own_frame now = {.number = SCAN_UNKNOWN};
  if (scan_starts(line, "File \"")) {
    const char *at = line.at + 6;
    scan_copy(now.path, sizeof now.path, line, at, "\"");
    now.number = scan_number_after(line, "\", line ");
  } else if (scan_starts(line, "File ")) {
    const char *at = line.at + 5;
    scan_copy(now.path, sizeof now.path, line, at, ",");
    char *colon = strrchr(now.path, ':');
    if (colon == NULL || !isdigit((unsigned char)colon[1])) return false;
    now.number = scan_number(line, at + (colon - now.path) + 1);
    now.arrow = true;
    *colon = '\0';
  } else if (scan_starts(line, "Cell In[") || scan_starts(line, "Input In [")) {
    now.number = scan_number_after(line, "line ");
    now.arrow = true;
    name_cell(&now, scan_number_after(line, "["));
  } else if (scan_starts(line, "<ipython-input-") || scan_starts(line, "[<ipython-input-")) {
    now.arrow = true;
    name_cell(&now, scan_number_after(line, "<ipython-input-"));
  } else if (is_linked(line)) {
    now.arrow = true;
    scan_copy(now.path, sizeof now.path, line, line.at + 1, "]");
  } else if (is_boxed(line)) {
    scan_copy(now.path, sizeof now.path, line, line.at, "");
    char *end = strstr(now.path, ".py:");
    if (end != NULL) end[3] = '\0';
    now.number = scan_number_after(line, ".py:");
    now.arrow = true;
  } else {
    bool drive = line.end - line.at > 3 && line.at[1] == ':' && line.at[2] == '\\';
    bool path =
        drive || scan_starts(line, "/") || scan_starts(line, "~/") || scan_starts(line, "~\\");
    bool frame = path && scan_has(line, ".py in ");
    if (frame) *f = now;
    return frame;
  }
  const char *in = scan_find(line, " in ");
  if (in != NULL) scan_copy(now.function, sizeof now.function, line, in, "(\n");
  scan_text whole = {now.path, now.path + strlen(now.path)};
  /* A launcher's own module, which starts the program. */
  bool starts = scan_has(whole, "__main__.py") &&
                (strcmp(now.function, "<module>") == 0 || strcmp(now.function, "main") == 0);
  if (starts || is_library(whole)) now.path[0] = '\0';
  *f = now;
  if (now.path[0] == '\0') return true;
  write_place(c, f);
  whole = (scan_text){now.path, now.path + strlen(now.path)};
  bool outermost = c->script[0] == '\0' && strcmp(now.function, "<module>") == 0;
  if (outermost && scan_has(whole, ".py"))
    snprintf(c->script, sizeof c->script, "%.60s", base_name(whole));
  return true;
}

/* Reads "----> 3 dense = x.toarray()" of a frame of the user's own, and "❱ 3 │ dense = …". */
static void read_arrow(context *c, scan_text line, own_frame *f) {
  const char *at = line.at;
  while (at < line.end && *at == '-') at++;
  if (scan_starts(line, RICH_ARROW))
    at += strlen(RICH_ARROW);
  else if (at == line.at || at >= line.end || *at++ != '>')
    return;
  while (at < line.end && *at == ' ') at++;
  const char *digits = at;
  while (at < line.end && isdigit((unsigned char)*at)) at++;
  if (at == digits || at >= line.end || *at != ' ') return;
  if (f->number == SCAN_UNKNOWN) {
    f->number = scan_number(line, digits);
    write_place(c, f);
  }
  while (at < line.end && (*at == ' ' || scan_starts((scan_text){at, line.end}, CLEAN_BOX)))
    at += *at == ' ' ? 1 : strlen(CLEAN_BOX);
  scan_copy(c->code, sizeof c->code, line, at, "\n");
}

/* Returns whether the line joins the results of many batches: "torch.cat(all_logits)",
 * "torch.cat((preds, out))", "torch.stack(self.outputs)". A model's own layers join other things.
 */
static bool joins_results(scan_text line) {
  static const char *const calls[] = {"torch.cat(", "torch.concat(", "torch.stack(",
                                      "torch.vstack("};
  static const char *const names[] = {"all_",   "preds",  "predictions", "outputs",
                                      "logits", "scores", "results"};
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    const char *at = scan_find(line, calls[i]);
    while (at != NULL && at < line.end && (*at == '(' || *at == '[')) at++;
    if (at == NULL) continue;
    scan_text first = scan_from(line, at);
    if (scan_starts(first, "self.")) first.at += strlen("self.");
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
      if (scan_starts(first, names[k])) return true;
  }
  return false;
}

static uint64_t marks_of(scan_text line) {
  uint64_t marks = 0;
  for (size_t i = 0; i < sizeof frames / sizeof *frames; i++)
    if ((marks & frames[i].marks) == 0 && scan_has(line, frames[i].words)) marks |= frames[i].marks;
  /* Python objects, not weights. */
  if (scan_has(line, "gather_object(")) marks &= ~CONTEXT_BIT(GATHERING);
  if (joins_results(line)) marks |= CONTEXT_BIT(COLLECTING) | CONTEXT_BIT(EVALUATING);
  /* A layer that is being created, not called. */
  bool layer = scan_has(line, "nn/modules") || scan_has(line, "nn\\modules");
  if (layer && scan_has(line, "in __init__")) marks |= CONTEXT_BIT(LOADING);
  return marks;
}

/* Returns whether a frame is of "init": Markdown takes the underscores of __init__ for bold text.
 */
static bool ends_in_init(scan_text line) {
  static const char words[] = ", in init";
  size_t length = sizeof words - 1;
  while (line.end > line.at && line.end[-1] == ' ') line.end--;
  return (size_t)(line.end - line.at) > length && memcmp(line.end - length, words, length) == 0;
}

void context_read_traceback(context *c, scan_text t) {
  uint64_t phase = 0, others = 0;
  bool memory = false, created = false; /* the last line mentions memory; the last frame makes an
                                         * object */
  bool failed = false;                  /* a line before reports the failure */
  scan_text rest = t, line;
  bool reversed = scan_has(t, "Exception has occurred"), code = false, code_own = false;
  bool framed = scan_has(t, "File \"") || scan_has(t, "Traceback") || scan_has(t, "--> ");
  own_frame last = {.number = SCAN_UNKNOWN};
  while (scan_next_line(&rest, &line)) {
    if (line.end - line.at > 400) line.end = line.at + 400;
    if (memory && (scan_has(line, "During handling of the above exception") ||
                   scan_has(line, "The above exception was the direct cause")))
      break;
    if (line.at < line.end) memory = scan_has(line, "emory") || scan_has(line, "OOM");
    context kept = *c;
    bool frame = read_frame(c, line, &last);
    if (frame) created = scan_has(line, ", in __init__") || ends_in_init(line);
    bool own = frame && strcmp(kept.line, c->line) != 0;
    if (frame && reversed && kept.line[0] != '\0') memcpy(c->line, kept.line, sizeof c->line);
    if (code_own && !frame && !last.arrow) scan_copy(c->code, sizeof c->code, line, line.at, "\n");
    code_own = own && !(reversed && kept.line[0] != '\0');
    if (code_own) c->code[0] = '\0';
    bool arrow =
        scan_starts(line, "--") || scan_starts(line, "->") || scan_starts(line, RICH_ARROW);
    if (arrow && last.arrow && last.path[0] != '\0') read_arrow(c, line, &last);
    /* Without frames, what follows the failure is the next command. */
    if (frame || code || arrow || (!framed && !failed)) {
      uint64_t marks = marks_of(line);
      others |= marks & ~PHASES;
      uint64_t here = marks & PHASES;
      bool done = reversed && phase != 0;
      /* Recomputing inside a backward pass, and a closure inside a step, are forward again. */
      if (here != 0 && !done && !(phase == CONTEXT_BIT(BACKWARD) && here == CONTEXT_BIT(FORWARD)))
        phase = here;
    }
    code = frame;
    failed = failed || scan_has(line, "out of memory. Tried to allocate");
  }
  if (phase == 0 && created && (others & CONTEXT_BIT(GENERATING)) != 0) {
    others &= ~CONTEXT_BIT(GENERATING); /* the file's name says it; the model is being made */
    phase = CONTEXT_BIT(LOADING);
  }
  if ((phase & CONTEXT_BIT(OPTIMIZER)) != 0)
    phase = CONTEXT_BIT(OPTIMIZER);
  else if ((phase & CONTEXT_BIT(BACKWARD)) != 0)
    phase = CONTEXT_BIT(BACKWARD);
  if (phase != 0) c->seen &= ~PHASES;
  c->seen |= phase | others;
}
