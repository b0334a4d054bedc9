"""estimate: what single kernels allocate, beside recordings of PyTorch 2.11 on an H200 (bench/gpu_estimate_bench.sh)."""

import contextlib
import unittest

import stowage
from support import needs

MIB = 1 << 20


def version():
    with contextlib.suppress(ImportError):
        import torch

        return tuple(int(part) for part in torch.__version__.split(".")[:2])
    return (0, 0)


needs_modern = unittest.skipUnless(version() >= (2, 9), "needs PyTorch 2.9 or newer: older fake tensors lack it, or choose other kernels")


def allocated(make, least=MIB // 8):
    """Returns the sizes that one step allocates, in MiB and in order, on an H200; without small ones."""
    from stowage import _estimate

    kept, write = [], _estimate._write
    try:
        _estimate._write = lambda recorder, *rest: (kept.append(recorder), write(recorder, *rest))
        stowage.estimate(make, steps=1, gpu="H200")
    finally:
        _estimate._write = write
    events = kept[0].events
    begun = next(at for at, event in enumerate(events) if event[0] == 2)
    return [round(size / MIB, 2) for kind, _, size, _ in events[begun:] if kind == 0 and size >= least]


def zeros(*shape, kind=None, grad=False):
    import torch

    return torch.zeros(*shape, dtype=kind, device="cuda", requires_grad=grad)


def both_passes(inputs, run):
    """Returns a program whose step runs an operator and its backward pass."""
    import torch

    def make():
        given = inputs()

        def step():
            out = run(*given)
            torch.autograd.grad(out, [one for one in given if one.requires_grad], torch.ones_like(out))

        return step

    return make


@needs("torch")
@needs_modern
class Recorded(unittest.TestCase):
    """Each list is the one that the card allocated."""

    def convolution(self, into, out, size, batch=64, kernel=3, stride=1, kind=None, last=False):
        import torch
        import torch.nn.functional as F

        order = torch.channels_last if last else torch.contiguous_format

        def inputs():
            x, weight = zeros(batch, into, size, size, kind=kind), zeros(out, into, kernel, kernel, kind=kind)
            return x.to(memory_format=order).requires_grad_(), weight.to(memory_format=order).requires_grad_()

        return allocated(both_passes(inputs, lambda x, w: F.conv2d(x, w, stride=stride, padding=kernel // 2)))

    def test_workspaces_of_the_two_gradients_follow_each_other(self):
        # The result, copies of all operands; the gradient; each gradient with its copies, those of the weight with partial sums.
        self.assertEqual(self.convolution(64, 64, 56), [49.0, 98.14, 49.0, 49.0, 98.14, 0.14, 100.11])
        self.assertEqual(self.convolution(128, 128, 56, stride=2), [24.5, 123.06, 24.5, 98.0, 123.06, 0.56, 130.94])
        self.assertEqual(self.convolution(64, 64, 256, batch=8), [128.0, 256.14, 128.0, 128.0, 256.14, 0.14, 258.11])

    def test_a_few_channels_need_no_copies_for_a_small_kernel(self):
        self.assertEqual(self.convolution(3, 32, 128, batch=16), [32.0, 32.0, 3.0])

    def test_a_kernel_of_one_pixel_has_one_gradient_for_each_image(self):
        import torch

        self.assertEqual(self.convolution(64, 256, 56, kernel=1), [196.0, 196.0, 49.0, 4.0])
        self.assertEqual(self.convolution(512, 1024, 28, batch=16, kernel=1), [49.0, 49.0, 24.5, 2.0, 32.0])
        self.assertEqual(self.convolution(320, 640, 32, kernel=1, kind=torch.bfloat16), [80.0, 80.0, 40.0, 0.39, 50.0])
        self.assertEqual(self.convolution(2048, 512, 7, batch=128, kernel=1)[:2], [12.25, 61.25])  # 49 pixels: in another order

    def test_a_strided_kernel_of_one_pixel_copies_images_and_not_its_weight(self):
        # 128 parts of 128 x 128 for the weight's gradient, whatever its size.
        self.assertEqual(self.convolution(256, 512, 56, kernel=1, stride=2), [98.0, 196.5, 98.0, 196.0, 294.0, 0.5, 302.0])
        self.assertEqual(self.convolution(512, 1024, 28, kernel=1, stride=2), [49.0, 147.0, 49.0, 98.0, 147.0, 2.0, 155.0])
        self.assertEqual(self.convolution(1024, 2048, 14, kernel=1, stride=2), [24.5, 73.5, 24.5, 49.0, 73.5, 8.0, 81.5])

    def test_the_first_layer_pads_its_channels_by_type(self):
        import torch

        self.assertEqual(self.convolution(3, 64, 224, kernel=7, stride=2), [196.0, 232.79, 196.0, 36.75, 250.79])
        self.assertEqual(self.convolution(3, 64, 224, kernel=7, stride=2, kind=torch.bfloat16)[:2], [98.0, 147.05])
        self.assertEqual(self.convolution(3, 64, 224, batch=256, kernel=7, stride=2, kind=torch.float16)[:2], [392.0, 490.02])

    def test_channels_last_order_needs_no_copies_in_any_type(self):
        import torch

        self.assertEqual(self.convolution(64, 64, 56, last=True), [49.0, 49.0, 49.0, 0.14, 1.97])
        self.assertEqual(self.convolution(64, 64, 56, kind=torch.bfloat16, last=True)[:3], [24.5, 24.5, 24.5])

    def attention(self, width, kind=None, rows=512, batch=8, heads=12, **named):
        import torch.nn.functional as F

        one = lambda: zeros(batch, heads, rows, width, kind=kind, grad=True)  # noqa: E731
        return allocated(both_passes(lambda: (one(), one(), one()), lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **named)))

    def test_efficient_attention_sums_the_gradient_of_the_query_in_blocks(self):
        # grad * out, freed before the sums of dq; each block of 64 rows has a lock of 16 bytes.
        self.assertEqual(self.attention(64, rows=1024), [24.0, 0.38, 24.0, 24.0, 24.0, 24.0, 24.0, 0.38, 0.38, 24.02])
        self.assertEqual(self.attention(256, batch=4, heads=8)[-1], 16.01)
        self.assertEqual(self.attention(96, rows=256, batch=16, heads=8)[-1], 16.01)

    def test_attention_by_products_finds_rows_without_a_score(self):
        import torch
        import torch.nn.functional as F

        def make():
            q = zeros(8, 12, 512, 50)
            return lambda: F.scaled_dot_product_attention(q, q, q)

        with torch.no_grad():
            self.assertEqual(allocated(make, 1 << 14), [9.38, 9.38, 96.0, 32.0, 96.0, 24.0, 0.05, 9.38])

    def test_attention_by_products_is_in_float32_also_under_autocast(self):
        import torch
        import torch.nn.functional as F

        def make():
            q = zeros(4, 8, 64, 256).transpose(-1, -2)  # the last dimension is not contiguous: only products take it

            def step():
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    F.scaled_dot_product_attention(q, q, q)

            return step

        with torch.no_grad():
            found = allocated(make)
        self.assertEqual(found.count(4 * 8 * 256 * 256 * 4 / MIB), 2)  # scores and their softmax
        self.assertEqual(found.count(4 * 8 * 256 * 256 * 2 / MIB), 1)  # the softmax in bfloat16

    def test_attention_by_products_keeps_a_byte_for_each_dropped_score(self):
        import torch.nn.functional as F

        scores = 3 * 8 * 512 * 512 * 4 / MIB
        turned = lambda: zeros(3, 8, 64, 512, grad=True)  # noqa: E731
        found = allocated(both_passes(lambda: (turned(), turned(), turned()), lambda *given: F.scaled_dot_product_attention(*(one.transpose(-1, -2) for one in given), dropout_p=0.1)))
        # Forward: scores, softmax, what is minus infinity, the mask of dropout, its result. The backward pass has three of the scores' size
        # for the softmax, one for dropout.
        self.assertEqual([one for one in found if one in (scores, scores / 4)][:5], [scores, scores, scores / 4, scores / 4, scores])
        self.assertEqual((found.count(scores), found.count(scores / 4)), (7, 2))

    def test_a_mask_is_added_in_place(self):
        import torch
        import torch.nn.functional as F

        def peak(masked):
            def make():
                q, mask = zeros(4, 8, 64, 512).transpose(-1, -2), zeros(512, 512) if masked else None
                return lambda: F.scaled_dot_product_attention(q, q, q, attn_mask=mask)

            with torch.no_grad():
                return stowage.estimate(make, steps=1, gpu="H200").peak_live

        self.assertEqual(peak(True) - peak(False), MIB)  # the mask alone

    def test_attention_keeps_its_logarithms_only_for_a_backward_pass(self):
        import torch
        import torch.nn.functional as F

        def make():
            q = zeros(8, 16, 2048, 64, kind=torch.bfloat16)
            return lambda: F.scaled_dot_product_attention(q, q, q)

        with torch.no_grad():
            self.assertEqual(allocated(make), [32.0])

    def test_softmax_copies_an_input_that_is_not_contiguous(self):
        def make():
            x = zeros(8, 1024, 512)
            return lambda: (x.transpose(1, 2).log_softmax(1), x.softmax(-1))

        self.assertEqual(allocated(make), [16.0, 16.0, 16.0])

    def test_a_roll_copies_an_input_that_is_not_contiguous(self):
        def make():
            x = zeros(8, 1024, 512)
            return lambda: (x.roll(2, 1), x.transpose(1, 2).roll(2, 1))

        self.assertEqual(allocated(make), [16.0, 16.0, 16.0])

    def test_a_single_channel_in_float32_needs_no_copies(self):
        import torch.nn.functional as F

        def inputs():
            return zeros(8, 1, 160000, grad=True), zeros(512, 1, 10, grad=True)

        self.assertEqual(allocated(both_passes(inputs, lambda x, w: F.conv1d(x, w, stride=5))), [499.98, 499.98, 4.88])

    def test_a_row_whose_channels_are_fastest_is_made_contiguous(self):
        import torch.nn.functional as F

        def make():
            x, weight = zeros(8, 499, 768), zeros(768, 768, 3)
            return lambda: F.conv1d(x.transpose(1, 2), weight, padding=1)

        # The result, the copy of the input, and all three in the order of the kernel.
        self.assertEqual(allocated(make), [11.7, 11.7, 30.14])

    def test_norms_of_columns_share_a_buffer(self):
        import torch

        def make():
            x = zeros(1536, 768)
            return lambda: torch.linalg.vector_norm(x, dim=0)

        self.assertEqual(allocated(make), [9.0])


@needs("torch")
@needs_modern
class Modes(unittest.TestCase):
    def test_inference_mode_needs_what_no_grad_needs(self):
        import torch

        def peak(mode):
            def make():
                model = torch.nn.Sequential(torch.nn.Conv2d(16, 64, 3, padding=1), torch.nn.Flatten(), torch.nn.Linear(64 * 64 * 64, 10)).to("cuda")

                def step():
                    with mode():
                        return model(zeros(8, 16, 64, 64)).softmax(-1)

                return step

            return allocated(make)

        self.assertEqual(peak(torch.inference_mode), peak(torch.no_grad))


    def test_a_bias_is_added_in_place_inside_other_functions(self):
        import torch

        def make():
            layer = torch.nn.MultiheadAttention(256, 4, batch_first=True).to("cuda")
            x = zeros(4, 1024, 256, grad=True)
            return lambda: layer(x, x, x, need_weights=False)

        self.assertEqual(allocated(make).count(12.0), 2)  # the product for query, key and value, and its copy in another order

    def test_gradients_add_up_in_place_in_any_order_of_dimensions(self):
        from stowage._fake_record import _is_dense

        import torch

        self.assertTrue(_is_dense(torch.empty(256, 16, 512, device="meta").transpose(0, 1)))
        self.assertTrue(_is_dense(torch.empty(3, 1, 5, device="meta")))
        self.assertFalse(_is_dense(torch.empty(4, 6, device="meta")[:, ::2]))
        self.assertFalse(_is_dense(torch.empty(1, 4, device="meta").expand(3, 4)))


@needs("torch")
@needs_modern
class Recurrent(unittest.TestCase):
    def step(self, batch_first=False, dropout=0.0):
        import torch

        def make():
            model = torch.nn.LSTM(512, 512, 2, batch_first=batch_first, dropout=dropout).to("cuda")
            x = zeros(32, 64, 512, grad=True)
            return lambda: torch.autograd.grad(model(x)[0], [x, *model.parameters()], zeros(32, 64, 512))

        return allocated(make, MIB)

    def test_the_workspace_comes_before_what_is_kept(self):
        out, workspace, kept = self.step()[:3]
        self.assertEqual((out, kept), (4.0, 44.0))
        self.assertGreater(workspace, 16)

    def test_an_input_with_the_batch_first_is_copied_for_each_kernel(self):
        # In the forward pass; in the backward pass for the input's gradient, with the gradient itself, and for the weights'.
        self.assertEqual(self.step(batch_first=True).count(4.0) - self.step().count(4.0), 4)

    def test_dropout_has_a_state_for_each_multiprocessor(self):
        self.assertIn(6.19, self.step(dropout=0.5))

    def test_workspaces_are_near_those_that_were_measured(self):
        import torch

        # (kind, input, width, layers, steps, batch): MiB. Fitted, so within a tenth.
        for kind, into, width, layers, rows, batch, measured in (
            ("LSTM", 512, 512, 2, 64, 16, 46.625),
            ("LSTM", 256, 1024, 1, 200, 64, 293.0),
            ("LSTM", 256, 640, 3, 128, 64, 190.44),
            ("LSTM", 1024, 1024, 3, 128, 64, 351.5),
        ):
            with self.subTest(kind, width=width, layers=layers):

                def make(kind=kind, into=into, width=width, layers=layers, rows=rows, batch=batch):
                    model, x = getattr(torch.nn, kind)(into, width, layers).to("cuda"), zeros(rows, batch, into)
                    return lambda: model(x)

                out = rows * batch * width * 4 / MIB
                sizes = allocated(make, MIB)
                self.assertAlmostEqual(sizes[sizes.index(round(out, 2)) + 1] / measured, 1, delta=0.1)

    def test_weights_move_into_one_buffer(self):
        import torch

        def make():
            model = torch.nn.LSTM(512, 512, 2).to("cuda")
            self.assertEqual(len({one.untyped_storage()._cdata for one in model.parameters()}), 1)
            return lambda: None

        stowage.estimate(make, steps=1, gpu="H200")


if __name__ == "__main__":
    unittest.main()
