/* Texts in other encodings, with other spaces and in other languages, and texts that only mention a
 * failure. All were written for this test. */
#include "advise/decode.h"
#include "sample.h"

#define GIB (UINT64_C(1) << 30)

static const char old[] =
    "RuntimeError: CUDA out of memory. Tried to allocate 3.00 GiB (GPU 0; 8.00 GiB total capacity; "
    "5.00 GiB already allocated; 1.50 GiB free; 6.00 GiB reserved in total by PyTorch)\n";

/* Appends the text with every space replaced. */
static void with_spaces(buffer *out, const char *text, const char *space) {
  for (; *text != '\0'; text++) {
    if (*text == ' ')
      buffer_text(out, space);
    else
      buffer_char(out, *text);
  }
}

TEST(every_space_of_unicode_is_a_space)
{
  static const char *const spaces[] = {" ",
                                       "\xc2\xa0",
                                       "\xe2\x80\xaf",
                                       "\xe2\x80\x89",
                                       "\xe3\x80\x80",
                                       "\xa0",
                                       "\xe2\x80\x8b\xc2\xa0"};
  for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++) {
    buffer text = BUFFER_INIT;
    with_spaces(&text, old, spaces[i]);
    message m;
    message_read(&m, text.data, text.length);
    CHECK(m.kind == MESSAGE_TORCH);
    CHECK_U64(m.asked_bytes, 3 * GIB);
    CHECK_U64(m.device_bytes, 8 * GIB);
    CHECK_U64(m.live_bytes, 5 * GIB);
    CHECK_U64(m.free_bytes, 3 * GIB / 2);
    CHECK_U64(m.cached_bytes, GIB);
    buffer_free(&text);
  }
}

TEST(a_number_that_lost_its_unit_is_no_number_of_bytes)
{
  static const char *const texts[] = {
      "CUDA out of memory. Tried to allocate 2.00?GiB (GPU 0; 8.00 GiB total capacity)",
      "CUDA out of memory. Tried to allocate 2#GiB (GPU 0; 8.00 GiB total capacity)"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    message m;
    message_read(&m, texts[i], strlen(texts[i]));
    CHECK(m.kind == MESSAGE_TORCH);
    CHECK(m.asked_bytes == MESSAGE_UNKNOWN);
    CHECK_U64(m.device_bytes, 8 * GIB);
  }
}

/* Appends ASCII as UTF-16. */
static void as_utf16(buffer *out, const char *text, bool big) {
  for (; *text != '\0'; text++) {
    if (big) buffer_char(out, '\0');
    buffer_char(out, *text);
    if (!big) buffer_char(out, '\0');
  }
}

TEST(utf_16_is_read_with_and_without_a_mark)
{
  for (int i = 0; i < 4; i++) {
    bool big = i % 2 == 1;
    buffer text = BUFFER_INIT;
    if (i < 2) buffer_append(&text, big ? "\xfe\xff" : "\xff\xfe", 2);
    as_utf16(&text, old, big);
    CHECK(decode_is_utf16((scan_text){text.data, text.data + text.length}));
    message m;
    message_read(&m, text.data, text.length);
    CHECK(m.kind == MESSAGE_TORCH);
    CHECK_U64(m.asked_bytes, 3 * GIB);
    message_read(&m, text.data, text.length - 1); /* half of the last character is missing */
    CHECK_U64(m.asked_bytes, 3 * GIB);
    buffer_free(&text);
  }
  static const char table[] = "\1\0\0\0\2\0\0\0\3\0\0\0";
  CHECK(!decode_is_utf16((scan_text){table, table + sizeof table}));
}

