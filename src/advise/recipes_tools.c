/* Recipes for libraries and tools of training, of simulations and of tables, which have settings of
 * their own: PaddleOCR, fairseq, MXNet, Taichi, Ray Data, sparse matrices of R. */
#include "advise/recipe_words.h"

static const recipe rows[] = {
    /* ---- PaddleOCR ---- */
    {.causes = FULL | C(ONE_SPIKE),
     .kinds = K(PADDLE),
     .with = T(OCR),
     .must = D(TRAINS),
     .change = "a smaller batch: Train.loader.batch_size_per_card, half of it until it fits (-o "
               "Train.loader.batch_size_per_card=4), and a learning rate smaller by as much",
     .cost = "more, smaller steps"},
    {.causes = FULL | C(ONE_SPIKE),
     .kinds = K(PADDLE),
     .with = T(OCR),
     .must = D(TRAINS),
     .change =
         "smaller crops of the pictures: the size in Train.dataset.transforms (EastRandomCropData "
         "or RecResizeImg)",
     .cost = "less of a page at once"},
    {.causes = FULL | C(ONE_SPIKE),
     .kinds = K(PADDLE),
     .with = T(OCR),
     .must = D(TRAINS),
     .change = "16-bit arithmetic: -o Global.use_amp=True Global.scale_loss=1024.0 "
               "Global.use_dynamic_loss_scaling=True",
     .cost = "slightly less precise numbers"},
    {.causes = FULL | C(ONE_SPIKE),
     .kinds = K(PADDLE),
     .with = T(OCR),
     .mustnot = D(TRAINS),
     .change =
         "smaller pages for the detector: text_det_limit_side_len=960, "
         "text_det_limit_type=\"max\" (before 3.0: det_limit_side_len); a lower resolution of "
         "the scan",
     .cost = "small letters may be missed"},
    {.causes = FULL | C(ONE_SPIKE),
     .kinds = K(PADDLE),
     .with = T(OCR),
     .mustnot = D(TRAINS),
     .change = "without the models that are not needed: use_doc_unwarping=False, "
               "use_textline_orientation=False, use_formula_recognition=False, "
               "use_chart_recognition=False; mobile models; text_recognition_batch_size=1",
     .cost = "they are not applied"},

    /* ---- fairseq ---- */
    {.causes = C(EVAL_BATCH_BIGGER),
     .kinds = TORCHY,
     .program = P(FAIRSEQ),
     .change = "smaller batches in validation: --max-tokens-valid 2048 (half of yours; without it "
               "--max-tokens counts), --batch-size-valid 8",
     .cost = "a slower validation"},
    {.causes = C(EVAL_BATCH_BIGGER),
     .kinds = TORCHY,
     .program = P(FAIRSEQ),
     .change = "leave out long sentences there too: --max-source-positions 512 "
               "--max-target-positions 512 --skip-invalid-size-inputs-valid-test",
     .cost = "they are not validated"},
    {.causes = FULL | C(ONE_SPIKE),
     .kinds = TORCHY,
     .program = P(FAIRSEQ),
     .mustnot = NOT_ROOM,
     .change = "half the tokens of a batch, two of them for a step: --max-tokens 2048 (half of "
               "yours) --update-freq 2; --max-sentences bounds short ones too",
     .cost = "slower; the same training"},
    {.causes = FULL | C(ONE_SPIKE),
     .kinds = TORCHY,
     .program = P(FAIRSEQ),
     .mustnot = NOT_ROOM,
     .without = T(AUTOCAST),
     .change = "16-bit arithmetic: --fp16 (with --memory-efficient-fp16 also for the optimizer)",
     .cost = "slightly less precise numbers"},
    {.causes = FULL | C(ONE_SPIKE),
     .kinds = TORCHY,
     .program = P(FAIRSEQ),
     .mustnot = NOT_ROOM,
     .change = "leave out long sentences: --max-source-positions 512 --max-target-positions 512 "
               "--skip-invalid-size-inputs-valid-test",
     .cost = "they are not learned"},

    /* ---- MXNet ---- */
    {.causes = FULL | C(ONE_SPIKE),
     .kinds = K(CUDA),
     .program = P(MXNET),
     .mustnot = NOT_ROOM | D(ONE),
     .change =
         "a smaller batch for each device (batch_size, --batch-size), half of it until it fits",
     .cost = "more, smaller steps"},
    {.causes = FULL | C(ONE_SPIKE),
     .kinds = K(CUDA),
     .program = P(MXNET),
     .mustnot = NOT_ROOM,
     .change = "smaller pictures: a smaller short side or crop in the program's settings (SCALES, "
               "data_shape); a smaller backbone",
     .cost = "less detail"},
    {.causes = FULL | C(ONE_SPIKE),
     .kinds = K(CUDA),
     .program = P(MXNET),
     .mustnot = NOT_ROOM,
     .change =
         "recompute activations instead of keeping them: MXNET_BACKWARD_DO_MIRROR=1 before the "
         "program starts; 16-bit arithmetic: net.cast(\"float16\")",
     .cost = "slower, or slightly less precise numbers"},
    {.causes = FULL | C(ONE_SPIKE),
     .kinds = K(CUDA),
     .program = P(MXNET),
     .mustnot = NOT_ROOM,
     .change =
         "fewer sizes of blocks in its pool: MXNET_GPU_MEM_POOL_TYPE=Round; and less for cuDNN: "
         "MXNET_CUDNN_AUTOTUNE_DEFAULT=0",
     .cost = "slower convolutions"},

    /* ---- Taichi ---- */
    {.kinds = K(CUDA),
     .program = P(TAICHI_SIZE),
     .change = "ask for less at the start: ti.init(…, device_memory_GB=2), and unset "
               "TI_DEVICE_MEMORY_GB, which comes first; that size is taken at once",
     .cost = "fewer particles or cells fit"},
    {.kinds = K(CUDA),
     .program = P(TAICHI),
     .change =
         "fewer particles or cells: a coarser grid, fields in ti.f32 or ti.f16, sparse fields "
         "(ti.root.pointer) for what is mostly empty",
     .cost = "less detail"},

    /* ---- tables of all pairs ---- */
    {.causes = C(ONE_SPIKE),
     .kinds = K(TORCH) | K(CUPY) | K(XLA),
     .program = P(PAIRS),
     .change =
         "distances as a matrix product: s = (x * x).sum(-1); d = s[:, None] + s[None] - 2 * x "
         "@ x.T, which makes no table with the columns in it",
     .cost = "slightly less precise small distances"},
    {.causes = C(ONE_SPIKE),
     .kinds = K(TORCH) | K(CUPY) | K(XLA),
     .program = P(PAIRS),
     .change = "blocks of rows instead of the whole table: for i in range(0, len(x), 1024): "
               "f(x[i:i + 1024], x) (JAX: jax.lax.map(f, x, batch_size=256))",
     .cost = "a loop over the blocks"},

    /* ---- host memory ---- */
    {.hosts = H(RAY),
     .program = P(RAY_DATA),
     .change =
         "fewer workers at once: ds.map_batches(f, concurrency=8), or a third of yours; or give "
         "each its memory: map_batches(f, memory=4 * 1024**3)",
     .cost = "less runs in parallel"},
    {.hosts = H(RAY),
     .program = P(RAY_DATA),
     .change = "smaller batches: map_batches(f, batch_size=512), half of it until it fits",
     .cost = "more, smaller calls"},
    {.hosts = H(PYTHON),
     .need = M(R),
     .program = P(SPARSE),
     .change = "keep the matrix sparse: crossprod(), rowSums(), %*% and irlba() of Matrix and its "
               "packages take it as it is; as.matrix() writes every zero",
     .cost = "a change of the script"},
    {.hosts = H(PYTHON),
     .need = M(R),
     .program = P(SPARSE),
     .change =
         "make only parts dense: for each block of rows as.matrix(m[i, ]), and keep its result",
     .cost = "a loop over the blocks"},
};
const recipe_table recipes_tools = {rows, sizeof rows / sizeof *rows};
