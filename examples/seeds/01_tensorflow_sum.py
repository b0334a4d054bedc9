"""A 1000 x 1000 x 1000 float32 tensor, a sum, a del, then what TensorFlow says is in use."""
import tensorflow as tf


def main():
    x = tf.random.normal((1000, 1000, 1000))
    print(float(tf.reduce_sum(x)))
    del x
    if tf.config.list_physical_devices("GPU"):
        print(tf.config.experimental.get_memory_info("GPU:0"))


if __name__ == "__main__":
    main()