TEST(characters_are_kept_and_halves_of_pairs_replaced)
{
  static const char wide[] = "\xff\xfe"
                             "O\0K\0"
                             "\x3d\xd8\x00\xde"
                             "\x3d\xd8"
                             "!\0";
  buffer out = BUFFER_INIT;
  CHECK(decode_text(&out, (scan_text){wide, wide + sizeof wide - 1}));
  CHECK_U64(out.length, 10);
  CHECK(memcmp(out.data, "OK\xf0\x9f\x98\x80\xef\xbf\xbd!", 10) == 0);
  buffer_free(&out);
  static const char broken[] = "a\xe2\x82z\xff";
  CHECK(decode_text(&out, (scan_text){broken, broken + sizeof broken - 1}));
  CHECK(out.length == 5 && memcmp(out.data, broken, 5) == 0);
  buffer_free(&out);
  CHECK(!decode_text(&out, (scan_text){old, old + sizeof old - 1}));
}

TEST(r_is_read_in_its_languages)
{
  static const char *const all[] = {
      "Fehler: kann Vektor der Größe 2.5 GB nicht allozieren",
      "Fehler in matrix(0, n, n) : \n  kann Vektor der Größe 2.5 GB nicht allozieren",
      "Erreur : impossible d'allouer un vecteur de taille 2.5 Go",
      "Error: no se puede ubicar un vector de tamaño 2.5 Gb",
      "Erro: não é possível alocar vetor de tamanho 2.5 Gb",
      "Ошибка: не могу разместить вектор размером 2.5 Гб",
      "Błąd: nie można przydzielić wektora o rozmiarze 2.5 Gb",
      "错误: 无法分配大小为2.5 Gb的矢量",
      "エラー:  サイズ 2.5 Gb のベクトルを割り当てることができません",
      "에러: 크기가 2.5 Gb인 벡터를 할당할 수 없습니다"};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    message m;
    message_read(&m, all[i], strlen(all[i]));
    CHECK(m.kind == MESSAGE_HOST && m.host == HOST_PYTHON);
    CHECK_U64(m.asked_bytes, 5 * GIB / 2);
    CHECK(context_has(&m.context, CONTEXT_BIT(R)));
  }
  static const char other[] = "loaded a vector of size 2.5 GB";
  message m;
  message_read(&m, other, sizeof other - 1);
  CHECK(m.kind == MESSAGE_NONE);
}

TEST(what_only_mentions_a_failure_reports_none)
{
  static const char *const mentions[] = {
      "## FAQ\nIf you see CUDA out of memory, lower the batch size.\nAn out of memory error "
      "usually "
      "means that the input is too large.",
      "commit 51ab02c9\n    Retry on CUDA out of memory, and log MemoryError once",
      "The job was killed because of a timeout, not because of memory.",
      "except torch.cuda.OutOfMemoryError:\n    print(\"CUDA out of memory, trying half\")",
      "} catch (const std::bad_alloc& e) {\n  std::cerr << \"out of memory\";",
      "    if \"CUDA out of memory\" not in str(error):\n        raise\n"};
  static const char *const reports[] = {
      "CUDA out of memory",
      "MemoryError",
      "Killed",
      "RuntimeError: CUDA error: out of memory",
      "I get a CUDA out of memory error when I train with two GPUs",
      "  File \"a.py\", line 3, in f\n    raise MemoryError(\"no more\")\nMemoryError: no more",
      "If you see this, call us.\nRuntimeError: CUDA error: out of memory"};
  message m;
  for (size_t i = 0; i < sizeof mentions / sizeof *mentions; i++) {
    message_read(&m, mentions[i], strlen(mentions[i]));
    if (m.kind != MESSAGE_NONE) fprintf(stderr, "%s\n", mentions[i]);
    CHECK(m.kind == MESSAGE_NONE);
  }
  for (size_t i = 0; i < sizeof reports / sizeof *reports; i++) {
    message_read(&m, reports[i], strlen(reports[i]));
    if (m.kind == MESSAGE_NONE) fprintf(stderr, "%s\n", reports[i]);
    CHECK(m.kind != MESSAGE_NONE);
  }
}

TEST(numbers_of_another_kill_are_not_used)
{
  static const char log[] =
      "Out of memory: Killed process 71 (python3) total-vm:9kB, anon-rss:62914560kB\n"
      "memory: usage 8388608kB, limit 8388608kB, failcnt 3\n"
      "Memory cgroup out of memory: Killed process 88 (encode) total-vm:9kB, anon-rss:8300000kB\n";
  static const char reversed[] =
      "memory: usage 8388608kB, limit 8388608kB, failcnt 3\n"
      "Memory cgroup out of memory: Killed process 88 (encode) total-vm:9kB, anon-rss:8300000kB\n"
      "Out of memory: Killed process 71 (python3) total-vm:9kB, anon-rss:62914560kB\n";
  message m;
  message_read(&m, log, sizeof log - 1);
  CHECK_U64(m.failures, 2);
  CHECK(!m.grouped && m.limit_bytes == MESSAGE_UNKNOWN);
  CHECK_U64(m.process_bytes, 60 * GIB);
  message_read(&m, reversed, sizeof reversed - 1);
  CHECK(m.grouped && strcmp(m.what, "encode") == 0);
  CHECK_U64(m.limit_bytes, 8 * GIB);
}

TEST(what_follows_the_failure_is_not_its_phase)
{
  static const char log[] = "epoch 2\nCUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 "
                            "GiB total capacity; 7.00 GiB already allocated)\n"
                            ">>> evaluate(model, loader)\n";
  static const char before[] =
      "out = evaluate(model, loader)\nCUDA out of memory. Tried to allocate "
      "2.00 GiB (GPU 0; 8.00 GiB total capacity; 7.00 GiB already "
      "allocated)\n";
  message m;
  message_read(&m, log, sizeof log - 1);
  CHECK(!context_any(&m.context, CONTEXT_BIT(EVALUATING)));
  message_read(&m, before, sizeof before - 1);
  CHECK(context_has(&m.context, CONTEXT_BIT(EVALUATING)));
}

TEST(a_smaller_batch_that_went_on_is_named)
{
  static const char log[] =
      "batch_size=48\nCUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total "
      "capacity; 7.00 GiB already allocated)\nbatch_size=24\nCUDA out of memory. Tried to allocate "
      "1.00 GiB (GPU 0; 8.00 GiB total capacity; 7.20 GiB already allocated)\nbatch_size=12\n"
      "epoch 1 loss 0.7\nsaved model.pt\n";
  explanation x;
  CHECK_OK(explain_message(&x, log, sizeof log - 1));
  CHECK_U64(x.evidence.message.passed_batch, 12);
  CHECK(strstr(x.fixes.list[0].change, "=12 instead of 48") != NULL);
  explanation_free(&x);
}

TEST(quotes_are_whole_or_marked_as_cut)
{
  static const char oomd[] =
      "Killed /user.slice/a.slice/app.slice/app-long-name-of-a-terminal.slice/spawn-11.scope due "
      "to "
      "memory used (16106127360) / total (17179869184) and swap used (4000000000) / total "
      "(4294967296) being more than 90.00%";
  message m;
  message_read(&m, oomd, sizeof oomd - 1);
  CHECK(m.process_bytes == MESSAGE_UNKNOWN);
  CHECK_U64(m.device_bytes, 16 * GIB);
  CHECK_U64(m.free_bytes, GIB);
  CHECK(m.said_count == 1 && strncmp(m.said[0], "…", strlen("…")) == 0);
  CHECK(strstr(m.said[0], "4294967296") != NULL);
}

TEST_MAIN

/* Appends the text as a terminal shows it that cuts each line at `width` columns. */
static void cut(buffer *out, const char *text, size_t width) {
  for (size_t column = 0; *text != '\0'; text++, column++) {
    if (*text == '\n') column = (size_t)-1;
    if (column == width) {
      buffer_char(out, '\n');
      column = 0;
    }
    buffer_char(out, *text);
  }
}

TEST(a_number_that_a_usual_width_cut_is_joined)
{
  static const char text[] =
      "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate "
      "17179869184 bytes.\n";
  /* Every shift cuts it at another place: in a word, in the number, at a space. */
  static const size_t widths[] = {80, 100};
  for (size_t shift = 0; shift < 32; shift++)
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
      buffer whole = BUFFER_INIT, lines = BUFFER_INIT;
      for (size_t n = 0; n < shift; n++) buffer_char(&whole, n % 8 == 7 ? ' ' : 'a');
      if (shift > 0) buffer_text(&whole, ": ");
      buffer_text(&whole, text);
      buffer_char(&whole, '\0');
      cut(&lines, whole.data, widths[i]);
      message m;
      message_read(&m, lines.data, lines.length);
      CHECK(m.kind == MESSAGE_XLA);
      CHECK_U64(m.asked_bytes, 16 * GIB);
      buffer_free(&whole);
      buffer_free(&lines);
    }
}

TEST(words_that_were_moved_to_the_next_line_are_not_joined)
{
  /* The second line has 80 columns; the first is a little shorter and goes on too. */
  static const char text[] =
      "The run of this morning ended early, as the runs before it did, and it said:\n"
      "RuntimeError: CUDA out of memory. Tried to allocate 3.00 GiB (GPU 0; 8.00 GiB in\n"
      "total; nothing else was on the device)\n";
  message m;
  message_read(&m, text, strlen(text));
  CHECK(m.kind == MESSAGE_TORCH);
  CHECK_U64(m.asked_bytes, 3 * GIB);
}

TEST(entities_of_a_web_page_are_characters)
{
  static const char text[] = "a &lt;b&gt; &amp; &quot;c&quot; &#39;d&#x27; &unknown; 1 &";
  buffer out = BUFFER_INIT;
  CHECK(decode_text(&out, (scan_text){text, text + strlen(text)}));
  buffer_char(&out, '\0');
  CHECK(strcmp(out.data, "a <b> & \"c\" 'd' &unknown; 1 &") == 0);
  buffer_free(&out);
}

TEST(questions_about_what_would_fit_are_no_failures)
{
  static const char *const texts[] = {
      "how much memory does it take to tune a 70b? people write that you run out of memory "
      "without 4 bit",
      "with one card of 24 GB you will get CUDA OOM for sure"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    message m;
    message_read(&m, texts[i], strlen(texts[i]));
    CHECK(m.kind == MESSAGE_NONE);
    CHECK(m.asked_bytes == MESSAGE_UNKNOWN);
  }
}

TEST(prefixes_do_not_change_the_figures_of_an_allocator)
{
  static const char *const lines[] = {
      "x.cc:501] Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.00GiB requested by "
      "op "
      "conv",
      "x.cc:1065] Bin (256): Total Chunks: 12, Chunks in use: 12. 3.0KiB allocated for chunks. "
      "3.0KiB in use in bin. 1.2KiB client-requested in use in bin.",
      "Limit:                      6442450944",
      "InUse:                      5368709120",
      "MaxInUse:                   5368709120",
      "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor "
      "with shape[64,32,256,512] and type float on /device:GPU:0 by allocator GPU_0_bfc"};
  static const char *const prefixes[] = {"", "> ", "2026-03-02T10:11:07.123456789Z ",
                                         "Mar  2 10:11:07 box app[812]: "};
  for (size_t p = 0; p < sizeof prefixes / sizeof *prefixes; p++) {
    buffer text = BUFFER_INIT;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
      buffer_printf(&text, "%s%s\n", prefixes[p], lines[i]);
    message m;
    message_read(&m, text.data, text.length);
    CHECK(m.kind == MESSAGE_TENSORFLOW);
    CHECK_U64(m.live_bytes, 5 * GIB);
    CHECK_U64(m.limit_bytes, 6 * GIB);
    buffer_free(&text);
  }
}
